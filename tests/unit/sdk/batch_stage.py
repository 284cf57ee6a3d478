"""A stand-in for scorer and validator: each request ends as its input's `end` says."""

from __future__ import annotations

import asyncio
import json
import threading
from typing import Any

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, ConsumerRecord

from assay.envelope import Message, emit, text_headers
from assay.events import Event, GenerationAccepted, GenerationRejected, GenerationRequested, Meta
from assay.topics import dead_letter_name

REQUESTED = GenerationRequested.type
DEAD = dead_letter_name(REQUESTED, "scorer")


class BatchStage:
    """`asked` has every request read; `end` stands above what their inputs say.

    Ends: ok, bad (validation), schema, internal, dead, unknown (no such process), silent, mended
    (ok from the second attempt of its retry on), empty (the process's empty result); with two
    steps: two (ok at both), late (bad at the second, read before the first), computed (the
    expression step between fails), half (nothing after the first).
    """

    def __init__(self, bootstrap: str) -> None:
        self._bootstrap = bootstrap
        self._stop = threading.Event()
        self._ready = threading.Event()
        self._thread = threading.Thread(target=lambda: asyncio.run(self._run()), daemon=True)
        self.asked: list[GenerationRequested] = []
        self.mute = False
        self.end: str | None = None

    def __enter__(self) -> BatchStage:
        self._thread.start()
        assert self._ready.wait(20)
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join(20)

    def units(self) -> list[str]:
        return [str(request.meta.unit_id) for request in self.asked]

    async def _run(self) -> None:
        consumer = AIOKafkaConsumer(
            bootstrap_servers=self._bootstrap, auto_offset_reset="latest", fetch_max_wait_ms=20
        )
        producer = AIOKafkaProducer(bootstrap_servers=self._bootstrap)
        await consumer.start()
        await producer.start()
        try:
            consumer.subscribe([REQUESTED])
            while not consumer.assignment():
                await asyncio.sleep(0.01)
            await consumer.seek_to_end()
            for tp in consumer.assignment():
                await consumer.position(tp)
            self._ready.set()
            while not self._stop.is_set():
                for records in (await consumer.getmany(timeout_ms=20)).values():
                    for record in records:
                        await self._answer(producer, record)
        finally:
            await consumer.stop()
            await producer.stop()

    async def _answer(self, producer: AIOKafkaProducer, record: ConsumerRecord) -> None:
        request = GenerationRequested.model_validate_json(record.value)
        self.asked.append(request)
        if self.mute:
            return
        for topic, key, value, headers in answers(request, record, self.end):
            await producer.send_and_wait(topic, value=value, key=key, headers=headers)


Published = tuple[str, bytes | None, bytes, list[tuple[str, bytes]]]


def answers(
    request: GenerationRequested, record: ConsumerRecord, end: str | None = None
) -> list[Published]:
    """What becomes of a request; `end` stands above what its input says."""
    end = end or request.input.get("end")
    if end in ("dead", "unknown"):
        code = "invalid_input" if end == "dead" else "unknown_process"
        headers = [
            *record.headers,
            ("assay.request.id", request.meta.request_id.encode()),
            ("assay.error.code", code.encode()),
            ("assay.error.pointer", b"/input/text"),
            ("__connect.errors.exception.message", b"there is no process of that name"),
        ]
        return [(DEAD, record.key, record.value, headers)]
    if end == "silent":
        return []
    first = request.meta.step in (None, "draft")
    meta = request.meta.model_copy(update={"step": "draft" if first else request.meta.step})
    if end == "ok" or (end == "mended" and request.feedback):
        return [_message(accepted(meta, request.input, {"answer": 42}), record)]
    if end in TWO_STEPS:
        return [_message(event, record) for event in _two_steps(str(end), meta, request)]
    stage = {"schema": "schema_validation", "internal": "pipeline_internal"}
    early = rejected(meta, request.input, terminal=False)
    final = rejected(meta, request.input, failure_stage=stage.get(str(end), "validation"))
    if end == "empty":
        final = final.model_copy(update={"empty_result": True})
        empty = accepted(meta, request.input, {"answer": None}, fallback="answers_rejected")
        return [_message(final, record), _message(empty, record)]
    return [_message(early, record), _message(final, record)]


TWO_STEPS = ("two", "late", "computed", "half")


def _two_steps(end: str, meta: Meta, request: GenerationRequested) -> list[Event]:
    draft = {"draft": "d"}
    later = meta.model_copy(update={"step": "polish"})
    grown = {**request.input, **draft}
    first = accepted(meta, request.input, draft, final=False)
    second = accepted(later, grown, {**draft, "polished": "p"})
    if request.feedback:
        return [second]
    if end == "late":
        return [rejected(later, grown), first]
    if end == "computed":
        computed = meta.model_copy(update={"step": "compute"})
        return [first, rejected(computed, grown, failure_stage="pipeline_internal", reason=None)]
    return [first] if end == "half" else [first, second]


def accepted(meta: Any, record: dict[str, Any], output: Any, **more: Any) -> GenerationAccepted:
    return GenerationAccepted(
        meta=meta, input=record, output=output, attempts=meta.attempt, model="m", **more
    )


def rejected(meta: Any, record: dict[str, Any], **changes: Any) -> GenerationRejected:
    fields: dict[str, Any] = {
        "terminal": True,
        "unit_id": meta.unit_id,
        "failure_stage": "validation",
        "input": record,
        "raw_response": '{"answer": 41}',
        "errors": [{"path": "$.answer", "rule": "right", "message": "41 is not 42"}],
        "retry_count": meta.attempt - 1 + 2 * (meta.attempt == 1),
        "reason": "answers_rejected",
        "ends_as": "rejected",
        **changes,
    }
    return GenerationRejected(meta=meta, **fields)


def _message(event: Any, record: ConsumerRecord) -> Published:
    parent = text_headers(record.headers)["ce_id"]
    made: Message = emit(event, topic=event.type, source="/stage", parent_id=parent)
    return made.topic, made.key, made.value, list(made.headers)


def lines_of(text: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in text.splitlines()]
