"""Answered to validated, retried or rejected, message by message (DESIGN §2, SPEC S3.6, S4.5)."""

from __future__ import annotations

import hashlib
import json
from typing import Any

import pytest

from assay.envelope import Message
from assay.events import GenerationAnswered
from assay.ids import event_id
from assay_gate.process_registry import ProcessRegistry
from assay_runtime.failures import DeadLetter
from services.validator.domain.endings import RETRIED
from services.validator.handler import ValidatorHandler
from services.validator.settings import ValidatorSection
from tests.unit.validator.answers import ADDRESS, GOOD, answered, delivery, wallet_score

VALIDATED, REJECTED = "wallet.score.validated.v1", "llm.generation.rejected.v1"
RECORDS = "evidence.record.submitted.v1"


def _handled(event: GenerationAnswered, **settings: Any) -> dict[str, tuple[Message, Any]]:
    handler = ValidatorHandler(ProcessRegistry([wallet_score()]), ValidatorSection(**settings))
    messages = handler(delivery(event))
    assert handler(delivery(event)) == messages, "a redelivery repeats the same events"
    for message in messages:
        assert message.key == ADDRESS.lower().encode()
        kind = dict(message.headers)["ce_type"].decode()
        assert message.id == event_id("answer-1", kind, message.value)
        meta = json.loads(message.value)["meta"]
        assert meta["causation_id"] == "answer-1"
        assert meta["causation_sha256"] == hashlib.sha256(event.to_bytes()).hexdigest()
    return {message.topic: (message, json.loads(message.value)) for message in messages}


def test_a_good_answer_becomes_a_score() -> None:
    """S1.3: with attempts, model, source and repairs; the caller's spelling of the address."""
    found = _handled(answered(f"```json\n{json.dumps(GOOD)}\n```", attempt=2))
    assert list(found) == [VALIDATED]
    score = found[VALIDATED][1]
    assert {name: score[name] for name in GOOD} == GOOD
    assert (score["address"], score["attempts"], score["model"]) == (ADDRESS, 2, "scripted")
    assert (score["fallback"], score["evm_source"]) == (None, "inline")
    assert score["repairs"]


def test_a_bad_answer_is_recorded_and_asked_again() -> None:
    """S4.5, S4.6: the failure record with raw text and reasons, and the retry with feedback."""
    event = answered({**GOOD, "score": 1}, attempt=1)
    found = _handled(event)
    assert list(found) == [REJECTED, RETRIED]
    rejected, retried = found[REJECTED][1], found[RETRIED][1]
    assert (rejected["terminal"], rejected["retry_count"], rejected["unit_id"]) == (
        False, 0, "unit-1",
    )  # fmt: skip
    assert (rejected["raw_response"], rejected["input"]) == (event.raw, event.input)
    assert rejected["failure_stage"] == "validation"
    assert (rejected["reason"], rejected["ends_as"]) == (None, None)
    assert retried["meta"]["attempt"] == 2
    assert retried["input"] == event.input
    assert retried["feedback"] == rejected["errors"]
    assert retried["feedback"][0]["rule"] == "cross_check"


def test_the_last_failure_ends_in_a_marked_fallback() -> None:
    """S3.6: rejection, record and fallback, each saying why."""
    found = _handled(answered("nonsense", attempt=3))
    assert list(found) == [REJECTED, RECORDS, VALIDATED]
    rejected = found[REJECTED][1]
    assert (rejected["terminal"], rejected["retry_count"]) == (True, 2)
    assert (rejected["reason"], rejected["ends_as"]) == ("answers_rejected", "fallback_score")
    record = found[RECORDS][1]
    assert (record["record"], record["payload"]) == (
        "SCORE_FALLBACK", {"reason": "answers_rejected", "attempts": 3},
    )  # fmt: skip
    score = found[VALIDATED][1]
    assert (score["score"], score["fallback"], score["model"]) == (370, "answers_rejected", None)


@pytest.mark.parametrize(
    ("changes", "settings", "reason"),
    [
        ({"raw": "no", "attempt": 3}, {"on_answers_rejected": "withhold"}, "answers_rejected"),
        ({"outcome": "unavailable"}, {"on_provider_unavailable": "withhold"},
         "provider_unavailable"),
    ],
)  # fmt: skip
def test_withheld_is_recorded_and_nothing_can_be_signed(
    changes: dict[str, Any], settings: dict[str, Any], reason: str
) -> None:
    """S3.6: a terminal failure instead of a score, however many transactions there are."""
    found = _handled(answered(**changes), **settings)
    assert list(found) == [REJECTED, RECORDS]
    assert found[REJECTED][1]["ends_as"] == "withheld"
    assert found[RECORDS][1]["record"] == "SCORE_WITHHELD"
    assert found[RECORDS][1]["payload"]["reason"] == reason


def test_an_unknown_process_is_a_dead_letter() -> None:
    """DESIGN §2: the recorded hash judges the answer, and no other folder."""
    for process_hash in ("00" * 32, None):
        with pytest.raises(DeadLetter) as refused:
            _handled(answered(process_hash=process_hash))
        assert refused.value.code == "process_unknown"
        assert refused.value.request_id


@pytest.mark.parametrize("step", ["no_such_step", None])
def test_an_unknown_step_is_a_dead_letter(step: str | None) -> None:
    """Only the scorer writes answers, and it names the step; what does not is nobody's answer."""
    with pytest.raises(DeadLetter) as refused:
        _handled(answered(step=step))
    assert refused.value.code == "step_unknown"
