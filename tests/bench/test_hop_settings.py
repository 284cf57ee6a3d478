"""No variant of the chain is slower for its settings (hops/hop_arguments.py)."""

from __future__ import annotations

import importlib
import subprocess
import sys
from types import ModuleType
from typing import Any
from unittest.mock import AsyncMock, MagicMock

import pytest
from faststream import TestApp as App
from faststream.kafka import TestKafkaBroker as FakeBroker

from assay_runtime import garbage
from tests.bench.hop_chain import REPO
from tests.bench.hops import hop_arguments as shared

HOP = shared.HopArguments("127.0.0.1:1", "in", "out", "assay.out")


@pytest.fixture
def settled(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """A word for every call of garbage.settle(), which is not made here."""
    calls: list[str] = []
    monkeypatch.setattr(garbage, "settle", lambda: calls.append("settled"))
    return calls


@pytest.mark.parametrize("hop", ["tuned_floor", "faststream_hop", "faststream_batch_hop", "ours"])
def test_aiokafka_compresses_at_the_same_level(hop: str) -> None:
    """Each in a process of its own: what one sets holds for all of a process."""
    code = (
        f"import tests.bench.hops.{hop}, sys\n"
        "from aiokafka.record.default_records import DefaultRecordBatchBuilder as builder\n"
        "print(getattr(sys.modules[builder.__module__].zstd_encode, 'keywords', None))"
    )
    path = f"{REPO}:{REPO / 'shared'}"
    done = subprocess.run(
        [sys.executable, "-c", code], check=True, text=True, env={"PYTHONPATH": path}, cwd=REPO,
        stdout=subprocess.PIPE,
    )  # fmt: skip
    assert done.stdout.strip() == str({"level": shared.COMPRESSION_LEVEL})


def test_quixstreams_compresses_and_collects_alike(
    monkeypatch: pytest.MonkeyPatch, settled: list[str]
) -> None:
    """Its environment is its own, so a stand-in takes its options."""
    made = MagicMock()
    quixstreams = ModuleType("quixstreams")
    quixstreams.Application = made  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "quixstreams", quixstreams)
    hop = importlib.import_module("tests.bench.hops.quix_hop")
    try:
        hop.build(HOP)
    finally:
        sys.modules.pop("tests.bench.hops.quix_hop")
    options = made.call_args.kwargs["producer_extra_config"]
    assert options["compression.type"] == shared.COMPRESSION
    assert options["compression.level"] == shared.COMPRESSION_LEVEL
    assert settled == ["settled"]


async def test_there_is_a_floor_that_collects_alike(
    monkeypatch: pytest.MonkeyPatch, settled: list[str]
) -> None:
    from tests.bench.hops import floor

    client: Any = AsyncMock()
    client.getmany.side_effect = InterruptedError
    monkeypatch.setattr(floor, "AIOKafkaConsumer", lambda *_, **__: client)
    monkeypatch.setattr(floor, "AIOKafkaProducer", lambda *_, **__: client)
    with pytest.raises(InterruptedError):
        await floor.run(HOP)
    assert settled == []
    with pytest.raises(InterruptedError):
        await floor.run(HOP, started=garbage.settle)
    assert settled == ["settled"]


@pytest.mark.parametrize("name", ["faststream_hop", "faststream_batch_hop"])
async def test_faststream_collects_alike(
    monkeypatch: pytest.MonkeyPatch, settled: list[str], name: str
) -> None:
    hop = importlib.import_module(f"tests.bench.hops.{name}")
    monkeypatch.setattr(hop, "producer_of", lambda _: AsyncMock(), raising=False)
    app = hop.build(HOP)
    async with FakeBroker(app.broker), App(app):
        pass
    assert settled == ["settled"]
