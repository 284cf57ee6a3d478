"""Requests put to the scorer: to its handler, or to the whole stage as the lane calls it."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import yaml

from assay.envelope import Attributes, Message
from assay.events import GenerationAnswered, GenerationRequested, Meta
from assay_gate.process import load_registry
from assay_runtime.records import Delivery, Record
from assay_runtime.tracing import new_trace
from services.scorer.accepted_answers import AcceptedAnswers
from services.scorer.adapters.endpoint import Endpoint
from services.scorer.answers import AnswerMessages
from services.scorer.domain.answer_cache import AnswerCache
from services.scorer.domain.answering import CallLimits
from services.scorer.domain.availability import Policy
from services.scorer.domain.bounded import Bounded
from services.scorer.domain.provider import ModelCall, ModelReply, ProbeResult, Provider
from services.scorer.domain.question import Unasked
from services.scorer.handler import ScorerHandler
from services.scorer.seal_check import SealCheck

REQUEST_ID = "0f0e0d0c-0b0a-5908-8706-050403020100"
SCHEMA = {
    "type": "object", "properties": {"n": {"type": "integer"}, "word": {"type": "string"}},
    "required": ["n"],
}  # fmt: skip
RULES = {"rules": [{"name": "small", "expr": "n < limit", "error": "too much", "level": "error"}]}


async def answer(scorer: ScorerHandler, request: GenerationRequested) -> dict[str, Any]:
    """All fields of the answered event but `meta`."""
    question = await scorer.question(request)
    if isinstance(question, Unasked):
        return question.fields
    fields, _ = await scorer.ask(question)
    return fields


async def stamped_meta(scorer: ScorerHandler, request: GenerationRequested) -> Meta:
    """The answered event's meta, but for its cause."""
    return (await scorer.question(request)).meta


def counting(prefix: str) -> dict[str, Any]:
    """Settings of a process that says `prefix` and a word, and wants a number below `limit`."""
    return {
        "pipeline": {"steps": [{"name": "count"}]},
        "prompts": {"template_dir": ".", "templates": {"count": "count.jinja2"}},
        "schemas": {"schema_dir": ".", "files": {"count": "count.json"}},
        "validation": {"count": RULES},
        "assay": {"input_schema": "in.json", "key": "word", "temperatures": [0.3, 0.2]},
        "count.jinja2": f"{prefix} {{{{ word }}}}.",
    }


def write_process(root: Path, name: str, prefix: str = "Count", **ours: Any) -> None:
    """A folder of such a process; `ours` goes to the section `assay`."""
    settings = counting(prefix)
    template = settings.pop("count.jinja2")
    settings["assay"] |= ours
    folder = root / name
    folder.mkdir(parents=True)
    required = {"type": "object", "required": ["word", "limit"]}
    (folder / "config.yaml").write_text(yaml.safe_dump(settings))
    (folder / "count.jinja2").write_text(template)
    (folder / "count.json").write_text(json.dumps(SCHEMA))
    (folder / "in.json").write_text(json.dumps(required))


class Model:
    """A provider whose answers differ from call to call, as a model's do; `say` may raise."""

    name = "ollama"
    model = "tiny"
    model_digest: str | None = "d1"

    def __init__(self, say: Callable[[int], str] = lambda call: f'{{"n": {call}}}') -> None:
        self.say = say
        self.calls: list[ModelCall] = []

    async def generate(self, call: ModelCall) -> ModelReply:
        self.calls.append(call)
        text = self.say(len(self.calls))
        usage = {"prompt_tokens": 7, "completion_tokens": 2}
        return ModelReply(text, "tiny:1", self.model_digest or "unknown", "stop", usage)

    async def probe(self) -> ProbeResult:
        return ProbeResult("unreachable", "")

    async def aclose(self) -> None:
        pass


class Clock:
    """The monotonic clock, which a test puts forward by adding to `ahead`."""

    def __init__(self) -> None:
        self.ahead = 0.0

    def __call__(self) -> float:
        return time.monotonic() + self.ahead


class ScorerStage:
    """Everything behind the lane, over the processes of a folder."""

    def __init__(
        self, root: Path, model: Provider, *, remembered: Bounded[Message] | None = None,
        cache: AnswerCache | None = None, seal_check: SealCheck | None = None,
    ) -> None:  # fmt: skip
        self.clock = Clock()
        endpoint = Endpoint(model, Policy(1, 5, 0.05, 0.01, 0.02), slots=2, clock=self.clock)
        self.accepted = AcceptedAnswers(cache or AnswerCache(100, 1 << 20), model, self.clock)
        handler = ScorerHandler(load_registry(root), endpoint, CallLimits(256, 2048, 60))
        kept = Bounded[Message](100, 1 << 20) if remembered is None else remembered
        self.answers = AnswerMessages(handler, self.accepted, kept, seal_check)

    async def outcome(self, event_id: str, record: dict[str, Any], **meta: Any) -> Any:
        """The outcome of one request event."""
        feedback = meta.pop("feedback", [])
        given = {"request_id": REQUEST_ID, "tenant_id": "t", "process_id": "talk"} | meta
        event = GenerationRequested(meta=Meta(**given), input=record, feedback=feedback)
        return await self.outcome_of(event_id, event.to_bytes())

    async def outcome_of(
        self, event_id: str, value: bytes, topic: str = GenerationRequested.type
    ) -> Any:
        """The outcome of a record of one of the scorer's topics."""
        event = GenerationRequested.model_validate_json(value)
        taken = Record(topic, 0, 1, 2, event.key.encode(), value, ())
        attributes = Attributes(event_id, "/test", event.type)
        [outcome] = await self.answers([Delivery(taken, event, attributes, new_trace())])
        return outcome

    async def message(self, event_id: str, record: dict[str, Any], **meta: Any) -> Message:
        """The one message of a request event."""
        [message] = await self.outcome(event_id, record, **meta)
        assert isinstance(message, Message)
        return message

    async def judged(self) -> None:
        """The next answer that was offered to the cache is judged."""
        async with asyncio.timeout(10):
            await self.accepted.judge_next()

    async def event(self, event_id: str, record: dict[str, Any], **meta: Any) -> GenerationAnswered:
        message = await self.message(event_id, record, **meta)
        return GenerationAnswered.model_validate_json(message.value)
