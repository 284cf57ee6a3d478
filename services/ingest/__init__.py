"""Ingest: turns submissions into accepted wallet events, once each, and answers for outcomes.

Consumes wallet.event.submitted.v1; projects signed scores, rejections and dead letters into the
request table. Produces wallet.event.accepted.v1, and wallet.event.submitted.v1 for its HTTP API.
Guarantees one accepted event per request id, the same bytes however often it is submitted.
"""
