"""Ledger, evidence and request table against the topics (DESIGN §3, §7). Pure."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Sequence

from tests.fault.findings import Findings
from tests.fault.seen import SIGNED, Seen
from tests.fault.signing_rules import distinct
from tests.fault.stores import EvidenceRow, LedgerRow, RequestRow
from tests.fault.topic_reader import TopicLog


def check_ledger(log: TopicLog, rows: Sequence[LedgerRow], findings: Findings) -> None:
    """What is signed is reserved with the same bytes, and what is reserved came out."""
    by_request = {(row.network, row.request_id): row for row in rows}
    out = set()
    for record in distinct(log.of(SIGNED)):
        attestations = record.content.get("attestations") or [{}]
        which = (attestations[0].get("network", ""), record.request_id)
        row = by_request.get(which)
        if row is None:
            findings.add("ledger_mismatch", f"{record.at}: request {which[1]} is not in the ledger")
            continue
        out.add(which)
        for wrong in _differences(record, row):
            findings.add("ledger_mismatch", f"{record.at}: request {which[1]}: {wrong}")
    for which, row in by_request.items():
        if which not in out:
            state = "reserved" if row.event_id is None else "signed"
            text = f"request {row.request_id} is {state} in the ledger and not on the topic"
            findings.add("ledger_mismatch", text)
    findings.counts["ledger_rows"] = len(rows)


def _differences(record: Seen, row: LedgerRow) -> Iterable[str]:
    content, meta = record.content, record.meta
    pairs = {
        "event id": (row.event_id, record.event_id),
        "bytes": (row.event_sha256, record.sha256),
        "score": (row.score, content.get("score")),
        "wallet": (row.wallet, content.get("wallet_address")),
        "timestamp": (row.timestamp_ms, content.get("timestamp_ms")),
        "source": (row.source_event_id, meta.get("causation_id")),
        "source bytes": (row.source_sha256, meta.get("causation_sha256")),
    }
    for name, (kept, sent) in pairs.items():
        if kept != sent:
            yield f"{name} {kept!r} in the ledger, {sent!r} on the topic"


def check_evidence(log: TopicLog, rows: Sequence[EvidenceRow], findings: Findings) -> None:
    """Each event once, at the place of one of its records, with that record's bytes, and no gap
    in a shard's numbers."""
    at = {record.place: record for records in log.records.values() for record in records}
    kept: Counter[tuple[str, str, str]] = Counter()
    for row in rows:
        record = at.get(row.place)
        if record is None or row.sha256 not in (None, record.sha256):
            why = "no such record" if record is None else "other bytes"
            findings.add("evidence_altered", f"{row.place}: {why}")
            continue
        kept[record.topic, record.identity, record.sha256] += 1
    wanted = {(r.topic, r.identity, r.sha256): r for r in at.values()}
    for event, record in wanted.items():
        if kept[event] == 0:
            findings.add("evidence_missing", f"{record.at}: {record.event_id}")
        elif kept[event] > 1:
            findings.add("evidence_twice", f"{record.at}: {record.event_id}, {kept[event]} rows")
    shards: dict[int, list[int]] = defaultdict(list)
    for row in rows:
        shards[row.shard].append(row.seq)
    for shard, numbers in shards.items():
        if sorted(numbers) != list(range(len(numbers))):
            findings.add("evidence_altered", f"shard {shard}: its numbers have gaps")
    findings.counts["evidence_rows"] = len(rows)


def check_requests(
    log: TopicLog, rows: Sequence[RequestRow], asked: Collection[str], findings: Findings
) -> None:
    """The table says signed where a signed event is, and nothing of the sort elsewhere."""
    signed = {record.request_id for record in log.of(SIGNED)}
    status = {row.request_id: row.status for row in rows}
    for request in sorted(set(asked)):
        told = status.get(request, "unknown")
        if (told == "signed") != (request in signed) or told in ("unknown", "pending"):
            topic = "a signed event" if request in signed else "no signed event"
            findings.add("result_wrong", f"request {request}: {told}, and {topic} on the topic")
