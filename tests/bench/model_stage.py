"""How much of its slots the model stage uses (issue 6, DESIGN §9): the lane engine on real Kafka.

`python -m tests.bench.model_stage` prints a table and writes build/model_stage.json. The handler
sleeps as long as a call to a model would take; everything around it is the scorer's: typed decode
of `llm.generation.requested.v1`, an answer event made from it, confirmed publishing, commits with
finished offsets. Records of many wallets stand in 12 partitions before the clock starts.

`ideal` is slots / seconds per call, or keys / seconds per call where fewer keys than slots have
work. CPU is the measured process's own, so it says more than the rate on a machine that others
use too. Every shape is run once per round, rounds one after another, and medians are given.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import statistics
import subprocess
import sys
import tempfile
import uuid
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from aiokafka import AIOKafkaProducer

from assay.contracts import iter_examples
from assay.envelope import emit
from assay.events import GenerationRequested
from assay_runtime.topic_admin import TopicSpec, ensure_topics
from deploy.kafka.broker import Broker
from tests.bench.report import machine

REPO = Path(__file__).resolve().parents[2]
OUTPUT = REPO / "build" / "model_stage.json"
PARTITIONS = 12


@dataclass(frozen=True, slots=True)
class Shape:
    """`keys` wallets, `slots` calls at once, each of `call_s` seconds."""

    name: str
    slots: int
    call_s: float
    keys: int
    goal: float

    @property
    def ideal(self) -> float:
        """Records per second that nothing could exceed."""
        return min(self.slots, self.keys) / self.call_s


SHAPES = (
    Shape("64 x 50 ms", 64, 0.05, 5_000, 0.90),
    Shape("256 x 200 ms", 256, 0.2, 5_000, 0.90),
    Shape("256 x 1 s", 256, 1.0, 5_000, 0.95),
    Shape("5 hot keys, 64 x 50 ms", 64, 0.05, 5, 0.80),
)
NOTES = (
    "the broker, the measured process and whatever else runs share the machine's cores",
    "CPU per record holds decode, answer event, publishing, fetching and committing",
    "repeatable is the most records at any moment that a kill -9 would have handled again",
)


async def prepare(bootstrap: str, shape: Shape, records: int) -> tuple[str, str]:
    """Fresh topics, the source filled with `records` requests of the shape's wallets."""
    source, sink = (f"bench.{side}.{uuid.uuid4().hex[:12]}" for side in ("in", "out"))
    await ensure_topics(bootstrap, [TopicSpec(name, PARTITIONS, 1) for name in (source, sink)])
    example = next(e for e in iter_examples(GenerationRequested.type) if e.valid)
    event = GenerationRequested.model_validate_json(example.value)
    producer = AIOKafkaProducer(
        bootstrap_servers=bootstrap, enable_idempotence=True, linger_ms=20, max_batch_size=262_144
    )
    await producer.start()
    try:
        futures = []
        for number in range(records):
            message = emit(event, topic=source, source="/bench", parent_id=str(number))
            key = b"wallet-%d" % (number % shape.keys)
            futures.append(
                await producer.send(
                    source, value=message.value, key=key, headers=list(message.headers)
                )
            )
        await asyncio.gather(*futures)
    finally:
        await producer.stop()
    return source, sink


def measure(bootstrap: str, shape: Shape, warm_s: float, seconds: float) -> dict[str, Any]:
    """One run in a process of its own."""
    records = int(shape.ideal * (warm_s + seconds + 2)) + 8 * shape.slots
    source, sink = asyncio.run(prepare(bootstrap, shape, records))
    job = {"bootstrap": bootstrap, "source": source, "sink": sink, "slots": shape.slots,
           "call_s": shape.call_s, "warm_s": warm_s, "seconds": seconds}  # fmt: skip
    before = os.getloadavg()[0]
    done = subprocess.run(
        [sys.executable, "-m", "tests.bench.model_stage_process", json.dumps(job)],
        cwd=REPO, stdout=subprocess.PIPE, check=True, text=True,
    )  # fmt: skip
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    found["share"] = found["rate"] / shape.ideal
    found["load_before"] = round(before, 2)
    return found


def summary(shape: Shape, runs: list[dict[str, Any]]) -> dict[str, Any]:
    """Medians of the runs, which are kept beside them."""
    return {
        **asdict(shape),
        "ideal": shape.ideal,
        **{
            name: statistics.median(run[name] for run in runs)
            for name in ("rate", "share", "cpu_us_per_record", "commits_per_s")
        },
        "repeatable": max(run["repeatable"] for run in runs),
        "runs": runs,
    }


def show(shapes: list[dict[str, Any]]) -> None:
    print(
        f"{'shape':24}{'ideal/s':>9}{'got/s':>9}{'of ideal':>10}{'goal':>7}"
        f"{'us CPU/record':>15}{'commits/s':>11}{'repeatable':>12}   shares by run (load)"
    )
    for found in shapes:
        each = ", ".join(f"{r['share']:.1%} ({r['load_before']})" for r in found["runs"])
        print(
            f"{found['name']:24}{found['ideal']:9.0f}{found['rate']:9.0f}{found['share']:10.1%}"
            f"{found['goal']:7.0%}{found['cpu_us_per_record']:15.0f}"
            f"{found['commits_per_s']:11.0f}{found['repeatable']:12d}   {each}"
        )


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.bench.model_stage")
    parser.add_argument("--runs", type=int, default=2)
    parser.add_argument("--seconds", type=float, default=8.0)
    parser.add_argument("--warm-up", type=float, default=2.0, help="seconds, not measured")
    parser.add_argument("--only", default="", help="shapes whose name contains this")
    parser.add_argument("--bootstrap", default="", help="a broker to use; else one is started")
    options = parser.parse_args()
    shapes = [shape for shape in SHAPES if options.only in shape.name]
    where = machine()
    with tempfile.TemporaryDirectory(prefix="assay-model-stage-") as folder:
        broker = Broker(Path(folder), dies_with_parent=True)
        bootstrap = options.bootstrap
        if not bootstrap:
            broker.start()
            bootstrap = broker.bootstrap
        try:
            runs: dict[str, list[dict[str, Any]]] = {shape.name: [] for shape in shapes}
            for _ in range(options.runs):
                for shape in shapes:
                    found = measure(bootstrap, shape, options.warm_up, options.seconds)
                    runs[shape.name].append(found)
        finally:
            if not options.bootstrap:
                broker.stop()
    results = [summary(shape, runs[shape.name]) for shape in shapes]
    show(results)
    document = {"machine": where, "notes": list(NOTES), "shapes": results}
    OUTPUT.parent.mkdir(exist_ok=True)
    OUTPUT.write_text(json.dumps(document, indent=2) + "\n", encoding="utf-8")
    print(f"written to {OUTPUT.relative_to(REPO)}")


if __name__ == "__main__":
    main()
