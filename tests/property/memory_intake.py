"""An intake over lists of records, for engines."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Sequence

from assay_runtime.bounded_polls import POLL_BYTES
from assay_runtime.finished import from_metadata, to_metadata
from assay_runtime.records import Position, Record
from assay_runtime.window import Ticket, Window


class MemoryIntake:
    """Intake's side towards the engine over lists of records, and the broker behind it: `group`
    holds offset and metadata as committed, and every assignment starts from that alone."""

    def __init__(self, logs: dict[Position, list[Record]]) -> None:
        self.window = Window()
        self.logs = logs
        self.read: dict[Position, int] = {}
        self.group: dict[Position, tuple[int, str]] = dict.fromkeys(logs, (0, ""))
        self.most_held: Counter[Position] = Counter()
        self.most_in_flight = 0
        self.arrived = asyncio.Event()
        self.revoking = False
        self.on_commit: Callable[[], None] = lambda: None
        self.assign()

    def commit_promptly(self, interval_s: float, on_commit: Callable[[], None]) -> None:
        self.on_commit = on_commit

    def assign(self) -> None:
        self.read = {position: base for position, (base, _) in self.group.items()}
        found = {p: from_metadata(text, base, "") for p, (base, text) in self.group.items()}
        self.window.assign(self.read, None, {p: f for p, f in found.items() if f is not None})
        self.revoking = False
        self.arrived.set()

    def commit(self) -> None:
        """As the committer's: where nothing is to be committed, nobody is told."""
        marks = self.window.committable()
        if not marks:
            return
        for position, mark in marks.items():
            assert mark.offset >= self.group[position][0], "a commit went back"
            text = to_metadata(mark.offset, mark.end, mark.unfinished, "")
            self.group[position] = (mark.offset, text)
        self.window.committed(marks)
        self.on_commit()

    def let_go(self) -> None:
        self.window.revoke(self.window.positions())

    async def poll(
        self, max_records: int, wait_ms: int, only: Sequence[Position] = ()
    ) -> list[tuple[Ticket, Record]]:
        got = self._buffered(max_records, only)
        if not got and wait_ms:
            self.arrived.clear()
            try:
                async with asyncio.timeout(wait_ms / 1000):
                    await self.arrived.wait()
            except TimeoutError:
                return []
            got = self._buffered(max_records, only)
        return got

    def _buffered(self, max_records: int, only: Sequence[Position]) -> list[tuple[Ticket, Record]]:
        admitted: list[tuple[Ticket, Record]] = []
        for position in only or self.window.positions():
            if position not in self.window.positions() or self.revoking:
                continue
            for record in self.logs[position][self.read[position] :]:
                held = sum(len(r.value or b"") for _, r in admitted)
                if len(admitted) >= max_records or held >= POLL_BYTES:
                    break
                ticket = self.window.admit(position, record.offset)
                self.read[position] = record.offset + 1
                if ticket is not None:
                    admitted.append((ticket, record))
            self.most_held[position] = max(self.most_held[position], self.window.held(position))
        self.most_in_flight = max(self.most_in_flight, self.window.in_flight)
        return admitted

    def complete(self, ticket: Ticket) -> None:
        self.window.complete(ticket)
