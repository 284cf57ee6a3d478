"""The flat form of a signed score, as the CLI and the HTTP API show it (DESIGN §6)."""

from __future__ import annotations

from typing import Any

from assay.events.wallet import WalletScoreSigned


def flat_score(event: WalletScoreSigned) -> dict[str, Any]:
    """`{request_id, score, wallet_address, timestamp_ms, signature, public_key, metadata}`.

    `signature` (64 bytes) and `public_key` (33 bytes) are hex, of the event's first attestation.
    """
    first = event.attestations[0]
    return {
        "request_id": event.meta.request_id,
        "score": event.score,
        "wallet_address": event.wallet_address,
        "timestamp_ms": event.timestamp_ms,
        "signature": first.signature,
        "public_key": first.public_key,
        "metadata": event.metadata,
    }
