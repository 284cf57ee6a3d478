"""Wallet events to submit: small, all different, repeatable from a seed; and their publisher."""

from __future__ import annotations

import asyncio
import json
import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from aiokafka import AIOKafkaProducer

from assay.events import WalletEventSubmitted
from assay.ids import request_id

SOURCE = "/assay/tests/workload"
TOPIC = WalletEventSubmitted.type
_FLUSH_EVERY = 500
_PURPOSES = ("working capital", "a car", "stablecoin yield", "none of your business", "rent")


@dataclass(frozen=True, slots=True)
class Submission:
    """One record for the input topic; the request id is the one the oracle gives it."""

    request_id: str
    event_id: str
    key: bytes
    value: bytes

    @property
    def headers(self) -> list[tuple[str, bytes]]:
        return [
            ("content-type", b"application/json"),
            ("ce_specversion", b"1.0"),
            ("ce_id", self.event_id.encode()),
            ("ce_source", SOURCE.encode()),
            ("ce_type", TOPIC.encode()),
        ]


def submissions(
    events: int, wallets: int, seed: int, *, tenant: str = "default", bare: float = 0.0
) -> Iterator[Submission]:
    """`events` requests spread over `wallets`, a third of them with a questionnaire, a share
    `bare` of them without wallet data, which the aggregator has to give."""
    draw = random.Random(seed)
    addresses = [f"0x{draw.getrandbits(160):040x}" for _ in range(wallets)]
    for number in range(events):
        address = draw.choice(addresses)
        event_id = f"{seed}-{number}"
        body: dict[str, object] = {"address": address, "evm_data": _record(address, draw)}
        if bare and draw.random() < bare:
            del body["evm_data"]
        if draw.random() < 1 / 3:
            question = {"question": "What is the loan for?", "answer": draw.choice(_PURPOSES)}
            body["questionnaire"] = [question]
        value = json.dumps(body, separators=(",", ":")).encode()
        yield Submission(request_id(tenant, SOURCE, event_id), event_id, address.encode(), value)


def _record(address: str, draw: random.Random) -> dict[str, object]:
    """A wallet record of about 600 bytes in the aggregator's shape."""
    count = draw.randrange(1, 400)
    return {
        "wallet": address,
        "eth_balance": draw.randrange(1, 10_000) / 100,
        "wallet_metadata": {
            "wallet_age_days": draw.randrange(1, 2_000),
            "total_transactions": count,
            "unique_counterparties": max(1, count // 3),
            "average_txs_per_month": draw.randrange(10, 300) / 10,
        },
        "tokens": {
            "holdings": [],
            "concentration": {
                "herfindahl_index": draw.randrange(0, 100) / 100,
                "diversification_score": draw.randrange(0, 100),
                "num_tokens": draw.randrange(0, 30),
            },
        },
        "defi_analysis": {"protocol_interactions": {"aave": True, "total_protocols": 1}},
        "nfts": {"poaps": [], "legit_nfts": [], "counts": {"poaps": 2, "legit": 1}},
        "lending_history": {
            "protocol_analysis": {
                "protocols": {
                    "aave": {"borrow_count": draw.randrange(0, 9), "repay_count": 1}
                }
            }
        },
    }  # fmt: skip


def producer(bootstrap: str) -> AIOKafkaProducer:
    """Idempotent: a plain producer's retries overtake each other on new topics."""
    return AIOKafkaProducer(
        bootstrap_servers=bootstrap,
        enable_idempotence=True,
        acks="all",
        compression_type="zstd",
        linger_ms=2,
        max_batch_size=262_144,
        # A broker that was killed may take a minute to come back on a busy machine.
        request_timeout_ms=180_000,
    )


async def publish(
    bootstrap: str,
    work: Sequence[Submission],
    *,
    seconds: float = 0.0,
    twice: float = 0.0,
    late: float = 0.0,
    seed: int = 0,
) -> None:
    """Publish in order, spread over about `seconds`; 0 is as fast as it goes.

    A share `twice` of the records is published again a little later, byte for byte, as a client
    does that did not hear the first confirmation. A share `late` comes some records later than
    its turn, as from publishers that do not wait for each other.
    """
    draw = random.Random(seed)
    work = displaced(work, late, seed)
    again: list[Submission] = []
    loop = asyncio.get_running_loop()
    started = loop.time()
    async with producer(bootstrap) as sender:
        pending = []
        for number, item in enumerate(work):
            pending.append(await _send(sender, item))
            if draw.random() < twice:
                again.append(item)
            if len(again) > 20 or (again and draw.random() < 0.1):
                pending.append(await _send(sender, again.pop(0)))
            if len(pending) >= _FLUSH_EVERY:
                await asyncio.gather(*pending)
                pending.clear()
            ahead = started + seconds * number / len(work) - loop.time()
            if ahead > 0.005:
                await asyncio.sleep(ahead)
        pending += [await _send(sender, item) for item in again]
        await asyncio.gather(*pending)


def displaced(work: Sequence[Submission], share: float, seed: int) -> Sequence[Submission]:
    """The same records, a share of them up to twenty places later."""
    draw = random.Random(seed)
    place = {n: n + draw.randrange(1, 21) if draw.random() < share else n for n in range(len(work))}
    return [work[n] for n in sorted(place, key=lambda n: (place[n], n))]


async def _send(sender: AIOKafkaProducer, item: Submission) -> asyncio.Future[object]:
    sent: asyncio.Future[object] = await sender.send(
        TOPIC, value=item.value, key=item.key, headers=item.headers
    )
    return sent
