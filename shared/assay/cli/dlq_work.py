"""What `assay dlq` does on the bus, between its options and its output."""

from __future__ import annotations

import sys
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

from assay.cli.dlq_memory_kafka import ReplayMemory
from assay.cli.dlq_outgoing import Chosen, Outgoing
from assay.cli.dlq_reader_kafka import DeadLetterReader
from assay.cli.dlq_replay_kafka import Replay, Tally
from assay.cli.dlq_shown import Group
from assay.dead_letters import DeadLetterView, Place, read_dead_letter


async def groups_of(bootstrap: str, topics: list[str], since_ms: int) -> list[Group]:
    """Dead letters by topic and code."""
    groups: dict[tuple[str, str], Group] = {}
    memory = ReplayMemory(bootstrap)
    async with DeadLetterReader(bootstrap) as reader:
        present = await reader.present(topics)
        await memory.load(present)
        async for letter in _meant(reader, present, Chosen(since_ms=since_ms, again=True), memory):
            topic = letter.record.place.topic
            group = groups.setdefault((topic, letter.code), Group(topic, letter.code))
            group.add(letter, replayed=letter.record.place in memory)
    return list(groups.values())


async def shown_letters(
    bootstrap: str,
    topics: list[str],
    place: Place | None,
    request_id: str | None,
    tell: Callable[[DeadLetterView, bool], None],
) -> int:
    """Tell of the letter at a place, or of all of a request, and whether each was replayed;
    returns how many there are."""
    memory = ReplayMemory(bootstrap)
    count = 0
    async with DeadLetterReader(bootstrap) as reader:
        present = await reader.present(topics)
        await memory.load(present)
        if place is not None:
            record = await reader.at(place)
            if record is not None:
                tell(read_dead_letter(record), place in memory)
            return int(record is not None)
        chosen = Chosen(request_id=request_id, again=True)
        async for letter in _meant(reader, present, chosen, memory):
            tell(letter, letter.record.place in memory)
            count += 1
    return count


async def count_meant(bootstrap: str, topic: str, chosen: Chosen, limit: int | None) -> int:
    """How many dead letters are meant."""
    memory = ReplayMemory(bootstrap)
    count = 0
    async with DeadLetterReader(bootstrap) as reader:
        present = await reader.present([topic])
        await memory.load(present)
        async for _ in _meant(reader, present, chosen, memory, limit):
            count += 1
    return count


async def replayed(
    bootstrap: str,
    topic: str,
    chosen: Chosen,
    limit: int | None,
    dry_run: bool,
    tell: Callable[[DeadLetterView, Outgoing], None],
) -> Tally:
    """Send them, or with `dry_run` only tell of them."""
    memory = ReplayMemory(bootstrap)
    async with DeadLetterReader(bootstrap) as reader, DeadLetterReader(bootstrap) as origins:
        present = await reader.present([topic])
        await memory.load(present)
        letters = _meant(reader, present, chosen, memory, limit)
        replaying = Replay(bootstrap, origins, memory)
        if dry_run:
            return await replaying.rehearse(letters, tell)
        async with replaying:
            return await replaying.run(letters, tell)


async def _meant(
    reader: DeadLetterReader,
    topics: list[str],
    chosen: Chosen,
    memory: ReplayMemory,
    limit: int | None = None,
) -> AsyncIterator[DeadLetterView]:
    with _progress() as advance:
        found = 0
        async for letter in reader.letters(topics, since_ms=chosen.since_ms, progress=advance):
            if chosen.means(letter, memory):
                found += 1
                yield letter
                if found == limit:
                    return


@contextmanager
def _progress() -> Iterator[Callable[[int, int], None]]:
    bar = Progress(
        TextColumn("dead letters read"), BarColumn(), MofNCompleteColumn(),
        console=Console(stderr=True), disable=not sys.stderr.isatty(), transient=True,
    )  # fmt: skip
    task = bar.add_task("", total=None)
    with bar:
        yield lambda done, total: bar.update(task, completed=done, total=total)
