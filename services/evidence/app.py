"""Evidence: every topic in, nothing out."""

from __future__ import annotations

import ipaddress

from assay.topics import catalogue
from assay_runtime import http
from assay_runtime.opening import opened
from assay_runtime.pipeline import Pipeline
from assay_runtime.service import Service
from assay_runtime.settings import SettingsError
from assay_runtime.stores import sqlite_path, watches
from services.evidence.access import Access
from services.evidence.adapters.store_postgres import PostgresEvidence
from services.evidence.adapters.store_sqlite import SqliteEvidence
from services.evidence.handler import EvidenceHandler, entry_decoder
from services.evidence.pages import build_pages
from services.evidence.settings import EvidenceSettings
from services.evidence.store import EvidenceStore

NAME = "evidence"
CONSUMES = tuple(topic.name for topic in catalogue().everything())
PRODUCES: tuple[str, ...] = ()


def open_store(url: str) -> EvidenceStore:
    """The store the setting names."""
    path = sqlite_path(url, "ASSAY_EVIDENCE__STORE")
    return PostgresEvidence(url) if path is None else SqliteEvidence(path)


def build(settings: EvidenceSettings) -> Service:
    """The service from its settings."""
    section = settings.evidence
    host = http.host_of(settings.http)
    if not section.token and not _is_loopback(host):
        raise SettingsError(
            f"ASSAY_HTTP__HOST, or the socket of ASSAY_HTTP__FD, is {host}, beyond loopback: "
            "set ASSAY_EVIDENCE__TOKEN first"
        )
    store = open_store(section.store)
    handler = EvidenceHandler(store, settings.kafka.log)
    access = Access(section.token, section.full_text_token, section.erasure_token)
    pipeline = Pipeline(
        name=NAME,
        topics=CONSUMES,
        decode=entry_decoder(section.tenant, settings.kafka.log),
        handler=handler,
        max_records=section.batch,
        keeps_dead_letters=False,
        loses_nothing=True,
        stored_positions=handler.offsets,
    )
    return Service(
        name=NAME,
        pipelines=[pipeline],
        app=build_pages(store, access),
        resources=[opened(store, "evidence store")],
        background=watches(store),
    )


def _is_loopback(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
