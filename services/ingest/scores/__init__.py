"""The score API: submissions over HTTP, and their signed scores (SPEC S3.8)."""
