"""What outgrows its topic ends its request, and never counts against the deploy (SPEC X.4, X.6)."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from assay.events import EVENTS, GenerationAnswered
from assay.topics import catalogue
from assay_gate.process import Process
from assay_gate.process_registry import ProcessRegistry
from assay_runtime.publisher import Publisher
from assay_runtime.settings import KafkaSection
from services.validator.handler import ValidatorHandler
from services.validator.settings import ValidatorSection
from tests.unit.validator.answers import GOOD, answered, delivery, wallet_score
from tests.unit.validator.processes import SCORE, own

ACCEPTED, REJECTED = "llm.generation.accepted.v1", "llm.generation.rejected.v1"
REQUESTED, RETRIED = "llm.generation.requested.v1", "llm.generation.retried.v1"
RECORDS, VALIDATED = "evidence.record.submitted.v1", "wallet.score.validated.v1"
LARGEST = catalogue()[REQUESTED].max_bytes
TWO = [{"name": "a"}, {"name": "b"}]


def handled(
    event: GenerationAnswered, process: Process, **settings: Any
) -> list[tuple[str, dict[str, Any]]]:
    """(topic, value) in order, none larger than its topic takes; a redelivery repeats the bytes."""
    made = delivery(event)
    takes = Publisher(KafkaSection(), "c", "p").check
    takes(made.record)
    handler = ValidatorHandler(ProcessRegistry([process]), ValidatorSection(**settings))
    messages = handler(made)
    again = ValidatorHandler(ProcessRegistry([process]), ValidatorSection(**settings))
    assert again(made) == messages
    found = []
    for message in messages:
        takes(message)
        topic = catalogue()[message.topic]
        assert len(message.value) <= topic.max_bytes
        EVENTS[topic.event].model_validate_json(message.value)
        found.append((message.topic, json.loads(message.value)))
    return found


def rules(rejected: dict[str, Any]) -> list[str]:
    return [error["rule"] for error in rejected["errors"]]


def test_a_next_request_that_is_too_large_ends_the_request(tmp_path: Path) -> None:
    """S4.12: the answer stays on record, the rejection names the step that cannot be asked."""
    process = own(tmp_path, TWO)
    given = {"x": "x" * 700_000}
    event = answered({"y": "y" * 500_000}, process=process, step="a", attempt=2, input=given)
    (first, accepted), (second, rejected) = handled(event, process)
    assert (first, accepted["final"], second) == (ACCEPTED, False, REJECTED)
    assert (rejected["terminal"], rejected["failure_stage"]) == (True, "pipeline_internal")
    assert (rejected["reason"], rejected["ends_as"]) == (None, "rejected")
    assert (rejected["meta"]["step"], rejected["meta"]["attempt"]) == ("b", 1)
    assert (rejected["input"], rejected["raw_response"]) == (given, None)
    assert rules(rejected) == ["request_too_large"]
    assert f"{LARGEST:,}" in rejected["errors"][0]["message"]


@pytest.mark.parametrize("spare", [0, 1])
def test_a_request_may_be_as_large_as_its_topic_takes(tmp_path: Path, spare: int) -> None:
    """To the byte: what fits is asked, a byte more is not."""
    process = own(tmp_path, TWO)
    given = {"x": "x" * 500_000}
    event = answered({"y": ""}, process=process, step="a", input=given)
    _, (_, asked) = handled(event, process)
    # The cause's hash changes with the answer, its length does not.
    room = LARGEST - len(json.dumps(asked, separators=(",", ":")))
    event = event.model_copy(update={"raw": json.dumps({"y": "y" * (room + spare)})})
    (_, (topic, _)) = handled(event, process)
    assert topic == (REJECTED if spare else REQUESTED)


@pytest.mark.parametrize(
    ("ours", "topics", "ends_as"),
    [
        ({}, [REJECTED], "rejected"),
        ({"exhausted": {"answers_rejected": "empty_result"}, "empty_result": {"n": 0}},
         [REJECTED, ACCEPTED], "rejected"),
    ],
)  # fmt: skip
def test_a_retry_that_is_too_large_is_the_last_attempt(
    tmp_path: Path, ours: dict[str, Any], topics: list[str], ends_as: str
) -> None:
    """S4.6: the process's own end, as after the last attempt, with both reasons."""
    process = own(tmp_path, [{"name": "a"}], **ours)
    given = {"x": "x" * (LARGEST - 400)}
    event = answered("no", process=process, step="a", input=given)
    found = handled(event, process)
    assert [topic for topic, _ in found] == topics
    rejected = found[0][1]
    assert (rejected["terminal"], rejected["ends_as"]) == (True, ends_as)
    assert (rejected["reason"], rejected["retry_count"]) == ("answers_rejected", 0)
    assert rules(rejected) == ["not_json", "request_too_large"]
    assert (rejected["input"], rejected["raw_response"]) == (given, "no")


@pytest.mark.parametrize(
    ("changes", "settings", "topics"),
    [
        ({}, {}, [REJECTED, RECORDS, VALIDATED]),
        ({}, {"on_answers_rejected": "withhold"}, [REJECTED, RECORDS]),
        ({"unsealed": True}, {}, [REJECTED]),
    ],
)
def test_a_score_that_cannot_be_asked_again_ends_as_after_the_last_attempt(
    changes: dict[str, Any], settings: dict[str, Any], topics: list[str]
) -> None:
    """S3.6: the fallback or its absence, as set for rejected answers; never for a client's own
    request."""
    given = SCORE | {"questionnaire": "q" * LARGEST}
    event = answered("no", input=given, **changes)
    assert [topic for topic, _ in handled(event, wallet_score(), **settings)] == topics


def test_an_answer_that_no_event_could_carry_is_refused(tmp_path: Path) -> None:
    """S4.6: asked again while attempts are left; read numbers are longer than written ones."""
    process = own(tmp_path, [{"name": "a"}], temperatures=[0.1, 0.1])
    raw = "[" + "1e15," * 190_000 + "1]"
    (first, rejected), (second, retried) = handled(
        answered(raw, process=process, step="a", input={}), process
    )
    assert (first, rejected["terminal"], second) == (REJECTED, False, RETRIED)
    assert rejected["raw_response"] == raw
    assert rules(rejected) == ["result_too_large"]
    assert retried["feedback"] == rejected["errors"]
    event = answered(raw, process=process, step="a", attempt=2, input={})
    ((_, rejected),) = handled(event, process)
    assert (rejected["terminal"], rejected["reason"]) == (True, "answers_rejected")


def test_a_result_of_several_steps_may_be_too_large(tmp_path: Path) -> None:
    """S4.12: what was accumulated stands in it twice, as input and as output."""
    process = own(tmp_path, TWO, temperatures=[0.1])
    given = {"x": "x" * 1_000_000}
    event = answered({"y": "y" * 200_000}, process=process, step="b", input=given)
    ((topic, rejected),) = handled(event, process)
    assert (topic, rejected["terminal"], rules(rejected)) == (REJECTED, True, ["result_too_large"])


def test_a_score_that_is_too_large_is_asked_again() -> None:
    """S1.3: risk_factors have no bound of their own; the topic of scores has one."""
    raw = json.dumps({**GOOD, "risk_factors": ["r" * 100_000] * 9 + ["ü" * 90_000]},
                     ensure_ascii=False)  # fmt: skip
    found = handled(answered(raw), wallet_score())
    assert [topic for topic, _ in found] == [REJECTED, RETRIED]
    assert rules(found[0][1]) == ["result_too_large"]


def test_a_rejection_that_is_too_large_names_the_answer_instead(tmp_path: Path) -> None:
    """S4.5: input and raw answer stand in the event it names; the errors are its own."""
    process = own(tmp_path, [{"name": "a"}])
    given = {"x": "x" * 1_000_000, "more": "é" * 540_000}
    event = answered("no" * 10_000, process=process, step="a", attempt=9, input=given, prompt="")
    ((topic, rejected),) = handled(event, process)
    assert (topic, rejected["terminal"]) == (REJECTED, True)
    assert (rejected["input"], rejected["raw_response"]) == ({}, None)
    assert rules(rejected) == ["not_json", "left_out"]
    assert rejected["meta"]["causation_id"] in rejected["errors"][1]["message"]


def test_no_part_of_a_rejection_is_without_bound(tmp_path: Path) -> None:
    """X.4: a client chooses the unit, which stands in a rejection twice."""
    process = own(tmp_path, [{"name": "a"}])
    event = answered("no", process=process, step="a", unit_id="u" * (LARGEST - 50), input={})
    ((topic, rejected),) = handled(event, process)
    assert (topic, rejected["terminal"], rejected["input"]) == (REJECTED, True, {})
    assert rules(rejected) == ["not_json", "request_too_large", "left_out"]
    assert len(rejected["unit_id"]) < 1_000


def test_a_failed_expression_may_have_grown_its_input(tmp_path: Path) -> None:
    """S4.12: its rejection fits like any other."""
    long = {f"x{number}": "'x' * 250000" for number in range(9)}
    grow = {"name": "grow", "scope": "expression", "expressions": long}
    fail = {"name": "fail", "scope": "expression", "expressions": {"n": "1 / 0"}}
    process = own(tmp_path, [{"name": "a"}, grow, fail])
    event = answered({"y": 1}, process=process, step="a", input={})
    (first, _), (second, rejected) = handled(event, process)
    assert (first, second) == (ACCEPTED, REJECTED)
    assert rules(rejected) == ["expression_failed", "left_out"]


def test_an_end_that_does_not_fit_is_a_plain_rejection(tmp_path: Path) -> None:
    """X.4: not even the empty result can be told beside such an input."""
    process = own(tmp_path, [{"name": "a"}], temperatures=[0.1],
                  exhausted={"answers_rejected": "empty_result"},
                  empty_result={"n": "0" * 5_000})  # fmt: skip
    event = answered("no", process=process, step="a", input={"x": "x" * 2_095_000})
    ((topic, rejected),) = handled(event, process)
    assert (topic, rejected["ends_as"], rejected["empty_result"]) == (REJECTED, "rejected", False)
    assert rules(rejected)[:2] == ["not_json", "result_too_large"]
