"""A wallet event becomes a signed score (issue 3, SPEC X.1-X.3, S3.8, S3.9)."""

from __future__ import annotations

import asyncio
import json
import uuid
from pathlib import Path
from typing import Any

import pytest

from assay.ids import request_id
from tests.data.wallet_records import sized_record
from tests.e2e.outside import GOOD, Reply, ScriptedAggregator, ScriptedModel, score_answer, worth
from tests.e2e.stacks import (
    ACCEPTED,
    REPO,
    SIGNED,
    SUBMITTED,
    StackProcess,
    command,
    flat,
    new_address,
)

SAMPLES = sorted((REPO / "deploy" / "dev" / "samples").glob("*.json"))
GIVEN = sorted((REPO.parent / "shared" / "data" / "wallets").glob("*.json"))


def _record(size: int) -> dict[str, Any]:
    return {**sized_record(size), "wallet": new_address()}


def _lines(text: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in text.splitlines()]


def _verified(scores: list[dict[str, Any]], key: str) -> bool:
    text = "".join(json.dumps(score) + "\n" for score in scores)
    done = command("verify", "--public-key", key, "--json", stdin=text)
    return done.returncode == 0 and all(line["valid"] for line in _lines(done.stdout))


def test_published_files_come_back_as_scores_that_verify(
    stack: StackProcess, tmp_path: Path
) -> None:
    """X.1, X.3, S3.9: samples, given real records, 650 KB and almost 4 MiB; the key as hex, file
    and URL; one wrong figure is noticed."""
    large, largest = tmp_path / "650k.json", tmp_path / "4m.json"
    large.write_text(json.dumps(_record(650_000)), encoding="utf-8")
    largest.write_text(
        json.dumps(_record(4_190_000), separators=(",", ":"), ensure_ascii=False), encoding="utf-8"
    )
    files = [*SAMPLES, *GIVEN, large, largest]
    done = command(
        "publish", "--bootstrap", stack.bootstrap, "--wait", "--timeout", "90", "--json", *files
    )
    scores = _lines(done.stdout)
    assert done.returncode == 0, done.stderr
    assert len({score["request_id"] for score in scores}) == len(files) >= 8
    assert all(score["metadata"]["evm_source"] == "inline" for score in scores)

    key_file = tmp_path / "key.hex"
    key_file.write_text(stack.public_key, encoding="utf-8")
    for key in (stack.public_key, str(key_file), stack.addresses["public_key_url"]):
        assert _verified(scores, key)
    for changed in ("score", "timestamp_ms"):
        forged = {**scores[0], changed: scores[0][changed] + 1}
        assert not _verified([scores[1], forged], stack.public_key)
    assert not _verified([], stack.public_key)


async def test_a_plain_producer_gets_a_signed_score(stack: StackProcess) -> None:
    """X.1: the documented JSON, no header and no key, from any client library."""
    address = new_address()
    document = {"address": address, "evm_data": _record(2_000) | {"wallet": address}}
    await stack.send(json.dumps(document).encode())
    [signed] = await stack.of_wallet(SIGNED, address)
    assert flat(signed)["wallet_address"] == address
    assert _verified([flat(signed)], stack.public_key)


async def test_a_structured_cloudevent_is_read(stack: StackProcess) -> None:
    """X.1, DESIGN §2: structured mode on the input topic; its id and source name the request."""
    address, own_id = new_address(), str(uuid.uuid4())
    event = {
        "specversion": "1.0",
        "id": own_id,
        "source": "/bank/7",
        "type": SUBMITTED,
        "datacontenttype": "application/json",
        "data": {"address": address, "questionnaire": [{"question": "Who?", "answer": "me"}]},
    }
    header = ("content-type", b"application/cloudevents+json; charset=utf-8")
    await stack.send(json.dumps(event).encode(), headers=[header])
    [signed] = await stack.of_wallet(SIGNED, address)
    assert flat(signed)["request_id"] == request_id("default", "/bank/7", own_id)
    [accepted] = await stack.of_wallet(ACCEPTED, address)
    assert json.loads(accepted.value)["questionnaire"] == [{"question": "Who?", "answer": "me"}]


def test_post_answers_with_the_signed_score(stack: StackProcess, model: ScriptedModel) -> None:
    """S3.8: score, wallet_address, timestamp_ms, signature, metadata; data inline."""
    address = new_address()
    parts = (90, 40, 60, 80, 50)
    model.script(address, score_answer(parts))
    record = _record(3_000) | {"wallet": address}
    answer = stack.post({"address": address, "evm_data": record})
    assert answer.status_code == 200, answer.text
    body = answer.json()
    assert body["score"] == worth(parts)
    assert body["wallet_address"] == address
    metadata = body["metadata"]
    assert list(metadata["scoreBreakdown"].values()) == list(parts)
    assert metadata["reasoning"]
    assert metadata["strengths"] == ["repaid all loans"]
    assert metadata["risk_factors"] == ["thin diversification"]
    assert metadata["evm_source"] == "inline"
    assert len(metadata["evm_sha256"]) == 64
    assert metadata["fallback"] is None
    assert body["signature"].startswith("0x")
    assert _verified([body], stack.public_key)
    again = stack.get(f"/scores/{body['request_id']}")
    assert (again.status_code, again.json()) == (200, body)


def test_get_fetches_the_wallet_data(stack: StackProcess, aggregator: ScriptedAggregator) -> None:
    """S3.8: without evm_data the configured aggregator is asked."""
    address = new_address()
    answer = stack.get("/score", params={"address": address})
    assert answer.status_code == 200, answer.text
    assert answer.json()["metadata"]["evm_source"] == "aggregator"
    assert aggregator.asked.count(address) == 1
    assert _verified([answer.json()], stack.public_key)


def test_the_callers_spelling_is_signed(stack: StackProcess) -> None:
    """S3.9, DESIGN §6: the address as the caller wrote it, checksummed or in lower case; a wrong
    checksum is refused by field."""
    mixed = new_address()
    for spelled in (mixed, mixed.lower()):
        body = stack.post({"address": spelled}).json()
        assert body["wallet_address"] == spelled
        assert _verified([body], stack.public_key)
    letter = next(i for i, char in enumerate(mixed) if i > 1 and char.isalpha())
    wrong = mixed[:letter] + mixed[letter].swapcase() + mixed[letter + 1 :]
    refused = stack.post({"address": wrong})
    assert refused.status_code == 422
    assert refused.json()["errors"][0]["pointer"] == "/address"
    assert "checksum" in refused.json()["detail"]


def test_the_idempotency_key_is_honoured(stack: StackProcess, model: ScriptedModel) -> None:
    """X.2, DESIGN §2: the same key with the same content is the same request and the same score;
    with other content it is 422."""
    address = new_address()
    key = {"Idempotency-Key": f"order {uuid.uuid4()}"}
    first = stack.post({"address": address}, headers=key)
    second = stack.post(f'{{ "questionnaire": [], "address":"{address}" }}'.encode(), headers=key)
    assert first.status_code == second.status_code == 200
    assert first.json() == second.json()
    assert len(model.calls(address)) == 1
    other = stack.post(
        {"address": address, "questionnaire": [{"question": "q", "answer": "a"}]}, headers=key
    )
    assert (other.status_code, other.json()["code"]) == (422, "idempotency_conflict")
    assert other.json()["errors"][0]["pointer"] == "Idempotency-Key"
    without = stack.post({"address": address})
    assert without.json()["request_id"] != first.json()["request_id"]
    assert without.json()["timestamp_ms"] > first.json()["timestamp_ms"]


async def test_a_repeat_over_kafka_is_one_signed_event(
    stack: StackProcess, model: ScriptedModel
) -> None:
    """X.2: the same ce_id, at once and after the end, gives one distinct signed event and costs
    one model call; the same id with other content is a dead letter and changes nothing."""
    address = new_address()
    headers = [
        ("ce_specversion", b"1.0"),
        ("ce_id", b"order-7/" + address.encode()),
        ("ce_source", b"/shop"),
        ("ce_type", SUBMITTED.encode()),
    ]
    value = json.dumps({"address": address}).encode()
    key = address.lower().encode()
    for _ in range(3):
        await stack.send(value, key=key, headers=headers)
    await stack.of_wallet(SIGNED, address)
    await stack.send(value, key=key, headers=headers)
    other = json.dumps({"address": address, "questionnaire": [{"question": "?"}]}).encode()
    await stack.send(other, key=key, headers=headers)
    kept = await stack.evidence_with("DEAD_LETTER", wallet=address)
    assert [i["headers"]["assay.error.code"] for i in kept if i["type"] == "DEAD_LETTER"] == [
        "idempotency_conflict"
    ]
    # Something that takes the same way afterwards shows that nothing is still to come.
    marker = await asyncio.to_thread(stack.post, {"address": address})
    signed = await stack.of_wallet(SIGNED, address, at_least=2)
    mine = [r for r in signed if flat(r)["request_id"] != marker.json()["request_id"]]
    ids = {dict(record.headers)["ce_id"] for record in mine}
    assert len({record.value for record in mine}) == len(ids) == 1
    assert len(model.calls(address)) == 2
    outcome = stack.get(f"/scores/{flat(mine[0])['request_id']}")
    assert (outcome.status_code, outcome.json()["score"]) == (200, worth(GOOD))


def test_after_the_deadline_there_is_a_place_to_ask(
    stack: StackProcess, model: ScriptedModel
) -> None:
    """Issue 3: 202 with a URL to poll; the score is there later."""
    address = new_address()
    model.script(address, Reply(score_answer(), delay_s=2))
    pending = stack.post({"address": address}, headers={"Prefer": "wait=1"})
    assert pending.status_code == 202
    body = pending.json()
    assert body["status"] == "pending"
    assert pending.headers["location"] == body["url"] == f"/scores/{body['request_id']}"
    assert stack.get(body["url"]).status_code == 202
    for _ in range(100):
        answer = stack.get(body["url"])
        if answer.status_code != 202:
            break
    assert answer.json()["wallet_address"] == address


async def test_scores_of_a_wallet_are_ordered_in_time(stack: StackProcess) -> None:
    """X.2, S3.9: per wallet the timestamps increase along the signed topic, in the order of
    acceptance."""
    address = new_address()
    wanted = [request_id("default", "/shop", f"{address}/{number}") for number in range(8)]
    async with stack.producer() as producer:
        for number in range(8):
            await producer.send(
                SUBMITTED,
                json.dumps({"address": address}).encode(),
                key=address.lower().encode(),
                headers=[("ce_id", f"{address}/{number}".encode()), ("ce_source", b"/shop")],
            )
    signed = [flat(record) for record in await stack.of_wallet(SIGNED, address, at_least=8)]
    assert [score["request_id"] for score in signed] == wanted
    times = [score["timestamp_ms"] for score in signed]
    assert times == sorted(set(times))


def test_tail_prints_signed_scores(stack: StackProcess) -> None:
    """Issue 3 item 7: `assay tail` gives lines that `assay verify` takes."""
    known = stack.post({"address": new_address()}).json()
    done = command(
        "tail", "--bootstrap", stack.bootstrap, "--from", "earliest", "--count", "1",
        "--timeout", "20", "--json",
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    [score] = _lines(done.stdout)
    assert score.keys() == known.keys()
    assert len(bytes.fromhex(score["signature"])) == 64
    assert len(bytes.fromhex(score["public_key"])) == 33
    assert _verified([score], stack.public_key)


@pytest.mark.parametrize("count", [60])
async def test_many_at_once_are_all_answered(stack: StackProcess, count: int) -> None:
    """X.2: every one of many simultaneous HTTP requests gets its own score."""
    addresses = [new_address() for _ in range(count)]
    answers = await asyncio.gather(
        *(asyncio.to_thread(stack.post, {"address": address}) for address in addresses)
    )
    assert {answer.status_code for answer in answers} == {200}
    assert [answer.json()["wallet_address"] for answer in answers] == addresses
