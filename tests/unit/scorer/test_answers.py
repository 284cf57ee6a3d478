"""Requests to answers: a redelivered request costs no second model call (DESIGN §3)."""

from __future__ import annotations

import json
from typing import Any

import pytest

from assay.contracts import iter_examples
from assay.envelope import Attributes
from assay.events import GenerationAnswered, GenerationRequested, Meta
from assay_runtime.failures import DeadLetter
from assay_runtime.records import Delivery, Record
from assay_runtime.tracing import new_trace
from services.scorer.answers import AnswerMessages


class CountingHandler:
    """Stands for the scorer's handler; answers differ from call to call, as a model's do."""

    def __init__(self, outcome: str = "answered") -> None:
        self.calls = 0
        self.outcome = outcome

    def stamped_meta(self, request: GenerationRequested) -> Meta:
        return request.meta.model_copy(update={"process_version": "stamped"})

    async def answer(self, request: GenerationRequested) -> dict[str, Any]:
        self.calls += 1
        if self.outcome == "refused":
            raise DeadLetter("no such process", code="unknown_process")
        return {
            "input": request.input, "outcome": self.outcome, "raw": f"answer {self.calls}",
            "provider": "test", "model": "test", "temperature": 0.3, "seed": 1, "prompt": "p",
            "prompt_sha256": "0" * 64,
        }  # fmt: skip


def delivery(event_id: str) -> Delivery[GenerationRequested]:
    example = next(e for e in iter_examples(GenerationRequested.type) if e.valid)
    event = GenerationRequested.model_validate_json(example.value)
    record = Record(event.type, 0, 1, 2, event.key.encode(), example.value, ())
    return Delivery(record, event, Attributes(event_id, "/test", event.type), new_trace())


async def test_a_redelivery_repeats_the_answer() -> None:
    handler = CountingHandler()
    answers = AnswerMessages(handler, kept=8)  # type: ignore[arg-type]
    first = await answers([delivery("a")])
    assert await answers([delivery("a")]) == first
    assert handler.calls == 1
    assert await answers([delivery("b")]) != first
    assert handler.calls == 2


async def test_memory_is_bounded_and_forgets_the_oldest() -> None:
    handler = CountingHandler()
    answers = AnswerMessages(handler, kept=2)  # type: ignore[arg-type]
    for event_id in ("a", "b", "c"):
        await answers([delivery(event_id)])
    await answers([delivery("c")])
    assert handler.calls == 3
    await answers([delivery("a")])
    assert handler.calls == 4


@pytest.mark.parametrize("outcome", ["failed", "unavailable"])
async def test_what_is_no_answer_is_asked_again(outcome: str) -> None:
    handler = CountingHandler(outcome)
    answers = AnswerMessages(handler, kept=8)  # type: ignore[arg-type]
    await answers([delivery("a")])
    await answers([delivery("a")])
    assert handler.calls == 2


async def test_the_answer_names_its_request() -> None:
    answers = AnswerMessages(CountingHandler(), kept=8)  # type: ignore[arg-type]
    [[message]] = await answers([delivery("a")])  # type: ignore[misc]
    event = GenerationAnswered.model_validate_json(message.value)
    assert event.meta.causation_id == "a"
    assert event.meta.process_version == "stamped"
    assert json.loads(message.value)["raw"] == "answer 1"


async def test_a_refusal_is_the_records_failure() -> None:
    answers = AnswerMessages(CountingHandler("refused"), kept=8)  # type: ignore[arg-type]
    [outcome] = await answers([delivery("a")])
    assert isinstance(outcome, DeadLetter)
    assert outcome.code == "unknown_process"
