"""The Intelligence API over a whole stack, with API keys as an operator makes them
(SPEC S4.12, S5.1-S5.5, S5.7; issue 5 items 1-3)."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.e2e.outside import Reply, ScriptedModel
from tests.e2e.stacks import ANSWERED, QUICK, REPO, REQUESTED, StackProcess, command, eventually

PAGE = "/api/v1/intelligence"
NOTE = {"title": "A note", "words": 3}
CLAIMS = [
    {"text": "it came late", "polarity": "negative"},
    {"text": "nice", "polarity": "positive"},
]

# A process this project has never seen: two questions with a computation between them.
STRANGE = {
    "config.yaml": """
pipeline:
  steps:
    - {name: count}
    - {name: double, scope: expression, expressions: {twice: "items * 2"}}
    - {name: label}
prompts:
  template_dir: .
  templates: {count: count.jinja2, label: label.jinja2}
schemas:
  schema_dir: .
  files: {count: count.json, label: label.json}
validation:
  count: {required: [items]}
  label: {required: [label]}
api: {}
processing: {}
assay:
  id: parcel_label
  version: "3"
  input_schema: input.json
  temperatures: [0.2, 0.0]
""",
    "count.jinja2": "How many items has the parcel? {{ parcel }}",
    "label.jinja2": "Label a parcel of {{ twice }} halves: {{ parcel }}",
    "input.json": json.dumps(
        {"type": "object", "required": ["parcel"], "additionalProperties": False,
         "properties": {"parcel": {"type": "string"}}}
    ),
    "count.json": json.dumps(
        {"type": "object", "required": ["items"], "additionalProperties": False,
         "properties": {"items": {"type": "integer", "minimum": 1, "maximum": 9}}}
    ),
    "label.json": json.dumps(
        {"type": "object", "required": ["label"], "additionalProperties": False,
         "properties": {"label": {"enum": ["small", "large"]}}}
    ),
}  # fmt: skip


class Model(ScriptedModel):
    """Answers by what it is asked for. A prompt that says so gets a slow or a wrong answer, or
    one that is wrong until it is told what was wrong (SPEC S5.2)."""

    def post(self, path: str, body: bytes) -> Reply:
        if path != "/api/chat":
            return super().post(path, body)
        asked = json.loads(body)
        prompt = "\n".join(message["content"] for message in asked["messages"])
        wanted = asked.get("format")  # "json" where a process has no schema
        fields = wanted.get("properties", {}) if isinstance(wanted, dict) else {}
        told = "PREVIOUS ATTEMPT FAILED VALIDATION" in prompt
        answer: Any = NOTE
        if "claims" in fields:
            answer = {"claims": CLAIMS}
        elif "negative_claims" in fields:
            answer = {"verdict": "mixed", "summary": "Late but nice.", "negative_claims": 1}
        elif "items" in fields:
            answer = {"items": "4"}  # mended by the gate
        elif "label" in fields:
            answer = {"label": "large"}
        elif fields:
            return super().post(path, body)
        if "ALWAYS WRONG" in prompt or ("WRONG ONCE" in prompt and not told):
            answer = {"claims": [{"text": 1, "polarity": "sour"}]} if "claims" in fields else {}
        reply = {
            "model": self.name, "created_at": "2026-01-01T00:00:00Z", "done": True,
            "done_reason": "stop", "prompt_eval_count": 1, "eval_count": 1,
            "message": {"role": "assistant", "content": json.dumps(answer)},
        }  # fmt: skip
        return Reply(json.dumps(reply), delay_s=1.5 if "SLOWLY" in prompt else 0)


class Client:
    """A caller with a key."""

    def __init__(self, stack: StackProcess, key: str) -> None:
        self._http = httpx.Client(
            base_url=stack.addresses["api"], timeout=60,
            headers={"Authorization": f"Bearer {key}"},
        )  # fmt: skip

    def ask(self, process: str, given: Any, **headers: str) -> httpx.Response:
        named = {name.replace("_", "-"): text for name, text in headers.items()}
        return self._http.post(f"{PAGE}/{process}/generate", json=given, headers=named)

    def get(self, path: str) -> httpx.Response:
        return self._http.get(path)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The shipped processes and one more."""
    made = tmp_path_factory.mktemp("processes")
    shutil.copytree(REPO / "schemas" / "processes", made, dirs_exist_ok=True)
    (made / "parcel_label").mkdir()
    for name, text in STRANGE.items():
        (made / "parcel_label" / name).write_text(text, encoding="utf-8")
    return made


@pytest.fixture(scope="module")
def stack(
    broker: str, folder: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[StackProcess]:
    with Model() as model:
        running = StackProcess(
            tmp_path_factory.mktemp(f"intelligence-{broker}"),
            ["--broker", broker, "--processes", str(folder),
             "--model", f"ollama:{model.name}@{model.url}"],
            {**QUICK, "ASSAY_INGEST__KEY_PER_MINUTE": "3", "ASSAY_INGEST__KEY_BURST": "3"},
        )  # fmt: skip
        try:
            yield running.ready()
        finally:
            running.stop()


def new_key(stack: StackProcess, tenant: str, *more: str) -> str:
    """`assay keys create`, as an operator does it."""
    made = command("keys", "create", "--tenant", tenant, "--name", "test", "--data", stack.data,
                   "--json", *more)  # fmt: skip
    assert made.returncode == 0, made.stderr
    return str(json.loads(made.stdout)["key"])


@pytest.fixture(scope="module")
def acme(stack: StackProcess) -> Client:
    return Client(stack, new_key(stack, "acme", "--rate", "6000", "--burst", "500"))


def is_error(answer: httpx.Response, status: int, code: str) -> dict[str, Any]:
    body = answer.json()
    assert (answer.status_code, body["success"], body["error"]["code"]) == (status, False, code)
    assert answer.headers["x-request-id"]
    error: dict[str, Any] = body["error"]
    return error


def test_a_process_without_schema_answers(acme: Client) -> None:
    """S5.1, S5.7: whatever JSON the model found fitting, as an object."""
    answer = acme.ask("open_notes", {"input": {"text": "Three words here"}})
    assert answer.status_code == 200, answer.text
    body = answer.json()
    assert (body["success"], body["data"]) == (True, NOTE)
    meta = body["meta"]
    assert (meta["process_id"], meta["process_version"]) == ("open_notes", "1.0.0")
    assert (meta["attempts"], meta["model"]) == (1, "scripted")
    assert answer.headers["x-request-id"] == meta["request_id"]


def test_a_chain_of_questions_answers_once(acme: Client) -> None:
    """S4.12: the last step's end is the answer, with the fields of all steps."""
    given = {"product": "a lamp", "review": "It came late, but it is nice."}
    answer = acme.ask("review_digest", {"input": given})
    assert answer.status_code == 200, answer.text
    assert answer.json()["data"] == {
        "claims": CLAIMS, "verdict": "mixed", "summary": "Late but nice.", "negative_claims": 1,
    }  # fmt: skip


async def test_a_process_nobody_has_seen(stack: StackProcess, acme: Client) -> None:
    """Issue 5: dropped into --processes, it runs over HTTP and Kafka without touching code; its
    answers are mended and typed (S5.4), its expression step is computed."""
    answer = acme.ask("parcel_label", {"input": {"parcel": "four shoes"}})
    assert answer.status_code == 200, answer.text
    assert answer.json()["data"] == {"items": 4, "twice": 8, "label": "large"}
    identity = answer.json()["meta"]["request_id"]
    mine = [
        event
        for event in map(json.loads, [r.value for r in await stack.records(ANSWERED)])
        if event["meta"]["request_id"] == identity
    ]
    assert [event["meta"]["step"] for event in mine] == ["count", "label"]
    assert {event["meta"]["tenant_id"] for event in mine} == {"acme"}
    listed = {p["process_id"]: p for p in acme.get(PAGE).json()["data"]}
    assert set(listed) == {"open_notes", "parcel_label", "quiz_card", "review_digest"}
    assert listed["parcel_label"]["version"] == "3"


def test_bad_input_is_named_by_field(acme: Client) -> None:
    """S5.3."""
    error = is_error(acme.ask("parcel_label", {"input": {"parcel": 4}}), 400, "VALIDATION_ERROR")
    assert [issue["path"] for issue in error["details"]["issues"]] == [["parcel"]]


def test_a_model_that_is_wrong_twice(acme: Client) -> None:
    """S5.2, S5.3: after the stricter prompt failed too, 500 in the seed's shape by field; at the
    first step of two, no second question follows. One that listens is forgiven."""
    answer = acme.ask("open_notes", {"input": {"text": "ALWAYS WRONG"}})
    error = is_error(answer, 500, "OUTPUT_VALIDATION_FAILED")
    assert error["message"] == "Failed to generate valid response after retry"
    assert ["title"] in [issue["path"] for issue in error["details"]["issues"]]
    listens = acme.ask("open_notes", {"input": {"text": "WRONG ONCE"}})
    assert listens.status_code == 200, listens.text
    assert listens.json()["meta"]["attempts"] == 2


def test_an_empty_result_is_marked(acme: Client) -> None:
    """Issue 5 item 2: where the process says so, its empty result ends a request, marked."""
    given = {"product": "a lamp", "review": "ALWAYS WRONG"}
    answer = acme.ask("review_digest", {"input": given})
    assert answer.status_code == 200, answer.text
    assert answer.json()["meta"]["fallback"] == "answers_rejected"
    assert answer.json()["data"]["verdict"] == "unclear"


def test_who_may_not(stack: StackProcess, acme: Client) -> None:
    """S5.1: no key, a wrong one, a revoked one; a process outside the scope; an unknown one; and
    nobody may bring the features of a score himself."""
    given = {"input": {"text": "x"}}
    url = stack.addresses["api"] + f"{PAGE}/open_notes/generate"
    is_error(httpx.post(url, json=given), 401, "UNAUTHORIZED")
    is_error(Client(stack, "assay_key_no").ask("open_notes", given), 401, "UNAUTHORIZED")
    text = new_key(stack, "acme", "--process", "quiz_card")
    scoped = Client(stack, text)
    is_error(scoped.ask("open_notes", given), 403, "FORBIDDEN")
    assert [p["process_id"] for p in scoped.get(PAGE).json()["data"]] == ["quiz_card"]
    is_error(acme.ask("no_such", given), 404, "NOT_FOUND")
    is_error(acme.ask("wallet_score", given), 403, "FORBIDDEN")
    assert text.split("_")[3] not in json.dumps(stack.log("ingest"))


def test_a_key_that_asks_too_often(stack: StackProcess) -> None:
    """X.5: 429 with the seconds after which it is admitted again; the operator's limits where the
    key has none of its own."""
    for options, admitted in ((("--rate", "1", "--burst", "1"), 1), ((), 3)):
        client = Client(stack, new_key(stack, "slow", *options))
        for _ in range(admitted):
            assert client.get(PAGE).status_code == 200
        refused = client.ask("open_notes", {"input": {"text": "x"}})
        is_error(refused, 429, "RATE_LIMITED")
        assert 0 < int(refused.headers["retry-after"]) <= 60


async def test_a_repeat_is_one_request(stack: StackProcess, acme: Client) -> None:
    """X.2: while it is pending and after its end; the model is asked once. Another tenant under
    the same key gets a request of its own, and never this one's answer."""
    given = {"input": {"text": "SLOWLY, please"}}
    first = acme.ask("open_notes", given, idempotency_key="order-1", prefer="wait=0")
    assert first.status_code == 202
    place, identity = first.headers["location"], first.json()["meta"]["request_id"]
    again = acme.ask("open_notes", given, idempotency_key="order-1")
    assert (again.status_code, again.json()["data"]) == (200, NOTE)
    assert again.json()["meta"]["request_id"] == identity
    assert acme.get(place).json() == again.json()
    other_text = {"input": {"text": "other"}}
    conflict = acme.ask("open_notes", other_text, idempotency_key="order-1")
    is_error(conflict, 422, "IDEMPOTENCY_CONFLICT")
    asked = [json.loads(r.value)["meta"]["request_id"] for r in await stack.records(REQUESTED)]
    assert asked.count(identity) == 1

    stranger = Client(stack, new_key(stack, "stranger"))
    theirs = stranger.ask("open_notes", other_text, idempotency_key="order-1")
    assert theirs.status_code == 200
    assert theirs.json()["meta"]["request_id"] != identity
    is_error(stranger.get(place), 404, "NOT_FOUND")
    assert stack.get(f"/scores/{identity}").status_code == 404


async def test_each_request_and_attempt_can_be_found(stack: StackProcess, acme: Client) -> None:
    """S5.5: a line in ingest's log by request, process and tenant; the attempts in evidence."""
    answer = acme.ask("open_notes", {"input": {"text": "WRONG ONCE, then kept"}})
    identity = answer.json()["meta"]["request_id"]

    async def lines() -> list[dict[str, Any]]:
        return [
            line for line in stack.log("ingest")
            if line["event"] == "intelligence_request" and line["request_id"] == identity
        ]  # fmt: skip

    [line] = await eventually(lines, bool, 10)
    assert (line["process_id"], line["tenant_id"], line["status"]) == ("open_notes", "acme", 200)
    kept = await stack.evidence_with(
        "llm.generation.rejected.v1", "llm.generation.accepted.v1", request_id=identity
    )
    assert [item["type"] for item in kept].count(ANSWERED) == 2


def test_a_used_version_cannot_change(folder: Path, tmp_path: Path) -> None:
    """Issue 5 item 1: `assay up` says at the terminal which folder needs a new version, and does
    not start; with one it does."""
    mine = tmp_path / "processes"
    shutil.copytree(folder, mine)
    arguments = ["--broker", "embedded", "--processes", str(mine)]
    (tmp_path / "stack").mkdir()
    first = StackProcess(tmp_path / "stack", arguments, QUICK)
    try:
        first.ready()
    finally:
        first.stop()
    config = mine / "parcel_label" / "config.yaml"
    text = config.read_text(encoding="utf-8").replace("[0.2, 0.0]", "[0.4, 0.0]")
    config.write_text(text, encoding="utf-8")
    refused = StackProcess(tmp_path / "stack", arguments, QUICK)
    try:
        with pytest.raises(AssertionError, match="assay up ended"):
            refused.ready()
        assert refused.stop() == 1
    finally:
        refused.stop()
    last = refused.said.splitlines()[-1]
    for part in ("ingest", "parcel_label/config.yaml", "assay.version", "'parcel_label' 3",
                 "was used with other content", "new version"):  # fmt: skip
        assert part in last
    config.write_text(text.replace('version: "3"', 'version: "4"'), encoding="utf-8")
    renewed = StackProcess(tmp_path / "stack", arguments, QUICK)
    try:
        renewed.ready()
    finally:
        renewed.stop()
