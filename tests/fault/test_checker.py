"""The checker finds what is planted, and nothing where nothing is (SPEC X.2, X.6)."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
from coincurve import PrivateKey

from assay.events import (
    EvidenceRecordSubmitted,
    GenerationAnswered,
    GenerationRejected,
    GenerationRequested,
    WalletEventAccepted,
    WalletScoreValidated,
)
from assay_runtime.records import Record
from tests.fault.checker import check
from tests.fault.findings import VIOLATIONS, Findings
from tests.fault.seen import SIGNED, SUBMITTED
from tests.fault.stores import EvidenceRow, LedgerRow, RequestRow, Stores
from tests.fault.synthetic_run import PUBLIC_KEY, SyntheticRun
from tests.fault.topic_reader import TopicLog
from tests.fault.workload import Submission, submissions

VALIDATED = WalletScoreValidated.type
ANSWERED = GenerationAnswered.type
REQUESTED = GenerationRequested.type


@pytest.fixture
def work() -> list[Submission]:
    """Five requests of one wallet."""
    return list(submissions(5, 1, seed=3))


@pytest.fixture
def run(work: list[Submission]) -> SyntheticRun:
    """Four of them, signed; the second after one refused answer."""
    made = SyntheticRun()
    for number, item in enumerate(work[:4]):
        made.request(item, attempts=2 if number == 1 else 1)
    return made


def found(run: SyntheticRun, stores: Stores | None = None) -> Findings:
    return check(run.log(), stores or run.stores(), run.asked, PUBLIC_KEY)


def kinds(findings: Findings) -> set[str]:
    return {kind for kind in VIOLATIONS if findings.of(kind)}


def last(run: SyntheticRun, topic: str) -> dict[str, str]:
    meta = json.loads(run.records[topic][-1].value or b"")["meta"]
    return {"request_id": meta["request_id"], "wallet": meta["wallet"]}


def test_a_flawless_run_is_clean(run: SyntheticRun) -> None:
    """X.2: nothing is found where nothing is planted, and every request is counted."""
    findings = found(run)
    assert kinds(findings) == set()
    assert findings.clean
    counts = findings.counts
    assert (counts["requests"], counts["signed"], counts["retried_requests"]) == (4, 4, 1)
    assert counts["repeated_model_calls"] == 0


def test_identical_repeats_are_counted_and_fine(run: SyntheticRun) -> None:
    """X.2: a repeat is byte-identical with the same event id; it is no second score."""
    run.repeat(run.records[SIGNED][0])
    run.repeat(run.records[SUBMITTED][0])
    findings = found(run)
    assert kinds(findings) == set()
    assert findings.counts[f"repeats {SIGNED}"] == 1
    assert findings.counts[f"repeats {SUBMITTED}"] == 1


def test_a_planted_loss(run: SyntheticRun, work: list[Submission]) -> None:
    """X.6: a request that nothing became of is lost."""
    run.request(work[4], signed=False)
    assert kinds(found(run)) == {"lost", "result_wrong"}
    assert work[4].request_id in found(run).violations["lost"][0]


def test_a_declared_loss_is_no_other_loss(run: SyntheticRun, work: list[Submission]) -> None:
    """Issue 6: what retention was made to remove may be lost; what is lost beside it is found."""
    run.request(work[4], signed=False)
    declared = check(run.log(), run.stores(), run.asked, PUBLIC_KEY, declared=[work[4].request_id])
    assert kinds(declared) == set()
    assert declared.counts["declared_lost"] == 1
    other = check(run.log(), run.stores(), run.asked, PUBLIC_KEY, declared=[work[0].request_id])
    assert kinds(other) == {"lost", "result_wrong"}
    assert other.counts["declared_lost"] == 0


def test_what_was_read_in_time_is_not_gone(run: SyntheticRun) -> None:
    """A log read before records were removed makes up for them, and for no others."""
    whole = run.log()
    for topic in (SIGNED, SUBMITTED):
        run.records[topic] = run.records[topic][2:]
    rest = TopicLog(run.log().records, {f"{SIGNED}/0": 2, f"{SUBMITTED}/0": 2})
    assert check(rest.with_earlier(whole), None, run.asked, PUBLIC_KEY).clean
    earlier = TopicLog({topic: records[1:] for topic, records in whole.records.items()})
    assert rest.with_earlier(earlier).gone == {f"{SIGNED}/0": 1, f"{SUBMITTED}/0": 1}


@pytest.mark.parametrize(("ends_as", "lost"), [("withheld", 0), ("fallback_score", 1)])
def test_a_terminal_rejection_is_an_ending(
    run: SyntheticRun, work: list[Submission], ends_as: str, lost: int
) -> None:
    """S3.6: a withheld score ends a request; a fallback that never came out does not."""
    run.request(work[4], signed=False)
    run.remove(run.records[VALIDATED][-1])
    answered = run.records[ANSWERED][-1]
    content = {"terminal": True, "ends_as": ends_as}
    run.event(GenerationRejected.type, answered, last(run, ANSWERED), attempt=1, **content)
    stores = run.stores()
    told = [RequestRow(r.request_id, "signed" if r.status == "signed" else "rejected")
            for r in stores.requests]  # fmt: skip
    findings = found(run, replace(stores, requests=told))
    assert findings.of("lost") == lost
    assert findings.counts["rejected"] == 1 - lost


def test_a_dead_letter_is_an_ending(run: SyntheticRun, work: list[Submission]) -> None:
    """X.4: what lies in a dead-letter topic is not lost."""
    item = work[4]
    run.asked.append(item.request_id)
    submitted = run._append(SUBMITTED, item.key, item.value, item.headers)
    extra = [("assay.request.id", item.request_id.encode()), ("assay.error.code", b"schema")]
    run._append(f"{SUBMITTED}.ingest.dlq", item.key, item.value, item.headers + extra)
    stores = run.stores()
    told = [*stores.requests[:-1], RequestRow(item.request_id, "dead_lettered")]
    findings = found(run, replace(stores, requests=told))
    assert kinds(findings) == set()
    assert findings.counts["dead_lettered"] == 1
    assert submitted.value == item.value


def test_a_planted_duplicate(run: SyntheticRun) -> None:
    """X.2: a second distinct signed event for a request, here of the same validated score."""
    run.sign(run.records[VALIDATED][-1])
    findings = found(run)
    assert findings.of("signed_twice") == 1
    assert kinds(findings) == {"signed_twice", "impure", "ledger_mismatch"}


def test_a_second_score_signed_for_one_request(run: SyntheticRun) -> None:
    """X.2: another validated score of the request must never be signed."""
    other = run.event(VALIDATED, run.records[ANSWERED][-1], last(run, ANSWERED), attempt=1, x=1)
    run.sign(other, score=900)
    assert {"signed_twice", "ledger_mismatch"} <= kinds(found(run))


def test_a_second_validated_score_has_to_be_recorded(run: SyntheticRun) -> None:
    """X.2: it is recorded and never signed; without the record something is missing."""
    request = run.records[ANSWERED][-1]
    asked = run.records["llm.generation.requested.v1"][-1]
    again = run.event(ANSWERED, asked, last(run, ANSWERED), attempt=1, raw="another answer")
    other = run.event(VALIDATED, again, last(run, ANSWERED), attempt=1, x=1)
    findings = found(run)
    assert kinds(findings) == {"conflict_unrecorded"}
    assert findings.counts["repeated_model_calls"] == 1
    refused = {"refused_event_id": dict(other.headers)["ce_id"].decode()}  # type: ignore[union-attr]
    run.event(
        EvidenceRecordSubmitted.type, other, last(run, ANSWERED), attempt=1,
        record="LEDGER_CONFLICT", payload=refused,
    )  # fmt: skip
    assert kinds(found(run)) == set()
    assert request in run.records[ANSWERED]


def test_a_repeat_with_other_bytes(run: SyntheticRun) -> None:
    """DESIGN §2: the same id means the same bytes."""
    first = run.records[SIGNED][0]
    run.repeat(first, (first.value or b"").replace(b'"score": 500', b'"score": 501'))
    assert {"repeat_differs", "bad_event", "signed_twice", "bad_signature"} <= kinds(found(run))


def test_a_bad_signature(run: SyntheticRun, work: list[Submission]) -> None:
    """X.3: a signature by another key under the trusted key's name."""
    validated = run.request(work[4], signed=False)
    run.sign(validated, key=PrivateKey(bytes(31) + b"\x09"))
    assert kinds(found(run)) == {"bad_signature"}


def test_an_untrusted_key(run: SyntheticRun) -> None:
    """X.3: what another key signed and names itself is not trusted for that."""
    other = PrivateKey(bytes(31) + b"\x09").public_key.format()
    findings = check(run.log(), run.stores(), run.asked, other)
    assert (kinds(findings), findings.of("bad_signature")) == ({"bad_signature"}, 4)


def test_timestamps_that_go_back(run: SyntheticRun, work: list[Submission]) -> None:
    """X.2: along the signed topic a wallet's timestamps only grow."""
    run.sign(run.request(work[4], signed=False), timestamp_ms=900)
    assert kinds(found(run)) == {"order_violations"}


def test_two_scores_at_one_moment(run: SyntheticRun, work: list[Submission]) -> None:
    """DESIGN §3: (network, wallet, timestamp) never carries two scores."""
    run.sign(run.request(work[4], signed=False), timestamp_ms=1_004)
    assert kinds(found(run)) == {"same_timestamp"}


def test_first_attempts_out_of_order(work: list[Submission]) -> None:
    """X.2: first attempts keep the order of acceptance; a retried one may be overtaken."""
    run = SyntheticRun()
    late = run.request(work[0], signed=False)
    run.request(work[1])
    run.sign(late)
    assert kinds(found(run)) == {"order_violations"}
    run = SyntheticRun()
    late = run.request(work[0], attempts=2, signed=False)
    run.request(work[1])
    run.sign(late)
    assert kinds(found(run)) == set()


def test_a_wallet_on_two_partitions(run: SyntheticRun) -> None:
    """DESIGN §1: one wallet has one partition number everywhere."""
    records = run.records[VALIDATED]
    records[-1] = records[-1]._replace(partition=1)
    assert kinds(found(run)) == {"order_violations"}


def test_a_broken_chain(run: SyntheticRun) -> None:
    """X.3: every ancestor of a signed score is on the bus, with the bytes its child names."""
    run.remove(run.records[ANSWERED][0])
    assert kinds(found(run)) == {"chain_broken"}


def test_a_parent_of_another_request(run: SyntheticRun) -> None:
    """DESIGN §2: an event belongs to its parent's request."""
    common = {**last(run, VALIDATED), "request_id": run.asked[0]}
    run.event(WalletEventAccepted.type, run.records[SUBMITTED][-1], common, attempt=1, x=1)
    assert {"chain_broken", "impure"} <= kinds(found(run))


def test_an_event_id_of_its_own_making(run: SyntheticRun) -> None:
    """DESIGN §2: the id follows from parent, type and bytes."""
    records = run.records[ANSWERED]
    headers = tuple((n, b"made up" if n == "ce_id" else v) for n, v in records[0].headers)
    records[0] = records[0]._replace(headers=headers)
    assert {"bad_event", "chain_broken"} <= kinds(found(run))


def test_a_stage_that_does_not_compute_the_same(run: SyntheticRun) -> None:
    """DESIGN §2: a computing stage makes the same event of the same parent."""
    parent = run.records[SUBMITTED][-1]
    run.event(WalletEventAccepted.type, parent, last(run, VALIDATED), attempt=1, clock=123)
    assert kinds(found(run)) == {"impure"}


def test_nobody_asked(run: SyntheticRun) -> None:
    """A signed score of a request that was never submitted by this run."""
    run.asked.pop()
    assert kinds(found(run)) == {"unasked"}


def test_dropped_records_are_not_taken_for_right(run: SyntheticRun) -> None:
    """DESIGN §8: what the broker dropped cannot be checked, and is said."""
    log = TopicLog(run.log().records, {f"{SIGNED}/0": 7})
    assert kinds(check(log, run.stores(), run.asked, PUBLIC_KEY)) == {"unread"}


def test_a_step_that_follows_an_answer(run: SyntheticRun) -> None:
    """S4.12: a request's parent may be the answer before it; one request of one answer."""
    common, answered = last(run, ANSWERED), run.records[ANSWERED][-1]
    asked = run.event(REQUESTED, answered, common, attempt=1, step="second")
    run.event(ANSWERED, asked, common, attempt=1)
    assert kinds(found(run)) == set()
    run.event(REQUESTED, answered, common, attempt=1, step="third")
    assert kinds(found(run)) == {"impure"}


def test_a_step_of_no_known_answer(run: SyntheticRun) -> None:
    """DESIGN §2: a rejection leads to no request of a step."""
    refused = run.records[GenerationRejected.type][0]
    run.event(REQUESTED, refused, last(run, GenerationRejected.type), attempt=1)
    assert kinds(found(run)) == {"chain_broken"}


def beside(run: SyntheticRun, mark: str, process: str = "b") -> Record:
    """A request beside the last one under its id, refused once, answered, judged: all marked."""
    meta = {**last(run, VALIDATED), mark: True, "process_hash": process}
    asked = run.event(REQUESTED, run.records[WalletEventAccepted.type][-1], meta, attempt=1)
    first = run.event(ANSWERED, asked, meta, attempt=1)
    content = {"terminal": True, "ends_as": "withheld"}
    run.event(GenerationRejected.type, first, meta, attempt=1, **content)
    again = run.event(ANSWERED, asked, meta, attempt=1, raw="another")
    return run.event(VALIDATED, again, meta, attempt=1, x=1)


def test_shadows_stand_beside_a_request(run: SyntheticRun) -> None:
    """X.2: what a shadow makes of a request is neither its second score nor its ending."""
    beside(run, "shadow", "b")
    beside(run, "shadow", "c")
    findings = found(run)
    assert kinds(findings) == set()
    assert findings.counts["ledger_conflicts"] == 0


def test_a_shadows_withheld_score_ends_nothing(run: SyntheticRun, work: list[Submission]) -> None:
    """X.6: a request of which only a shadow came to an end is lost."""
    run.request(work[4], signed=False)
    beside(run, "shadow")
    assert kinds(found(run)) == {"lost", "result_wrong"}


def test_a_shadows_refusal_is_no_excuse_for_order(work: list[Submission]) -> None:
    """X.2: only a request's own refused attempt lets others overtake it."""
    run = SyntheticRun()
    late = run.request(work[0], signed=False)
    asked = run.records[ANSWERED][-1]
    refused = {"terminal": False, "ends_as": None}
    marked = {**last(run, ANSWERED), "shadow": True}
    run.event(GenerationRejected.type, asked, marked, attempt=1, **refused)
    run.request(work[1])
    run.sign(late)
    assert kinds(found(run)) == {"order_violations"}


@pytest.mark.parametrize("mark", ["shadow", "unsealed"])
def test_a_signed_score_of_what_must_never_be(
    run: SyntheticRun, work: list[Submission], mark: str
) -> None:
    """X.2: a shadow's score, or one that follows from nobody's request, is signed; the mark may
    have got lost on the way."""
    validated = run.request(work[4], signed=False)
    for topic in (REQUESTED, ANSWERED, VALIDATED):
        run.remove(run.records[topic][-1])
    parent = run.records[WalletEventAccepted.type][-1]
    common = last(run, WalletEventAccepted.type)
    asked = run.event(REQUESTED, parent, {**common, mark: True}, attempt=1)
    validated = run.event(VALIDATED, run.event(ANSWERED, asked, common, attempt=1), common,
                          attempt=1)  # fmt: skip
    assert kinds(found(run)) == {"lost", "result_wrong"}
    run.sign(validated)
    assert kinds(found(run)) == {f"{mark}_signed"}


def _spoil_ledger(stores: Stores, **changes: object) -> Stores:
    row: LedgerRow = replace(stores.ledger[0], **changes)  # type: ignore[arg-type]
    return replace(stores, ledger=[row, *stores.ledger[1:]])


@pytest.mark.parametrize(
    "changes",
    [
        {"event_sha256": "00"},
        {"score": 1},
        {"timestamp_ms": 1},
        {"source_event_id": "another"},
        {"event_id": None, "event_sha256": None},
        {"network": "elsewhere"},
    ],
)
def test_a_ledger_that_contradicts_the_topic(run: SyntheticRun, changes: dict[str, object]) -> None:
    """DESIGN §3: the ledger holds the bytes that came out."""
    assert kinds(found(run, _spoil_ledger(run.stores(), **changes))) == {"ledger_mismatch"}


def test_a_ledger_row_that_never_came_out(run: SyntheticRun) -> None:
    """X.6: reserved or signed in the ledger and not on the topic is a loss on the way."""
    stores = run.stores()
    row = replace(stores.ledger[0], request_id="reserved and forgotten")
    findings = found(run, replace(stores, ledger=[*stores.ledger, row]))
    assert kinds(findings) == {"ledger_mismatch"}


def test_missing_evidence(run: SyntheticRun) -> None:
    """DESIGN §7: every event of every topic is kept."""
    stores = run.stores()
    assert kinds(found(run, replace(stores, evidence=stores.evidence[:-1]))) == {"evidence_missing"}


def test_evidence_kept_twice(run: SyntheticRun) -> None:
    """DESIGN §7: an event id is kept once, however often its bytes come."""
    repeat = run.repeat(run.records[SIGNED][0])
    stores = run.stores()
    first = next(row for row in stores.evidence if row.topic == SIGNED)
    row = EvidenceRow(0, len(stores.evidence), SIGNED, SIGNED, 0, repeat.offset, first.sha256)
    findings = found(run, replace(stores, evidence=[*stores.evidence, row]))
    assert kinds(findings) == {"evidence_twice"}


@pytest.mark.parametrize("changes", [{"sha256": "00"}, {"offset": 99}])
def test_altered_evidence(run: SyntheticRun, changes: dict[str, object]) -> None:
    """X.3: a row is the record it names."""
    stores = run.stores()
    row = replace(stores.evidence[0], **changes)  # type: ignore[arg-type]
    findings = found(run, replace(stores, evidence=[row, *stores.evidence[1:]]))
    assert kinds(findings) == {"evidence_altered", "evidence_missing"}


def test_a_gap_in_a_shard(run: SyntheticRun) -> None:
    """DESIGN §7: a shard's numbers have no gap."""
    stores = run.stores()
    row = replace(stores.evidence[-1], seq=99)
    findings = found(run, replace(stores, evidence=[*stores.evidence[:-1], row]))
    assert kinds(findings) == {"evidence_altered"}


@pytest.mark.parametrize("status", ["pending", "rejected", "dead_lettered", None])
def test_a_request_table_that_is_wrong(run: SyntheticRun, status: str | None) -> None:
    """S3.8: a signed request is shown as signed."""
    stores = run.stores()
    rows = [RequestRow(run.asked[0], status)] if status else []
    findings = found(run, replace(stores, requests=[*rows, *stores.requests[1:]]))
    assert kinds(findings) == {"result_wrong"}
