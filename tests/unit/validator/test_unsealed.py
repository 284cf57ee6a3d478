"""What follows from a request that no service vouched for (ARCHITECTURE, decision 20)."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from assay.envelope import Message
from assay.events import GenerationAnswered
from assay_gate.process import Process
from assay_gate.process_registry import ProcessRegistry
from assay_runtime.seals import Seals
from services.validator.handler import ValidatorHandler
from services.validator.settings import ValidatorSection
from tests.unit.validator.answers import GOOD, answered, delivery, wallet_score
from tests.unit.validator.processes import own

ACCEPTED, REJECTED = "llm.generation.accepted.v1", "llm.generation.rejected.v1"
REQUESTED, RETRIED = "llm.generation.requested.v1", "llm.generation.retried.v1"
VALIDATED = "wallet.score.validated.v1"
SEALS = Seals([b"k" * 32])


def messages_for(
    event: GenerationAnswered, process: Process | None = None, **settings: Any
) -> list[Message]:
    processes = ProcessRegistry([process or wallet_score()])
    return list(ValidatorHandler(processes, ValidatorSection(**settings), SEALS)(delivery(event)))


def is_sealed(message: Message) -> bool:
    return SEALS.doubt(message.id, message.headers, message.value) is None


def test_an_unsealed_score_is_recorded_and_goes_no_further() -> None:
    """Decision 20: an accepted answer with its mark, as a shadow's; a sealed one is a score."""
    [message] = messages_for(answered(unsealed=True))
    accepted = json.loads(message.value)
    assert (message.topic, accepted["meta"]["unsealed"]) == (ACCEPTED, True)
    assert (accepted["output"], accepted["final"]) == (GOOD, True)
    assert [m.topic for m in messages_for(answered())] == [VALIDATED]


@pytest.mark.parametrize(
    "last", [{"raw": "nonsense", "attempt": 3}, {"raw": "", "outcome": "unavailable"}]
)
def test_an_unsealed_request_buys_no_fallback(last: dict[str, Any]) -> None:
    """Decision 20, S3.6: whatever the operator has set, there is neither a score nor a record of
    one that was withheld."""
    for ending in ("process", "fallback_score", "withhold"):
        settings = {"on_answers_rejected": ending, "on_provider_unavailable": ending}
        [message] = messages_for(answered(unsealed=True, **last), **settings)
        rejected = json.loads(message.value)
        assert (message.topic, rejected["terminal"], rejected["ends_as"]) == (
            REJECTED, True, "rejected",
        )  # fmt: skip
        assert rejected["meta"]["unsealed"] is True


@pytest.mark.parametrize("unsealed", [False, True])
def test_a_retry_is_sealed_as_its_request_was(unsealed: bool) -> None:
    """Decision 20: one refused answer does not make a client's request the services' own."""
    rejected, retried = messages_for(answered({**GOOD, "score": 1}, unsealed=unsealed))
    assert (rejected.topic, retried.topic) == (REJECTED, RETRIED)
    assert json.loads(retried.value)["meta"]["unsealed"] is unsealed
    assert [is_sealed(rejected), is_sealed(retried)] == [False, not unsealed]


@pytest.mark.parametrize("unsealed", [False, True])
def test_a_next_step_is_sealed_as_the_first_was(tmp_path: Path, unsealed: bool) -> None:
    """Decision 20: nor does an accepted one."""
    process = own(tmp_path, [{"name": "a"}, {"name": "b"}])
    event = answered({"n": 1}, process=process, step="a", input={}, unsealed=unsealed)
    accepted, asked = messages_for(event, process)
    assert (accepted.topic, asked.topic) == (ACCEPTED, REQUESTED)
    assert json.loads(asked.value)["meta"]["unsealed"] is unsealed
    assert [is_sealed(accepted), is_sealed(asked)] == [False, not unsealed]
