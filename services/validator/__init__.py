"""Validator: the only door between a model's answer and a score.

Consumes llm.generation.answered.v1. Produces wallet.score.validated.v1 or
llm.generation.accepted.v1 for what passed; llm.generation.rejected.v1 for each refused attempt,
llm.generation.retried.v1 while attempts are left, and a marked fallback (or nothing) after the
last. Guarantees that a redelivery repeats the same events: it is a pure function of its input.
"""
