"""Features: what a wallet record means, in numbers.

Consumes wallet.event.accepted.v1. Produces wallet.features.extracted.v1, the wallet_score process's
llm.generation.requested.v1, and one more for each shadow that takes the wallet. Guarantees that a
redelivery repeats the same events: it is a pure function of its input.
"""
