"""Every event has its parent on the bus, its own id, and one form (DESIGN §2). Pure."""

from __future__ import annotations

from collections import defaultdict

from assay.events import (
    GenerationAccepted,
    GenerationAnswered,
    GenerationRejected,
    GenerationRequested,
    WalletEventAccepted,
    WalletFeaturesExtracted,
    WalletScoreValidated,
)
from tests.fault.findings import Findings
from tests.fault.seen import EVIDENCE_RECORD, SIGNED, SUBMITTED, Seen
from tests.fault.topic_reader import TopicLog

ACCEPTED = WalletEventAccepted.type
REQUESTED = GenerationRequested.type
RETRIED = "llm.generation.retried.v1"
ANSWERED = GenerationAnswered.type
VALIDATED = WalletScoreValidated.type

PARENTS = {
    ACCEPTED: (SUBMITTED,),
    WalletFeaturesExtracted.type: (ACCEPTED,),
    # Of a step that another follows, the answer is the parent (SPEC S4.12).
    REQUESTED: (ACCEPTED, ANSWERED),
    RETRIED: (ANSWERED,),
    ANSWERED: (REQUESTED, RETRIED),
    GenerationRejected.type: (ANSWERED,),
    GenerationAccepted.type: (ANSWERED,),
    VALIDATED: (ANSWERED,),
    SIGNED: (VALIDATED,),
    EVIDENCE_RECORD: (ANSWERED, VALIDATED),
}
# A stage that calls outside may answer differently the second time; all others compute, and
# ingest remembers.
_CALLS_OUTSIDE = {ANSWERED}


def check_lineage(log: TopicLog, findings: Findings) -> None:
    """Ids, headers, keys and parents of all internal events; counts repeats per topic."""
    known: dict[tuple[str, str, str], str] = {}
    for topic, records in log.records.items():
        for record in records:
            known[topic, record.event_id, record.sha256] = record.request_id
    for topic, records in log.records.items():
        _check_ids(topic, records, findings)
        if topic not in PARENTS:
            continue
        for record in records:
            _check_parent(record, known, findings)
            wallet = record.meta.get("wallet")
            if wallet and record.key != wallet:
                findings.add("bad_event", f"{record.at}: key {record.key}, wallet {wallet}")
        if topic not in _CALLS_OUTSIDE:
            _check_purity(records, findings)
    _check_marks(log, findings)
    answered = log.of(ANSWERED)
    findings.counts["model_answers"] = len(answered)
    # Two answers to one request were two calls; the same answer twice was written twice. A call
    # that brought no answer is not remembered: a repeat of its request asks again.
    paid = [record for record in answered if record.content.get("outcome") != "failed"]
    findings.counts["repeated_model_calls"] = len({record.event_id for record in paid}) - len(
        {record.meta.get("causation_id") for record in paid}
    )


def _check_marks(log: TopicLog, findings: Findings) -> None:
    """No signed score has a shadow's or an unsealed event among its ancestors or is marked as one,
    also where a mark got lost on the way."""
    by_id = {(topic, record.event_id): record for topic in PARENTS for record in log.of(topic)}
    for signed in log.of(SIGNED):
        record: Seen | None = signed
        seen: set[str] = set()
        while record is not None and record.event_id not in seen:
            seen.add(record.event_id)
            if record.aside:
                text = f"request {signed.request_id} at {signed.at}: {record.at} is marked so"
                findings.add(f"{record.aside}_signed", text)
                break
            cause = str(record.meta.get("causation_id"))
            parents = (by_id.get((topic, cause)) for topic in PARENTS[record.topic])
            record = next((parent for parent in parents if parent is not None), None)


def check_repeated_calls(allowed: int, findings: Findings) -> None:
    """A call is paid again only where its answer was lost with its process: `allowed` is the calls
    that may have been in flight at all the faults together."""
    repeated = findings.counts["repeated_model_calls"]
    findings.counts["repeated_model_calls_allowed"] = allowed
    if repeated > allowed:
        findings.add("paid_again", f"{repeated} calls repeated, {allowed} could be in flight")


def _check_ids(topic: str, records: list[Seen], findings: Findings) -> None:
    bytes_of: dict[str, str] = {}
    wallets: dict[str, int] = {}
    for record in records:
        if record.problem:
            findings.add("bad_event", f"{record.at}: {record.problem}")
        first = bytes_of.setdefault(record.identity, record.sha256)
        # A publisher's own id may come again with other content: that is a dead letter's matter.
        if first != record.sha256 and topic in PARENTS:
            findings.add("repeat_differs", f"{record.at}: {record.identity} has other bytes before")
        partition = wallets.setdefault(record.key, record.partition)
        if partition != record.partition and topic in PARENTS:
            findings.add("order_violations", f"{record.at}: key {record.key} on two partitions")
    repeats = len(records) - len({(record.identity, record.sha256) for record in records})
    if repeats:
        findings.counts[f"repeats {topic}"] = repeats


def _check_parent(record: Seen, known: dict[tuple[str, str, str], str], findings: Findings) -> None:
    cause, sha256 = record.meta.get("causation_id"), record.meta.get("causation_sha256")
    for topic in PARENTS[record.topic]:
        request = known.get((topic, str(cause), str(sha256)))
        if request == record.request_id:
            return
        if request is not None:
            text = f"{record.at}: request {record.request_id}, its parent's is {request}"
            findings.add("chain_broken", text)
            return
    findings.add("chain_broken", f"{record.at}: no parent {cause} with these bytes")


def _check_purity(records: list[Seen], findings: Findings) -> None:
    made: dict[tuple[str, str], set[str]] = defaultdict(set)
    for record in records:
        # Each shadow has an event of its own of the same parent.
        shadow = str(record.meta.get("process_hash")) if record.meta.get("shadow") else ""
        made[str(record.meta.get("causation_id")), shadow].add(record.event_id)
    for (parent, _), events in made.items():
        if len(events) > 1:
            text = f"{records[0].topic}: {len(events)} different events of parent {parent}"
            findings.add("impure", text)
