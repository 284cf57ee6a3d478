"""The order of the model stage (SPEC S1.4, S5.1, X.4, X.6; DESIGN §2, §5)."""

from __future__ import annotations

import uuid
from pathlib import Path
from typing import Any

import pytest

from assay.events import FieldError, GenerationAnswered, GenerationRequested, Meta
from assay_gate.process import Process, load_process
from assay_runtime.failures import DeadLetter
from services.scorer.adapters.endpoint import Endpoint
from services.scorer.domain.answering import CallLimits, seed_of
from services.scorer.domain.availability import Policy
from services.scorer.domain.provider import (
    ModelCall,
    ModelReply,
    ModelTimeout,
    ModelUnavailable,
    ProbeResult,
)
from services.scorer.handler import ScorerHandler
from tests.unit.scorer.asking import answer

REPO = Path(__file__).parents[3]
ADDRESS = "0x859e1Dfb430A7156fAEF11947F2FC2a3C34B733A"
REQUEST_ID = str(uuid.uuid5(uuid.NAMESPACE_URL, "request"))


class OneAnswer:
    """A provider that gives one answer and keeps the calls."""

    name = "ollama"
    model = "tiny"
    model_digest = "digest"

    def __init__(self, answer: ModelReply | Exception) -> None:
        self.answer = answer
        self.calls: list[ModelCall] = []

    async def generate(self, call: ModelCall) -> ModelReply:
        self.calls.append(call)
        if isinstance(self.answer, Exception):
            raise self.answer
        return self.answer

    async def probe(self) -> ProbeResult:
        return ProbeResult("unreachable", "")

    async def aclose(self) -> None:
        pass


@pytest.fixture(scope="module")
def process() -> Process:
    return load_process(REPO / "schemas" / "processes" / "wallet_score")


def record(process: Process) -> dict[str, Any]:
    required = process.input_schema["properties"]["features"]["required"]
    return {
        "address": ADDRESS,
        "features": dict.fromkeys(required, 1) | {"protocolNames": ["curve"]},
        "questionnaire": "No questionnaire data provided.",
        "has_questionnaire": False,
        "evm_source": "inline",
        "evm_sha256": "0" * 64,
    }


def request(record: dict[str, Any], **changes: Any) -> GenerationRequested:
    meta: dict[str, Any] = {
        "request_id": REQUEST_ID,
        "tenant_id": "t",
        "wallet": ADDRESS.lower(),
        "process_id": "wallet_score",
        "step": "score",
    }
    feedback = changes.pop("feedback", [])
    return GenerationRequested(meta=Meta(**meta | changes), input=record, feedback=feedback)


def handler(process: Process, provider: OneAnswer) -> ScorerHandler:
    endpoint = Endpoint(provider, Policy(1, 5, 0.05, 0.01, 0.02), slots=2)
    return ScorerHandler([process], endpoint, CallLimits(256, 4096, 5))


async def test_an_answer_with_everything_that_is_recorded(process: Process) -> None:
    """DESIGN §4: the fields make the answered event, meta aside."""
    provider = OneAnswer(ModelReply('{"a": 1}', "tiny:1", "abc", "stop"))
    error = FieldError(path="$.score", rule="cross_check", message="no")
    asked = request(record(process), process_hash=process.hash, attempt=2, feedback=[error])
    fields = await answer(handler(process, provider), asked)
    event = GenerationAnswered(meta=asked.meta, **fields)
    assert GenerationAnswered.model_validate_json(event.to_bytes()) == event
    (call,) = provider.calls
    assert (event.temperature, event.seed) == (0.2, seed_of(ADDRESS))
    assert call.prompt == event.prompt
    assert "$.score (cross_check): no" in event.prompt
    assert (event.outcome, event.raw, event.model_digest) == ("answered", '{"a": 1}', "abc")
    assert call.wire_schema is not None
    breakdown = call.wire_schema["properties"]["scoreBreakdown"]
    assert breakdown["properties"]["surveyMatch"] == {"const": 50}


async def test_the_same_request_gives_the_same_event(process: Process) -> None:
    """DESIGN §2: no clock, no duration and no randomness of ours in the value."""
    provider = OneAnswer(ModelReply("{}", "m", "d", "stop"))
    scorer = handler(process, provider)
    asked = request(record(process))
    assert await answer(scorer, asked) == await answer(scorer, asked)
    assert provider.calls[0] == provider.calls[1]


async def test_a_hang_and_an_outage(process: Process) -> None:
    """X.6: both are answered, neither is lost."""
    failed = await answer(
        handler(process, OneAnswer(ModelTimeout("hangs"))), request(record(process))
    )
    assert (failed["outcome"], failed["error"]["code"]) == ("failed", "model_timeout")
    away = await answer(
        handler(process, OneAnswer(ModelUnavailable("refused"))), request(record(process))
    )
    assert (away["outcome"], away["raw"], away["model"]) == ("unavailable", None, "tiny")
    assert away["prompt"]


@pytest.mark.parametrize(
    ("changes", "wrong", "code", "pointer", "said"),
    [
        ({"process_id": "tea_leaves"}, {}, "unknown_process", "/meta", "'tea_leaves'"),
        ({"process_id": None}, {}, "unknown_process", "/meta", "None"),
        ({"process_hash": "f" * 64}, {}, "unknown_process_version", "/meta", "ffffffffffff"),
        ({"process_version": "9.9.9"}, {}, "unknown_process_version", "/meta", "9.9.9"),
        ({"step": "guess"}, {}, "invalid_input", "/input", "'guess'"),
        ({}, {"features": {}}, "invalid_input", "/input/features", "walletAge"),
        ({}, {"has_questionnaire": "no"}, "invalid_input", "/input/has_questionnaire", "boolean"),
        ({}, {"address": "0x1"}, "invalid_input", "/input/address", "0x1"),
    ],
)
async def test_what_can_never_be_answered_is_dead_lettered(
    process: Process,
    changes: dict[str, Any],
    wrong: dict[str, Any],
    code: str,
    pointer: str,
    said: str,
) -> None:
    """X.4: a clear reason with the field, and no call to the model."""
    provider = OneAnswer(ModelReply("{}", "m", "d", "stop"))
    with pytest.raises(DeadLetter) as caught:
        await answer(handler(process, provider), request(record(process) | wrong, **changes))
    assert (caught.value.code, caught.value.pointer) == (code, pointer)
    assert caught.value.request_id == REQUEST_ID
    assert said in str(caught.value)
    assert not provider.calls


async def test_a_request_without_step_goes_to_the_first_model_step(process: Process) -> None:
    """DESIGN §4: clients need not know the steps."""
    provider = OneAnswer(ModelReply("{}", "m", "d", "stop"))
    fields = await answer(handler(process, provider), request(record(process), step=None))
    assert fields["outcome"] == "answered"


async def test_a_process_without_key_seeds_by_request(tmp_path: Path) -> None:
    """DESIGN §5: the seed stays stable across attempts where there is no wallet."""
    (tmp_path / "config.yaml").write_text(
        "pipeline: {steps: [{name: a}]}\n"
        "prompts: {template_dir: ., templates: {a: a.jinja2}}\n"
        "schemas: {files: {a: null}}\n"
        "validation: {a: null}\n"
        "assay: {id: free}\n"
    )
    (tmp_path / "a.jinja2").write_text("Say {{ word }}.")
    provider = OneAnswer(ModelReply("{}", "m", "d", "stop"))
    scorer = handler(load_process(tmp_path), provider)
    for attempt in (1, 2):
        await answer(
            scorer,
            request({"word": "x"}, process_id="free", step=None, wallet=None, attempt=attempt),
        )
    assert [call.seed for call in provider.calls] == [seed_of(REQUEST_ID)] * 2
    assert provider.calls[0].wire_schema is None
    assert provider.calls[0].max_tokens == 256
    with pytest.raises(DeadLetter, match="word"):
        await answer(scorer, request({}, process_id="free", step=None))
