"""An accepted answer to what follows it: next step, result, shadow (SPEC S4.12, S5.7; issue 5)."""

from __future__ import annotations

import asyncio
import json
import shutil
import threading
from pathlib import Path
from typing import Any

import pytest

from assay.contracts import schema_root
from assay.envelope import Message
from assay.events import EVENTS, GenerationAnswered
from assay.topics import catalogue
from assay_gate.chain import EXPRESSION_FAILED
from assay_gate.process import Process, load_process
from assay_gate.process_registry import ProcessRegistry
from assay_runtime.failures import DeadLetter
from services.validator.handler import ValidatorHandler
from services.validator.settings import ValidatorSection
from tests.unit.validator.answers import GOOD, answered, delivery, wallet_score
from tests.unit.validator.processes import SCORE, as_shadow, own, shadow_score

ACCEPTED, REJECTED = "llm.generation.accepted.v1", "llm.generation.rejected.v1"
REQUESTED, VALIDATED = "llm.generation.requested.v1", "wallet.score.validated.v1"
DRAW = {"name": "draw", "scope": "expression", "expressions": {"card": "random.choice(cards)"}}


def handler_of(*processes: Process) -> ValidatorHandler:
    return ValidatorHandler(ProcessRegistry(processes), ValidatorSection())


def handled(event: GenerationAnswered, *processes: Process) -> list[tuple[str, dict[str, Any]]]:
    """(topic, value) in order; a redelivery to a fresh handler repeats them to the byte."""
    messages = handler_of(*processes)(delivery(event))
    assert handler_of(*processes)(delivery(event)) == messages
    assert len({message.id for message in messages}) == len(messages)
    found = []
    for message in messages:
        value = json.loads(message.value)
        EVENTS[catalogue()[message.topic].event].model_validate_json(message.value)
        assert value["meta"]["causation_id"] == "answer-1"
        assert value["meta"]["request_id"] == event.meta.request_id
        found.append((message.topic, value))
    return found


def test_a_step_is_recorded_and_the_next_one_asked(tmp_path: Path) -> None:
    """S4.12: the answer's fields accumulate; the request's own fields stay as they were."""
    process = own(tmp_path, [{"name": "a"}, {"name": "b"}], protected=("address",))
    event = answered(
        {"found": 1, "address": "another"}, process=process, step="a", attempt=2,
        input={"address": "mine"},
    )  # fmt: skip
    (first, accepted), (second, asked) = handled(event, process)
    assert (first, second) == (ACCEPTED, REQUESTED)
    assert (accepted["final"], accepted["fallback"]) == (False, None)
    assert (accepted["meta"]["step"], accepted["attempts"]) == ("a", 2)
    assert accepted["output"] == {"found": 1, "address": "another"}, "what the model said"
    assert asked["input"] == {"address": "mine", "found": 1}
    assert (asked["meta"]["step"], asked["meta"]["attempt"]) == ("b", 1)
    assert asked["meta"]["process_hash"] == process.hash
    assert asked["feedback"] == []


def test_the_last_step_brings_the_result(tmp_path: Path) -> None:
    """S4.12, S5.4: everything that was accumulated, without what the request brought."""
    process = own(tmp_path, [{"name": "a"}, {"name": "b"}], protected=("text",))
    given = {"text": "t", "found": 1}
    event = answered({"more": 2}, process=process, step="b", input=given)
    ((topic, accepted),) = handled(event, process)
    assert (topic, accepted["final"]) == (ACCEPTED, True)
    assert accepted["output"] == {"found": 1, "more": 2}
    assert accepted["input"] == given


def test_an_answer_of_any_shape_without_a_schema(tmp_path: Path) -> None:
    """S5.7: JSON is enough; one step's answer is the result as it is."""
    process = own(tmp_path, [{"name": "a"}])
    for value in ([1, "two", None], "words", 3.5, {"any": {"thing": True}}):
        ((topic, accepted),) = handled(answered(json.dumps(value), process=process, step="a"),
                                       process)  # fmt: skip
        assert (topic, accepted["output"], accepted["final"]) == (ACCEPTED, value, True)


def test_expression_steps_between_and_behind(tmp_path: Path) -> None:
    """S4.12: computed from the answer, chance seeded by the unit, into request and result."""
    cards = [str(number) for number in range(1000)]
    between = own(tmp_path / "one", [{"name": "a"}, DRAW, {"name": "b"}])
    behind = own(tmp_path / "two", [{"name": "a"}, DRAW])
    draws = {}
    for unit in ("u", "v"):
        event = answered({"cards": cards}, process=between, step="a", unit_id=unit, input={})
        _, (topic, asked) = handled(event, between)
        assert (topic, asked["meta"]["step"]) == (REQUESTED, "b")
        event = answered({"cards": cards}, process=behind, step="a", unit_id=unit, input={})
        ((_, accepted),) = handled(event, behind)
        assert accepted["final"] is True
        assert accepted["output"]["card"] == asked["input"]["card"]
        draws[unit] = asked["input"]["card"]
    assert draws["u"] != draws["v"]


def test_an_expression_that_fails_ends_the_request(tmp_path: Path) -> None:
    """S4.12: the answer stays on record, the rejection names the step that failed and why."""
    process = own(tmp_path, [{"name": "a"}, DRAW, {"name": "b"}])
    event = answered({"cards": []}, process=process, step="a", attempt=2, input={"x": 1})
    (first, accepted), (second, rejected) = handled(event, process)
    assert (first, accepted["final"], second) == (ACCEPTED, False, REJECTED)
    assert (rejected["terminal"], rejected["failure_stage"]) == (True, "pipeline_internal")
    assert (rejected["reason"], rejected["ends_as"]) == (None, "rejected")
    assert (rejected["meta"]["step"], rejected["retry_count"]) == ("draw", 0)
    assert rejected["input"] == {"x": 1, "cards": []}
    assert rejected["raw_response"] is None
    assert rejected["errors"][0]["rule"] == EXPRESSION_FAILED


def test_an_expression_that_failed_before_the_question(tmp_path: Path) -> None:
    """S4.12: the scorer could not ask; the first attempt is the last."""
    process = own(tmp_path, [DRAW, {"name": "a"}])
    error = {"code": EXPRESSION_FAILED, "message": "step 'draw': IndexError"}
    event = answered(process=process, step="a", outcome="failed", error=error, input={"cards": []})
    ((topic, rejected),) = handled(event, process)
    assert (topic, rejected["terminal"], rejected["ends_as"]) == (REJECTED, True, "rejected")
    assert rejected["failure_stage"] == "pipeline_internal"
    assert rejected["errors"][0]["rule"] == EXPRESSION_FAILED


def test_the_empty_result_stands_behind_its_rejection(tmp_path: Path) -> None:
    """Issue 5 item 2: the rejection says how it ends, the result is marked with the reason."""
    process = own(
        tmp_path, [{"name": "a"}, {"name": "b"}], temperatures=[0.1],
        exhausted={"answers_rejected": "empty_result"}, empty_result={"verdict": None},
    )  # fmt: skip
    event = answered("nothing", process=process, step="b", input={"found": 1})
    (first, rejected), (second, empty) = handled(event, process)
    assert (first, second) == (REJECTED, ACCEPTED)
    assert (rejected["terminal"], rejected["empty_result"]) == (True, True)
    assert (empty["output"], empty["final"]) == ({"verdict": None}, True)
    assert (empty["fallback"], empty["model"]) == ("answers_rejected", None)


def test_nothing_of_a_shadow_can_be_signed(tmp_path: Path) -> None:
    """Issue 5 item 7: its score is an accepted answer with the mark, its end a rejection without
    fallback and without a record of one."""
    shadow = shadow_score(tmp_path)
    good = answered(process=shadow, shadow=True)
    ((topic, accepted),) = handled(good, wallet_score(), shadow)
    assert (topic, accepted["meta"]["shadow"], accepted["final"]) == (ACCEPTED, True, True)
    assert accepted["output"] == GOOD
    bad = answered("nonsense", process=shadow, shadow=True, attempt=3, input=SCORE)
    ((topic, rejected),) = handled(bad, wallet_score(), shadow)
    assert (topic, rejected["ends_as"]) == (REJECTED, "rejected")
    assert rejected["meta"]["shadow"] is True


def test_a_mark_is_kept_and_one_that_is_missing_is_put(tmp_path: Path) -> None:
    """Issue 5 item 7: a shadow process by its hash, whatever the request says; and a request that
    is marked, whatever the process is."""
    shadow = shadow_score(tmp_path)
    for event in (answered(process=shadow), answered(shadow=True)):
        ((topic, accepted),) = handled(event, wallet_score(), shadow)
        assert (topic, accepted["meta"]["shadow"]) == (ACCEPTED, True)


def test_a_score_of_several_steps(tmp_path: Path) -> None:
    """S4.12, S1.1: the score is the last answer's, the steps before it are recorded."""
    folder = tmp_path / "wallet_score@chain"
    shutil.copytree(schema_root() / "processes" / "wallet_score", folder)
    file = folder / "config.yaml"
    text = file.read_text(encoding="utf-8")
    (folder / "think.jinja2").write_text("What stands out?", encoding="utf-8")
    text = text.replace("  steps:\n", "  steps:\n    - name: think\n", 1)
    text = text.replace("  templates:\n", "  templates:\n    think: think.jinja2\n", 1)
    text = text.replace("  files:\n", "  files:\n    think: null\n", 1)
    text = text.replace("\nvalidation:\n", "\nvalidation:\n  think: {}\n", 1)
    text = text.replace('version: "1.0.0"', "version: chain")
    text = text.replace("    - path:", "    - step: score\n      path:")
    file.write_text(text, encoding="utf-8")
    process = load_process(folder)
    think = answered({"notes": ["old"]}, process=process, step="think")
    (_, accepted), (_, asked) = handled(think, process)
    assert (accepted["final"], asked["input"]["notes"]) == (False, ["old"])
    last = answered(process=process, step="score", input=asked["input"])
    ((topic, score),) = handled(last, process)
    assert (topic, score["score"], score["address"]) == (VALIDATED, GOOD["score"], SCORE["address"])
    shadow = as_shadow(folder)
    last = answered(process=shadow, step="score", input=asked["input"])
    ((topic, beside),) = handled(last, wallet_score(), shadow)
    assert (topic, beside["output"]) == (ACCEPTED, {"notes": ["old"], **GOOD})


def test_a_kept_version_judges_what_it_asked(tmp_path: Path) -> None:
    """DESIGN §2: `<id>@<version>/` beside the current folder; each answer by its own rules."""
    rules = {"a": {"ranges": {"n": [0, 5]}}}
    old = own(tmp_path / "p@0", [{"name": "a"}], validation=rules, id="p", version="0")
    new = own(tmp_path / "p", [{"name": "a"}], id="p", version="1")
    assert handled(answered({"n": 9}, process=old, step="a"), old, new)[0][0] == REJECTED
    assert handled(answered({"n": 9}, process=new, step="a"), old, new)[0][0] == ACCEPTED


async def test_expressions_leave_the_loop_alone_and_the_order_as_it_is(tmp_path: Path) -> None:
    """DESIGN §3: steps that may take their time limit run in a thread; outcomes keep the order of
    the deliveries, a dead letter among them."""
    slow = {"name": "c", "scope": "expression",
            "expressions": {"s": "sum([n % 7 for n in range(100000)])"}}  # fmt: skip
    process = own(tmp_path, [{"name": "a"}, slow])
    handler = handler_of(process, wallet_score())
    given = [
        answered({"n": 1}, process=process, step="a", input={}),
        answered(),
        answered(process_hash="00" * 32),
        answered({"n": 2}, process=process, step="a", input={}),
    ]
    beats, stop, threads = 0, False, set()
    judge = handler.__class__.__call__

    def noted(self: ValidatorHandler, made: Any) -> Any:
        threads.add((made.event.meta.process_id, threading.current_thread()))
        return judge(self, made)

    async def beat() -> None:
        nonlocal beats
        while not stop:
            await asyncio.sleep(0.001)
            beats += 1

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ValidatorHandler, "__call__", noted)
        beating = asyncio.create_task(beat())
        outcomes = await handler.handle([delivery(event) for event in given])
        stop = True
        await beating
    assert beats > 5
    assert {who for who, thread in threads if thread is threading.main_thread()} == {"wallet_score"}
    first, score, dead, last = outcomes
    assert isinstance(dead, DeadLetter)
    assert [json.loads(m.value)["output"]["n"] for m in (*messages(first), *messages(last))] == [
        1,
        2,
    ]
    assert [message.topic for message in messages(score)] == [VALIDATED]


def messages(outcome: Any) -> list[Message]:
    assert not isinstance(outcome, DeadLetter)
    return list(outcome)


def test_long_computing_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """DESIGN §3: a batch of hanging expressions must not be taken for a stall and restarted."""
    process = own(tmp_path, [{"name": "a"}, DRAW])
    handler = handler_of(process)
    said: list[str | None] = []
    monkeypatch.setattr("services.validator.handler._LONG_S", 0.0)

    def looked(self: ValidatorHandler, _: Any) -> list[Message]:
        said.append(self.waiting())
        return []

    monkeypatch.setattr(ValidatorHandler, "__call__", looked)
    event = answered({"cards": [1]}, process=process, step="a", input={})
    asyncio.run(handler.handle([delivery(event)]))
    assert said == [f"expressions of process {process.id} take long"]
    assert handler.waiting() is None
