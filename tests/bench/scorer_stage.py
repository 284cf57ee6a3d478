"""CPU of the scorer beside the model call: decode, handler, message; no broker and no HTTP.

`python -m tests.bench.scorer_stage` prints microseconds per request of wallet_score; the provider
answers at once and logs go to the null device. `--profile` shows where the time goes.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import cProfile
import hashlib
import os
import pstats
import statistics
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from assay.envelope import emit
from assay.events import GenerationRequested, Meta
from assay_gate.process import load_registry
from assay_runtime import logging
from assay_runtime.records import Record, event_decoder
from assay_runtime.settings import LogSection
from services.scorer.accepted_answers import AcceptedAnswers
from services.scorer.adapters.endpoint import Endpoint
from services.scorer.answers import AnswerMessages
from services.scorer.domain.answer_cache import AnswerCache
from services.scorer.domain.answering import CallLimits
from services.scorer.domain.availability import Policy
from services.scorer.domain.bounded import Bounded
from services.scorer.domain.provider import ModelCall, ModelReply, ProbeResult
from services.scorer.handler import ScorerHandler

REPO = Path(__file__).resolve().parents[2]
PROCESSES = load_registry(REPO / "schemas" / "processes")
ANSWER = '{"scoreBreakdown":{"activity":85},"score":778,"reasoning":"' + "Good. " * 90 + '"}'


class Instant:
    """A provider that answers at once."""

    name = "instant"
    model = "instant"
    model_digest = "d" * 64

    async def generate(self, call: ModelCall) -> ModelReply:
        return ModelReply(ANSWER, "instant", "d" * 64, "stop", {"prompt_tokens": 900})

    async def probe(self) -> ProbeResult:
        return ProbeResult("obeyed", "")

    async def aclose(self) -> None:
        pass


def records(count: int) -> Sequence[Record]:
    """Requests of different wallets as they stand on the topic."""
    process = PROCESSES.by_id["wallet_score"]
    names = process.input_schema["properties"]["features"]["required"]
    made = []
    for number in range(count):
        digest = hashlib.sha256(str(number).encode()).hexdigest()
        address = f"0x{digest[:40]}"
        meta = Meta(
            request_id=f"{digest[:8]}-{digest[8:12]}-5{digest[12:15]}-8{digest[15:18]}-{digest[18:30]}",
            tenant_id="bench", wallet=address, process_id=process.id,
            process_version=process.version, process_hash=process.hash, step="score",
            unit_id=digest[:36], accepted_at_ms=1, causation_id=digest[:36],
            causation_sha256=digest,
        )  # fmt: skip
        features: dict[str, Any] = dict.fromkeys(names, 17) | {
            "protocolNames": ["curve", "morpho"], "concentrationRisk": 0.8,
        }  # fmt: skip
        event = GenerationRequested(
            meta=meta,
            input={
                "address": address, "features": features, "has_questionnaire": True,
                "questionnaire": "Q1: Who controls this wallet?\nA1: individual\n" * 8,
                "evm_source": "inline", "evm_sha256": digest,
            },
        )  # fmt: skip
        message = emit(event, topic=event.type, source="/assay/features", parent_id=digest)
        made.append(
            Record(message.topic, 0, number, 1, message.key, message.value, message.headers)
        )
    return made


async def handle(taken: Sequence[Record]) -> float:
    """CPU seconds for these requests, one after the other."""
    decode = event_decoder(GenerationRequested)
    endpoint = Endpoint(Instant(), Policy(), slots=64)
    handler = ScorerHandler(PROCESSES, endpoint, CallLimits(1024, 16_384, 60))
    accepted = AcceptedAnswers(AnswerCache(0, 0), endpoint.provider)
    answers = AnswerMessages(handler, accepted, Bounded(4096, 32 << 20))
    begun = time.process_time()
    for record in taken:
        await answers([decode(record)])
    return time.process_time() - begun


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--requests", type=int, default=2_000)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--profile", action="store_true")
    given = parser.parse_args()
    with open(os.devnull, "w") as nowhere, contextlib.redirect_stderr(nowhere):
        logging.configure(LogSection(), "scorer")
        taken = records(given.requests)
        asyncio.run(handle(taken[:200]))
        if given.profile:
            profile = cProfile.Profile()
            profile.runcall(lambda: asyncio.run(handle(taken)))
            pstats.Stats(profile).sort_stats("tottime").print_stats(40)
            pstats.Stats(profile).sort_stats("cumtime").print_stats(45)
            return
        found = [asyncio.run(handle(taken)) / len(taken) for _ in range(given.rounds)]
    print(f"scorer without its model call: {statistics.median(found) * 1e6:.0f} CPU us per request")


if __name__ == "__main__":
    main()
