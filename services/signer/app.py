"""Signer: validated scores in, signed scores out."""

from __future__ import annotations

import time

from assay.attestation import parse_hex_key
from assay.events import EvidenceRecordSubmitted, WalletScoreSigned, WalletScoreValidated
from assay_runtime.opening import opened
from assay_runtime.pipeline import Pipeline
from assay_runtime.records import event_decoder
from assay_runtime.service import Service
from assay_runtime.settings import SettingsError
from assay_runtime.stores import sqlite_path, watches
from services.signer.adapters.key_uri import open_key
from services.signer.adapters.ledger_postgres import PostgresLedger
from services.signer.adapters.ledger_sqlite import SqliteLedger
from services.signer.adapters.signed_topic import Reconciliation
from services.signer.domain.ports import Ledger
from services.signer.domain.signing import Signer
from services.signer.handler import SignerHandler
from services.signer.pages import build_pages
from services.signer.settings import SignerSettings

NAME = "signer"
CONSUMES = (WalletScoreValidated.type,)
PRODUCES = (WalletScoreSigned.type, EvidenceRecordSubmitted.type)


def open_ledger(url: str) -> Ledger:
    """The ledger the setting names."""
    path = sqlite_path(url, "ASSAY_SIGNER__LEDGER")
    return PostgresLedger(url) if path is None else SqliteLedger(path)


def build(settings: SignerSettings) -> Service:
    """The service from its settings; a key that must not be used is refused with the reason."""
    section = settings.signer
    try:
        key = open_key(section.key)
    except SettingsError as error:
        raise SettingsError(f"ASSAY_SIGNER__KEY: {error}") from error
    ledger = open_ledger(section.ledger)
    signer = Signer(ledger, key, section.network, lambda: time.time_ns() // 1_000_000)
    previous = [parse_hex_key(text).data for text in section.previous_keys]
    reconciliation = Reconciliation(
        ledger, settings.kafka, section.network, key.public_key, previous
    )
    return Service(
        name=NAME,
        pipelines=[
            Pipeline(
                name=NAME,
                topics=CONSUMES,
                decode=event_decoder(WalletScoreValidated),
                handler=SignerHandler(signer),
                max_records=section.batch,
            )
        ],
        app=build_pages(parse_hex_key(key.public_key.hex()), section.network),
        resources=[opened(ledger, "ledger"), opened(reconciliation, "signed topic")],
        background=watches(ledger),
    )
