"""Answers served again, for processes that allow it (issue 5 row 2, seed 5)."""

from __future__ import annotations

import asyncio
import dataclasses
import json
from pathlib import Path
from typing import Any

import pytest
from prometheus_client import REGISTRY

from assay.events import FieldError, GenerationAnswered, Meta
from assay_gate.process import load_process, load_processes
from services.scorer import accepted_answers
from services.scorer.answers import DURATION
from services.scorer.domain.answer_cache import AnswerCache, accepted_now, question_name
from services.scorer.domain.provider import ModelCall, ModelReply
from services.scorer.domain.question import Question
from services.validator.domain.judgement import judge
from tests.unit.scorer.asking import REQUEST_ID, Model, ScorerStage, write_process

REPO = Path(__file__).parents[3]
INPUT = {"word": "bees", "limit": 100}
OTHER_ID = "10203040-0b0a-5908-8706-050403020100"


@pytest.fixture
def root(tmp_path: Path) -> Path:
    write_process(tmp_path, "talk", cache=True)
    return tmp_path


async def answered_and_judged(stage: ScorerStage, **meta: Any) -> GenerationAnswered:
    event = await stage.event("first", INPUT, **meta)
    await stage.judged()
    return event


def counted(outcome: str) -> float:
    """Requests with this outcome, of every test in this process."""
    labels = {"outcome": outcome}
    return REGISTRY.get_sample_value("assay_model_requests_total", labels) or 0.0


async def test_an_accepted_answer_is_served_again(root: Path) -> None:
    """Issue 5 row 2: an ordinary event with the request's own meta, that names its source."""
    model = Model()
    stage = ScorerStage(root, model)
    before = counted("served")
    original = await stage.message("first", INPUT)
    await stage.judged()
    message = await stage.message("second", INPUT, request_id=OTHER_ID)
    served = GenerationAnswered.model_validate_json(message.value)
    assert len(model.calls) == 1
    assert served.served_from == original.id
    assert (served.meta.request_id, served.meta.causation_id) == (OTHER_ID, "second")
    asked = GenerationAnswered.model_validate_json(original.value)
    assert asked.served_from is None
    changed = {"meta", "served_from", "usage"}
    assert served.model_dump(exclude=changed) == asked.model_dump(exclude=changed)
    assert served.usage == {}
    assert DURATION not in dict(message.headers)
    assert judge(served, load_process(root / "talk")).accepted
    assert await stage.message("second", INPUT, request_id=OTHER_ID) == message
    assert counted("served") == before + 1


async def test_no_process_is_served_unless_it_says_so(tmp_path: Path) -> None:
    """Seed 5: the process allows it, or every request is asked for itself."""
    write_process(tmp_path, "talk")
    write_process(tmp_path, "walk", cache=False)
    model = Model()
    stage = ScorerStage(tmp_path, model)
    for process_id in ("talk", "walk"):
        for number in range(2):
            event = await stage.event(f"{process_id}{number}", INPUT, process_id=process_id)
            assert event.served_from is None
    assert len(model.calls) == 4
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.05):
            await stage.accepted.judge_next()


def test_a_signed_score_comes_from_its_own_answer() -> None:
    """Seed 5: wallet_score does not opt in."""
    processes = load_processes(REPO / "schemas" / "processes")
    assert processes["wallet_score"].caching is None


async def test_never_across_tenants(root: Path) -> None:
    """Issue 5 row 2: the same question of another tenant goes to the model."""
    model = Model()
    stage = ScorerStage(root, model)
    await answered_and_judged(stage)
    other = await stage.event("second", INPUT, tenant_id="u")
    assert (other.served_from, other.raw) == (None, '{"n": 2}')
    await stage.judged()
    mine = await stage.event("third", INPUT)
    theirs = await stage.event("fourth", INPUT, tenant_id="u")
    assert [mine.raw, theirs.raw] == ['{"n": 1}', '{"n": 2}']
    assert len(model.calls) == 2


async def test_another_version_is_asked(tmp_path: Path) -> None:
    """Issue 5 row 2: even where both would put the same prompt."""
    write_process(tmp_path, "talk", cache=True, version="2")
    write_process(tmp_path, "talk@1", cache=True, version="1", id="talk")
    model = Model()
    stage = ScorerStage(tmp_path, model)
    await answered_and_judged(stage)
    old = load_process(tmp_path / "talk@1")
    event = await stage.event("second", INPUT, process_hash=old.hash, process_version="1")
    assert event.served_from is None
    assert model.calls[0] == model.calls[1]


async def test_another_seed_is_asked(tmp_path: Path) -> None:
    """Issue 5 row 2: without a key the request's id seeds, so only the request is served."""
    write_process(tmp_path, "talk", cache=True, key=None)
    model = Model()
    stage = ScorerStage(tmp_path, model)
    await answered_and_judged(stage)
    assert (await stage.event("second", INPUT, request_id=OTHER_ID)).served_from is None
    assert model.calls[0].prompt == model.calls[1].prompt
    assert (await stage.event("third", INPUT)).served_from is not None


async def test_another_input_with_the_same_prompt_is_asked(root: Path) -> None:
    """Issue 5 row 2: rules see fields that the prompt does not show."""
    model = Model()
    stage = ScorerStage(root, model)
    await answered_and_judged(stage)
    event = await stage.event("second", {"word": "bees", "limit": 1})
    assert event.served_from is None
    assert model.calls[0] == model.calls[1]


@pytest.mark.parametrize("text", ['{"n": 100}', '{"n": "many"}', "I cannot count.", "{"])
async def test_a_rejected_answer_is_never_served(root: Path, text: str) -> None:
    """Issue 5 row 2: "after validation"."""
    model = Model(lambda call: text)
    stage = ScorerStage(root, model)
    await answered_and_judged(stage)
    assert (await stage.event("second", INPUT)).served_from is None
    assert len(model.calls) == 2


async def test_an_answer_is_served_only_once_it_was_judged(root: Path) -> None:
    """Issue 5 row 2: nothing is served meanwhile."""
    stage = ScorerStage(root, Model())
    await stage.event("first", INPUT)
    assert (await stage.event("second", INPUT)).served_from is None


async def test_a_cut_off_answer_is_not_kept(root: Path) -> None:
    """DESIGN §5: it is no whole answer, even if the gate could read it."""

    class Cut(Model):
        async def generate(self, call: ModelCall) -> ModelReply:
            return dataclasses.replace(await super().generate(call), finish_reason="length")

    stage = ScorerStage(root, Cut())
    assert (await stage.event("first", INPUT)).outcome == "failed"
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.05):
            await stage.accepted.judge_next()


@pytest.mark.parametrize(
    "meta",
    [{"attempt": 2}, {"feedback": [FieldError(path="$", rule="r", message="m")]}],
)
async def test_a_retry_is_neither_served_nor_kept(root: Path, meta: dict[str, Any]) -> None:
    """Issue 5 row 2: it wants another answer than the one that was refused."""
    stage = ScorerStage(root, Model())
    await answered_and_judged(stage)
    assert (await stage.event("second", INPUT, **meta)).served_from is None
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.05):
            await stage.accepted.judge_next()


async def test_other_weights_are_asked(root: Path) -> None:
    """Issue 5 row 2: the digest names them; while it is not known nothing is served."""
    model = Model()
    stage = ScorerStage(root, model)
    await answered_and_judged(stage)
    for digest in ("d2", None):
        model.model_digest = digest
        model.say = lambda call: "no"
        assert (await stage.event(f"with {digest}", INPUT)).served_from is None
    model.model_digest = "d1"
    assert (await stage.event("again", INPUT)).served_from is not None


async def test_an_old_answer_is_not_served(tmp_path: Path) -> None:
    """Issue 5 row 2: `max_age_s` bounds it, and a new answer takes its place."""
    write_process(tmp_path, "talk", cache={"max_age_s": 60})
    stage = ScorerStage(tmp_path, Model())
    await answered_and_judged(stage)
    stage.clock.ahead = 50
    assert (await stage.event("second", INPUT)).raw == '{"n": 1}'
    stage.clock.ahead = 61
    assert (await stage.event("third", INPUT)).raw == '{"n": 2}'
    await stage.judged()
    assert (await stage.event("fourth", INPUT)).raw == '{"n": 2}'


@pytest.mark.parametrize("cache", [AnswerCache(2, 1 << 20), AnswerCache(100, 30_000)])
async def test_the_cache_is_bounded(root: Path, cache: AnswerCache) -> None:
    """Issue 5 row 2: by entries and by bytes; what was used longest ago goes."""
    model = Model(lambda call: json.dumps({"n": call, "word": "x" * 10_000}))
    stage = ScorerStage(root, model, cache=cache)
    for number in range(3):
        await stage.event(f"first{number}", {"word": str(number), "limit": 100})
        await stage.judged()
        assert 0 < cache.bytes <= 30_000
    served = [
        (await stage.event(f"again{number}", {"word": str(number), "limit": 100})).served_from
        for number in (2, 1, 0)
    ]
    assert [name is not None for name in served] == [True, True, False]
    assert REGISTRY.get_sample_value("assay_answer_cache_bytes") == cache.bytes


async def test_an_answer_larger_than_all_room_is_not_kept(root: Path) -> None:
    """Issue 5 row 2: and nothing else is dropped for it."""
    cache = AnswerCache(100, 2_000)
    stage = ScorerStage(root, Model(), cache=cache)
    await answered_and_judged(stage)
    before = cache.bytes
    assert before > 0
    big = Model(lambda call: json.dumps({"n": 1, "word": "x" * 10_000}))
    stage = ScorerStage(root, big, cache=cache)
    await stage.event("big", {"word": "other", "limit": 100})
    await stage.judged()
    assert cache.bytes == before


async def test_a_judge_that_fails_goes_on(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """DESIGN §3: a bug keeps nothing and ends nothing."""

    def broken(question: Question, raw: str) -> bool:
        raise RuntimeError("bug")

    stage = ScorerStage(root, Model())
    with monkeypatch.context() as patch:
        patch.setattr(accepted_answers, "accepted_now", broken)
        await answered_and_judged(stage)
    assert (await stage.event("second", INPUT)).served_from is None
    await stage.judged()
    assert (await stage.event("third", INPUT)).served_from is not None


async def test_answers_are_let_go_while_the_judge_is_behind(root: Path) -> None:
    """DESIGN §3: what waits is bounded and never holds up a request."""
    model = Model()
    stage = ScorerStage(root, model)
    async with asyncio.timeout(30):
        for number in range(300):
            await stage.event(f"request {number}", {"word": str(number), "limit": 1000})
    assert len(model.calls) == 300


def question(**changes: Any) -> Question:
    process = load_process(REPO / "schemas" / "processes" / "open_notes")
    call = ModelCall("p", {"type": "object"}, 0.3, 1, 10, 100, 5)
    meta = Meta(request_id=REQUEST_ID, tenant_id="t", step="note", unit_id="u")
    given = {"process": process, "meta": meta, "input": {"a": 1, "b": 2}, "call": call}
    return Question(**given | {"first": True} | changes)


def test_a_question_is_named_by_all_that_its_answer_depends_on() -> None:
    """Issue 5 row 2: another tenant, version, step, model, seed … is another question."""
    base = question()
    call, meta = base.call, base.meta
    other = load_process(REPO / "schemas" / "processes" / "quiz_card")
    asked = ("ollama", "tiny", "d1")
    names = [
        question_name(base, *asked),
        question_name(base, "openai", "tiny", "d1"),
        question_name(base, "ollama", "large", "d1"),
        question_name(base, "ollama", "tiny", "d2"),
        question_name(question(process=other), *asked),
        question_name(question(meta=meta.model_copy(update={"tenant_id": "u"})), *asked),
        question_name(question(meta=meta.model_copy(update={"step": "other"})), *asked),
        question_name(question(meta=meta.model_copy(update={"unsealed": True})), *asked),
        question_name(question(input={"a": 1, "b": 3}), *asked),
        *(
            question_name(question(call=dataclasses.replace(call, **{field: value})), *asked)
            for field, value in (
                ("prompt", "q"), ("wire_schema", {"type": "array"}), ("wire_schema", None),
                ("temperature", 0.2), ("seed", 2),
            )
        ),
    ]  # fmt: skip
    assert len(set(names)) == len(names)
    same = question(
        input={"b": 2, "a": 1},
        meta=meta.model_copy(update={"request_id": OTHER_ID, "unit_id": "v"}),
    )
    assert question_name(same, *asked) == names[0]


@pytest.mark.parametrize("raw", ['{"n": 3}', '{"n": 300}', '```json\n{"n": "7"}\n```', "{"])
async def test_what_is_kept_is_what_the_validator_accepts(root: Path, raw: str) -> None:
    """Issue 5 row 2: one judgement, so that a served answer is not refused for nothing."""
    process = load_process(root / "talk")
    stage = ScorerStage(root, Model(lambda call: raw))
    event = await stage.event("first", INPUT)
    asked = question(process=process, meta=event.meta, input=event.input)
    assert accepted_now(asked, raw) is judge(event, process).accepted
