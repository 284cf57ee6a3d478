"""The events of the chain: 1.3 KB of the real model with the dearest validation, and their headers.

`WalletFeaturesExtracted` has 42 checked fields; `WalletScoreValidated` of the same size costs a
fifth less to validate and write.
"""

from __future__ import annotations

import hashlib
import random
import uuid
from collections.abc import Iterator
from dataclasses import dataclass

from assay.envelope import emit
from assay.events import WalletFeaturesExtracted
from assay.events.meta import Meta
from assay.events.wallet import Defaulted, WalletFeatures

TYPE = WalletFeaturesExtracted.type
SOURCE = "/bench"
# One event in a hundred starts a trace that is sampled, so every hop logs a span for it.
SAMPLED_SHARE = 0.01
_PROTOCOLS = ("aave", "uniswap", "compound", "curve", "lido", "maker", "balancer", "yearn")


@dataclass(frozen=True, slots=True)
class Row:
    """What a publisher would write: CloudEvents headers and trace context included."""

    key: bytes
    value: bytes
    headers: list[tuple[str, bytes]]


def rows(count: int, *, seed: int = 1) -> Iterator[Row]:
    """`count` events of as many wallets; the same ones for the same seed."""
    chance = random.Random(seed)
    for number in range(count):
        event = _event(chance, number)
        message = emit(event, topic="", source=SOURCE, parent_id=f"{seed}/{number}")
        flags = "01" if chance.random() < SAMPLED_SHARE else "00"
        trace = f"00-{chance.getrandbits(128) | 1:032x}-{chance.getrandbits(64) | 1:016x}-{flags}"
        headers = [*message.headers, ("traceparent", trace.encode())]
        yield Row(message.key, message.value, headers)


def _event(chance: random.Random, number: int) -> WalletFeaturesExtracted:
    wallet = f"0x{chance.getrandbits(160):040x}"
    request = str(uuid.UUID(int=chance.getrandbits(128), version=4))
    digest = hashlib.sha256(wallet.encode()).hexdigest()
    return WalletFeaturesExtracted(
        meta=Meta(
            request_id=request,
            tenant_id="bench",
            wallet=wallet,
            process_id="wallet_score",
            process_version="1.0.0",
            process_hash=digest,
            step="score",
            unit_id=request,
            accepted_at_ms=1_760_000_000_000 + number,
            causation_id=request,
            causation_sha256=digest,
        ),
        address=wallet,
        features=WalletFeatures(
            walletAge=chance.randrange(3_000),
            totalTransactions=chance.randrange(5_000),
            avgTxsPerMonth=chance.random() * 100,
            uniqueCounterparties=chance.randrange(800),
            protocolsUsed=6,
            protocolNames=chance.sample(_PROTOCOLS, 6),
            borrowCount=chance.randrange(50),
            repayCount=chance.randrange(50),
            liquidateCount=chance.randrange(3),
            numTokens=chance.randrange(90),
            diversificationScore=chance.randrange(100),
            concentrationRisk=chance.random(),
            supplyCount=chance.randrange(50),
            withdrawCount=chance.randrange(50),
            poapCount=chance.randrange(20),
            nftCount=chance.randrange(200),
            ethBalance=chance.random() * 40,
        ),
        defaulted=[
            Defaulted(path="/token_balances/3/decimals", reason="missing, 18 assumed"),
            Defaulted(path="/protocols/0/first_seen", reason="not a date, left out"),
        ],
        evm_source="inline",
        evm_sha256=digest,
    )
