"""`assay tail`: one JSON object a line, bounded by count and time, and quiet about strangers'
rubbish (issue item 7)."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
import uuid
from collections.abc import Callable, Iterable

import pytest
from aiokafka import AIOKafkaProducer
from typer.testing import CliRunner, Result

from assay.cli.main import build_app
from tests.unit.sdk.small_oracle import signed

SIGNED = "wallet.score.signed.v1"
ADDRESS = "0x859e1Dfb430A7156fAEF11947F2FC2a3C34B733A"
Cli = Callable[..., Result]


@pytest.fixture
def cli(bootstrap: str) -> Cli:
    def run(*arguments: str, at: str = bootstrap) -> Result:
        result = CliRunner().invoke(build_app(), ["tail", *arguments, "--bootstrap", at])
        if result.exception and not isinstance(result.exception, SystemExit):
            raise result.exception
        return result

    return run


def put(bootstrap: str, values: Iterable[bytes]) -> None:
    async def send() -> None:
        producer = AIOKafkaProducer(bootstrap_servers=bootstrap)
        await producer.start()
        try:
            for value in values:
                await producer.send_and_wait(SIGNED, value, partition=0)
        finally:
            await producer.stop()

    asyncio.run(send())


def score(number: int) -> bytes:
    return signed(str(uuid.uuid4()), ADDRESS, number).to_bytes()


def test_lines_have_the_documented_fields_in_the_callers_spelling(cli: Cli, bootstrap: str) -> None:
    put(bootstrap, [score(1), score(2)])
    result = cli("--from", "earliest", "--count", "2", "--json", "--timeout", "10")
    assert result.exit_code == 0
    lines = [json.loads(row) for row in result.stdout.splitlines()]
    assert [row["score"] for row in lines] == [1, 2]
    assert list(lines[0]) == [
        "request_id", "score", "wallet_address", "timestamp_ms", "signature", "public_key",
        "metadata",
    ]  # fmt: skip
    assert lines[0]["wallet_address"] == ADDRESS
    assert result.stderr == ""


def test_latest_shows_nothing_of_the_past(cli: Cli, bootstrap: str) -> None:
    put(bootstrap, [score(3)])
    result = cli("--timeout", "0.5")
    assert (result.exit_code, result.stdout, result.stderr) == (0, "", "")


def test_fewer_than_count_in_time_is_exit_1_and_said(cli: Cli) -> None:
    result = cli("--count", "3", "--timeout", "0.5")
    assert result.exit_code == 1
    assert result.stderr == "assay tail: 0 of 3 scores within 0.5 s\n"


def test_a_record_that_is_no_score_is_passed_over(
    cli: Cli, bootstrap: str, caplog: pytest.LogCaptureFixture
) -> None:
    """Whoever may write one there cannot blind every reader for ever."""
    put(bootstrap, [b"rubbish", b"", b"\xff\xfe", b'{"score": "high"}', score(700)])
    result = cli("--from", "earliest", "--json", "--timeout", "2")
    assert result.exit_code == 0
    assert json.loads(result.stdout.splitlines()[-1])["score"] == 700
    assert sum("passed over" in record.getMessage() for record in caplog.records) == 4


def test_no_broker_is_one_line_and_exit_1(cli: Cli) -> None:
    result = cli(at="127.0.0.1:1")
    assert (result.exit_code, result.stdout) == (1, "")
    assert result.stderr == "assay tail: no Kafka answers at 127.0.0.1:1\n"


def started(bootstrap: str, *arguments: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "assay", "tail", *arguments, "--bootstrap", bootstrap],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def test_ctrl_c_is_a_good_end(bootstrap: str) -> None:
    put(bootstrap, [score(4)])
    run = started(bootstrap, "--from", "earliest", "--json")
    assert run.stdout is not None
    assert "score" in json.loads(run.stdout.readline())
    os.kill(run.pid, signal.SIGINT)
    _, errors = run.communicate(timeout=20)
    assert run.returncode == 0
    assert "Traceback" not in errors


def test_a_reader_that_leaves_is_a_good_end(bootstrap: str) -> None:
    """`assay tail … | head -1`"""
    put(bootstrap, [score(number) for number in range(50)])
    run = started(bootstrap, "--from", "earliest")
    assert run.stdout is not None
    assert run.stderr is not None
    run.stdout.readline()
    run.stdout.close()
    put(bootstrap, [score(5), score(6)])
    assert run.wait(20) == 0
    assert "Traceback" not in run.stderr.read()
