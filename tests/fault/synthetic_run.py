"""A run made by hand: the records and rows that a flawless pipeline would leave, to spoil."""

from __future__ import annotations

import hashlib
import json
from collections import defaultdict
from collections.abc import Mapping
from typing import Any

from coincurve import PrivateKey

from assay.attestation import SCHEME, message_digest, score_message, sign_digest
from assay.envelope import text_headers
from assay.events import (
    GenerationAnswered,
    GenerationRejected,
    GenerationRequested,
    WalletEventAccepted,
    WalletFeaturesExtracted,
    WalletScoreValidated,
)
from assay.ids import event_id
from assay_runtime.records import Record
from tests.fault.seen import SIGNED, SUBMITTED, seen
from tests.fault.stores import EvidenceRow, LedgerRow, RequestRow, Stores
from tests.fault.topic_reader import TopicLog
from tests.fault.workload import Submission

KEY = PrivateKey(bytes(31) + b"\x07")
PUBLIC_KEY = KEY.public_key.format()
NETWORK = "test"
RETRIED = "llm.generation.retried.v1"


class SyntheticRun:
    """Records by topic, all on partition 0. `request` adds one request from end to end."""

    def __init__(self) -> None:
        self.records: dict[str, list[Record]] = defaultdict(list)
        self.asked: list[str] = []
        self._clock = 1_000

    def request(self, work: Submission, *, attempts: int = 1, signed: bool = True) -> Record:
        """Submitted to signed, with `attempts` - 1 refused answers; returns the last record."""
        wallet = json.loads(work.value)["address"]
        self.asked.append(work.request_id)
        submitted = self._append(SUBMITTED, work.key, work.value, work.headers)
        common = {"request_id": work.request_id, "wallet": wallet}
        accepted = self.event(WalletEventAccepted.type, submitted, common, attempt=1)
        self.event(WalletFeaturesExtracted.type, accepted, common, attempt=1)
        asked = self.event(GenerationRequested.type, accepted, common, attempt=1)
        for attempt in range(1, attempts + 1):
            answered = self.event(GenerationAnswered.type, asked, common, attempt=attempt)
            if attempt < attempts:
                refused = {"terminal": False, "ends_as": None}
                self.event(GenerationRejected.type, answered, common, attempt=attempt, **refused)
                asked = self.event(RETRIED, answered, common, attempt=attempt + 1)
        validated = self.event(WalletScoreValidated.type, answered, common, attempt=attempts)
        return self.sign(validated) if signed else validated

    def event(
        self, topic: str, parent: Record, common: Mapping[str, Any], *, attempt: int, **content: Any
    ) -> Record:
        """An event made of `parent`, as `emit` makes it."""
        parent_id = text_headers(parent.headers)["ce_id"]
        meta = {
            **common,
            "attempt": attempt,
            "causation_id": parent_id,
            "causation_sha256": hashlib.sha256(parent.value or b"").hexdigest(),
        }
        value = json.dumps({"meta": meta, **content}).encode()
        kind = GenerationRequested.type if topic == RETRIED else topic
        headers = [
            ("ce_id", event_id(parent_id, kind, value).encode()),
            ("ce_type", kind.encode()),
            ("ce_requestid", common["request_id"].encode()),
            ("ce_causationid", parent_id.encode()),
        ]
        return self._append(topic, common["wallet"].encode(), value, headers)

    def sign(
        self, validated: Record, *, timestamp_ms: int = 0, score: int = 500, key: PrivateKey = KEY
    ) -> Record:
        """The signed event of a validated one; `timestamp_ms` 0 takes the next."""
        self._clock += 1
        timestamp_ms = timestamp_ms or self._clock
        meta = json.loads(validated.value or b"")["meta"]
        fields = {"score": score, "wallet_address": meta["wallet"], "timestamp_ms": timestamp_ms}
        signature = sign_digest(key, message_digest(score_message(**fields)))
        attestation = {
            "scheme": SCHEME,
            "network": NETWORK,
            "public_key": PUBLIC_KEY.hex(),
            "signature": signature.hex(),
        }
        common = {"request_id": meta["request_id"], "wallet": meta["wallet"]}
        return self.event(
            SIGNED, validated, common, attempt=meta["attempt"],
            **fields, attestations=[attestation], metadata={"fallback": None},
        )  # fmt: skip

    def repeat(self, record: Record, value: bytes | None = None) -> Record:
        """The record once more, under the same id, with other bytes where given."""
        headers = [(name, data or b"") for name, data in record.headers]
        return self._append(record.topic, record.key or b"", value or record.value or b"", headers)

    def remove(self, record: Record) -> None:
        self.records[record.topic].remove(record)

    def swap(self, topic: str, one: int, other: int) -> None:
        """Exchange two records of a topic, which keep each other's offset."""
        records = self.records[topic]
        a, b = records[one], records[other]
        records[one] = b._replace(offset=a.offset)
        records[other] = a._replace(offset=b.offset)

    def log(self) -> TopicLog:
        return TopicLog(
            {topic: [seen(r, tenant="default") for r in rs] for topic, rs in self.records.items()}
        )

    def stores(self) -> Stores:
        """Rows that agree with the records as they are now."""
        log = self.log()
        evidence: list[EvidenceRow] = []
        ledger: dict[str, LedgerRow] = {}
        known: set[tuple[str, str, str]] = set()
        for records in log.records.values():
            for record in records:
                if (record.topic, record.identity, record.sha256) not in known:
                    known.add((record.topic, record.identity, record.sha256))
                    row = EvidenceRow(0, len(evidence), record.topic, *record.place, record.sha256)
                    evidence.append(row)
        for record in log.of(SIGNED):
            ledger.setdefault(
                record.request_id,
                LedgerRow(
                    network=NETWORK,
                    request_id=record.request_id,
                    wallet=record.content["wallet_address"],
                    score=record.content["score"],
                    timestamp_ms=record.content["timestamp_ms"],
                    source_event_id=record.meta["causation_id"],
                    source_sha256=record.meta["causation_sha256"],
                    event_id=record.event_id,
                    event_sha256=record.sha256,
                ),
            )
        requests = [RequestRow(r, "signed" if r in ledger else "pending") for r in self.asked]
        return Stores(list(ledger.values()), evidence, requests)

    def _append(
        self, topic: str, key: bytes, value: bytes, headers: list[tuple[str, bytes]]
    ) -> Record:
        records = self.records[topic]
        offset = records[-1].offset + 1 if records else 0
        record = Record(topic, 0, offset, 0, key, value, tuple(headers))
        records.append(record)
        return record
