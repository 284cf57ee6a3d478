"""Faults of the simulator: each is what its name says, at its rate, and retries get past it."""

from __future__ import annotations

import json
from random import Random
from typing import Any

import pytest

from deploy.dev.simulator import PROFILES, Behaviour
from deploy.dev.simulator.answers import Answer
from deploy.dev.simulator.faults import Lottery
from deploy.dev.simulator.ollama_protocol import CHAT
from deploy.dev.simulator.protocols import Call
from deploy.dev.simulator.settings import ANSWER, FAULTS, REJECTED, REPAIRABLE, TRANSPORT
from deploy.dev.simulator.spoiling import spoiled
from tests.unit.dev.wallet_calls import GATE, chat, wallet_input

CALL = CHAT.read(chat())
ROUNDS = range(12)


def call_for(schema: Any) -> Call:
    return CHAT.read(chat() | {"format": schema})


def rules(text: str) -> set[str]:
    return {error["rule"] for error in GATE.judge(text).errors}


@pytest.mark.parametrize("fault", REPAIRABLE)
def test_a_repairable_fault_is_repaired_to_the_same_score(fault: str) -> None:
    """S4.1, S4.3: the gate reads what the model meant."""
    good = Answer(CALL)
    for number in ROUNDS:
        made, reply = spoiled(fault, good, Random(number))
        verdict = GATE.judge(reply.text)
        assert made == fault
        assert reply.text != good.text
        assert verdict.accepted, verdict.errors
        assert verdict.value == good.value
        assert verdict.repairs


@pytest.mark.parametrize(
    ("fault", "expected"),
    [
        ("wrong_total", {"cross_check"}),
        ("out_of_range", {"minimum", "maximum"}),
        ("missing_field", {"required"}),
        ("extra_field", {"additionalProperties"}),
        ("nan", {"not_a_value"}),
        ("two_answers", {"ambiguous"}),
        ("empty", {"not_json"}),
        ("not_json", {"not_json"}),
        ("refusal", {"not_json"}),
        ("ignored_schema", {"required", "additionalProperties"}),
    ],
)
def test_any_other_fault_is_rejected_for_its_own_reason(fault: str, expected: set[str]) -> None:
    """S1.3, S1.6, S4.2: nothing is made of such an answer."""
    for number in ROUNDS:
        made, reply = spoiled(fault, Answer(CALL), Random(number))
        assert made == fault
        found = rules(reply.text)
        assert found
        assert found <= expected


def test_a_cut_off_answer_says_so_and_is_no_json() -> None:
    """DESIGN §5: `length`."""
    for number in ROUNDS:
        _, reply = spoiled("cut_off", Answer(CALL), Random(number))
        assert reply.finish == "length"
        assert Answer(CALL).text.startswith(reply.text)
        assert not GATE.judge(reply.text).accepted


def test_every_fault_of_an_answer_is_in_one_of_the_two_tables() -> None:
    assert set(ANSWER) == set(REPAIRABLE) | set(REJECTED)
    assert set(FAULTS) == set(ANSWER) | set(TRANSPORT)


@pytest.mark.parametrize("fault", ANSWER)
@pytest.mark.parametrize(
    "schema",
    [{"type": "integer"}, {"const": None}, {"type": "array", "items": {"type": "boolean"}}, True],
)
def test_faults_come_over_answers_of_any_shape(fault: str, schema: Any) -> None:
    """Where one cannot apply, another of its table does."""
    answer = Answer(call_for(schema) if schema is not True else CHAT.read(chat() | {"format": ""}))
    made, reply = spoiled(fault, answer, Random(1))
    assert made in (fault, "fences" if fault in REPAIRABLE else "not_json")
    assert reply.text != answer.text


def test_a_rejected_fault_of_another_schema_never_fits_it() -> None:
    """S1.3: spoiled means spoiled."""
    schema = {
        "type": "object",
        "properties": {"n": {"type": "number"}, "tags": {"items": {"type": "string"}}},
        "required": ["n"],
    }
    answer = Answer(call_for(schema))
    for fault in ("out_of_range", "missing_field", "extra_field", "nan", "ignored_schema"):
        _, reply = spoiled(fault, answer, Random(3))
        try:
            value = json.loads(reply.text)
        except ValueError:
            continue
        assert not answer.accepts(value), fault


def met(
    behaviour: Behaviour, calls: list[Call], lottery: Lottery | None = None
) -> list[str | None]:
    lottery = lottery or Lottery(behaviour.seed)
    return [lottery.ticket(call, behaviour).fault(call, behaviour) for call in calls]


def calls(count: int, attempt: int = 1) -> list[Call]:
    return [CHAT.read(chat(attempt=attempt, seed=number)) for number in range(count)]


def test_rates_are_met_and_retries_draw_anew() -> None:
    """S1.4: of the calls whose first attempt is spoiled, the usual share is spoiled again."""
    behaviour = Behaviour(rates={"wrong_total": 0.3})
    first, second = (met(behaviour, calls(600, attempt)) for attempt in (1, 2))
    failed = [number for number, fault in enumerate(first) if fault]
    again = [number for number in failed if second[number]]
    assert 140 <= len(failed) <= 220
    assert 0.18 <= len(again) / len(failed) <= 0.42


def test_the_same_calls_meet_the_same_faults_whatever_their_order() -> None:
    behaviour = PROFILES["faulty"]
    wanted = calls(200)
    forward = met(behaviour, wanted)
    assert met(behaviour, wanted[::-1])[::-1] == forward
    assert len(set(forward)) > 3
    assert met(behaviour.changed({"seed": 1}), wanted) != forward


def test_a_repeated_call_keeps_its_answer_but_gets_another_connection() -> None:
    """A transport retry repeats the very same call, so a 503 must not stick to its content."""
    lottery = Lottery(0)
    lost = met(Behaviour(rates={"http_503": 0.5}), [CALL] * 40, lottery)
    assert {None, "http_503"} == set(lost)
    spoilt = [met(Behaviour(rates={"nan": 0.5}), [call] * 5) for call in calls(20)]
    assert all(len(set(found)) == 1 for found in spoilt)
    assert len({found[0] for found in spoilt}) == 2


def test_random_draws_follow_the_seed_alone() -> None:
    behaviour = Behaviour(draws="random", rates={"nan": 0.5})
    found = met(behaviour, [CALL] * 40)
    assert found == met(behaviour, [CALL] * 40)
    assert set(found) == {None, "nan"}


def test_probes_meet_only_an_outage_that_is_forced() -> None:
    """DESIGN §5: a canary judges the backend, not the draw; a backend that is down fails it too."""
    canary = CHAT.read(chat() | {"options": {"num_predict": 48}})
    assert met(Behaviour(rates={"nan": 1.0, "hang": 1.0}), [canary]) == [None]
    assert met(Behaviour(always="nan"), [canary, CALL]) == [None, "nan"]
    assert met(Behaviour(always="http_503"), [canary]) == ["http_503"]
    assert met(Behaviour(always="nan", spare_probes=False), [canary]) == ["nan"]


def test_faults_can_be_forced_and_aimed() -> None:
    behaviour = Behaviour(always="nan")
    aimed = behaviour.changed({"match": "walletAge: 77"})
    young = CHAT.read(chat(wallet_input(walletAge=77)))
    retry = CHAT.read(chat(attempt=2))
    assert met(behaviour, [CALL, young, retry]) == ["nan"] * 3
    assert met(aimed, [CALL, young]) == [None, "nan"]
    assert met(behaviour.changed({"match_seed": 7}), [CALL, *calls(2)]) == ["nan", None, None]
    assert met(behaviour.changed({"spare_retries": True}), [CALL, retry]) == ["nan", None]
