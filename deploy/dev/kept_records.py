"""Records that the stores of a stack still hold, made ready to be published again."""

from __future__ import annotations

import sqlite3
from pathlib import Path
from typing import NamedTuple, TypeAlias

from assay.client import Outcome, read_outcome
from assay.envelope import Message, emit
from assay.events import WalletEventAccepted, WalletEventSubmitted, WalletScoreSigned
from assay.events.meta import InternalEvent
from assay.identity import identify
from assay_runtime.failures import Pause
from assay_runtime.settings import SettingsError
from deploy.dev.plan import EMBEDDED_PARTITIONS
from deploy.owned_process import ServerError
from services.evidence.adapters.store_sqlite import SqliteEvidence
from services.evidence.domain import read_header_bytes
from services.ingest.adapters.requests_sqlite import SqliteRequests
from services.ingest.handler import SOURCE as INGEST
from services.signer.adapters.ledger_sqlite import SqliteLedger
from services.signer.handler import SOURCE as SIGNER

ANONYMOUS = "/anonymous"
"""The source of records whose publisher named none (`assay.identity`)."""
_Store: TypeAlias = type[SqliteRequests] | type[SqliteEvidence] | type[SqliteLedger]
_STORES: dict[str, _Store] = {
    "requests": SqliteRequests,
    "evidence": SqliteEvidence,
    "ledger": SqliteLedger,
}


class Kept(NamedTuple):
    """A record to be published again. `partition` None: where its key belongs."""

    topic: str
    key: bytes | None
    value: bytes
    headers: list[tuple[str, bytes | None]]
    partition: int | None = None


async def prepare_stores(data: Path) -> None:
    """Make the stores, or bring them up to date, as their services do; ServerError where one is
    unusable."""
    for name, store in _STORES.items():
        opened = store(data / f"{name}.sqlite")
        try:
            await opened.open()
        except (Pause, SettingsError) as error:
            raise ServerError(str(error)) from error
        finally:
            await opened.close()


def stores_exist(data: Path) -> bool:
    return all((data / f"{name}.sqlite").exists() for name in _STORES)


def connect(data: Path) -> sqlite3.Connection:
    """The stores `requests`, `evidence` and `ledger` under one connection that cannot write."""
    db = sqlite3.connect(":memory:", timeout=10)
    for name in _STORES:
        db.execute(f"ATTACH ? AS {name}", (str(data / f"{name}.sqlite"),))
    db.execute("PRAGMA query_only = ON")
    return db


def recorded(db: sqlite3.Connection, row: int) -> Kept:
    """A row of evidence as the record it was; keys, which are not kept, as services make them.

    A submission whose only id was its place in a log that is gone gets that id as its own: the
    same row of evidence, and the same request however often it is offered again.
    """
    topic, partition, offset, headers, value, wallet, request = db.execute(
        "SELECT topic, partition, offset, headers, value, wallet, request_id"
        " FROM evidence.evidence WHERE id = ?",
        (row,),
    ).fetchone()
    named, data = list(read_header_bytes(bytes(headers))), bytes(value or b"")
    if topic != WalletEventSubmitted.type:
        return Kept(topic, (wallet or request).encode(), data, named)
    identity = identify(topic, partition, offset, named, data, tenant="")
    if identity.event_id == identity.request_id:
        named += [("ce_id", request.encode()), ("ce_source", ANONYMOUS.encode())]
    own = partition if partition < EMBEDDED_PARTITIONS else None
    return Kept(topic, wallet.encode() if wallet else None, data, named, own)


def ending(db: sqlite3.Connection, row: int) -> Outcome | None:
    """The terminal outcome that a row of evidence stands for, if it does."""
    record = recorded(db, row)
    try:
        return read_outcome(record.topic, record.value, record.headers)
    except ValueError:
        return None  # no service of ours wrote it


def signed(db: sqlite3.Connection, request: str) -> Kept | None:
    """The ledger's signed event of a request, byte for byte as the signer publishes it; None
    where there is none, or none that can still be read."""
    found = db.execute(
        "SELECT event_id, event FROM ledger.entry WHERE request_id = ? AND event IS NOT NULL",
        (request,),
    ).fetchone()
    if found is None:
        return None
    message = _message(WalletScoreSigned, bytes(found[1]), SIGNER, "")
    return _kept(message) if message is not None and message.id == found[0] else None


def accepted(db: sqlite3.Connection, request: str) -> Kept | None:
    """The request table's accepted event, byte for byte as ingest publishes it; None as above."""
    found = db.execute(
        "SELECT accepted FROM requests.request WHERE request_id = ? AND accepted IS NOT NULL",
        (request,),
    ).fetchone()
    if found is None:
        return None
    message = _message(WalletEventAccepted, bytes(found[0]), INGEST, request)
    return _kept(message) if message is not None else None


def _message(
    model: type[InternalEvent], value: bytes, source: str, first_parent: str
) -> Message | None:
    """The event as its service publishes it; None where the bytes are not of the model any more."""
    try:
        event = model.model_validate_json(value)
    except ValueError:
        return None
    parent = event.meta.causation_id or first_parent
    return emit(event, topic=event.type, source=source, parent_id=parent, value=value)


def _kept(message: Message) -> Kept:
    return Kept(message.topic, message.key, message.value, list(message.headers))
