"""Ingest: turns submissions into accepted wallet events, once each, and answers for outcomes.

Consumes wallet.event.submitted.v1; projects signed scores, accepted answers, rejections and dead
letters into the request table. Produces wallet.event.accepted.v1, and for its HTTP APIs
wallet.event.submitted.v1 and llm.generation.requested.v1.
Guarantees one accepted event per request id, the same bytes however often it is submitted.
"""
