"""The HTTP API without a bus: trouble, limits and bad manners (SPEC S3.8, X.4, X.5)."""

from __future__ import annotations

import asyncio
import json
import uuid
from collections.abc import AsyncIterator, Sequence
from typing import Any

import httpx
import pytest
from fastapi import FastAPI

from assay.envelope import Message
from assay.ids import request_id
from assay_runtime.failures import DeadLetter, Pause, Stop
from services.ingest.asking import Asking
from services.ingest.bodies import Bodies
from services.ingest.intelligence.answers import error_handlers
from services.ingest.results import Waiting
from services.ingest.scores.api import SOURCE, ScoreApi
from services.ingest.settings import IngestSection
from services.ingest.store import Ending, RequestStore

ADDRESS = "0x5aAeb6053F3E94C9b9A09f33669435E7Ef1BeAed"
BODY = json.dumps({"address": ADDRESS, "evm_data": {}}).encode()


class _Publisher:
    """Keeps what it is given, or fails as told."""

    def __init__(self) -> None:
        self.sent: list[tuple[Message, str]] = []
        self.failure: Exception | None = None

    def check(self, message: Message) -> None:
        if isinstance(self.failure, DeadLetter):
            raise self.failure

    async def publish(self, messages: Sequence[tuple[Message, str]]) -> None:
        if self.failure is not None:
            raise self.failure
        self.sent += messages


class _Rig:
    """An API on a real store, with a publisher of our own."""

    def __init__(self, store: RequestStore, **settings: Any) -> None:
        section = IngestSection(**{"reply_deadline_s": 0.1, **settings})
        self.store = store
        self.waiting = Waiting(store)
        self.publisher = _Publisher()
        self.asking = Asking(store, self.waiting, self.publisher, section.max_waiting)  # type: ignore[arg-type]
        self.api = ScoreApi(section, self.asking)
        self.app = FastAPI(exception_handlers=error_handlers(str))
        self.api.add_to(self.app)
        transport = httpx.ASGITransport(self.app, raise_app_exceptions=False)
        self.http = httpx.AsyncClient(transport=transport, base_url="http://assay")

    async def post(self, body: bytes = BODY, **headers: str) -> httpx.Response:
        named = {name.replace("_", "-"): text for name, text in headers.items()}
        return await self.http.post("/score", content=body, headers=named)


@pytest.fixture
async def rig(store: RequestStore) -> AsyncIterator[_Rig]:
    made = _Rig(store)
    yield made
    await made.http.aclose()


def _is_problem(answer: httpx.Response, status: int, code: str) -> None:
    assert (answer.status_code, answer.json()["code"]) == (status, code)
    assert answer.headers["content-type"] == "application/problem+json"


async def test_what_is_published_is_what_was_checked(rig: _Rig) -> None:
    """X.1: the API is one more publisher; unknown fields stay behind, the trace goes on."""
    body = {"address": ADDRESS, "evm_data": {"a": 1}, "questionnaire": None, "extra": "x"}
    trace = "0af7651916cd43dd8448eb211c80319c"
    answer = await rig.post(
        json.dumps(body).encode(),
        traceparent=f"00-{trace}-00f067aa0ba902b7-01",
        idempotency_key="order 1",
    )
    assert answer.status_code == 202
    [(message, traceparent)] = rig.publisher.sent
    assert json.loads(message.value) == {"address": ADDRESS, "evm_data": {"a": 1}}
    assert message.key == ADDRESS.lower().encode()
    assert (message.id, dict(message.headers)["ce_source"]) == ("order 1", SOURCE.encode())
    assert answer.json()["request_id"] == request_id("default", SOURCE, "order 1")
    assert traceparent.split("-")[1] == trace


async def test_an_ended_request_is_answered_from_the_table(rig: _Rig) -> None:
    """X.2: nothing is published for it again."""
    await rig.post(idempotency_key="k")
    identity = request_id("default", SOURCE, "k")
    score = {"request_id": identity, "signature": "ab" * 64, "score": 1}
    await rig.store.conclude([Ending(identity, "signed", json.dumps(score).encode())], 1)
    answer = await rig.post(idempotency_key="k")
    assert answer.status_code == 200
    assert answer.json() == {**score, "signature": "0x" + "ab" * 64}
    assert len(rig.publisher.sent) == 1


@pytest.mark.parametrize(
    ("status", "code", "shown"),
    [
        ("rejected", "answers_rejected", 502),
        ("rejected", "provider_unavailable", 503),
        ("dead_lettered", "wallet_unknown", 404),
        ("dead_lettered", "aggregator_rubbish", 502),
        ("dead_lettered", "handler_failed", 500),
        ("dead_lettered", "missing_field", 422),
    ],
)
async def test_ends_without_a_score(rig: _Rig, status: Any, code: str, shown: int) -> None:
    """Issue 3: terminal outcomes of every kind; they stay what they are under the same key."""
    await rig.post(idempotency_key="k")
    identity = request_id("default", SOURCE, "k")
    outcome = json.dumps({"code": code, "reason": "because"}).encode()
    await rig.store.conclude([Ending(identity, status, outcome)], 1)
    for answer in (await rig.post(idempotency_key="k"), await rig.http.get(f"/scores/{identity}")):
        _is_problem(answer, shown, code)
        assert (answer.json()["detail"], answer.json()["outcome"]) == ("because", status)
    assert len(rig.publisher.sent) == 1


async def test_an_aggregators_outage_may_be_tried_again(rig: _Rig) -> None:
    """S3.8: the same Idempotency-Key publishes again and waits for the new outcome."""
    await rig.post(idempotency_key="k")
    identity = request_id("default", SOURCE, "k")
    outcome = json.dumps({"code": "aggregator_timeout", "reason": "silent"}).encode()
    await rig.store.conclude([Ending(identity, "dead_lettered", outcome)], 1)
    answer = await rig.post(idempotency_key="k")
    assert answer.status_code == 202
    assert len(rig.publisher.sent) == 2


@pytest.mark.parametrize("failure", [Pause("broker", "away"), TimeoutError(), Stop("fenced")])
async def test_a_broker_that_is_away_is_503(rig: _Rig, failure: Exception) -> None:
    """Issue 3: told at once and with a time to come back."""
    rig.publisher.failure = failure
    answer = await rig.post()
    _is_problem(answer, 503, "unavailable")
    assert answer.headers["retry-after"]
    assert answer.json()["detail"]


async def test_a_producer_beyond_repair_ends_the_service(rig: _Rig) -> None:
    """DESIGN §3: crash-only; nothing else does."""
    watch = asyncio.create_task(rig.asking.watch())
    rig.publisher.failure = Pause("broker", "away")
    await rig.post()
    await asyncio.sleep(0)
    assert not watch.done()
    rig.publisher.failure = Stop("fenced")
    await rig.post()
    with pytest.raises(Stop, match="fenced"):
        await watch


async def test_a_record_no_broker_takes_is_413(rig: _Rig) -> None:
    """Issue 3: and it is no request, so that nobody waits for its end."""
    rig.publisher.failure = DeadLetter("9 MB", code="output_too_large")
    _is_problem(await rig.post(idempotency_key="k"), 413, "output_too_large")
    assert await rig.store.status(request_id("default", SOURCE, "k")) is None


class _Away:
    def __init__(self, failure: Exception) -> None:
        self._failure = failure

    def __getattr__(self, name: str) -> Any:
        async def away(*_: Any) -> Any:
            raise self._failure

        return away


@pytest.mark.parametrize("failure", [Pause("requests", "away"), Stop("another server")])
async def test_a_store_that_is_away_is_503(failure: Exception) -> None:
    """DESIGN §3; a server that lost commits is left by a restart, which the caller waits for."""
    rig = _Rig(_Away(failure))  # type: ignore[arg-type]
    _is_problem(await rig.post(), 503, "unavailable")
    _is_problem(await rig.http.get(f"/scores/{uuid.uuid4()}"), 503, "unavailable")
    assert rig.publisher.sent == []


class _Broken:
    def __getattr__(self, name: str) -> Any:
        raise RuntimeError("a bug with a secret in it")


async def test_a_bug_is_a_problem_without_details() -> None:
    """X.4: 500 as problem+json; what went wrong stands in the log."""
    answer = await _Rig(_Broken()).post()  # type: ignore[arg-type]
    _is_problem(answer, 500, "internal_error")
    assert "secret" not in answer.text


@pytest.mark.parametrize("key", ["", "k" * 256, "a\x7fb"])
async def test_odd_keys(rig: _Rig, key: str) -> None:
    """X.4: named as the header at fault."""
    answer = await rig.post(idempotency_key=key)
    _is_problem(answer, 400, "bad_idempotency_key")
    assert answer.json()["errors"][0]["pointer"] == "Idempotency-Key"


async def test_no_more_than_so_many_wait(store: RequestStore) -> None:
    """X.5: bounded; the refused one is told to come back, the waiting ones are served."""
    rig = _Rig(store, max_waiting=2, reply_deadline_s=5)
    waiting = [asyncio.create_task(rig.post()) for _ in range(2)]
    while len(rig.waiting) < 2:
        await asyncio.sleep(0.01)
    busy = await rig.post()
    _is_problem(busy, 503, "busy")
    assert busy.headers["retry-after"]
    for message, _ in rig.publisher.sent:
        identity = request_id("default", SOURCE, message.id)
        outcome = json.dumps({"signature": "", "request_id": identity}).encode()
        await store.conclude([Ending(identity, "signed", outcome)], 1)
        rig.waiting.wake({identity})
    answers = await asyncio.gather(*waiting)
    assert {answer.status_code for answer in answers} == {200}


@pytest.mark.parametrize(
    ("prefer", "seconds"),
    [("wait=0", 0.0), ("respond-async, wait=0", 0.0), ("WAIT=0", 0.0), ("wait=-1", 0.5),
     ("wait=soon", 0.5), ("wait=999999999", 0.5), ("wait=²", 0.5), ("wait=1¹", 0.5),
     ("wait=" + "9" * 5_000, 0.5), ("wait= 0", 0.5), ("wait=1_0", 0.5), ("wait=", 0.5)],
)  # fmt: skip
async def test_prefer_can_only_shorten(
    store: RequestStore, prefer: str, seconds: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """RFC 7240: `wait` in seconds, up to the configured deadline; rubbish is ignored."""
    rig = _Rig(store, reply_deadline_s=0.5)
    asked = []

    async def outcome(request: str, deadline_s: float) -> None:
        asked.append(deadline_s)

    monkeypatch.setattr(rig.waiting, "outcome", outcome)
    answer = await rig.http.post(
        "/score", content=BODY, headers={b"prefer": prefer.encode("latin-1")}
    )
    assert answer.status_code == 202
    assert asked == [seconds]


async def _call(rig: _Rig, messages: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The application's answer to a client that sends these messages, then hangs up."""
    sent: list[dict[str, Any]] = []
    rest = iter(messages)

    async def receive() -> dict[str, Any]:
        return next(rest, {"type": "http.disconnect"})

    async def send(message: Any) -> None:
        sent.append(message)

    scope = {
        "type": "http", "method": "POST", "path": "/score", "raw_path": b"/score", "headers": [],
        "query_string": b"", "root_path": "", "scheme": "http", "server": ("assay", 80),
        "client": ("127.0.0.1", 1), "http_version": "1.1", "asgi": {"version": "3.0"},
    }  # fmt: skip
    async with asyncio.timeout(10):
        await rig.app(scope, receive, send)
    return sent


async def test_a_client_that_hangs_up_gives_its_place_back(store: RequestStore) -> None:
    """X.5: while waiting for a score of ten minutes, and in the middle of its body."""
    rig = _Rig(store, reply_deadline_s=600)
    await _call(rig, [{"type": "http.request", "body": BODY, "more_body": False}])
    assert len(rig.publisher.sent) == 1
    assert len(rig.waiting) == 0
    await _call(rig, [{"type": "http.request", "body": b"{", "more_body": True}])
    assert len(rig.publisher.sent) == 1


async def test_a_body_that_never_ends_is_cut(
    store: RequestStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """X.5: after the reading time 408; an oversized one is not read for ever either."""
    monkeypatch.setattr("services.ingest.bodies._READ_S", 0.1)

    async def slow() -> AsyncIterator[bytes]:
        yield b"{"
        await asyncio.sleep(30)

    async def endless() -> AsyncIterator[bytes]:
        while True:
            yield b"x" * 1_000

    rig = _Rig(store, max_body_bytes=5_000)
    async with asyncio.timeout(10):
        _is_problem(await rig.http.post("/score", content=slow()), 408, "too_slow")
        _is_problem(await rig.http.post("/score", content=endless()), 413, "too_large")


async def test_all_bodies_together_are_bounded(store: RequestStore) -> None:
    """X.5: large requests at once are refused before memory is short; room comes back."""
    rig = _Rig(store)
    bodies = Bodies(4_194_304, all_bytes=3 * len(BODY))
    rig.api._bodies = bodies
    gate = asyncio.Event()
    publish = rig.publisher.publish

    async def held(messages: Any) -> None:
        await gate.wait()
        await publish(messages)

    rig.publisher.publish = held  # type: ignore[method-assign]
    first = [asyncio.create_task(rig.post()) for _ in range(3)]
    while bodies.free > 0:
        await asyncio.sleep(0.01)
    busy = await rig.post()
    _is_problem(busy, 503, "busy")
    gate.set()
    await asyncio.gather(*first)
    assert bodies.free == 3 * len(BODY)
    assert (await rig.post()).status_code == 202


async def test_inline_data_and_the_aggregator_setting(store: RequestStore) -> None:
    """S3.8: switched off, inline data is refused by field; without an aggregator it is needed."""
    off = _Rig(store, inline_evm_data=False, aggregator_url="http://a/{address}")
    answer = await off.post()
    _is_problem(answer, 422, "inline_data_disabled")
    assert answer.json()["errors"][0]["pointer"] == "/evm_data"
    alone = _Rig(store)
    _is_problem(await alone.http.get("/score", params={"address": ADDRESS}), 422, "missing_field")


async def test_the_documentation_shows_the_answers(rig: _Rig) -> None:
    """S3.8: the OpenAPI document has the three pages with their answers."""
    document = (await rig.http.get("/openapi.json")).json()
    assert set(document["paths"]) == {"/score", "/scores/{request}"}
    for page in ("get", "post"):
        responses = document["paths"]["/score"][page]["responses"]
        assert {"200", "202", "default"} <= set(responses)
        assert "application/problem+json" in responses["default"]["content"]
