"""The Intelligence API: any process over HTTP (SPEC S5.1-S5.5, S5.7)."""
