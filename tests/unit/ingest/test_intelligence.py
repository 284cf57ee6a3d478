"""The Intelligence API without a bus: every answer it gives (SPEC S5.1, S5.3, S5.4, X.5)."""

from __future__ import annotations

import asyncio
import json
import shutil
import uuid
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from structlog.testing import capture_logs

from assay.ids import request_id
from assay_gate.process import load_process
from assay_runtime.failures import DeadLetter, Pause, Stop
from services.ingest import asking
from services.ingest.intelligence.requests import SOURCE
from services.ingest.keys.access import AccessRefused
from services.ingest.store import RequestStore
from tests.unit.ingest.intelligence_rig import BODY, PAGE, PROCESSES, Rig

TEXT = BODY["input"]["text"]


@pytest.fixture
async def rig(store: RequestStore) -> AsyncIterator[Rig]:
    made = Rig(store)
    yield made
    await made.http.aclose()


def is_error(
    answer: httpx.Response, status: int, code: str, issues: list[dict[str, Any]] | None = None
) -> dict[str, Any]:
    """The seed's shape and nothing beside it; the error."""
    body = answer.json()
    assert (answer.status_code, body["success"], body["error"]["code"]) == (status, False, code)
    assert set(body) == {"success", "error"}
    assert set(body["error"]) <= {"code", "message", "details"}
    assert body["error"]["message"]
    assert answer.headers["x-request-id"]
    if issues is not None:
        assert body["error"]["details"]["issues"] == issues
    error: dict[str, Any] = body["error"]
    return error


async def test_an_answer_comes_back_as_it_was_accepted(rig: Rig) -> None:
    """S5.1, S5.4: the output itself, and what became of the request around it."""
    output = {"title": "ü", "weights": [1, 2.5, 12345678901234567890], "odd": None}
    rig.accepts(output)
    answer = await rig.post(idempotency_key="k")
    identity = request_id("acme", SOURCE, "k")
    assert answer.status_code == 200
    assert answer.json() == {
        "success": True,
        "data": output,
        "meta": {"request_id": identity, "process_id": "open_notes", "process_version": "1.0.0",
                 "attempts": 1, "model": "m"},
    }  # fmt: skip
    assert answer.headers["x-request-id"] == identity


async def test_what_was_mended_and_what_is_no_answer_is_said(rig: Rig) -> None:
    """S3.6's mark for other processes: an empty result is not passed off as an answer."""
    repair = {"path": "$.a", "kind": "string → int", "before": "1", "after": 1}
    rig.accepts({}, fallback="answers_rejected", model=None, repairs=[repair])
    meta = (await rig.post()).json()["meta"]
    assert (meta["fallback"], meta["model"], meta["repairs"]) == (
        "answers_rejected", None, [repair],
    )  # fmt: skip


async def test_what_is_published(rig: Rig) -> None:
    """S5.1: one request under the process's version and the key's tenant, sealed (decision 20); the
    trace goes on."""
    trace = "0af7651916cd43dd8448eb211c80319c"
    await rig.post(idempotency_key="k", traceparent=f"00-{trace}-00f067aa0ba902b7-01")
    [event] = rig.publisher.events
    [message] = rig.publisher.sent
    process = load_process(PROCESSES / "open_notes")
    identity = request_id("acme", SOURCE, "k")
    assert event["input"] == BODY["input"]
    told = {name: value for name, value in event["meta"].items() if value not in (None, False)}
    assert told == {
        "request_id": identity, "tenant_id": "acme", "process_id": "open_notes",
        "process_version": "1.0.0", "process_hash": process.hash, "unit_id": identity,
        "attempt": 1,
    }  # fmt: skip
    assert (message.topic, message.key) == ("llm.generation.requested.v1", identity.encode())
    assert rig.seals.doubt(message.id, message.headers, message.value) is None
    assert rig.publisher.traces[0].split("-")[1] == trace


def _keyed(folder: Path) -> Path:
    shutil.copytree(PROCESSES / "open_notes", folder / "keyed")
    config = folder / "keyed" / "config.yaml"
    text = config.read_text().replace("id: open_notes", "id: keyed\n  key: text")
    config.write_text(text)
    return folder


@pytest.mark.parametrize(("text", "is_wallet"), [("0x" + "AB" * 20, True), ("a note", False)])
async def test_the_process_names_the_record_key(
    store: RequestStore, tmp_path: Path, text: str, is_wallet: bool
) -> None:
    """S4.12: a wallet in the process's key field is the record's key, as it is everywhere."""
    rig = Rig(store, _keyed(tmp_path))
    await rig.post({"input": {"text": text}}, process="keyed")
    [message], [event] = rig.publisher.sent, rig.publisher.events
    assert message.key.decode() == (text.lower() if is_wallet else event["meta"]["request_id"])


async def test_both_forms_of_the_body_are_one_request(rig: Rig) -> None:
    """A body without a member `input` is the input itself."""
    rig.accepts({})
    assert (await rig.post(idempotency_key="k")).status_code == 200
    assert (await rig.post(BODY["input"], idempotency_key="k")).status_code == 200
    assert len(rig.publisher.sent) == 1


MISSING = 'required field "text" is missing'


@pytest.mark.parametrize(
    ("body", "path", "words"),
    [
        (b"", [], "empty"),
        (b"{", [], "not JSON"),
        (b"\xff{}", [], "UTF-8"),
        (b"[]", [], "object"),
        (b'{"input": {"text": "a", "text": "b"}}', ["text"], "more than once"),
        (b'{"input": {"deep": ' + b"[" * 80 + b"]" * 80 + b"}}", None, "deeper"),
        ({"input": []}, ["input"], "object"),
        ({"input": {"text": "a"}, "stream": True}, ["stream"], "beside"),
        ({"input": {}}, ["text"], MISSING),
        ({}, ["text"], MISSING),
        ({"input": {"text": 7}}, ["text"], "string"),
        ({"input": {"text": None}}, ["text"], "must be string, got null"),
        ({"input": {"text": "a", "more": 1}}, [], "more"),
    ],
    ids=str,
)  # fmt: skip
async def test_bad_input_is_named_by_field(
    rig: Rig, body: Any, path: list[Any] | None, words: str
) -> None:
    """S5.3: 400 VALIDATION_ERROR with the fields at fault; nothing is published."""
    error = is_error(await rig.post(body), 400, "VALIDATION_ERROR")
    [issue] = error["details"]["issues"]
    assert set(issue) == {"path", "message"}
    assert words in issue["message"]
    assert path is None or issue["path"] == path
    assert rig.publisher.sent == []


async def test_issues_lead_into_lists(rig: Rig) -> None:
    """Seed 5: paths are arrays of names and indexes."""
    answer = await rig.post({"input": {"topics": ["a", 7, ""]}}, process="quiz_card")
    issues = is_error(answer, 400, "VALIDATION_ERROR")["details"]["issues"]
    assert [issue["path"] for issue in issues] == [["topics", 1], ["topics", 2]]


@pytest.mark.parametrize(
    ("text", "path", "message"),
    [
        ('{"text": NaN}', ["text"], "not a finite number"),
        ('{"input": {"text": "a", "tags": [1e999]}}', ["tags", 0], "not a finite number"),
        (r'{"text": "a\ud800"}', ["text"], "lone surrogate"),
        (r'{"text": "a", "\ud800": 1}', ["\ufffd"], "lone surrogate in the key"),
    ],
)
async def test_an_input_is_never_changed_in_silence(
    rig: Rig, text: str, path: list[Any], message: str
) -> None:
    """S5.1, X.4: what JSON cannot carry is refused with its field, where wallet data are mended."""
    answer = await rig.post(text.encode())
    is_error(answer, 400, "VALIDATION_ERROR", [{"path": path, "message": message}])
    assert rig.publisher.sent == []


async def test_a_failed_expression_step_is_not_blamed_on_a_retry(rig: Rig) -> None:
    """S5.3: no answer was invalid, and no model was asked again."""
    error = {"path": "$", "rule": "expression_failed", "message": "step 'draw': NameError: topics"}
    rig.ends("rejected", code="answers_rejected", errors=[error])
    fault = is_error(await rig.post(), 500, "OUTPUT_VALIDATION_FAILED")
    assert fault["message"] == "A step that computes fields failed on this input"


async def test_a_step_that_could_not_be_asked_is_not_blamed_on_a_retry(rig: Rig) -> None:
    error = {"path": "$", "rule": "request_too_large", "message": "1,048,577 bytes"}
    rig.ends("rejected", code="answers_rejected", errors=[error])
    fault = is_error(await rig.post(), 500, "OUTPUT_VALIDATION_FAILED")
    assert "too large" in fault["message"]


async def test_a_request_that_its_reader_would_refuse_is_413(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Before anything is announced or published; and so is one that only the scorer refused."""
    monkeypatch.setitem(asking._MOST_BYTES, "llm.generation.requested.v1", 100)
    is_error(await rig.post(idempotency_key="k"), 413, "PAYLOAD_TOO_LARGE")
    assert rig.publisher.sent == []
    assert await rig.store.status(request_id("acme", SOURCE, "k")) is None
    monkeypatch.undo()
    rig.ends("dead_lettered", code="request_too_large", reason="1,048,577 bytes")
    is_error(await rig.post(), 413, "PAYLOAD_TOO_LARGE")


async def test_no_valid_answer_is_seed_5s_error(rig: Rig) -> None:
    """S5.3: exactly as the seed prints it, with the last attempt's issues by field."""
    errors = [
        {"path": "$.claims[0].polarity", "rule": "enum", "message": "must be one of …"},
        {"path": '$["odd key"]', "rule": "type", "message": "must be string"},
        {"path": "$", "rule": "not_json", "message": "no JSON in the answer"},
        {"path": '$["a]b"]', "rule": "type", "message": "brackets"},
    ]
    rig.ends("rejected", code="answers_rejected", reason="…", errors=errors)
    answer = await rig.post(idempotency_key="k")
    assert answer.status_code == 500
    assert answer.json() == {
        "success": False,
        "error": {
            "code": "OUTPUT_VALIDATION_FAILED",
            "message": "Failed to generate valid response after retry",
            "details": {
                "issues": [
                    {"path": ["claims", 0, "polarity"], "message": "must be one of …"},
                    {"path": ["odd key"], "message": "must be string"},
                    {"path": [], "message": "no JSON in the answer"},
                    {"path": ['["a]b"]'], "message": "brackets"},
                ]
            },
        },
    }
    assert answer.headers["x-request-id"] == request_id("acme", SOURCE, "k")


@pytest.mark.parametrize(
    ("status", "outcome", "shown", "code"),
    [
        ("rejected", {"code": "provider_unavailable"}, 503, "PROVIDER_UNAVAILABLE"),
        ("rejected", {"code": None}, 500, "OUTPUT_VALIDATION_FAILED"),
        ("dead_lettered", {"code": "unknown_process_version"}, 503, "UNAVAILABLE"),
        ("dead_lettered", {"code": "process_unknown"}, 503, "UNAVAILABLE"),
        ("dead_lettered", {"code": "handler_failed"}, 500, "INTERNAL_ERROR"),
    ],
)
async def test_other_ends(
    rig: Rig, status: Any, outcome: dict[str, Any], shown: int, code: str
) -> None:
    """X.4: an outage is told from a failure, with a time to come back."""
    rig.ends(status, **outcome, reason="because")
    answer = await rig.post()
    is_error(answer, shown, code)
    assert ("retry-after" in answer.headers) is (shown == 503)


async def test_what_only_the_model_stage_can_refuse_is_the_callers_too(rig: Rig) -> None:
    """S5.3: an input that a template or an expression cannot use, by field."""
    error = {"path": "$.input.text", "rule": "invalid_input", "message": "no"}
    rig.ends("dead_lettered", code="invalid_input", reason="no", errors=[error])
    is_error(await rig.post(), 400, "VALIDATION_ERROR", [{"path": ["text"], "message": "no"}])


@pytest.mark.parametrize(
    ("refusal", "code"),
    [
        (AccessRefused(401, "API_KEY_REVOKED", "revoked"), "UNAUTHORIZED"),
        (AccessRefused(403, "PROCESS_FORBIDDEN", "not yours"), "FORBIDDEN"),
        (AccessRefused(429, "RATE_LIMITED", "slowly", 7), "RATE_LIMITED"),
        (AccessRefused(503, "UNAVAILABLE", "away", 5), "UNAVAILABLE"),
    ],
)
async def test_no_admission(rig: Rig, refusal: AccessRefused, code: str) -> None:
    """S5.1: on every page, before anything of the request is looked at."""
    rig.door.refusal = refusal
    for answer in (
        await rig.post(b"{"),
        await rig.get(PAGE),
        await rig.get(f"{PAGE}/requests/{uuid.uuid4()}"),
    ):
        error = is_error(answer, refusal.status, code)
        assert error["details"] == {"reason": refusal.code}
        for name, value in refusal.headers.items():
            assert answer.headers[name] == value


async def test_processes_that_cannot_be_asked(rig: Rig) -> None:
    """S5.1: unknown 404; a process whose result is signed 403, whoever asks: its input comes from
    accepted wallet events only."""
    is_error(await rig.post(process="no_such"), 404, "NOT_FOUND")
    is_error(await rig.post(process="no_such", tenant="acme:open_notes"), 403, "FORBIDDEN")
    error = is_error(await rig.post(process="wallet_score"), 403, "FORBIDDEN")
    assert error["details"]["reason"] == "PROCESS_NOT_CALLABLE"
    assert rig.publisher.sent == []


async def test_a_shadow_cannot_be_addressed(store: RequestStore, tmp_path: Path) -> None:
    """Issue 5 item 7: neither by its folder nor instead of its original."""
    shutil.copytree(PROCESSES / "open_notes", tmp_path / "open_notes")
    shutil.copytree(PROCESSES / "open_notes", tmp_path / "trial")
    config = tmp_path / "trial" / "config.yaml"
    text = config.read_text().replace("id: open_notes", "id: trial")
    config.write_text(text + "  shadow: {of: open_notes, share: 1.0}\n")
    rig = Rig(store, tmp_path)
    is_error(await rig.post(process="trial"), 404, "NOT_FOUND")
    listed = (await rig.get(PAGE)).json()["data"]
    assert [process["process_id"] for process in listed] == ["open_notes"]


async def test_a_repeat_is_the_same_request(rig: Rig) -> None:
    """X.2: answered from the table, pending or ended, published once; other content is refused."""
    first = await rig.post(idempotency_key="k")
    again = await rig.post(idempotency_key="k")
    assert first.status_code == again.status_code == 202
    assert len(rig.publisher.sent) == 1
    other = {"input": {"text": "another"}}
    is_error(await rig.post(other, idempotency_key="k"), 422, "IDEMPOTENCY_CONFLICT")
    card = {"input": {"topics": ["a"]}}
    same_key = await rig.post(card, process="quiz_card", idempotency_key="k")
    is_error(same_key, 422, "IDEMPOTENCY_CONFLICT")
    fresh = {(await rig.post()).json()["meta"]["request_id"] for _ in range(2)}
    assert len(fresh) == 2


async def test_tenants_with_the_same_key_never_meet(rig: Rig) -> None:
    """DESIGN §2: the request id is made from the tenant."""
    rig.accepts({"of": "acme"})
    one = (await rig.post(idempotency_key="k")).json()
    rig.accepts({"of": "other"})
    two = (await rig.post(idempotency_key="k", tenant="other")).json()
    assert (one["data"], two["data"]) == ({"of": "acme"}, {"of": "other"})
    assert one["meta"]["request_id"] != two["meta"]["request_id"]
    assert [event["meta"]["tenant_id"] for event in rig.publisher.events] == ["acme", "other"]


async def test_a_request_that_was_not_published_is_published_by_its_repeat(rig: Rig) -> None:
    """X.4: 503 while the broker is away, and the same key afterwards is no second request."""
    for failure in (Pause("broker", "away"), TimeoutError(), Stop("fenced")):
        rig.publisher.failure = failure
        answer = await rig.post(idempotency_key="k")
        is_error(answer, 503, "UNAVAILABLE")
        assert answer.headers["retry-after"]
    rig.publisher.failure = None
    rig.accepts({})
    assert (await rig.post(idempotency_key="k")).status_code == 200


async def test_after_the_deadline_there_is_a_place_to_ask(rig: Rig) -> None:
    """S5.1: 202, then the answer at its place, for whoever may ask this process of this tenant."""
    answer = await rig.post(idempotency_key="k")
    identity = request_id("acme", SOURCE, "k")
    place = f"{PAGE}/requests/{identity}"
    assert answer.status_code == 202
    assert answer.json() == {
        "success": True, "data": None,
        "meta": {"request_id": identity, "process_id": "open_notes", "status": "pending",
                 "url": place},
    }  # fmt: skip
    assert (answer.headers["location"], answer.headers["x-request-id"]) == (place, identity)
    assert (await rig.get(place)).status_code == 202
    rig.accepts({"title": "t"})
    await rig.publisher.answers(rig.publisher.sent[0])
    for tenant in ("acme", "acme:open_notes"):
        found = await rig.get(place, tenant=tenant)
        assert (found.status_code, found.json()["data"]) == (200, {"title": "t"})
        assert found.headers["x-request-id"] == identity
    for tenant in ("other", "acme:quiz_card"):
        is_error(await rig.get(place, tenant=tenant), 404, "NOT_FOUND")
    for unknown in (str(uuid.uuid4()), "rubbish", "open_notes"):
        is_error(await rig.get(f"{PAGE}/requests/{unknown}"), 404, "NOT_FOUND")


async def test_the_two_apis_do_not_show_each_others_requests(rig: Rig) -> None:
    """S5.1: /scores asks nobody for a key, so it shows nothing of a tenant's."""
    owned = (await rig.post()).json()["meta"]["request_id"]
    assert (await rig.http.get(f"/scores/{owned}")).status_code == 404
    wallets = str(uuid.uuid4())
    await rig.store.announce(wallets, "a" * 64, 1)
    assert (await rig.http.get(f"/scores/{wallets}")).status_code == 202
    is_error(await rig.get(f"{PAGE}/requests/{wallets}"), 404, "NOT_FOUND")


async def test_bounds(store: RequestStore, monkeypatch: pytest.MonkeyPatch) -> None:
    """X.5: sizes, time and the number of those who wait."""
    rig = Rig(store, max_body_bytes=500)
    is_error(await rig.post(b'{"input": {"text": "' + b"x" * 600), 413, "PAYLOAD_TOO_LARGE")
    rig.publisher.failure = DeadLetter("9 MB", code="output_too_large")
    is_error(await rig.post(idempotency_key="k"), 413, "PAYLOAD_TOO_LARGE")
    assert await store.status(request_id("acme", SOURCE, "k")) is None
    rig.publisher.failure = None
    is_error(await rig.post(idempotency_key="k" * 256), 400, "VALIDATION_ERROR")
    monkeypatch.setattr("services.ingest.bodies._READ_S", 0.05)

    async def slow() -> AsyncIterator[bytes]:
        yield b"{"
        await asyncio.sleep(30)

    page, key = f"{PAGE}/open_notes/generate", {"authorization": "Bearer acme"}
    async with asyncio.timeout(10):
        answer = await rig.http.post(page, content=slow(), headers=key)
    is_error(answer, 408, "REQUEST_TIMEOUT")
    full = Rig(store, max_waiting=1, generation_deadline_s=5)
    waiting = asyncio.create_task(full.post())
    while len(full.waiting) < 1:
        await asyncio.sleep(0.01)
    busy = await full.post()
    is_error(busy, 503, "UNAVAILABLE")
    assert busy.headers["retry-after"]
    assert (await rig.post(prefer="wait=0")).status_code == 202
    waiting.cancel()
    await asyncio.wait([waiting])


class _Store:
    """A store of which everything fails."""

    def __init__(self, failure: Exception) -> None:
        self._failure = failure

    def __getattr__(self, name: str) -> Any:
        async def fail(*_: Any) -> Any:
            raise self._failure

        return fail


async def test_a_store_that_is_away_and_a_bug() -> None:
    """X.4: 503 to come back; 500 without a word of what went wrong."""
    away = Rig(_Store(Pause("requests", "the database is away")))  # type: ignore[arg-type]
    is_error(await away.post(), 503, "UNAVAILABLE")
    is_error(await away.get(f"{PAGE}/requests/{uuid.uuid4()}"), 503, "UNAVAILABLE")
    answer = await Rig(_Store(RuntimeError("a secret"))).post()  # type: ignore[arg-type]
    is_error(answer, 500, "INTERNAL_ERROR")
    assert "secret" not in answer.text


async def test_what_no_page_answers_has_the_same_shape(rig: Rig) -> None:
    """S5.3: unknown paths and methods under /api/v1; elsewhere problem+json as before."""
    is_error(await rig.get("/api/v1/nothing"), 404, "NOT_FOUND")
    is_error(await rig.get(f"{PAGE}/open_notes/generate"), 405, "METHOD_NOT_ALLOWED")
    assert (await rig.get("/nothing")).headers["content-type"] == "application/problem+json"


async def test_a_client_that_hangs_up_gives_everything_back(store: RequestStore) -> None:
    """X.5: its place among the waiting and its slot at the door, long before the deadline."""
    rig = Rig(store, generation_deadline_s=600)
    messages = iter([{"type": "http.request", "body": json.dumps(BODY).encode()}])
    path = f"{PAGE}/open_notes/generate"
    scope = {
        "type": "http", "method": "POST", "path": path, "raw_path": path.encode(),
        "headers": [(b"authorization", b"Bearer acme")], "query_string": b"", "root_path": "",
        "scheme": "http", "server": ("assay", 80), "client": ("127.0.0.1", 1),
        "http_version": "1.1", "asgi": {"version": "3.0"},
    }  # fmt: skip

    async def receive() -> dict[str, Any]:
        return next(messages, {"type": "http.disconnect"})

    async def send(message: Any) -> None: ...

    async with asyncio.timeout(10):
        await rig.app(scope, receive, send)
    assert len(rig.publisher.sent) == 1
    assert (len(rig.waiting), rig.door.inside) == (0, 0)


async def test_the_list_shows_what_a_key_may_ask(rig: Rig) -> None:
    """Issue 5 item 3: schemas and version of each; no process that makes scores."""
    listed = (await rig.get(PAGE)).json()
    assert listed["success"] is True
    ids = [process["process_id"] for process in listed["data"]]
    assert ids == ["open_notes", "quiz_card", "review_digest"]
    [notes] = (await rig.get(PAGE, tenant="acme:open_notes")).json()["data"]
    schema = json.loads((PROCESSES / "open_notes" / "input.schema.json").read_text())
    assert notes == {
        "process_id": "open_notes", "version": "1.0.0", "url": f"{PAGE}/open_notes/generate",
        "steps": ["note"], "input_schema": schema, "output_schema": None,
    }  # fmt: skip


async def test_one_line_in_the_log_for_each_request(rig: Rig) -> None:
    """S5.5: by request, process and tenant; nothing of what was asked or answered."""
    rig.accepts({"title": "answer text"})
    with capture_logs() as lines:
        answer = await rig.post(idempotency_key="k")
        await rig.post(process="no_such")
    assert answer.status_code == 200
    done, unknown = [line for line in lines if line["event"] == "intelligence_request"]
    named = ("request_id", "process_id", "tenant_id", "api_key", "status", "code")
    assert [done[name] for name in named] == [
        request_id("acme", SOURCE, "k"), "open_notes", "acme", "assay_key_id", 200, None,
    ]  # fmt: skip
    assert (unknown["process_id"], unknown["code"]) == ("no_such", "NOT_FOUND")
    assert TEXT not in str(lines)
    assert "answer text" not in str(lines)


async def test_the_documentation_shows_the_pages(rig: Rig) -> None:
    """Issue 5 item 3: OpenAPI with bodies, examples, errors and the way keys are sent."""
    document = (await rig.http.get("/openapi.json")).json()
    page = document["paths"][PAGE + "/{process_id}/generate"]["post"]
    assert set(page["responses"]) == {
        "200", "202", "400", "401", "403", "404", "413", "422", "429", "500", "503",
    }  # fmt: skip
    schemes = document["components"]["securitySchemes"]
    assert {name for one in page["security"] for name in one} == set(schemes)
    assert {(s["type"], s.get("scheme") or s.get("name")) for s in schemes.values()} == {
        ("http", "bearer"), ("apiKey", "X-API-Key"),
    }  # fmt: skip
    failed = page["responses"]["500"]["content"]["application/json"]["example"]
    assert failed["error"]["code"] == "OUTPUT_VALIDATION_FAILED"
    assert {PAGE, PAGE + "/requests/{request_id}"} <= set(document["paths"])
