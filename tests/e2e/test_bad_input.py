"""Bad input is told with field and reason, kept, and stops nothing (SPEC X.4, X.5; issue 3)."""

from __future__ import annotations

import contextlib
import json
import socket
import uuid
from typing import Any

import httpx
import pytest

from assay.ids import request_id
from tests.e2e.outside import Reply, ScriptedAggregator
from tests.e2e.stacks import (
    SIGNED,
    SUBMITTED,
    SUBMITTED_DLQ,
    StackProcess,
    eventually,
    headers_of,
    new_address,
)

OTHER = "0x5aAeb6053F3E94C9b9A09f33669435E7Ef1BeAed"


def _problem(answer: httpx.Response, status: int, code: str, pointer: str | None) -> None:
    assert answer.status_code == status, answer.text
    assert answer.headers["content-type"] == "application/problem+json"
    body = answer.json()
    assert (body["status"], body["code"]) == (status, code)
    assert body["title"]
    assert body["detail"]
    assert body["type"].endswith(code)
    if pointer is not None:
        assert [error["pointer"] for error in body["errors"]] == [pointer]


@pytest.mark.parametrize(
    ("body", "status", "code", "pointer"),
    [
        (b"", 400, "empty", ""),
        (b"no json", 400, "invalid_json", ""),
        (b'{"address": "\xff"}', 400, "invalid_utf8", ""),
        (b"[]", 422, "not_an_object", ""),
        (b"{}", 422, "missing_field", "/address"),
        (b'{"address": 7}', 422, "wrong_type", "/address"),
        (b'{"address": "0x12"}', 422, "invalid_address", "/address"),
        (b'{"address": "%s", "address": "%s"}' % (b"0" * 9, b"1" * 9), 422, "duplicate_key",
         "/address"),
        (json.dumps({"address": OTHER, "questionnaire": {}}).encode(), 422, "wrong_type",
         "/questionnaire"),
        (json.dumps({"address": OTHER, "questionnaire": [{"answer": "a"}]}).encode(), 422,
         "missing_field", "/questionnaire/0/question"),
        (json.dumps({"address": OTHER, "evm_data": []}).encode(), 422, "wrong_type", "/evm_data"),
        (json.dumps({"address": OTHER, "evm_data": {"wallet": "0x" + "1" * 40}}).encode(), 422,
         "wallet_mismatch", "/evm_data/wallet"),
        (b'{"address": "%s", "evm_data": %s}' % (OTHER.encode(), b'{"a":' * 70 + b"1" + b"}" * 70),
         422, "too_deep", None),
        (b"[" * 200_000, 422, "too_deep", None),
        (json.dumps({"address": OTHER, "evm_data": {"a": [0] * 200_001}}).encode(), 422,
         "too_many_elements", None),
    ],
)  # fmt: skip
def test_http_names_the_field(
    stack: StackProcess, body: bytes, status: int, code: str, pointer: str | None
) -> None:
    """X.4: problem+json with a code for programs, a sentence for people, and the field."""
    _problem(stack.post(body), status, code, pointer)


def test_a_body_over_4_mib_is_413(stack: StackProcess) -> None:
    """Issue 3: larger than 4 MiB is refused, declared or chunked; the answer arrives."""
    body = b'{"address": "' + b"x" * 4_194_304 + b'"}'
    _problem(stack.post(body), 413, "too_large", "")
    url = stack.addresses["api"] + "/score"
    chunks = (body[i : i + 65_536] for i in range(0, len(body), 65_536))
    _problem(httpx.post(url, content=chunks, timeout=30), 413, "too_large", "")


@pytest.mark.parametrize(
    ("method", "path", "status", "code"),
    [
        ("GET", "/nothing", 404, "not_found"),
        ("DELETE", "/score", 405, "method_not_allowed"),
        ("OPTIONS", "/score", 405, "method_not_allowed"),
        ("GET", "/scores/7", 404, "request_unknown"),
        ("GET", f"/scores/{uuid.UUID(int=7)}", 404, "request_unknown"),
        ("GET", "/score", 422, "missing_field"),
        ("GET", "/score?address=x", 422, "invalid_address"),
        ("GET", f"/score?address={OTHER}&address={OTHER}", 422, "missing_field"),
        ("GET", f"/score?address={OTHER}&wallet=1", 422, "unknown_parameter"),
    ],
)
def test_what_is_not_there_is_a_problem_too(
    stack: StackProcess, method: str, path: str, status: int, code: str
) -> None:
    """X.4: paths, methods and parameters that do not exist."""
    _problem(httpx.request(method, stack.addresses["api"] + path), status, code, None)


def test_odd_http_does_no_harm(stack: StackProcess) -> None:
    """X.4: HEAD has no body, huge headers and broken requests are refused, a client that hangs up
    in the middle is nobody's loss."""
    api = stack.addresses["api"]
    head = httpx.head(api + "/score")
    assert (head.status_code, head.content) == (405, b"")
    # The server may close the connection while the rest of the headers is still on its way.
    with contextlib.suppress(httpx.TransportError):
        huge = httpx.get(api + "/score", headers={"x": "y" * 200_000})
        assert huge.status_code in (400, 431)
    long_key = stack.post({"address": OTHER}, headers={"Idempotency-Key": "k" * 256})
    _problem(long_key, 400, "bad_idempotency_key", "Idempotency-Key")
    host, port = api.removeprefix("http://").split(":")
    for sent in (
        b"rubbish\r\n\r\n",
        b"POST /score HTTP/1.1\r\nhost: x\r\ncontent-length: 1000\r\n\r\n{",
    ):
        with socket.create_connection((host, int(port))) as client:
            client.sendall(sent)
    assert stack.post({"address": new_address()}).status_code == 200


BAD = {
    "no json": (b"not json at all", [], "invalid_json"),
    "lacks an address": (b'{"questionnaire": []}', [], "missing_field"),
    "wrong type": (b'{"address": ["0x"]}', [], "wrong_type"),
    "hostile depth": (b'{"address":' + b"[" * 100_000, [], "too_deep"),
    "no UTF-8 in value and header": (b"\xff\xfe", [("x", b"\xff\xfe")], "invalid_utf8"),
    "null value": (None, [], "empty"),
    "a structured event without data": (
        b'{"specversion":"1.0","id":"1","source":"/s","type":"t"}',
        [("content-type", b"application/cloudevents+json")],
        "envelope",
    ),
}


async def test_kafka_keeps_bad_records_and_goes_on(stack: StackProcess) -> None:
    """X.4: each kind becomes one dead letter with the raw bytes, the original headers and a
    reason; the results table knows; the good event behind each of them is scored."""
    address = new_address()
    run = uuid.uuid4().hex[:8]
    sent: dict[str, tuple[bytes | None, list[tuple[str, bytes]], str]] = {}
    async with stack.producer() as producer:
        for name, (value, headers, code) in BAD.items():
            own_id = f"{run} {name}"
            extra = [("ce_id", own_id.encode()), ("ce_source", b"/tests"), *headers]
            sent[own_id] = (value, extra, code)
            # One key, so one partition: what is behind has to wait for what is before it.
            key = address.lower().encode()
            await producer.send_and_wait(SUBMITTED, value=value, key=key, headers=extra)
        good = json.dumps({"address": address}).encode()
        await producer.send_and_wait(SUBMITTED, value=good, key=key)
    await stack.of_wallet(SIGNED, address)

    async def look() -> dict[str, Any]:
        records = await stack.records(SUBMITTED_DLQ)
        return {headers_of(record).get("ce_id", ""): record for record in records}

    letters = await eventually(look, lambda found: sent.keys() <= found.keys())
    for own_id, (value, headers, code) in sent.items():
        letter = letters[own_id]
        assert letter.value == value
        assert letter.key == address.lower().encode()
        assert list(letter.headers)[: len(headers)] == headers
        told = headers_of(letter)
        if "structured" not in own_id:
            assert told["assay.error.code"] == code, own_id
            request = request_id("default", "/tests", own_id)
            assert told["assay.request.id"] == request
        assert told["__connect.errors.topic"] == SUBMITTED
        assert told["__connect.errors.exception.message"].strip()
        ended = stack.get(f"/scores/{told['assay.request.id']}")
        assert ended.headers["content-type"] == "application/problem+json"
        assert ended.json()["outcome"] == "dead_lettered"
        assert ended.json()["detail"] == told["__connect.errors.exception.message"]


@pytest.mark.parametrize(
    ("reply", "status", "code"),
    [
        (Reply(status=500), 502, "aggregator_unavailable"),
        (Reply(status=403), 502, "aggregator_refused"),
        (Reply(status=404), 404, "wallet_unknown"),
        (Reply("<html>"), 502, "aggregator_rubbish"),
        (Reply('{"wallet": "0x' + "2" * 40 + '"}'), 502, "aggregator_rubbish"),
        (Reply("{}", delay_s=1), 504, "aggregator_timeout"),
    ],
)
def test_the_aggregators_troubles_are_told_apart(
    stack: StackProcess, aggregator: ScriptedAggregator, reply: Reply, status: int, code: str
) -> None:
    """S3.8, issue 3: down, refusing, unknowing, talking rubbish, silent."""
    address = new_address()
    aggregator.script(address, reply)
    key = {"Idempotency-Key": address}
    _problem(stack.post({"address": address}, headers=key), status, code, None)
    aggregator.script(address, Reply(json.dumps({"wallet": address})))
    again = stack.post({"address": address}, headers=key)
    outage = code in ("aggregator_unavailable", "aggregator_timeout")
    # An outage may be tried again under the same key; what is final for the wallet stays.
    assert again.status_code == (200 if outage else status)


def test_an_absent_aggregator_is_told(stack: StackProcess, aggregator: ScriptedAggregator) -> None:
    """S3.8: nothing listens at its address."""
    aggregator.stop()
    try:
        answer = stack.post({"address": new_address()})
    finally:
        aggregator.start()
    _problem(answer, 502, "aggregator_unavailable", None)
    assert "no connection" in answer.json()["detail"]
