"""One distinct signed score per request, in order, under the key (SPEC X.2, S3.9). Pure."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterator

from assay.attestation import AttestationError, verify_score
from assay.events import WalletEventAccepted, WalletScoreValidated
from tests.fault.findings import Findings
from tests.fault.seen import EVIDENCE_RECORD, REJECTED, SIGNED, Seen
from tests.fault.topic_reader import TopicLog

_ENDED_WITHOUT_SCORE = ("withheld", "rejected")


def distinct(records: Collection[Seen]) -> Iterator[Seen]:
    """Each event at the first of its places; repeats of the same bytes are left out."""
    known = set()
    for record in records:
        which = (record.identity, record.sha256)
        if which not in known:
            known.add(which)
            yield record


def check_endings(
    log: TopicLog, asked: Collection[str], findings: Findings, declared: Collection[str] = ()
) -> None:
    """Every request has ended, in exactly one signed score where in any; those whose loss is
    `declared` need not have."""
    signed: dict[str, list[Seen]] = defaultdict(list)
    for record in distinct(log.of(SIGNED)):
        signed[record.request_id].append(record)
    refused = {
        record.request_id
        for record in log.of(REJECTED)
        if record.content.get("terminal")
        and record.content.get("ends_as") in _ENDED_WITHOUT_SCORE
        and not record.aside
    }
    buried = {
        record.request_id
        for topic, records in log.records.items()
        if topic.endswith(".dlq")
        for record in records
    }
    counts = findings.counts
    counts["requests"] = len(set(asked))
    for request in sorted(set(asked)):
        events = signed.get(request, [])
        if len(events) > 1:
            ids = ", ".join(f"{event.event_id} at {event.at}" for event in events)
            findings.add("signed_twice", f"request {request}: {ids}")
        if events:
            counts["signed"] += 1
            counts["fallbacks"] += bool(events[0].content["metadata"].get("fallback"))
        elif request in refused:
            counts["rejected"] += 1
        elif request in buried:
            counts["dead_lettered"] += 1
        elif request in declared:
            counts["declared_lost"] += 1
        else:
            findings.add("lost", f"request {request}")
    for request in sorted(signed.keys() - set(asked)):
        findings.add("unasked", f"request {request} at {signed[request][0].at}")


def check_signatures(log: TopicLog, public_key: bytes, findings: Findings) -> None:
    """Every attestation verifies under the trusted key, and no other is named."""
    for record in distinct(log.of(SIGNED)):
        content = record.content
        attestations: list[dict[str, str]] = content.get("attestations") or [{}]
        for attestation in attestations:
            try:
                if attestation.get("public_key") != public_key.hex():
                    raise ValueError(f"key {attestation.get('public_key')} is not the trusted one")
                verify_score(
                    public_key,
                    bytes.fromhex(attestation["signature"]),
                    score=content["score"],
                    wallet_address=content["wallet_address"],
                    timestamp_ms=content["timestamp_ms"],
                )
            except (AttestationError, ValueError, KeyError, TypeError) as error:
                text = f"request {record.request_id} at {record.at}: {error}"
                findings.add("bad_signature", text)


def check_order(log: TopicLog, findings: Findings) -> None:
    """Per wallet, repeats dropped: timestamps grow along the topic, no two are equal, and first
    attempts keep the order of acceptance. A request of which any attempt was refused counts as
    retried, also where a later redelivery's first attempt brought its score."""
    retried = {
        record.request_id
        for record in log.of(REJECTED)
        if not record.content.get("terminal") and not record.aside
    }
    place: dict[str, int] = {}
    for number, record in enumerate(log.of(WalletEventAccepted.type)):
        place.setdefault(record.request_id, number)
    by_wallet: dict[tuple[str, str], list[Seen]] = defaultdict(list)
    for record in distinct(log.of(SIGNED)):
        content = record.content
        if not content.get("attestations") or not isinstance(content.get("wallet_address"), str):
            findings.add("bad_event", f"{record.at}: no signed score")
            continue
        network = content["attestations"][0].get("network", "")
        by_wallet[network, content["wallet_address"].lower()].append(record)
    for (network, wallet), records in by_wallet.items():
        seen_at: dict[int, str] = {}
        last = -1
        furthest = (-1, "")
        for record in records:
            timestamp = int(record.content["timestamp_ms"])
            if timestamp in seen_at:
                text = f"{network} {wallet} {timestamp}: {seen_at[timestamp]} and {record.at}"
                findings.add("same_timestamp", text)
            elif timestamp < last:
                text = f"{wallet}: {timestamp} at {record.at} stands behind {last}"
                findings.add("order_violations", text)
            seen_at[timestamp] = record.at
            last = max(last, timestamp)
            accepted = place.get(record.request_id)
            if accepted is None or record.request_id in retried or record.meta["attempt"] > 1:
                continue
            if accepted < furthest[0]:
                text = f"{wallet}: {record.request_id} at {record.at} overtaken by {furthest[1]}"
                findings.add("order_violations", text)
            furthest = max(furthest, (accepted, record.request_id))
    findings.counts["retried_requests"] = len(retried)


def check_conflicts(log: TopicLog, findings: Findings) -> None:
    """A validated event that lost its request to another is recorded as refused."""
    recorded = {
        record.content["payload"].get("refused_event_id")
        for record in log.of(EVIDENCE_RECORD)
        if record.content.get("record") == "LEDGER_CONFLICT"
    }
    sources = {record.meta.get("causation_id") for record in log.of(SIGNED)}
    signed = {record.request_id for record in log.of(SIGNED)}
    for record in distinct(log.of(WalletScoreValidated.type)):
        if record.event_id in sources or record.request_id not in signed or record.aside:
            continue
        findings.counts["ledger_conflicts"] += 1
        if record.event_id not in recorded:
            findings.add("conflict_unrecorded", f"request {record.request_id}, {record.at}")
