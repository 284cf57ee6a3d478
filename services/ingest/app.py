"""Ingest: the HTTP APIs and the input topic in, accepted wallet events and generation requests
out; outcomes back in."""

from __future__ import annotations

import asyncio
import time
import uuid
from contextlib import AbstractAsyncContextManager

from fastapi import FastAPI

from assay.events import GenerationRequested, WalletEventAccepted, WalletEventSubmitted
from assay.topics import catalogue
from assay_runtime.failures import Pause
from assay_runtime.opening import opened
from assay_runtime.pipeline import Pipeline
from assay_runtime.processes import read_registry
from assay_runtime.publisher import Publisher
from assay_runtime.records import raw_decoder
from assay_runtime.seals import Seals
from assay_runtime.service import Service
from assay_runtime.stores import sqlite_path, watches
from services.ingest.adapters.aggregator_http import AggregatorClient
from services.ingest.adapters.requests_postgres import PostgresRequests
from services.ingest.adapters.requests_sqlite import SqliteRequests
from services.ingest.asking import Asking
from services.ingest.handler import IngestHandler, submission_decoder
from services.ingest.intelligence.answers import error_handlers
from services.ingest.intelligence.api import IntelligenceApi
from services.ingest.intelligence.processes import SETTING, versions_in_use
from services.ingest.keys.access import Access
from services.ingest.keys.store import open_key_store
from services.ingest.results import ResultsHandler, Waiting
from services.ingest.scores.api import ScoreApi
from services.ingest.settings import IngestSettings
from services.ingest.store import RequestStore

NAME = "ingest"
CONSUMES = (WalletEventSubmitted.type,)
PROJECTS = tuple(topic.name for topic in catalogue().everything() if NAME in topic.sinks)
PRODUCES = (WalletEventSubmitted.type, WalletEventAccepted.type, GenerationRequested.type)
_HOUSEKEEPING_S = 600


def open_store(url: str) -> RequestStore:
    """The store the setting names."""
    path = sqlite_path(url, "ASSAY_INGEST__STORE")
    return PostgresRequests(url) if path is None else SqliteRequests(path)


def build(settings: IngestSettings) -> Service:
    """The service from its settings."""
    section = settings.ingest
    processes = read_registry(section.processes, SETTING)
    store = open_store(section.store)
    access = Access(
        open_key_store(section.store), per_key=section.per_key, per_tenant=section.per_tenant
    )
    waiting = Waiting(store)
    seals = Seals.of(settings.seals)
    memory_ms = int(section.request_memory_h * 3_600_000)
    results = ResultsHandler(store, waiting, seals, settings.kafka.log, memory_ms)
    publisher = Publisher(settings.kafka, "ingest-api", "ingest.api")
    aggregator = (
        AggregatorClient(
            section.aggregator_url,
            deadline_s=section.aggregator_deadline_s,
            connect_s=section.aggregator_connect_s,
            read_s=section.aggregator_read_s,
            attempts=section.aggregator_attempts,
            limits=section.json_limits,
        )
        if section.aggregator_url
        else None
    )
    resources: list[AbstractAsyncContextManager[object]] = [
        opened(store, "request store"),
        versions_in_use(store, processes),
        opened(access, "API keys"),
        opened(publisher, "broker"),
    ]
    if aggregator is not None:
        resources.append(aggregator)

    async def forget_old_requests() -> None:
        while True:
            await asyncio.sleep(_HOUSEKEEPING_S)
            try:
                await store.forget(time.time_ns() // 1_000_000 - memory_ms)
            except Pause:
                continue

    asking = Asking(store, waiting, publisher, section.max_waiting)
    app = FastAPI(
        title="Assay",
        version="1",
        description="Wallet events in, checked and signed reputation scores out; and any process "
        "for holders of an API key.",
        exception_handlers=error_handlers(lambda: str(uuid.uuid4())),
    )
    ScoreApi(section, asking).add_to(app)
    IntelligenceApi(section, processes, access, asking, seals).add_to(app)
    return Service(
        name=NAME,
        pipelines=[
            Pipeline(
                name=NAME,
                topics=CONSUMES,
                decode=submission_decoder(section.tenant, settings.kafka.log),
                handler=IngestHandler(store, aggregator, section.json_limits, section.tenant),
                engine="lane",
                slots=section.slots,
                # Rubbish on a public topic is its publishers', not a bad deploy's.
                dead_letter_limit=False,
                retries=catalogue().retry_tiers,
            ),
            Pipeline(
                name="ingest.results",
                topics=PROJECTS,
                decode=raw_decoder,
                handler=results,
                # Among them are dead letters of what anyone may write.
                dead_letter_limit=False,
                keeps_dead_letters=False,
                stored_positions=results.offsets,
            ),
        ],
        app=app,
        resources=resources,
        background=[waiting.poll, forget_old_requests, asking.watch, *watches(store)],
        drain_s=section.aggregator_deadline_s + 1,
    )
