"""Signer: one signature per request, and the ledger that keeps it so.

Consumes wallet.score.validated.v1. Produces wallet.score.signed.v1, and
evidence.record.submitted.v1 for a conflict. Guarantees that a request is reserved in the ledger
before the key is used, that a repeat returns the stored bytes, and that another score for a
reserved request is recorded and never signed.
"""
