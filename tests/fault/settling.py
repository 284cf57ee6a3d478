"""Waiting until a run is over: every request has ended, nothing moves, evidence has it all."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Callable, Collection

from assay.client import Outcomes
from tests.fault.running_stack import RunningStack
from tests.fault.stores import evidence_positions
from tests.fault.topic_reader import end_offsets


class NotSettled(AssertionError):
    """Requests were still open, or evidence behind, when patience ended."""


async def all_ended(
    bootstrap: str,
    asked: Collection[str],
    *,
    patience_s: float,
    progress: Callable[[int], None] = lambda ended: None,
) -> int:
    """Requests of `asked` that ended; returns once all have, or when `patience_s` passed without
    another one ending. What is then missing is for the checker to say."""
    open_ = set(asked)
    total = len(open_)
    async with Outcomes(bootstrap, start="earliest") as outcomes:
        stream = aiter(outcomes)
        waiting = asyncio.ensure_future(anext(stream))
        try:
            while open_:
                done, _ = await asyncio.wait({waiting}, timeout=patience_s)
                if not done:
                    break
                known = len(open_)
                open_.discard(waiting.result().request_id)
                if len(open_) < known:
                    progress(total - len(open_))
                waiting = asyncio.ensure_future(anext(stream))
        finally:
            waiting.cancel()
            await asyncio.wait({waiting})
    return total - len(open_)


async def quiet(
    stack: RunningStack, *, quiet_s: float, patience_s: float, evidence: str | None = None
) -> None:
    """Until no topic has grown for `quiet_s` and evidence has read them all to their ends;
    `evidence` is its store's URL where that is not under the stack's data."""
    loop = asyncio.get_running_loop()
    deadline = loop.time() + patience_s
    ends: dict[tuple[str, int], int] = {}
    since = loop.time()
    while True:
        now = await end_offsets(stack.bootstrap)
        if now != ends:
            ends, since = now, loop.time()
        behind = await _behind(evidence or stack.stores.evidence, ends)
        if not behind and loop.time() - since >= quiet_s:
            return
        if loop.time() > deadline:
            text = ", ".join(f"{topic}/{number}" for topic, number in sorted(behind)[:5])
            raise NotSettled(f"evidence is behind on {len(behind)} partitions: {text or 'growing'}")
        await asyncio.sleep(0.3)


async def evidence_complete(stack: RunningStack, *, patience_s: float) -> None:
    """Until evidence has read every topic to where it ends now."""
    ends = await end_offsets(stack.bootstrap)
    deadline = asyncio.get_running_loop().time() + patience_s
    while behind := await _behind(stack.stores.evidence, ends):
        if asyncio.get_running_loop().time() > deadline:
            raise NotSettled(f"evidence is behind on {len(behind)} partitions")
        await asyncio.sleep(0.05)


async def _behind(evidence: str, ends: dict[tuple[str, int], int]) -> list[tuple[str, int]]:
    try:
        read = await evidence_positions(evidence)
    except sqlite3.OperationalError:
        return list(ends)  # the file is being made
    return [place for place, end in ends.items() if end > 0 and read.get(place, 0) < end]
