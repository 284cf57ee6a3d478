"""Validator: the only door between a model's answer and a score.

Consumes llm.generation.answered.v1. Produces wallet.score.validated.v1 or
llm.generation.accepted.v1 for what passed, llm.generation.requested.v1 for the next step of a
process with several, llm.generation.rejected.v1 for each refused attempt, llm.generation.retried.v1
while attempts are left, and after the last what the process says: a marked fallback, its empty
result, or nothing. What would outgrow its topic ends its request in a rejection. Guarantees that a
redelivery repeats the same events: it is a pure function of its input.
"""
