"""What no service sealed is answered, marked and kept apart (ARCHITECTURE, decision 20)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml
from prometheus_client import REGISTRY
from structlog.testing import capture_logs

from assay.envelope import Message, emit
from assay.events import GenerationAnswered, GenerationRequested, Meta
from assay_runtime.failures import DeadLetter
from assay_runtime.records import Delivery, Record, event_decoder
from assay_runtime.seals import TRUSTING, Seals
from services.scorer.seal_check import SealCheck
from tests.unit.scorer.asking import REQUEST_ID, Clock, Model, ScorerStage, write_process

SEALS, OTHERS = Seals([b"k" * 32]), Seals([b"o" * 32])
INPUT = {"word": "bees", "limit": 100}


def asked(process: str = "talk", **changes: Any) -> Message:
    meta = Meta(request_id=REQUEST_ID, tenant_id="t", process_id=process, **changes)
    event = GenerationRequested(meta=meta, input=INPUT)
    return emit(event, topic=event.type, source="/test", parent_id="parent")


def delivery(message: Message) -> Delivery[GenerationRequested]:
    record = Record(message.topic, 0, 0, 0, message.key, message.value, message.headers)
    return event_decoder(GenerationRequested)(record)


def checked(root: Path, model: Model, seals: Seals = SEALS, **ours: Any) -> ScorerStage:
    write_process(root, "talk", **ours)
    return ScorerStage(root, model, seal_check=SealCheck(seals))


async def answer(stage: ScorerStage, message: Message) -> Message:
    [[made]] = await stage.answers([delivery(message)])  # type: ignore[misc]
    assert isinstance(made, Message)
    return made


async def marked(stage: ScorerStage, message: Message) -> bool:
    made = await answer(stage, message)
    return GenerationAnswered.model_validate_json(made.value).meta.unsealed


@pytest.mark.parametrize("claimed", [False, True])
async def test_the_scorer_alone_sets_the_mark(tmp_path: Path, claimed: bool) -> None:
    """Decision 20: answered all the same; what the request says of itself does not count."""
    stage = checked(tmp_path, Model())
    plain = asked(unsealed=claimed)
    assert await marked(stage, SEALS.put(plain)) is False
    assert await marked(stage, plain) is True
    trusting = checked(tmp_path / "open", Model(), TRUSTING)
    assert await marked(trusting, plain) is False, "as it was before there were keys"


async def test_a_wrong_seal_is_a_dead_letter_that_a_replay_mends(tmp_path: Path) -> None:
    """Decision 20: most likely two services have different keys; no model call is paid for it."""
    model = Model()
    stage = checked(tmp_path, model)
    [refusal] = await stage.answers([delivery(OTHERS.put(asked()))])
    assert isinstance(refusal, DeadLetter)
    assert (refusal.code, refusal.request_id) == ("seal_invalid", REQUEST_ID)
    assert model.calls == []
    mended = checked(tmp_path / "mended", model, Seals([b"k" * 32, b"o" * 32]))
    assert await marked(mended, OTHERS.put(asked())) is False


async def test_a_question_that_no_model_gets_is_marked_too(tmp_path: Path) -> None:
    """Decision 20: the answered event of a failed expression step leads to a rejection, which may
    end a request."""
    failing = {"name": "sum", "scope": "expression", "expressions": {"x": "word // 0"}}
    write_process(tmp_path, "talk")
    config = tmp_path / "talk" / "config.yaml"
    settings = yaml.safe_load(config.read_text())
    settings["pipeline"]["steps"].insert(0, failing)
    config.write_text(yaml.safe_dump(settings))
    model = Model()
    stage = ScorerStage(tmp_path, model, seal_check=SealCheck(SEALS))
    assert await marked(stage, asked()) is True
    assert model.calls == []


async def test_an_answer_cannot_be_left_for_a_request_to_come(tmp_path: Path) -> None:
    """Decision 20: a client may know the id of a service's next request and use it first."""
    model = Model()
    stage = checked(tmp_path, model)
    planted = asked()
    assert await marked(stage, planted) is True
    real = SEALS.put(planted)
    assert real.id == planted.id
    first = await answer(stage, real)
    assert GenerationAnswered.model_validate_json(first.value).meta.unsealed is False
    assert len(model.calls) == 2
    assert await answer(stage, real) == first, "a redelivery is paid for once"
    assert await marked(stage, planted) is True
    assert len(model.calls) == 2


async def test_accepted_answers_are_not_shared_with_who_only_says_whose_it_is(
    tmp_path: Path,
) -> None:
    """Decision 20: in neither direction; an unsealed request may name any tenant."""
    model = Model()
    stage = checked(tmp_path, model, cache=True)
    for position, seals in enumerate((SEALS, TRUSTING), 1):
        await answer(stage, seals.put(asked()))
        await stage.judged()
        assert len(model.calls) == position
    for seals in (SEALS, TRUSTING):
        again = seals.put(asked(unit_id="another event"))
        served = GenerationAnswered.model_validate_json((await answer(stage, again)).value)
        assert served.served_from is not None
        assert served.meta.unsealed is (seals is TRUSTING)
    assert len(model.calls) == 2


def counted(seal: str) -> float:
    return REGISTRY.get_sample_value("assay_unsealed_requests_total", {"seal": seal}) or 0.0


def test_scores_that_stay_unsigned_are_counted_and_said_now_and_then() -> None:
    """Decision 20: services with different keys must be noticed; a batch of another process is
    nothing to be warned of."""
    clock = Clock()
    check = SealCheck(SEALS, {"wallet_score"}, clock)
    before = counted("missing"), counted("wrong")
    with capture_logs() as logs:
        for message in (
            asked(), SEALS.put(asked("wallet_score")), asked("wallet_score"),
            asked("wallet_score"),
        ):  # fmt: skip
            check.unsealed(delivery(message))
        for later in (0, 61):
            clock.ahead += later
            with pytest.raises(DeadLetter):
                check.unsealed(delivery(OTHERS.put(asked())))
    assert (counted("missing") - before[0], counted("wrong") - before[1]) == (3, 2)
    said = [(line["event"], line["seal"], line["requests"]) for line in logs]
    assert said == [("request_unsealed", "missing", 1), ("request_unsealed", "wrong", 3)]


def test_a_scorer_that_trusts_everybody_says_so() -> None:
    """Decision 20: once, at its start."""
    with capture_logs() as logs:
        SealCheck(SEALS).announce()
        SealCheck(TRUSTING).announce()
    [line] = logs
    assert (line["event"], line["log_level"]) == ("seals_off", "warning")
    assert "ASSAY_SEALS__KEYS" in line["reason"]
