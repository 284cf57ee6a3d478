"""What is kept of a request, and how its events hang together (DESIGN §2, §7; SPEC X.3)."""

from __future__ import annotations

import hashlib
import json
import os
import re
import signal
import uuid
from collections import Counter
from datetime import UTC, datetime
from typing import Any

import httpx
import pytest

from assay.ids import event_id
from tests.e2e.outside import ScriptedModel, score_answer
from tests.e2e.stacks import (
    ACCEPTED,
    ANSWERED,
    FEATURES,
    REJECTED,
    REQUESTED,
    RETRIED,
    SIGNED,
    SUBMITTED,
    VALIDATED,
    StackProcess,
    command,
    eventually,
    headers_of,
    new_address,
)

STEPS = Counter(
    {SUBMITTED: 1, ACCEPTED: 1, FEATURES: 1, REQUESTED: 1, RETRIED: 1, ANSWERED: 2, REJECTED: 1,
     VALIDATED: 1, SIGNED: 1}
)  # fmt: skip
SERVICES = ("ingest", "features", "scorer", "validator", "signer", "evidence")


def _retried_request(
    stack: StackProcess, model: ScriptedModel, **headers: str
) -> tuple[str, dict[str, Any]]:
    """A request that took two attempts: the wallet and the answer."""
    address = new_address()
    model.script(address, score_answer(score=1), score_answer())
    answer = stack.post({"address": address}, headers=headers)
    assert answer.status_code == 200, answer.text
    return address, answer.json()


async def test_every_step_is_there_exactly_once(stack: StackProcess, model: ScriptedModel) -> None:
    """X.3: all events of a request, by request and by wallet, each once, none missing; a
    redelivery adds nothing."""
    key = str(uuid.uuid4())
    address, body = _retried_request(stack, model, **{"Idempotency-Key": key})

    async def look() -> list[dict[str, Any]]:
        return stack.evidence(request_id=body["request_id"])

    items = await eventually(look, lambda found: len(found) >= sum(STEPS.values()))
    assert Counter(item["topic"] for item in items) == STEPS
    assert stack.evidence(wallet=address) == items == stack.evidence(wallet=address.lower())
    assert len({item["event_id"] for item in items}) == len(items)
    assert {item["wallet"] for item in items} == {address.lower()}
    [kept] = [item for item in items if item["topic"] == SUBMITTED]

    [record] = [r for r in await stack.records(SUBMITTED) if headers_of(r).get("ce_id") == key]
    await stack.send(record.value, key=record.key, headers=list(record.headers))
    # What comes after the repeat on the same partition is kept after it.
    stack.post({"address": address})
    await stack.evidence_with(SIGNED, wallet=address)

    async def all_of_wallet() -> list[dict[str, Any]]:
        return stack.evidence(wallet=address)

    both = await eventually(all_of_wallet, lambda found: len(found) >= len(items) + 7)
    assert [i for i in both if i["topic"] == SUBMITTED and i["request_id"] == body["request_id"]] \
        == [kept]  # fmt: skip
    assert len(stack.evidence(request_id=body["request_id"])) == len(items)


async def test_evidence_survives_a_kill(stack: StackProcess, model: ScriptedModel) -> None:
    """DESIGN §7: offsets are kept with the rows; after kill -9 nothing is missing or twice."""
    _, before = _retried_request(stack, model)
    os.kill(stack.pid("evidence"), signal.SIGKILL)
    _, body = _retried_request(stack, model)

    async def look() -> list[dict[str, Any]]:
        try:
            return stack.evidence(request_id=body["request_id"])
        except httpx.HTTPError:
            return []  # it is being started again

    items = await eventually(look, lambda found: len(found) >= sum(STEPS.values()), 60)
    assert Counter(item["topic"] for item in items) == STEPS
    earlier = stack.evidence(request_id=before["request_id"])
    assert Counter(item["topic"] for item in earlier) == STEPS
    assert "evidence ended" in stack.said


async def test_filters_and_pages(stack: StackProcess, model: ScriptedModel) -> None:
    """Issue 3: by wallet, type and time, a page at a time, in the order of arrival."""
    address, body = _retried_request(stack, model)
    await stack.evidence_with(SIGNED, VALIDATED, wallet=address)
    items = stack.evidence(wallet=address)
    assert stack.evidence(wallet=address, limit=2) == items
    cursors = [item["cursor"] for item in items]
    assert cursors == sorted(cursors)
    page = stack.page("evidence", "/evidence", params={"wallet": address, "limit": 3}).json()
    assert page["items"] == items[:3]
    assert page["next"] == items[2]["cursor"]
    last = stack.page("evidence", "/evidence", params={"wallet": address, "type": SIGNED}).json()
    assert [item["request_id"] for item in last["items"]] == [body["request_id"]]
    assert last["next"] is None
    signed = last["items"][0]
    assert signed["payload"]["score"] == body["score"]
    at = signed["timestamp_ms"]
    iso = datetime.fromtimestamp((at + 1) / 1000, UTC).isoformat()
    for since, there in ((at, True), (at + 1, False), (iso, False), ("2020-01-01", True)):
        found = stack.evidence(wallet=address, type=SIGNED, since=since)
        assert bool(found) is there, since
    assert stack.evidence(wallet=new_address()) == []


@pytest.mark.parametrize(
    ("query", "pointer"),
    [
        ("since=yesterday", "since"),
        ("limit=many", "limit"),
        ("after=-1", "after"),
        ("after=" + "9" * 30, "after"),
        ("colour=red", "colour"),
        ("type=a&type=b", "type"),
        ("wallet=%00", "wallet"),
    ],
)
def test_bad_queries_name_the_parameter(stack: StackProcess, query: str, pointer: str) -> None:
    """X.4: problem+json."""
    answer = stack.page("evidence", "/evidence?" + query)
    assert answer.status_code == 400
    assert answer.headers["content-type"] == "application/problem+json"
    assert answer.json()["errors"][0]["pointer"] == pointer


async def test_a_signed_score_names_its_ancestors(
    stack: StackProcess, model: ScriptedModel
) -> None:
    """DESIGN §2, X.3: from the signed event back to the submission, each event names its parent
    by id and by the hash of its bytes, and each id follows from parent, type and bytes."""
    trace = uuid.uuid4().hex
    address, body = _retried_request(stack, model, traceparent=f"00-{trace}-{'1' * 16}-01")
    events = {}
    for topic in STEPS:
        for record in await stack.of_wallet(topic, address):
            events[headers_of(record)["ce_id"]] = record
    assert len(events) == sum(STEPS.values())
    [signed] = [r for r in events.values() if r.topic == SIGNED]
    walked, current = [], signed
    while current.topic != SUBMITTED:
        walked.append(current.topic)
        meta = json.loads(current.value)["meta"]
        parent = events[meta["causation_id"]]
        assert meta["causation_sha256"] == hashlib.sha256(parent.value).hexdigest()
        headers = headers_of(current)
        assert headers["ce_causationid"] == meta["causation_id"]
        assert headers["ce_requestid"] == meta["request_id"] == body["request_id"]
        made = event_id(meta["causation_id"], headers["ce_type"], current.value)
        assert headers["ce_id"] == made
        current = parent
    assert walked == [SIGNED, VALIDATED, ANSWERED, RETRIED, ANSWERED, REQUESTED, ACCEPTED]
    assert {headers_of(r)["traceparent"].split("-")[1] for r in events.values()} == {trace}


MAIL = "jane.doe@shop.example"


def _full_text(stack: StackProcess) -> dict[str, str]:
    """The header that brings full text, with the token that the stack keeps with its data."""
    tokens = json.loads((stack.data / "evidence-tokens.json").read_text(encoding="utf-8"))
    return {"authorization": f"Bearer {tokens['full_text']}"}


async def test_what_is_shown_is_redacted(stack: StackProcess, model: ScriptedModel) -> None:
    """S5.5, DESIGN §7: personal data of the questionnaire and of the model's answer are in the
    events, and neither in the pages nor in any service's log."""
    address = new_address()
    model.script(address, score_answer(score=1, reasoning=f"Ask {MAIL}."), score_answer())
    asked = {"question": "How do we reach you?", "answer": f"write to {MAIL}"}
    answer = stack.post({"address": address, "questionnaire": [asked]})
    assert answer.status_code == 200, answer.text
    await stack.evidence_with(SIGNED, wallet=address)
    items = stack.evidence(wallet=address)
    text = json.dumps(items)
    assert MAIL not in text
    assert "[EMAIL]" in text
    assert address.lower() in text
    refused = stack.page("evidence", "/evidence?full=true")
    assert refused.status_code == 401
    parameters = {"wallet": address, "full": "true"}
    page = stack.page("evidence", "/evidence", params=parameters, headers=_full_text(stack)).json()
    full = {item["event_id"]: item for item in page["items"]}
    assert set(full) == {item["event_id"] for item in items}
    assert json.dumps(page).count(MAIL) >= 4
    for item in items:
        assert item["value_sha256"] == full[item["event_id"]]["value_sha256"]
        assert item["leaf_hash"] == full[item["event_id"]]["leaf_hash"]
    for service in SERVICES:
        assert MAIL not in json.dumps(stack.log(service))


async def test_attempts_of_a_request(stack: StackProcess, model: ScriptedModel) -> None:
    """S5.5: `assay attempts` finds the stack's own token; both attempts, what was said, why the
    first was refused, and how long the calls took."""
    address, body = _retried_request(stack, model)
    await stack.evidence_with(SIGNED, wallet=address)
    there = ("--evidence", stack.addresses["evidence"])
    done = command("attempts", body["request_id"], "--json", "--full", *there)
    assert done.returncode == 0, done.stderr
    first, second = (json.loads(line) for line in done.stdout.splitlines())
    assert [record["attempt"] for record in (first, second)] == [1, 2]
    assert (first["parse_success"], first["validation_success"]) == (True, False)
    assert first["errors"]
    assert (second["parse_success"], second["validation_success"]) == (True, True)
    calls = model.calls(address)
    assert [record["seed"] for record in (first, second)] == [call.seed for call in calls]
    assert first["prompt"] in calls[0].prompt
    assert json.loads(first["raw_answer"])["score"] == 1
    for record in (first, second):
        assert record["request_id"] == body["request_id"]
        assert (record["process_id"], record["shadow"]) == ("wallet_score", False)
        assert re.fullmatch("[0-9a-f]{64}", record["prompt_sha256"])
        assert re.fullmatch("[0-9a-f]{64}", record["process_hash"])
        assert record["duration_ms"] is not None
    people = command("attempts", body["request_id"], *there)
    assert "attempt 2" in people.stdout
    assert "accepted" in people.stdout


async def test_erased_and_read_again(stack: StackProcess, model: ScriptedModel) -> None:
    """Issue 5: the text of a wallet goes from evidence, hashes stay, and the same records on the
    topic again bring nothing back, also after kill -9."""
    key = str(uuid.uuid4())
    address, _ = _retried_request(stack, model, **{"Idempotency-Key": key})
    await stack.evidence_with(SIGNED, wallet=address)
    before = stack.evidence(wallet=address)
    there = ("--evidence", stack.addresses["evidence"])
    done = command("erase", "--wallet", address, "--reason", "owner asked", "--yes", *there)
    assert done.returncode == 0, done.stderr
    assert f"{len(before)} events erased" in done.stdout
    os.kill(stack.pid("evidence"), signal.SIGKILL)
    for topic in (SUBMITTED, ANSWERED, SIGNED):
        for record in await stack.of_wallet(topic, address):
            await stack.send(
                record.value, key=record.key, headers=list(record.headers), topic=topic
            )
    other, _ = _retried_request(stack, model)

    async def look() -> list[dict[str, Any]]:
        try:
            return stack.evidence(wallet=other)
        except httpx.HTTPError:
            return []  # it is being started again

    await eventually(look, lambda found: SIGNED in {item["type"] for item in found}, 60)
    after = stack.evidence(wallet=address)
    kept = [item for item in after if item["type"] != "ERASURE"]
    assert [item["leaf_hash"] for item in kept] == [item["leaf_hash"] for item in before]
    assert all(item["erased"]["reason"] == "owner asked" for item in kept)
    assert not any("payload" in item or item.get("headers") for item in kept)


@pytest.mark.parametrize("service", SERVICES)
async def test_one_trace_through_all_logs(
    stack: StackProcess, traced: tuple[str, str], service: str
) -> None:
    """Issue 3 item 4: each service's log has lines of the request, all with the caller's trace."""
    trace, request = traced

    async def look() -> set[str]:
        lines = stack.log(service)
        return {line.get("trace_id", "none") for line in lines if line.get("request_id") == request}

    assert await eventually(look, bool, 10) == {trace}


@pytest.fixture(scope="module")
def traced(stack: StackProcess, model: ScriptedModel) -> tuple[str, str]:
    """The trace and the request id of a request that took two attempts."""
    trace = uuid.uuid4().hex
    _, body = _retried_request(stack, model, traceparent=f"00-{trace}-{'1' * 16}-01")
    return trace, body["request_id"]


def test_every_service_shows_its_health(stack: StackProcess) -> None:
    """Issue 3 item 4: liveness, readiness, metrics; the signer its key, as it says in `up`."""
    for service in SERVICES:
        assert stack.page(service, "/livez").text == "ok"
        assert stack.page(service, "/readyz").json() == {"ready": True, "problems": {}}
        metrics = stack.page(service, "/metrics").text
        assert re.search(r'^assay_records_consumed_total\{.*pipeline="' + service, metrics, re.M)
        assert "assay_handle_seconds_bucket" in metrics
        assert "0x" not in metrics
    key = stack.page("signer", "/public-key").json()
    assert key["public_key"] == stack.public_key
    jwks = stack.page("signer", "/.well-known/jwks.json").json()
    assert jwks["keys"][0]["kid"] == key["kid"]
    assert stack.page("signer", "/nothing").json()["code"] == "not_found"
