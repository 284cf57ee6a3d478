"""Requests to answers: a redelivered request costs no second model call (DESIGN §3; SPEC S5.5)."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from assay.envelope import Message
from assay.events import GenerationAnswered
from assay.topics import catalogue
from assay_runtime.failures import DeadLetter
from services.scorer.answers import DURATION
from services.scorer.app import CONSUMES
from services.scorer.domain.bounded import Bounded
from services.scorer.domain.provider import ModelError, ModelTimeout, ModelUnavailable
from tests.unit.scorer.asking import REQUEST_ID, Model, ScorerStage, write_process

INPUT = {"word": "bees", "limit": 100}


@pytest.fixture
def root(tmp_path: Path) -> Path:
    write_process(tmp_path, "talk")
    return tmp_path


def raising(error: ModelError) -> Model:
    def say(call: int) -> str:
        raise error

    return Model(say)


def duration(message: Message) -> int:
    return int(dict(message.headers)[DURATION])


async def test_a_redelivery_repeats_the_answer(root: Path) -> None:
    """DESIGN §3: value, id and headers, its duration among them."""
    model = Model()
    stage = ScorerStage(root, model)
    first = await stage.message("a", INPUT)
    stage.clock.ahead = 99
    assert await stage.message("a", INPUT) == first
    assert len(model.calls) == 1
    assert await stage.message("b", INPUT) != first
    assert len(model.calls) == 2


@pytest.mark.parametrize("kept", [(2, 1 << 20), (100, 9_000)])
async def test_memory_is_bounded_and_forgets_the_oldest(root: Path, kept: tuple[int, int]) -> None:
    """DESIGN §3: by entries and by bytes."""
    model = Model()
    remembered: Bounded[Message] = Bounded(*kept)
    stage = ScorerStage(root, model, remembered=remembered)
    for event_id in ("a", "b", "c"):
        await stage.message(event_id, INPUT)
    assert len(remembered) == 2
    assert 0 < remembered.bytes <= kept[1]
    await stage.message("c", INPUT)
    assert len(model.calls) == 3
    await stage.message("a", INPUT)
    assert len(model.calls) == 4


@pytest.mark.parametrize(
    ("error", "outcome"),
    [(ModelTimeout("hangs"), "failed"), (ModelUnavailable("refused"), "unavailable")],
)
async def test_what_is_no_answer_is_asked_again(
    root: Path, error: ModelError, outcome: str
) -> None:
    """DESIGN §3: a failure is not remembered."""
    model = raising(error)
    stage = ScorerStage(root, model)
    event = await stage.event("a", INPUT)
    assert event.outcome == outcome
    model.say = lambda call: "{}"
    stage = ScorerStage(root, model)
    assert (await stage.event("a", INPUT)).outcome == "answered"


async def test_the_answer_names_its_request(root: Path) -> None:
    """DESIGN §2: the request is its cause; S5.5: tokens and the process's hash are in it."""
    message = await ScorerStage(root, Model()).message("a", INPUT)
    event = GenerationAnswered.model_validate_json(message.value)
    assert event.meta.causation_id == "a"
    assert event.meta.process_hash is not None
    assert event.meta.step == "count"
    assert event.usage == {"prompt_tokens": 7, "completion_tokens": 2}
    assert json.loads(message.value)["raw"] == '{"n": 1}'


async def test_the_duration_stands_beside_the_event(root: Path) -> None:
    """S5.5, DESIGN §2: in the headers, so that evidence has it and the value stays the same."""
    model = Model()
    quick, slow = ScorerStage(root, model), ScorerStage(root, model)

    def slowly(call: int) -> str:
        slow.clock.ahead += 60
        return '{"n": 1}'

    first = await quick.message("a", INPUT)
    model.say = slowly
    second = await slow.message("a", INPUT)
    assert 0 <= duration(first) < 60_000 <= duration(second) < 120_000
    assert (second.value, second.id) == (first.value, first.id)


async def test_a_failed_call_has_a_duration_too(root: Path) -> None:
    """S5.5: a hang is as long as it was; no call is no duration."""
    model = Model()
    stage = ScorerStage(root, model)

    def hang(call: int) -> str:
        stage.clock.ahead += 60
        raise ModelTimeout("no answer within 60 s")

    model.say = hang
    assert duration(await stage.message("a", INPUT)) >= 60_000
    away = ScorerStage(root, raising(ModelUnavailable("refused")))
    assert DURATION not in dict((await away.message("a", INPUT)).headers)


async def test_a_refusal_is_the_records_failure(root: Path) -> None:
    """X.4: and nothing is asked."""
    model = Model()
    outcome = await ScorerStage(root, model).outcome("a", INPUT, process_id="walk")
    assert isinstance(outcome, DeadLetter)
    assert outcome.code == "unknown_process"
    assert not model.calls


def padded(pad: str) -> bytes:
    """A request whose meta holds what nobody knows."""
    meta = {"request_id": REQUEST_ID, "tenant_id": "t", "process_id": "talk", "pad": ["@"]}
    return json.dumps({"meta": meta, "input": INPUT}).replace('"@"', pad).encode()


@pytest.mark.parametrize("topic", CONSUMES)
async def test_a_request_larger_than_its_topic_takes_costs_no_call(root: Path, topic: str) -> None:
    """X.4: compression hid its size from the broker; what follows from it would not fit either."""
    model = Model()
    stage = ScorerStage(root, model)
    most = catalogue()[topic].max_bytes
    fits = padded('"' + "x" * (most - len(padded('""'))) + '"')
    assert len(fits) == most
    [answered] = await stage.outcome_of("a", fits, topic)
    assert isinstance(answered, Message)
    assert len(answered.value) > most
    # One byte more; and numbers that are short only as the client wrote them.
    for value in (fits + b" ", padded(",".join(["1e15"] * (most // 8)))):
        refusal = await stage.outcome_of("b", value, topic)
        assert isinstance(refusal, DeadLetter)
        assert (refusal.code, refusal.request_id) == ("request_too_large", REQUEST_ID)
    assert len(model.calls) == 1
