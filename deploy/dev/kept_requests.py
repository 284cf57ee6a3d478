"""What the stores of a stack say about requests: which are open, and how the others ended.

The embedded broker forgets its records when it ends; request table, ledger and evidence do not.
An open request is offered again where it goes on without a second validated score, which the
ledger would refuse: as its signed, validated or terminal event where there is one, else from its
beginning, which asks the model once more.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

from assay.envelope import is_structured
from assay.events import (
    GenerationAccepted,
    GenerationRejected,
    GenerationRequested,
    WalletEventAccepted,
    WalletEventSubmitted,
    WalletScoreSigned,
    WalletScoreValidated,
)
from assay.ids import request_id
from assay.topics import catalogue
from assay_runtime.partitioning import partition_of
from assay_runtime.seals import SEAL
from deploy.dev.kept_records import (
    ANONYMOUS,
    Kept,
    accepted,
    connect,
    ending,
    recorded,
    signed,
)
from deploy.dev.plan import EMBEDDED_PARTITIONS
from services.evidence.domain import DEAD_LETTER

_SUBMITTED, _ACCEPTED = WalletEventSubmitted.type, WalletEventAccepted.type
_VALIDATED, _SIGNED = WalletScoreValidated.type, WalletScoreSigned.type
_REQUESTED = GenerationRequested.type
_ENDINGS = (_SIGNED, GenerationAccepted.type, GenerationRejected.type)

# Of the 5 MB that the embedded broker keeps of a partition: the rest is for this run's records,
# and from 3 MB unread on writers would have to wait.
HISTORY_BYTES = 2_000_000
# Of a topic: the signer verifies each signature once more at its start.
HISTORY_RECORDS = 2_000


@dataclass(frozen=True, slots=True)
class Open:
    """A request that has not ended: this row of evidence is published to go on with it, or
    without one the signed or accepted event that ledger or request table hold."""

    request: str
    row: int | None


@dataclass(frozen=True, slots=True)
class OpenRequests:
    """`unrecorded` counts those of which no store has anything to publish."""

    found: Sequence[Open]
    unrecorded: int = 0


class KeptRequests:
    """Reads the stores in `data`, which must exist; beside their services, too. `tenant` is that
    of the input topic."""

    def __init__(self, data: Path, tenant: str) -> None:
        self._data = data
        self._tenant = tenant

    def open_requests(self, now_ms: int) -> OpenRequests:
        """Those that have not ended. What no table knows counts for as long as its topic would
        keep it on a broker that forgets nothing; of those a client asked on the bus itself, the
        ones of which no step has been answered."""
        found: list[Open] = []
        unrecorded = 0
        with closing(connect(self._data)) as db:
            pending = db.execute(
                "SELECT request_id, accepted IS NOT NULL, tenant IS NOT NULL, published"
                " FROM requests.request WHERE status = 'pending' ORDER BY touched_ms"
            )
            for request, has_accepted, owned, published in pending.fetchall():
                rows = _Rows(db, request)
                if rows.erased:
                    continue  # somebody wanted it gone
                row = rows.end()
                held = has_accepted or signed(db, request) is not None
                if row is None and not held:
                    row = rows.beginning(owned)
                if row is not None or held:
                    found.append(Open(request, row))
                elif published or not owned:
                    unrecorded += 1
            found += self._unread(db, now_ms)
            found += self._asked_by_clients(db, now_ms)
        return OpenRequests(found, unrecorded)

    def records(self, found: Sequence[Open]) -> Iterator[Kept]:
        """What to publish for them, one at a time: a record may have megabytes."""
        for one in found:
            with closing(connect(self._data)) as db:
                record = (
                    (signed(db, one.request) or accepted(db, one.request))
                    if one.row is None
                    else recorded(db, one.row)
                )
            if record is not None:
                yield record

    def history(self) -> list[Kept]:
        """The newest endings, oldest first: a repeat of an ended request goes no further than
        ingest, so whoever waits for its outcome must find it on the bus."""
        chosen: list[int] = []
        with closing(connect(self._data)) as db:
            for topic in _ENDINGS:
                room = dict.fromkeys(range(EMBEDDED_PARTITIONS), HISTORY_BYTES)
                newest = db.execute(
                    "SELECT id, coalesce(wallet, request_id), length(value) + length(headers)"
                    " FROM evidence.evidence WHERE type = ?1 AND topic = ?1 AND erased_by IS NULL"
                    " AND request_id IS NOT NULL ORDER BY id DESC LIMIT ?2",
                    (topic, HISTORY_RECORDS),
                )
                for row, key, size in newest.fetchall():
                    place = partition_of(key.encode(), EMBEDDED_PARTITIONS)
                    room[place] -= size
                    if room[place] >= 0 and ending(db, row) is not None:
                        chosen.append(row)
            return [recorded(db, row) for row in sorted(chosen)]

    def _unread(self, db: sqlite3.Connection, now_ms: int) -> list[Open]:
        """Submissions that ingest has not read: the table does not know them, and what it has
        forgotten since was accepted or refused."""
        found = _without(db, _SUBMITTED, now_ms, _ACCEPTED, DEAD_LETTER)
        return [one for one in found if not self._offered_before(db, one)]

    def _asked_by_clients(self, db: sqlite3.Connection, now_ms: int) -> list[Open]:
        found = _without(
            db, _REQUESTED, now_ms, *_ENDINGS[:2], _SUBMITTED, _ACCEPTED, _VALIDATED, DEAD_LETTER
        )
        return [one for one in found if _Rows(db, one.request).is_open]

    def _offered_before(self, db: sqlite3.Connection, one: Open) -> bool:
        """Whether a submission without an id was read under the one that it was given then; a
        structured one cannot be given any, and ingest refuses it anyway."""
        record = recorded(db, one.row or 0)
        if ("ce_source", ANONYMOUS.encode()) not in record.headers:
            return False
        own = request_id(self._tenant, ANONYMOUS, one.request)
        known = db.execute("SELECT 1 FROM requests.request WHERE request_id = ?", (own,)).fetchone()
        return (
            is_structured(record.headers)
            or known is not None
            or _Rows(db, own).first(_ACCEPTED, DEAD_LETTER) is not None
        )


def _without(db: sqlite3.Connection, topic: str, now_ms: int, *followed_by: str) -> list[Open]:
    """The first record of each request on a topic that no table knows and none of the others
    followed."""
    rows = db.execute(
        "SELECT id, request_id FROM evidence.evidence AS e WHERE type = ? AND topic = ?"
        " AND timestamp_ms > ? AND erased_by IS NULL AND request_id IS NOT NULL"
        " AND NOT EXISTS (SELECT 1 FROM requests.request WHERE request_id = e.request_id)"
        " AND NOT EXISTS (SELECT 1 FROM evidence.evidence AS a"
        " WHERE a.request_id = e.request_id AND a.type IN (SELECT value FROM json_each(?)))"
        " ORDER BY id",
        (topic, topic, now_ms - catalogue()[topic].retention_ms, json.dumps(followed_by)),
    )
    first: dict[str, int] = {}
    for row, request in rows.fetchall():
        first.setdefault(request, row)
    return [Open(request, row) for request, row in first.items()]


class _Rows:
    """A request's rows in evidence, in the order of their arrival."""

    def __init__(self, db: sqlite3.Connection, request: str) -> None:
        self._db = db
        # A stranger may write any type on a record: only that of its topic counts.
        self._rows: list[tuple[int, str, bool]] = db.execute(
            "SELECT id, type, erased_by IS NOT NULL FROM evidence.evidence"
            " WHERE request_id = ? AND (type = topic OR type = ?) ORDER BY id",
            (request, DEAD_LETTER),
        ).fetchall()

    @property
    def erased(self) -> bool:
        return any(gone for _, _, gone in self._rows)

    @property
    def is_open(self) -> bool:
        """Whether none of them is a terminal outcome, of whoever asked."""
        return not any(k in _ENDINGS and ending(self._db, row) for row, k, _ in self._rows)

    def first(self, *kinds: str) -> int | None:
        return next((row for row, kind, _ in self._rows if kind in kinds), None)

    def end(self) -> int | None:
        """The event behind which no model is asked any more."""
        row = self.first(_SIGNED) or self.first(_VALIDATED)
        return row or next((row for row, kind, _ in self._rows if self._is_end(row, kind)), None)

    def beginning(self, owned: bool) -> int | None:
        """What ingest was given, or asked itself for a request of the Intelligence API."""
        if not owned:
            return self.first(_SUBMITTED)
        asked = [row for row, kind, _ in self._rows if kind == _REQUESTED]
        sealed = (row for row in asked if SEAL in dict(recorded(self._db, row).headers))
        return next(sealed, asked[0] if asked else None)

    def _is_end(self, row: int, kind: str) -> bool:
        found = ending(self._db, row) if kind in _ENDINGS else None
        return found is not None and not found.unsealed
