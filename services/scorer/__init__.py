"""Scorer: asks the model, once per request and attempt.

Consumes llm.generation.retried.v1 (first) and llm.generation.requested.v1. Produces
llm.generation.answered.v1. Guarantees that an endpoint that is away costs no event and no attempt:
it is waited for in place, and after the configured patience requests end as `unavailable`; and that
the answer to a request that no service sealed is marked.
"""
