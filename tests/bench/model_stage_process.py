"""The measured process of model_stage.py: one lane pipeline over prepared topics."""

from __future__ import annotations

import asyncio
import json
import sys
import time
from collections.abc import Sequence
from typing import Any

from prometheus_client import REGISTRY

from assay.contracts import iter_examples
from assay.envelope import emit
from assay.events import GenerationAnswered, GenerationRequested
from assay_runtime.health import Health
from assay_runtime.pipeline import Pipeline, Runner
from assay_runtime.records import Delivery, event_decoder
from assay_runtime.settings import KafkaSection
from assay_runtime.stage import Outcome

_SAMPLE_S = 0.02


class SleepingModel:
    """Answers each request with the catalogue's example after `call_s`; counts what ended."""

    def __init__(self, sink: str, call_s: float) -> None:
        self._sink = sink
        self._call_s = call_s
        example = next(e for e in iter_examples(GenerationAnswered.type) if e.valid)
        self._answer = GenerationAnswered.model_validate_json(example.value)
        self.started = 0
        self.ended = 0

    async def __call__(self, deliveries: Sequence[Delivery[Any]], /) -> Sequence[Outcome]:
        (delivery,) = deliveries
        self.started += 1
        await asyncio.sleep(self._call_s)
        self.ended += 1
        meta = delivery.event.meta.caused_by(delivery.id, delivery.value)
        answer = self._answer.model_copy(update={"meta": meta})
        return [[emit(answer, topic=self._sink, source="/bench", parent_id=delivery.id)]]


def commits(pipeline: str) -> float:
    labels = {"pipeline": pipeline, "outcome": "ok"}
    return REGISTRY.get_sample_value("assay_offset_commits_total", labels) or 0.0


async def measured(job: dict[str, Any]) -> dict[str, Any]:
    """Rate and CPU between the end of the warm-up and `seconds` later."""
    model = SleepingModel(job["sink"], job["call_s"])
    name = job["source"]
    what = Pipeline(
        name=name, topics=(job["source"],), decode=event_decoder(GenerationRequested),
        handler=model, engine="lane", slots=job["slots"],
    )  # fmt: skip
    runner = Runner("bench", what, KafkaSection(bootstrap=job["bootstrap"]), Health())
    await runner.start()
    running = asyncio.create_task(runner.run())
    try:
        while not model.started:
            await asyncio.sleep(0.01)
        await asyncio.sleep(job["warm_s"])
        start, cpu, ended = time.perf_counter(), time.process_time(), model.ended
        committed, repeatable = commits(name), 0
        while (passed := time.perf_counter() - start) < job["seconds"]:
            await asyncio.sleep(_SAMPLE_S)
            # Calls begun whose records no commit covers yet.
            repeatable = max(repeatable, runner._engine.repeatable)
        records = model.ended - ended
        return {
            "records": records,
            "seconds": passed,
            "rate": records / passed,
            "cpu_us_per_record": (time.process_time() - cpu) / records * 1e6,
            "commits_per_s": (commits(name) - committed) / passed,
            "repeatable": repeatable,
        }
    finally:
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
        await runner.stop(2)


if __name__ == "__main__":
    print(json.dumps(asyncio.run(measured(json.loads(sys.argv[1])))))
