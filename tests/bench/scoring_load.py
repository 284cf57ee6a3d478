"""Submits wallet events and times each until the signer appends its signed score.

A latency is the difference of two record timestamps, the submitted one's and the signed one's,
both set by the producers' clocks on one machine: the broker's confirmation of the signed record
comes after it.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from dataclasses import dataclass
from types import TracebackType

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer

from assay.envelope import text_headers
from assay.events import WalletScoreSigned
from tests.fault.workload import TOPIC, Submission, producer

_FETCH_WAIT_MS = 10


class Stuck(RuntimeError):
    """No score came for too long."""


@dataclass(frozen=True, slots=True)
class Load:
    """What was measured: latencies in milliseconds in order of submission, and the seconds from
    the first submission to the last signed score."""

    latencies_ms: list[float]
    seconds: float

    @property
    def per_second(self) -> float:
        return len(self.latencies_ms) / self.seconds

    def percentile(self, share: float) -> float:
        """Nearest-rank percentile in milliseconds; `share` from 0 to 1."""
        ranked = sorted(self.latencies_ms)
        return ranked[min(len(ranked) - 1, int(share * len(ranked)))]


class ScoringLoad:
    """A publisher and a reader of the signed topic; an async context manager."""

    def __init__(self, bootstrap: str, *, patience_s: float = 30.0) -> None:
        self._patience_s = patience_s
        self._producer: AIOKafkaProducer = producer(bootstrap)
        self._consumer = AIOKafkaConsumer(
            WalletScoreSigned.type,
            bootstrap_servers=bootstrap,
            group_id=None,
            enable_auto_commit=False,
            auto_offset_reset="earliest",
            fetch_max_wait_ms=_FETCH_WAIT_MS,
        )
        self._signed_ms: dict[str, int] = {}
        self._open: dict[str, int] = {}
        self._room = asyncio.Event()
        self._reader: asyncio.Task[None] | None = None

    async def __aenter__(self) -> ScoringLoad:
        await self._producer.start()
        await self._consumer.start()
        self._reader = asyncio.create_task(self._read())
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._reader is not None:
            self._reader.cancel()
            await asyncio.wait({self._reader})
        await self._consumer.stop()
        await self._producer.stop()

    async def at_saturation(self, work: Iterator[Submission], outstanding: int) -> Load:
        """Keep `outstanding` requests without a score until `work` is done."""
        sent: dict[str, int] = {}
        for item in work:
            while len(self._open) >= outstanding:
                await self._scored()
            sent[item.request_id] = await self._send(item)
        return await self._finished(sent)

    async def at_rate(self, work: Iterator[Submission], per_second: float) -> Load:
        """Submit one at a time, evenly spaced."""
        loop = asyncio.get_running_loop()
        started = loop.time()
        sent: dict[str, int] = {}
        for number, item in enumerate(work):
            await asyncio.sleep(max(0.0, started + number / per_second - loop.time()))
            sent[item.request_id] = await self._send(item)
        return await self._finished(sent)

    async def _send(self, item: Submission) -> int:
        now_ms = time.time_ns() // 1_000_000
        self._open[item.request_id] = now_ms
        await self._producer.send(
            TOPIC, value=item.value, key=item.key, headers=item.headers, timestamp_ms=now_ms
        )
        return now_ms

    async def _finished(self, sent: dict[str, int]) -> Load:
        while not self._signed_ms.keys() >= sent.keys():
            await self._scored()
        latencies = [float(self._signed_ms[request] - at) for request, at in sent.items()]
        ended = max(self._signed_ms[request] for request in sent)
        return Load(latencies, (ended - min(sent.values())) / 1000)

    async def _scored(self) -> None:
        """Wait until more scores have come."""
        self._room.clear()
        if self._reader is not None and self._reader.done():
            self._reader.result()
        try:
            async with asyncio.timeout(self._patience_s):
                await self._room.wait()
        except TimeoutError:
            open_, wait = len(self._open), self._patience_s
            raise Stuck(f"{open_} requests are open and no score came for {wait:g} s") from None

    async def _read(self) -> None:
        while True:
            for records in (await self._consumer.getmany(timeout_ms=1_000)).values():
                for record in records:
                    request = text_headers(record.headers).get("ce_requestid", "")
                    self._signed_ms.setdefault(request, record.timestamp)
                    self._open.pop(request, None)
                self._room.set()
