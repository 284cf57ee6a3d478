"""`assay attempts` and `assay erase` against evidence's own pages (issue 5 point 4, S5.5)."""

from __future__ import annotations

import json
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

import pytest
import typer
from typer.testing import CliRunner, Result

from assay.cli import evidence_access
from assay.cli.attempts import attempts
from assay.cli.erase import erase
from assay.cli.evidence_pages import EvidenceClient, EvidenceUnreadable
from deploy.dev.evidence_tokens import (
    ensure_evidence_tokens,
    leave_evidence_tokens,
    remove_evidence_tokens,
)
from services.evidence.access import Access
from services.evidence.domain import Entry
from tests.unit.evidence.entries import WALLET, entry
from tests.unit.evidence.served import ERASE, FULL, READ, Served, served

MAIL = "jane.doe@shop.example"
app = typer.Typer()
app.command("attempts")(attempts)
app.command("erase")(erase)


@pytest.fixture
def evidence(tmp_path: Path) -> Iterator[Served]:
    with served(tmp_path, Access(READ, FULL, ERASE)) as running:
        yield running


@pytest.fixture(autouse=True)
def no_stack(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No stack of whoever runs the tests is found."""
    file = tmp_path / "stacks" / "stack.json"
    monkeypatch.setattr("assay.cli.stack.stack_file", lambda: file)
    monkeypatch.setattr("assay.cli.evidence_access.stack_file", lambda: file)
    monkeypatch.setattr("deploy.dev.evidence_tokens.stack_file", lambda: file)


def run(command: str, evidence: Served, *arguments: str, **options: Any) -> Result:
    return CliRunner().invoke(
        app, [command, *arguments, "--evidence", evidence.url], **options
    )  # fmt: skip


def answer(**changes: Any) -> Entry:
    meta = {"request_id": "r", "tenant_id": "t", "process_id": "p", "process_version": "1",
            "process_hash": "ab" * 32, "step": "s", "attempt": 1, "unsealed": True}  # fmt: skip
    value = {"meta": meta, "outcome": "answered", "raw": f"I am {MAIL}\x1b[2J", "prompt": "Rate.",
             "provider": "ollama", "model": "m", "model_digest": "cd" * 32, "temperature": 0.1,
             "seed": 1, "prompt_sha256": "12" * 32, "usage": {"total": 9}, **changes}  # fmt: skip
    kind = "llm.generation.answered.v1"
    return entry(type=kind, topic=kind, request_id="r", value=json.dumps(value).encode(),
                 headers=(("assay_duration_ms", b"1250"),))  # fmt: skip


def rejection(cause: str) -> Entry:
    kind = "llm.generation.rejected.v1"
    value = {"meta": {"request_id": "r", "causation_id": cause, "step": "s"}, "terminal": False,
             "failure_stage": "validation",
             "errors": [{"path": "/score", "rule": "maximum", "message": "too much"}]}  # fmt: skip
    return entry(type=kind, topic=kind, request_id="r", value=json.dumps(value).encode())


def test_attempts_for_people(evidence: Served) -> None:
    """S5.5: what was asked, said and made of it; redacted, and nothing steers the terminal."""
    kept = answer()
    evidence.keep(kept, rejection(kept.event_id))
    result = run("attempts", evidence, "r", "--token", READ)
    assert result.exit_code == 0, result.output
    for said in ("attempt 1  step s  p 1  unsealed", "rejected at validation",
                 "/score maximum: too much", "1,250 ms", "total 9",
                 "cdcdcdcdcdcd", "I am [EMAIL]\\x1b[2J"):  # fmt: skip
        assert said in result.stdout
    assert "\x1b" not in result.stdout


def test_attempts_as_json_and_in_full(evidence: Served) -> None:
    """S5.5: --full needs the full-text token; the error says so."""
    evidence.keep(answer())
    refused = run("attempts", evidence, "r", "--full", "--token", READ)
    assert refused.exit_code == 1
    assert "403" in refused.stderr
    assert "ASSAY_EVIDENCE_TOKEN" in refused.stderr
    result = run("attempts", evidence, "r", "--full", "--json",
                 env={"ASSAY_EVIDENCE_TOKEN": FULL})  # fmt: skip
    assert json.loads(result.stdout)["raw_answer"] == f"I am {MAIL}\x1b[2J"
    redacted = run("attempts", evidence, "r", "--json", "--token", FULL)
    assert MAIL not in redacted.stdout


def test_attempts_of_odd_events_and_of_nothing(evidence: Served) -> None:
    """X.4: whatever a record holds, there is a line for it; no attempt is exit code 1."""
    kind = "llm.generation.answered.v1"
    evidence.keep(
        answer(error="odd", usage=7, prompt=None, raw=None, model=[1]),
        entry(type=kind, topic=kind, request_id="r", value=b"no json"),
        entry(type=kind, topic=kind, request_id="r", value=b'{"meta": {}}'),
    )
    result = run("attempts", evidence, "r", "--token", READ)
    assert result.exit_code == 0, result.output
    assert "unreadable" in result.stdout
    nothing = run("attempts", evidence, "none", "--token", READ)
    assert (nothing.exit_code, "no attempt of none" in nothing.stderr) == (1, True)


def test_erase_asks_first(evidence: Served) -> None:
    """Issue 5: without --yes nothing goes; then it is gone, and said where."""
    evidence.keep(answer(), entry(request_id="other"))
    asked = ("--request-id", "r", "--reason", "owner asked", "--token", ERASE)
    result = run("erase", evidence, *asked)
    assert result.exit_code == 1
    assert "1 events will be erased" in result.stdout
    assert "raw_answer" in run("attempts", evidence, "r", "--json", "--token", READ).stdout
    done = run("erase", evidence, *asked, "--yes", "--actor", "clerk")
    assert done.exit_code == 0, done.output
    assert "1 events erased; on record as" in done.stdout
    erased = json.loads(run("attempts", evidence, "r", "--json", "--token", READ).stdout)["erased"]
    assert (erased["actor"], erased["reason"]) == ("clerk", "owner asked")
    assert "erased  owner asked (clerk)" in run("attempts", evidence, "r", "--token", READ).stdout
    again = run("erase", evidence, *asked, "--yes")
    assert (again.exit_code, "nothing to erase" in again.stdout) == (0, True)


def test_erase_by_wallet(evidence: Served) -> None:
    """Issue 5: in any spelling that is an address."""
    evidence.keep(entry(), entry(), entry(wallet=None))
    upper = "0x" + WALLET[2:].upper()
    done = run("erase", evidence, "--wallet", upper, "--reason", "x", "--yes", "--token", ERASE)
    assert "2 events erased" in done.stdout, done.output


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        ("--reason x", 2),
        ("--reason x --request-id r --wallet 0x12", 2),
        ("--reason x --wallet 0x12", 2),
        ("--request-id r", 2),
        ("--request-id r --reason x --yes", 1),
        ("--request-id r --reason x --yes --token full-text", 1),
    ],
)
def test_erase_refuses(evidence: Served, arguments: str, code: int) -> None:
    """Exit codes: 2 wrong usage, 1 not allowed; nothing is erased."""
    evidence.keep(answer())
    assert run("erase", evidence, *arguments.split()).exit_code == code
    assert "raw_answer" in run("attempts", evidence, "r", "--json", "--token", READ).stdout


def test_the_help_says_what_is_not_erased() -> None:
    """Issue 5: on Kafka the text goes with retention."""
    shown = CliRunner().invoke(app, ["erase", "--help"]).stdout
    said = " ".join(shown.replace("│", " ").split())
    assert "Kafka's topics keep the text until their retention ends" in said


def test_a_local_stack_needs_no_token(evidence: Served, tmp_path: Path) -> None:
    """Issue 5: `assay up` makes tokens that only its user can read; commands find them by the
    evidence's address, while the stack lives and nowhere else."""
    made = ensure_evidence_tokens(tmp_path, {})
    file = tmp_path / "evidence-tokens.json"
    assert file.stat().st_mode & 0o777 == 0o600
    assert ensure_evidence_tokens(tmp_path, {}) == made
    assert len(set(made.values())) == 2
    tokens = {"ASSAY_EVIDENCE__FULL_TEXT_TOKEN": FULL, "ASSAY_EVIDENCE__ERASURE_TOKEN": ERASE}
    evidence.keep(answer())
    assert run("attempts", evidence, "r").exit_code == 1
    leave_evidence_tokens(evidence.url, tokens)
    left = evidence_access.tokens_file(evidence.url)
    assert left.stat().st_mode & 0o777 == 0o600
    assert left.parent.stat().st_mode & 0o077 == 0
    assert MAIL in run("attempts", evidence, "r", "--full").stdout
    elsewhere = evidence.url.replace("127.0.0.1", "localhost")
    assert evidence_access.local_token(elsewhere, "full_text") is None
    assert run("erase", evidence, "--request-id", "r", "--reason", "x", "--yes").exit_code == 0
    left.write_text(json.dumps({**json.loads(left.read_text()), "pid": 2**22 + 1}))
    assert evidence_access.local_token(evidence.url, "full_text") is None
    leave_evidence_tokens(evidence.url, tokens)
    remove_evidence_tokens()
    assert not left.exists()


def test_tokens_of_the_environment_are_left_alone(tmp_path: Path) -> None:
    """What an operator sets is neither replaced nor written down."""
    given = {"ASSAY_EVIDENCE__FULL_TEXT_TOKEN": "mine", "ASSAY_EVIDENCE__ERASURE_TOKEN_FILE": "f"}
    assert ensure_evidence_tokens(tmp_path, given) == {}
    assert not list(tmp_path.glob("evidence-tokens*"))
    only = ensure_evidence_tokens(tmp_path, {"ASSAY_EVIDENCE__FULL_TEXT_TOKEN": "mine"})
    assert list(only) == ["ASSAY_EVIDENCE__ERASURE_TOKEN"]


def test_a_token_does_not_follow_a_redirect() -> None:
    """A token is for the address it was given for."""
    asked: list[str | None] = []

    class Elsewhere(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            asked.append(self.headers.get("authorization"))
            self.send_response(302)
            self.send_header("location", f"http://localhost:{self.server.server_port}/x")  # type: ignore[attr-defined]
            self.end_headers()

        def log_message(self, *_: Any) -> None:
            pass

    server = HTTPServer(("127.0.0.1", 0), Elsewhere)
    Thread(target=server.serve_forever, args=(0.05,), daemon=True).start()
    try:
        with pytest.raises(EvidenceUnreadable, match="302"):
            list(EvidenceClient(f"http://127.0.0.1:{server.server_port}", "t").attempts("r"))
    finally:
        server.shutdown()
        server.server_close()
    assert asked == ["Bearer t"]


@pytest.mark.parametrize("url", ["ftp://h", "http://", "http://h:x", "h:80", "http://[::1"])
def test_what_is_no_address(url: str) -> None:
    """One line for a person."""
    with pytest.raises(EvidenceUnreadable, match="not an http"):
        EvidenceClient(url)
