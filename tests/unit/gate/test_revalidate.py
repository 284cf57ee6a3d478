"""`assay revalidate`: today's schemas and rules over stored answers, no model call (SPEC S4.7)."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest
import typer
from typer.testing import CliRunner, Result

from assay_gate.cli.revalidate import revalidate

app = typer.Typer()
app.command()(revalidate)

SCHEMA: dict[str, Any] = {
    "type": "object",
    "required": ["score"],
    "properties": {"score": {"type": "integer", "minimum": 0, "maximum": 10}},
}
CONFIG = """
pipeline:
  steps: [{name: rate}]
prompts:
  template_dir: .
  templates: {rate: rate.jinja2}
schemas:
  schema_dir: .
  files: {rate: rate.schema.json}
validation:
  rate:
    rules:
      - {name: not_above, expr: "score <= limit", error: "{score} is above {limit}"}
api: {}
processing: {}
assay: {id: rating, version: "2"}
"""


@pytest.fixture
def process(tmp_path: Path) -> Path:
    folder = tmp_path / "rating"
    folder.mkdir()
    (folder / "config.yaml").write_text(CONFIG)
    (folder / "rate.jinja2").write_text("Rate it up to {{ limit }}.")
    (folder / "rate.schema.json").write_text(json.dumps(SCHEMA))
    return folder


def failure(unit: str, raw: Any, **changes: Any) -> dict[str, Any]:
    return {
        "unit_id": unit,
        "failure_stage": "validation",
        "input": {"limit": 5},
        "raw_response": raw,
        "errors": [{"path": "$", "rule": "not_above", "message": "7 is above 5"}],
        "retry_count": 2,
        **changes,
    }


def failures_file(tmp_path: Path, *records: dict[str, Any], name: str = "rate") -> Path:
    file = tmp_path / f"{name}_failures.jsonl"
    file.write_text("".join(json.dumps(record) + "\n" for record in records))
    return file


def run(*arguments: str | Path) -> Result:
    return CliRunner().invoke(app, [str(argument) for argument in arguments])


def changes(result: Result) -> dict[str, str]:
    lines = [json.loads(line) for line in result.stdout.splitlines()]
    return {line["unit_id"]: line["change"] for line in lines if "change" in line}


def summary(result: Result) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(result.stdout.splitlines()[-1])["summary"]
    return found


def test_nothing_changes_under_the_same_rules(process: Path, tmp_path: Path) -> None:
    file = failures_file(tmp_path, failure("a", '{"score": 7}'))
    result = run("--process", process, "--failures", file)
    assert result.exit_code == 0, result.stderr
    assert "1 answers under rating 2: 1 unchanged" in result.stdout


def test_what_would_change(process: Path, tmp_path: Path) -> None:
    """S4.7: a looser rule accepts, a stricter schema gives other errors; exit code 1."""
    missing = {"path": "$", "rule": "required", "message": "'score' is missing"}
    file = failures_file(
        tmp_path,
        failure("accepted", '```json\n{"score": 4}\n```'),
        failure("same", '{"score": 7}'),
        failure("other", '{"score": 12}'),
        failure("parsed", {"score": 3}, errors=[missing]),
        failure("none", None, failure_stage="pipeline_internal"),
        failure(
            "cut off",
            '{"score": 4}',
            errors=[{"path": "$", "rule": "finish_reason", "message": "cut off"}],
        ),
        failure(
            "incomplete",
            '{"score": 4}',
            errors=[{"path": "$", "rule": "answer_incomplete", "message": "ended by 'length'"}],
        ),
        failure("elsewhere", "{}", _metadata={"step": "gone"}),
    )
    result = run("--process", process, "--json", "--failures", file)
    assert result.exit_code == 1
    assert changes(result) == {"accepted": "accepted", "other": "errors", "parsed": "accepted"}
    first = json.loads(result.stdout.splitlines()[0])
    assert first["before"]["stage"] == "validation"
    assert first["now"]["value"] == {"score": 4}
    counts = summary(result)
    assert (counts["answers"], counts["none"], counts["not_judged"]) == (8, 1, 4)
    text = run("--process", process, "--failures", file)
    assert "accepted  step rate: rejected → accepted" in text.stdout


def test_several_files(process: Path, tmp_path: Path) -> None:
    first = failures_file(tmp_path, failure("a", '{"score": 4}'))
    folder = tmp_path / "more"
    folder.mkdir()
    second = failures_file(folder, failure("b", '{"score": 4}'))
    result = run("--process", process, "--json", "--failures", first, second)
    assert changes(result) == {"a": "accepted", "b": "accepted"}


def test_a_shipped_process_by_its_id(tmp_path: Path) -> None:
    file = failures_file(tmp_path, failure("a", "no answer"), name="score")
    result = run("--process", "wallet_score", "--json", "--failures", file)
    assert result.exit_code == 1
    assert summary(result)["process"] == "wallet_score"


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ("", "or --evidence URL"),
        ("--failures {file} --evidence http://127.0.0.1:1", "or --evidence URL"),
        ("--failures {file} --since 2026-01-01", "only evidence has times"),
        ("--failures no_such_file.jsonl", "does not exist"),
        ("--evidence http://127.0.0.1:1", "refused"),
        ("--evidence ftp://127.0.0.1", "not an http(s) address"),
        ("--failures {bad}", "record 1: no failure record"),
    ],
)
def test_wrong_usage(arguments: str, said: str, process: Path, tmp_path: Path) -> None:
    file = failures_file(tmp_path, failure("a", "{}"))
    bad = tmp_path / "bad.jsonl"
    bad.write_text('{"score": 1}\n')
    result = run("--process", process, *arguments.format(file=file, bad=bad).split())
    assert result.exit_code == 2, result.stdout
    assert said in " ".join(result.stderr.split())


def test_a_process_that_is_not_there(tmp_path: Path) -> None:
    file = failures_file(tmp_path, failure("a", "{}"))
    result = run("--process", "no_such_process", "--failures", file)
    assert result.exit_code == 2
    assert "wallet_score" in result.stderr


def answered(number: int, raw: str | None, **changes: Any) -> dict[str, Any]:
    payload = {
        "meta": {"request_id": f"r{number}", "unit_id": f"u{number}", "step": "rate",
                 "process_id": "rating", "attempt": 1},
        "input": {"limit": 5}, "outcome": "answered", "raw": raw, "finish_reason": "stop",
        **changes,
    }  # fmt: skip
    return {
        "event_id": f"answer-{number}",
        "type": "llm.generation.answered.v1",
        "payload": payload,
    }


def verdict(number: int, kind: str, **payload: Any) -> dict[str, Any]:
    meta = {"process_id": "rating", "causation_id": f"answer-{number}"}
    return {
        "event_id": f"verdict-{number}-{kind}",
        "type": f"llm.generation.{kind}.v1",
        "payload": {"meta": meta, "input": {"limit": 5}, **payload},
    }


REJECTED = {
    "failure_stage": "validation",
    "errors": [{"path": "$", "rule": "not_above", "message": "7 is above 5"}],
}
ITEMS = [
    answered(1, '{"score": 7}'),
    verdict(1, "rejected", **REJECTED),
    answered(2, '{"score": 7}'),
    verdict(2, "accepted", output={"score": 7}),
    answered(3, '{"score": 2}'),
    verdict(3, "rejected", **REJECTED),
    answered(4, '{"score": "4"}'),
    verdict(4, "accepted", output={"score": 3}),
    answered(5, '{"score": 5}'),
    verdict(5, "accepted", output={"score": 5}),
    answered(6, '{"score": 5}', finish_reason="length"),
    verdict(6, "rejected", **REJECTED),
    answered(7, None, outcome="failed"),
    answered(8, '{"score": 1}'),
    answered(9, '{"score": 9}', meta={"process_id": "another"}),
    {"event_id": "erased", "type": "llm.generation.answered.v1", "payload_base64": ""},
    answered(1, '{"score": 7}'),
]


class Evidence:
    """`GET /evidence`, two items a page."""

    def __init__(self) -> None:
        self.asked: list[dict[str, str]] = []
        self.token = ""
        self.full_text = True
        self.items = ITEMS
        outer = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                status, body = outer.page(self.path, self.headers.get("authorization", ""))
                self.send_response(status)
                self.end_headers()
                self.wfile.write(json.dumps(body).encode())

            def log_message(self, *_: Any) -> None:
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_address[1]}"
        threading.Thread(target=self.server.serve_forever, args=(0.05,), daemon=True).start()

    def page(self, path: str, authorization: str) -> tuple[int, Any]:
        parts = urlsplit(path)
        asked = {name: values[0] for name, values in parse_qs(parts.query).items()}
        self.asked.append(asked)
        if self.token and authorization != f"Bearer {self.token}":
            return 401, {"error": {"code": "unauthorized"}}
        found = [item for item in self.items if item["type"] == asked["type"]]
        after = int(asked["after"])
        more = after + 2 if after + 2 < len(found) else None
        redacted = asked.get("full") != "true" or not self.full_text
        return 200, {"items": found[after : after + 2], "next": more, "redacted": redacted}


@pytest.fixture
def evidence() -> Iterator[Evidence]:
    running = Evidence()
    yield running
    running.server.shutdown()
    running.server.server_close()


def test_evidence_attempt_by_attempt(process: Path, evidence: Evidence) -> None:
    """S4.7: verdicts are matched to answers by cause, over all pages."""
    result = run("--process", process, "--json", "--evidence", evidence.url + "/evidence/")
    assert result.exit_code == 1, result.stderr
    assert changes(result) == {"u2": "rejected", "u3": "accepted", "u4": "value"}
    counts = summary(result)
    assert (counts["answers"], counts["none"], counts["not_judged"], counts["no_verdict"]) == (
        8, 2, 2, 1
    )  # fmt: skip


def test_evidence_of_another_process_is_said(process: Path, evidence: Evidence) -> None:
    """S4.7: "nothing would change" alone would be a wrong comfort where nothing was judged."""
    (process / "config.yaml").write_text(CONFIG.replace("id: rating", "id: other"))
    result = run("--process", process, "--evidence", evidence.url)
    assert "evidence keeps no answer of a process 'other'" in result.stderr


def test_evidence_since_and_behind_a_token(process: Path, evidence: Evidence) -> None:
    evidence.token = "secret"
    refused = run("--process", process, "--evidence", evidence.url)
    assert refused.exit_code == 2
    assert "401" in refused.stderr
    asked = ("--process", process, "--evidence", evidence.url, "--since", "2026-01-01")
    assert run(*asked, "--token", "secret").exit_code == 1
    assert evidence.asked[-1]["since"] == "2026-01-01"


def test_redacted_answers_are_never_judged(process: Path, evidence: Evidence) -> None:
    """Issue 5: a redacted answer is another answer; exit code 2 and the reason, nothing judged."""
    evidence.full_text = False
    result = run("--process", process, "--json", "--evidence", evidence.url)
    assert result.exit_code == 2
    assert result.stdout == ""
    assert "only redacted text is available" in result.stderr


def test_results_of_several_steps_are_no_answers(tmp_path: Path, evidence: Evidence) -> None:
    """S4.12: the result of several steps is more than the last answer, and is not compared with
    it; an intermediate answer is. An empty result is no verdict, its rejection is."""
    folder = tmp_path / "rating"
    folder.mkdir()
    steps = CONFIG.replace("[{name: rate}]", "[{name: first}, {name: rate}]").replace(
        "{rate: rate.jinja2}", "{first: rate.jinja2, rate: rate.jinja2}"
    )
    steps = steps.replace(
        "{rate: rate.schema.json}", "{first: rate.schema.json, rate: rate.schema.json}"
    ).replace("  rate:\n    rules", "  first: {}\n  rate:\n    rules")
    (folder / "config.yaml").write_text(steps)
    (folder / "rate.jinja2").write_text("Rate it up to {{ limit }}.")
    (folder / "rate.schema.json").write_text(json.dumps(SCHEMA))
    kept = [
        answered(1, '{"score": 4}'),
        verdict(1, "accepted", output={"score": 4, "limit": 5}, final=True),
        answered(2, '{"score": 4}'),
        verdict(2, "accepted", output={"score": 3}, final=False),
        answered(3, '{"score": 9}'),
        verdict(3, "accepted", output={}, final=True, fallback="answers_rejected"),
    ]
    evidence.items = kept
    result = run("--process", folder, "--json", "--evidence", evidence.url)
    assert changes(result) == {"u2": "value"}, result.stderr
    assert summary(result)["no_verdict"] == 1


def test_what_a_stranger_wrote_cannot_steer_the_terminal(process: Path, tmp_path: Path) -> None:
    file = failures_file(tmp_path, failure("a\x1b[2J", '{"score": 4}'))
    result = run("--process", process, "--failures", file)
    assert "\x1b" not in result.stdout
