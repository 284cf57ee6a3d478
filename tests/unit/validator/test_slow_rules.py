"""Rules that need the worker are waited for in a thread, all others judged at once (DESIGN §3)."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from assay.events import GenerationAnswered
from assay_gate.process import Process
from assay_gate.process_registry import ProcessRegistry
from assay_gate.rules.sandbox import Outcome, Sandbox
from assay_runtime.failures import DeadLetter
from services.validator.handler import ANSWERS, ValidatorHandler
from services.validator.settings import ValidatorSection
from tests.unit.validator.answers import answered, delivery, wallet_score
from tests.unit.validator.processes import own

ACCEPTED, REJECTED = "llm.generation.accepted.v1", "llm.generation.rejected.v1"
VALIDATED = "wallet.score.validated.v1"


def ruled(folder: Path, expr: str, name: str = "p") -> Process:
    """A process of one step with one rule."""
    rules = {"a": {"rules": [{"name": "rule", "expr": expr}]}}
    return own(folder / name, [{"name": "a"}], validation=rules, id=name)


async def outcomes(
    given: Sequence[GenerationAnswered], *processes: Process
) -> list[list[tuple[str, dict[str, Any]]]]:
    handler = ValidatorHandler(ProcessRegistry(processes), ValidatorSection())
    found = []
    for outcome in await handler.handle([delivery(event) for event in given]):
        assert not isinstance(outcome, DeadLetter)
        found.append([(message.topic, json.loads(message.value)) for message in outcome])
    assert handler.waiting() is None
    return found


@pytest.fixture
def waited_in(monkeypatch: pytest.MonkeyPatch) -> list[threading.Thread]:
    """The threads that waited for the worker."""
    threads: list[threading.Thread] = []
    evaluate = Sandbox.evaluate

    def noted(
        self: Sandbox, tasks: Sequence[Mapping[str, Any]], record: Mapping[str, Any], seed: str
    ) -> list[Outcome]:
        threads.append(threading.current_thread())
        return evaluate(self, tasks, record, seed)

    monkeypatch.setattr(Sandbox, "evaluate", noted)
    return threads


async def test_slow_rules_leave_the_loop_alone(
    tmp_path: Path, waited_in: list[threading.Thread]
) -> None:
    """Heartbeats go on meanwhile; outcomes keep the order of the deliveries."""
    process = ruled(tmp_path, "sum([each % 7 for each in range(100000)]) > n")
    given = [
        answered({"n": 1}, process=process, step="a", input={}),
        answered(),
        answered({"n": 10**9}, process=process, step="a", input={}),
    ]
    beats = 0

    async def beat() -> None:
        nonlocal beats
        while True:
            await asyncio.sleep(0.001)
            beats += 1

    beating = asyncio.create_task(beat())
    before = ANSWERS.labels("p", "accepted")._value.get()
    found = await outcomes(given, process, wallet_score())
    beating.cancel()
    assert beats > 5
    assert [messages[0][0] for messages in found] == [ACCEPTED, VALIDATED, REJECTED]
    assert waited_in
    assert threading.main_thread() not in waited_in
    assert ANSWERS.labels("p", "accepted")._value.get() == before + 1, "each is counted once"


@pytest.mark.parametrize(
    ("expr", "answer"),
    [("missing > 1", {"n": 1}), ("n * m > 1", {"n": "x" * 9, "m": 2}), ("abs(n) > 1", {"abs": 1})],
)
async def test_plain_rules_that_turn_out_not_to_be_wait_in_a_thread_too(
    tmp_path: Path, waited_in: list[threading.Thread], expr: str, answer: dict[str, Any]
) -> None:
    """What a rule meets in a record decides: absent names, text where a number was meant."""
    process = ruled(tmp_path, expr)
    event = answered(answer, process=process, step="a", input={})
    ((first, *_),) = await outcomes([event], process)
    assert (first[0], first[1]["errors"][0]["rule"]) == (REJECTED, "rule")
    assert waited_in
    assert threading.main_thread() not in waited_in


async def test_plain_rules_wait_for_nothing(
    tmp_path: Path, waited_in: list[threading.Thread], monkeypatch: pytest.MonkeyPatch
) -> None:
    """They take less than a thread costs."""

    async def no_thread(*_: Any) -> None:
        raise AssertionError("a thread for a plain rule")

    monkeypatch.setattr(asyncio, "to_thread", no_thread)
    process = ruled(tmp_path, "n > 1")
    given = [answered(), answered({"n": 2}, process=process, step="a", input={})]
    found = await outcomes(given, process, wallet_score())
    assert [messages[0][0] for messages in found] == [VALIDATED, ACCEPTED]
    assert waited_in == []


async def test_batches_side_by_side_share_the_worker(tmp_path: Path) -> None:
    """A batch that was given up on a rebalance may still compute beside the next one."""
    process = ruled(tmp_path, "[each for each in numbers if each == n] == [n]")
    given = [
        [
            answered({"n": n, "numbers": [n]}, process=process, step="a", input={})
            for n in range(start, start + 8)
        ]
        for start in (0, 100)
    ]
    found = await asyncio.gather(*(outcomes(batch, process) for batch in given))
    for batch, start in zip(found, (0, 100), strict=True):
        assert [messages[0][1]["output"]["n"] for messages in batch] == [*range(start, start + 8)]
