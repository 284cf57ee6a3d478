"""How a stack starts, refuses to, goes on and ends (issue 3 items 5 and 7)."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import socket
import subprocess
import uuid
from collections import Counter
from contextlib import closing, suppress
from pathlib import Path
from typing import Any
from unittest.mock import ANY

import httpx
import pytest

from deploy.kafka.broker import Broker
from deploy.loopback_ports import free_port
from tests.e2e.outside import (
    GOOD,
    Reply,
    ScriptedAggregator,
    ScriptedModel,
    score_answer,
    worth,
)
from tests.e2e.processes import MARK, ServiceProcess, none_left
from tests.e2e.stacks import (
    ASSAY,
    QUICK,
    REPO,
    SIGNED,
    StackProcess,
    command,
    eventually,
    new_address,
)


def _arguments(broker: str, model: ScriptedModel, aggregator: ScriptedAggregator) -> list[str]:
    return ["--broker", broker, "--model", f"ollama:{model.name}@{model.url}",
            "--aggregator", aggregator.template]  # fmt: skip


async def test_the_same_data_again(
    broker: str, model: ScriptedModel, aggregator: ScriptedAggregator, tmp_path: Path
) -> None:
    """DESIGN §3, §7: a second start on the same data knows the requests, the ledger and the
    evidence of the first, whose offsets mean nothing to a new embedded log. Taken ports are said
    and others used. Neither kill -9 nor SIGTERM leaves a process, SIGTERM no file either."""
    mark, address = str(uuid.uuid4()), new_address()
    scratch = tmp_path / "tmp"
    scratch.mkdir()
    environment = {**QUICK, MARK: mark, "TMPDIR": str(scratch)}
    key = {"Idempotency-Key": "order 1"}
    keyless = json.dumps({"address": address}).encode()

    first = StackProcess(tmp_path, _arguments(broker, model, aggregator), environment).ready()
    try:
        score = first.post({"address": address}, headers=key).json()
        await first.send(keyless, key=address.lower().encode())
        await first.of_wallet(SIGNED, address, at_least=2)

        async def kept() -> list[dict[str, Any]]:
            return first.evidence(wallet=address)

        before = await eventually(kept, lambda items: len(items) >= 14)
        held = StackProcess(tmp_path, _arguments(broker, model, aggregator), environment)
        assert held.process.wait(30) == 1
        assert "another stack is running" in first.said
    finally:
        first.process.kill()
        first.stop()
    assert none_left(mark) == []

    with closing(socket.socket()) as taken:
        # The killed stack may have left connections on it in TIME_WAIT.
        taken.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        with suppress(OSError):  # somebody else's stack may have the port already
            taken.bind(("127.0.0.1", 8080))
            taken.listen()
        second = StackProcess(tmp_path, _arguments(broker, model, aggregator), environment).ready()
    try:
        assert "port 8080 is taken; ingest uses" in second.said
        assert second.public_key == first.public_key
        assert second.post({"address": address}, headers=key).json() == score
        later = second.post({"address": address}).json()
        await second.send(keyless, key=address.lower().encode())

        async def signed() -> list[dict[str, Any]]:
            return second.evidence(wallet=address, type=SIGNED)

        items = await eventually(signed, lambda found: len(found) >= 4)
        requests = [item["request_id"] for item in items]
        assert len(set(requests)) == len(requests) == 4
        assert later["request_id"] in requests
        times = [item["payload"]["timestamp_ms"] for item in items]
        assert times == sorted(set(times))
        known = {item["event_id"] for item in second.evidence(wallet=address)}
        assert {item["event_id"] for item in before} <= known
        assert second.evidence(type="EVIDENCE_CONFLICT") == []
        assert second.evidence(type="LEDGER_CONFLICT") == []
        sequences = Counter((item["shard"], item["seq"]) for item in second.evidence())
        assert set(sequences.values()) == {1}
    finally:
        assert second.stop(signal.SIGTERM) == 0
    assert none_left(mark) == []
    assert list(scratch.rglob("*")) == []


async def test_an_embedded_broker_loses_nothing_between_two_runs(
    model: ScriptedModel, aggregator: ScriptedAggregator, tmp_path: Path
) -> None:
    """Issue 6, item 4: what was open at SIGTERM is said, and taken up at the next start with the
    same data; what was signed before is on the bus again to the byte, so that a repeat, which
    goes no further than ingest, finds its outcome."""
    arguments = _arguments("embedded", model, aggregator)
    held, done = new_address(), new_address()
    model.script(held, Reply(score_answer(), delay_s=30))
    file = tmp_path / "done.json"
    file.write_text(json.dumps({"wallet": done}), encoding="utf-8")
    again: list[str | Path] = ["--wait", "--timeout", "20", "--idempotent", "--json", file]

    first = StackProcess(tmp_path, arguments, QUICK).ready()
    try:
        score = command("publish", "--bootstrap", first.bootstrap, *again)
        [signed] = await first.of_wallet(SIGNED, done)
        taken = first.post({"address": held}, headers={"Prefer": "wait=0"})
        await eventually(lambda: asyncio.to_thread(model.calls, held), bool)
    finally:
        assert first.stop(signal.SIGTERM) == 0
    assert "open requests: 1; the next start with this data takes them up" in first.said
    assert "before it had read everything" not in first.said

    model.script(held, score_answer())
    second = StackProcess(tmp_path, arguments, QUICK).ready()
    try:
        assert "open requests of an earlier run are taken up: 1" in second.said
        [once] = await second.of_wallet(SIGNED, held)
        assert json.loads(once.value)["metadata"]["fallback"] is None
        assert second.get(taken.json()["url"]).json()["score"] == worth(GOOD)
        [kept] = await second.of_wallet(SIGNED, done)
        assert (kept.key, kept.value, kept.headers) == (signed.key, signed.value, signed.headers)
        repeat = command("publish", "--bootstrap", second.bootstrap, *again)
        assert (repeat.returncode, repeat.stdout) == (score.returncode, score.stdout) == (0, ANY)
        for address in (held, done):
            assert len(second.evidence(wallet=address, type=SIGNED)) == 1
    finally:
        second.stop()
    assert second.said.count("open requests: ") == 1


def test_a_start_that_fails_says_why_and_leaves_nothing(
    model: ScriptedModel, aggregator: ScriptedAggregator, tmp_path: Path
) -> None:
    """Issue 3: a key that others may read ends the start with the reason and exit code 1."""
    mark = str(uuid.uuid4())
    key = tmp_path / "data" / "signer.key"
    key.parent.mkdir()
    key.write_bytes(b"\x07" * 32)
    key.chmod(0o644)
    failed = StackProcess(
        tmp_path, _arguments("embedded", model, aggregator), {**QUICK, MARK: mark}
    )
    assert failed.process.wait(60) == 1
    assert "signer ended at its start" in failed.said
    assert "ASSAY_SIGNER__KEY" in failed.said
    assert none_left(mark) == []
    failed.stop()


def test_an_absent_broker_is_waited_for(tmp_path: Path) -> None:
    """Issue 3: a broker that is not there is waited for, and said; Ctrl-C ends the wait."""
    mark, port = str(uuid.uuid4()), free_port()
    waiting = StackProcess(tmp_path, ["--broker", f"127.0.0.1:{port}"], {MARK: mark})
    try:
        for _ in range(300):
            if "waiting for the broker" in waiting.said or waiting.process.poll() is not None:
                break
            with suppress(subprocess.TimeoutExpired):
                waiting.process.wait(0.1)
        assert f"waiting for the broker at 127.0.0.1:{port}" in waiting.said
    finally:
        assert waiting.stop() == 0
    assert none_left(mark) == []


@pytest.mark.parametrize(
    "option",
    [["--broker", "nowhere"], ["--broker", "127.0.0.1:99999"], ["--model", "gpt"],
     ["--model", "ollama:x@ftp://y"], ["--aggregator", "http://y"]],
)  # fmt: skip
def test_options_that_cannot_be_meant(option: list[str]) -> None:
    """Issue 3 item 7: exit code 2 and the option's name."""
    done = command("up", *option)
    assert done.returncode == 2
    assert option[0] in done.stderr


def test_a_person_gets_a_table(
    model: ScriptedModel, aggregator: ScriptedAggregator, tmp_path: Path
) -> None:
    """Issue 3 item 5: without --json `assay up` says what is real, simulated and kept, and when
    it is ready; without --data nothing stays."""
    scratch = tmp_path / "tmp"
    scratch.mkdir()
    running = subprocess.Popen(
        [str(ASSAY), "up", *_arguments("embedded", model, aggregator)],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        cwd=REPO,
        env={**os.environ, "TMPDIR": str(scratch), "COLUMNS": "200"},
    )
    assert running.stdout is not None
    said = ""
    for line in running.stdout:
        said += line
        if line.startswith("ready in"):
            break
    running.send_signal(signal.SIGINT)
    said += running.stdout.read()
    assert running.wait(30) == 0
    for word in ("simulated", "real", "kept", "HTTP API", "evidence", "wallet.score.signed.v1"):
        assert word in said
    assert "nothing was kept" in said
    assert list(scratch.rglob("*")) == []


def _settings(folder: Path, **changed: str) -> dict[str, str]:
    return {
        "ASSAY_KAFKA__BOOTSTRAP": f"127.0.0.1:{free_port()}",
        "ASSAY_SIGNER__LEDGER": f"sqlite:///{folder}/ledger.sqlite",
        "ASSAY_SIGNER__KEY": f"file:{folder}/signer.key",
        **changed,
    }


@pytest.mark.parametrize(
    ("content", "mode", "reason"),
    [
        (None, 0, "No such file"),
        (b"\x07" * 32, 0o640, "mode 0640"),
        (b"\x07" * 31, 0o600, "32"),
        (b"\x00" * 32, 0o600, "key"),
    ],
)
def test_the_signer_refuses_a_key(
    tmp_path: Path, content: bytes | None, mode: int, reason: str
) -> None:
    """Issue 3: missing, readable by others, not 32 bytes, not a key: exit 2 with the reason."""
    key = tmp_path / "signer.key"
    if content is not None:
        key.write_bytes(content)
        key.chmod(mode)
    signer = ServiceProcess("signer", tmp_path, _settings(tmp_path))
    assert signer.exit_code() == 2
    assert "ASSAY_SIGNER__KEY" in signer.text
    assert reason.lower() in signer.text.lower()


def test_an_unknown_setting_is_refused(tmp_path: Path) -> None:
    """Issue 3 item 4: with the name that was probably meant."""
    service = ServiceProcess(
        "validator", tmp_path, {"ASSAY_VALIDATOR__BACH": "3", "ASSAY_KAFKA__LINGER_MS": "soon"}
    )
    assert service.exit_code() == 2
    assert "ASSAY_VALIDATOR__BACH" in service.text
    assert "did you mean ASSAY_VALIDATOR__BATCH" in service.text
    assert "ASSAY_KAFKA__LINGER_MS" in service.text


def test_evidence_beyond_loopback_needs_a_token(tmp_path: Path) -> None:
    """DESIGN §7."""
    open_to_all = {"ASSAY_HTTP__HOST": "0.0.0.0", "ASSAY_EVIDENCE__STORE": "sqlite:///e.sqlite"}
    refused = ServiceProcess("evidence", tmp_path, open_to_all)
    assert refused.exit_code() == 2
    assert "ASSAY_EVIDENCE__TOKEN" in refused.text


def test_a_service_lives_while_its_broker_is_away(tmp_path: Path) -> None:
    """Issue 3 item 4: `/livez` asks nobody, `/readyz` names what is missing; it says that it
    waits."""
    port = free_port()
    service = ServiceProcess("validator", tmp_path, _settings(tmp_path, ASSAY_HTTP__PORT=str(port)))
    try:
        answer = None
        for _ in range(300):
            with suppress(httpx.TransportError):
                answer = httpx.get(f"http://127.0.0.1:{port}/readyz")
                if "not reachable" in answer.text:
                    break
            with suppress(subprocess.TimeoutExpired):
                service.process.wait(0.1)
        assert answer is not None
        assert answer.status_code == 503
        assert "not reachable" in json.dumps(answer.json()["problems"])
        assert httpx.get(f"http://127.0.0.1:{port}/livez").status_code == 200
        assert "waiting_for_broker" in service.text
    finally:
        service.end()
    assert service.process.returncode == 0


async def test_the_broker_away_and_back(
    disposable_broker: Broker, model: ScriptedModel, aggregator: ScriptedAggregator, tmp_path: Path
) -> None:
    """Issue 3, DESIGN §3: on a broker of somebody else's, whose topics are made; services live on
    while it is away, say that they are not ready, refuse or postpone what comes over HTTP, and go
    on by themselves without loss."""
    stack = StackProcess(
        tmp_path, _arguments(disposable_broker.bootstrap, model, aggregator), QUICK
    ).ready()
    try:
        taken = stack.post({"address": new_address()}, headers={"Prefer": "wait=0"})
        disposable_broker.pause()

        async def readiness() -> int:
            return stack.page("validator", "/readyz").status_code

        assert await eventually(readiness, lambda status: status == 503, 40) == 503
        assert stack.page("validator", "/livez").status_code == 200
        refused = stack.post({"address": new_address()}, headers={"Prefer": "wait=0"})
        assert (refused.status_code, refused.json()["code"]) == (503, "unavailable")
        disposable_broker.resume()
        assert await eventually(readiness, lambda status: status == 200, 60) == 200
        assert stack.post({"address": new_address()}).status_code == 200

        async def outcome() -> int:
            return stack.get(taken.json()["url"]).status_code

        assert await eventually(outcome, lambda status: status == 200, 30) == 200
    finally:
        disposable_broker.resume()
        stack.stop()
