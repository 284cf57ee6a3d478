"""`assay publish` on a real protocol: what it reads, prints, refuses, and how it ends (issue item
7, "Bad input")."""

from __future__ import annotations

import asyncio
import json
import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import pytest
from aiokafka import AIOKafkaProducer
from typer.testing import CliRunner, Result

from assay.cli.main import build_app
from assay.cli.planned import Planned
from assay.envelope import Headers, emit
from assay.events.meta import InternalEvent
from assay.ids import request_id
from assay_runtime.dead_letters import dead_letter
from assay_runtime.failures import DeadLetter
from assay_runtime.records import Record
from deploy.dev.broker import EmbeddedBroker
from tests.unit.sdk.small_oracle import SmallOracle, rejected, signed

ADDRESS = "0x859e1dfb430a7156faef11947f2fc2a3c34b733a"
NOBODY = "127.0.0.1:1"
SUBMITTED, REQUESTED = "wallet.event.submitted.v1", "llm.generation.requested.v1"
Cli = Callable[..., Result]


class Sent(NamedTuple):
    """A record of the test's own."""

    topic: str
    value: bytes
    headers: Headers


@pytest.fixture
def cli(bootstrap: str) -> Cli:
    """The command in this process; a traceback fails the test."""

    def run(*arguments: str | Path, at: str = bootstrap, stdin: bytes = b"") -> Result:
        words = ["publish", *map(str, arguments), "--bootstrap", at]
        result = CliRunner().invoke(build_app(), words, input=stdin)
        if result.exception and not isinstance(result.exception, SystemExit):
            raise result.exception
        return result

    return run


def started(bootstrap: str, *arguments: str | Path) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "assay", "publish", *map(str, arguments), "--bootstrap", bootstrap],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def record(number: int) -> dict[str, str]:
    return {"address": f"0x{number:039x}a"}


@pytest.fixture
def thousand(tmp_path: Path) -> Path:
    file = tmp_path / "thousand.jsonl"
    file.write_text("".join(json.dumps(record(n)) + "\n" for n in range(1000)))
    return file


@pytest.fixture
def one(tmp_path: Path) -> Path:
    file = tmp_path / "one.json"
    file.write_text(json.dumps({"address": ADDRESS}, indent=2))
    return file


def test_a_pretty_printed_record_gets_one_request_id(cli: Cli, one: Path) -> None:
    result = cli(one)
    assert result.exit_code == 0
    assert len(result.stdout.split()) == 1
    assert result.stderr == ""


def test_json_lines_name_request_and_address(cli: Cli, one: Path) -> None:
    result = cli(one, "--json")
    assert json.loads(result.stdout).keys() == {"request_id", "address"}
    assert json.loads(result.stdout)["address"] == ADDRESS


def test_a_thousand_lines_give_a_thousand_requests(cli: Cli, thousand: Path) -> None:
    result = cli(thousand)
    assert result.exit_code == 0
    assert len(set(result.stdout.split())) == 1000


def test_an_array_is_its_items_and_bad_items_stop_nothing(cli: Cli) -> None:
    items = [{"address": ADDRESS}, {"no": "wallet"}, 5, {"address": ADDRESS}]
    result = cli("-", "--json", stdin=json.dumps(items).encode())
    assert result.exit_code == 1
    assert len(result.stdout.splitlines()) == 2
    assert "-[1]: the record does not say whose wallet it is" in result.stderr
    assert "-[2]: a wallet record is a JSON object" in result.stderr


@pytest.mark.parametrize(
    ("bad", "reason"),
    [
        (b'{"address":', ":2: no JSON"),
        (b'{"a": 1, "a": 2}', ":2: the key 'a' stands twice"),
        (b'"\xff"', ":2: no UTF-8 text: byte 0xff"),
        (b'{"a":' + b"[" * 100_000 + b"]" * 100_000 + b"}", ":2: nested too deeply"),
        (b'{"a": ' + b"9" * 5000 + b"}", ":2: no JSON"),
    ],
    ids=["cut", "duplicate", "utf8", "deep", "long number"],
)
def test_a_bad_line_is_named_and_its_neighbours_go_out(
    cli: Cli, tmp_path: Path, bad: bytes, reason: str
) -> None:
    good = json.dumps({"address": ADDRESS}).encode()
    (tmp_path / "x.jsonl").write_bytes(good + b"\n" + bad + b"\n\n" + good + b"\n")
    result = cli(tmp_path / "x.jsonl")
    assert result.exit_code == 1
    assert len(result.stdout.split()) == 2
    assert reason in result.stderr


def test_a_bad_first_line_is_one_bad_line(cli: Cli) -> None:
    good = json.dumps({"address": ADDRESS}).encode()
    result = cli("-", stdin=b'{"address":\n' + good + b"\n" + good)
    assert len(result.stdout.split()) == 2
    assert "-:1: no JSON" in result.stderr


def test_a_broken_pretty_printed_record_is_one_refusal(cli: Cli) -> None:
    broken = b'{\n  "address": "x",\n  "questionnaire": [\n    {"question": "q"}\n  ],\n}\n'
    result = cli("-", stdin=broken)
    assert result.exit_code == 1
    assert result.stdout == ""
    assert len(result.stderr.splitlines()) == 1


def test_byte_order_marks_and_line_separators_in_text_are_no_line_ends(cli: Cli) -> None:
    record = {"address": ADDRESS, "questionnaire": [{"question": "a\u2028b\x85c"}]}
    text = json.dumps(record, ensure_ascii=False) + "\n"
    result = cli("-", stdin=b"\xef\xbb\xbf" + (text * 2).encode())
    assert (result.exit_code, len(result.stdout.split())) == (0, 2)


@pytest.mark.parametrize(
    ("name", "content", "reason"),
    [
        ("empty.json", b"", "there is no record in it"),
        ("blank.json", b"\n \n", "there is no record in it"),
        ("binary.json", b"\x7fELF\xd0\x00", "no UTF-8 text"),
        ("missing.json", None, "No such file or directory"),
    ],
)
def test_a_bad_file_is_named_and_the_next_one_goes_out(
    cli: Cli, tmp_path: Path, one: Path, name: str, content: bytes | None, reason: str
) -> None:
    if content is not None:
        (tmp_path / name).write_bytes(content)
    result = cli(tmp_path / name, one)
    assert result.exit_code == 1
    assert len(result.stdout.split()) == 1
    assert result.stderr.splitlines() == [f"assay publish: {tmp_path / name}: {reason}"] or (
        reason in result.stderr
    )


def test_a_folder_is_refused(cli: Cli, tmp_path: Path) -> None:
    assert "Is a directory" in cli(tmp_path).stderr


def test_a_record_beyond_the_topics_size_is_refused_alone(
    cli: Cli, tmp_path: Path, one: Path
) -> None:
    """Larger than 4 MiB: said before it is sent, since a refusal spoils the producer."""
    big = tmp_path / "big.json"
    big.write_text(json.dumps({"address": ADDRESS, "evm_data": {"x": "y" * 4_194_304}}))
    result = cli(big, one)
    assert result.exit_code == 1
    assert len(result.stdout.split()) == 1
    assert "wallet.event.submitted.v1 takes 4,194,304" in result.stderr


@pytest.mark.parametrize("wait", [[], ["--wait"]])
def test_no_broker_is_one_line_and_exit_1(one: Path, wait: list[str]) -> None:
    """In a process of its own: what a client left open would complain about comes at its end."""
    run = started(NOBODY, one, *wait)
    out, errors = run.communicate(timeout=30)
    assert (run.returncode, out) == (1, "")
    assert errors == f"assay publish: no Kafka answers at {NOBODY}\n"


@pytest.mark.parametrize("address", ["nonsense", "host:port", "host:0", "host:²", ":9092", "a:1,b"])
def test_an_address_that_is_none_is_wrong_usage(cli: Cli, one: Path, address: str) -> None:
    result = cli(one, at=address)
    assert result.exit_code == 2
    assert "is no host:port" in " ".join(result.stderr.split())


def test_a_broker_that_goes_away_ends_the_run_with_the_count(
    thousand: Path, monkeypatch: pytest.MonkeyPatch, cli: Cli
) -> None:
    """Out of a task group too: one line, what was published, exit 1, no traceback."""
    from assay import client
    from assay.errors import BrokerError

    publish = client.WalletPublisher.publish
    done = 0

    async def failing(self: client.WalletPublisher, *args: object, **named: object) -> str:
        nonlocal done
        done += 1
        if done > 100:
            raise BrokerError("Kafka at x confirmed nothing for 60 s")
        return await publish(self, *args, **named)  # type: ignore[arg-type]

    monkeypatch.setattr(client.WalletPublisher, "publish", failing)
    result = cli(thousand)
    assert result.exit_code == 1
    lines = result.stderr.splitlines()
    assert lines[-1] == "assay publish: Kafka at x confirmed nothing for 60 s"
    assert "Traceback" not in result.stderr
    assert lines[0].startswith("assay publish: ended early: ")


def test_wait_prints_each_score_once(cli: Cli, thousand: Path, oracle: SmallOracle) -> None:
    """More records than may be in flight, so that room is given back by outcomes."""
    result = cli(thousand, "--wait", "--json", "--timeout", "10")
    assert result.exit_code == 0, result.stderr
    scores = [json.loads(row) for row in result.stdout.splitlines()]
    assert len({score["request_id"] for score in scores}) == 1000
    assert set(scores[0]) == {
        "request_id", "score", "wallet_address", "timestamp_ms", "signature", "public_key",
        "metadata",
    }  # fmt: skip
    assert len(scores[0]["signature"]) == 128
    assert len(scores[0]["public_key"]) == 66
    assert result.stderr == ""


def test_wait_shows_how_the_others_ended(cli: Cli, oracle: SmallOracle) -> None:
    ends = [{"address": ADDRESS[:-2] + end} for end in ("aa", "e1", "d1")]
    result = cli("-", "--wait", "--json", "--timeout", "10", stdin=json.dumps(ends).encode())
    assert result.exit_code == 1
    shown = {json.loads(row).get("status", "signed"): json.loads(row)
             for row in result.stdout.splitlines()}  # fmt: skip
    assert shown.keys() == {"signed", "rejected", "dead_lettered"}
    assert shown["rejected"]["reason"] == "does not follow"
    assert shown["dead_lettered"]["code"] == "aggregator_timeout"


def test_wait_gives_up_and_names_each_open_request(cli: Cli, oracle: SmallOracle) -> None:
    records = [{"address": ADDRESS[:-2] + end} for end in ("aa", "00", "ab")]
    before = time.monotonic()
    result = cli("-", "--wait", "--timeout", "1", stdin=json.dumps(records).encode())
    assert result.exit_code == 1
    assert len(result.stdout.splitlines()) == 2
    assert len(result.stderr.splitlines()) == 1
    assert "no outcome within 1 s" in result.stderr
    assert time.monotonic() - before >= 1


def test_wait_takes_no_clients_outcome_for_its_own(cli: Cli, oracle: SmallOracle) -> None:
    """ARCHITECTURE, decision 20: what a client asked on the bus under this request's id."""
    ends = [{"address": ADDRESS[:-2] + end} for end in ("fe", "aa")]
    result = cli("-", "--wait", "--timeout", "1", stdin=json.dumps(ends).encode())
    assert result.exit_code == 1
    assert len(result.stdout.splitlines()) == 1
    assert "does not follow" not in result.stdout
    assert "no outcome within 1 s" in result.stderr


def test_wait_gives_up_on_a_silent_oracle_with_more_records_than_may_be_in_flight(
    cli: Cli, thousand: Path
) -> None:
    """It used to wait for ever, for room that only outcomes give back."""
    result = cli(thousand, "--wait", "--timeout", "0.5")
    assert result.exit_code == 1
    assert "the records after these were not published" in result.stderr.splitlines()[-1]


def test_idempotent_names_the_same_request_again(cli: Cli, one: Path, oracle: SmallOracle) -> None:
    first = cli(one, "--idempotent").stdout
    assert cli(one, "--idempotent").stdout == first
    assert cli(one).stdout != first
    waited = cli(one, "--idempotent", "--wait", "--json", "--timeout", "10")
    assert json.loads(waited.stdout)["request_id"] == first.strip()


def test_idempotent_repeats_within_a_run_are_one_request(
    cli: Cli, tmp_path: Path, oracle: SmallOracle
) -> None:
    """More repeats than may be in flight: they used to take room that nothing gave back."""
    file = tmp_path / "same.jsonl"
    file.write_text((json.dumps({"address": ADDRESS}) + "\n") * 200)
    result = cli(file, "--idempotent", "--wait", "--json", "--timeout", "5")
    assert result.exit_code == 0, result.stderr
    assert len(result.stdout.splitlines()) == 1


def request_of(one: Path) -> str:
    """The request id of its one record, published idempotently."""
    [(_, event_id, _)] = Planned([one], idempotent=True, refuse=print)
    return request_id("default", "/assay/cli", event_id)


def letter(request: str, topic: str, code: str) -> Sent:
    """As the runtime keeps it of a record that bears the request's id."""
    service = {SUBMITTED: "ingest", REQUESTED: "scorer"}[topic]
    record = Record(topic, 0, 0, 0, None, b"{junk", (("ce_requestid", request.encode()),))
    known = None if topic == REQUESTED else request
    made = dead_letter(record, DeadLetter("said \x1b[2J", code=code, request_id=known), service)
    return Sent(made.topic, made.value or b"", made.headers)


def end(event: InternalEvent) -> Sent:
    made = emit(event, topic=event.type, source="/oracle", parent_id="x")
    return Sent(made.topic, made.value, made.headers)


def write(bootstrap: str, *records: Sent) -> None:
    async def send() -> None:
        async with AIOKafkaProducer(bootstrap_servers=bootstrap) as producer:
            for topic, value, headers in records:
                await producer.send_and_wait(topic, value=value, headers=list(headers))

    asyncio.run(send())


def test_an_old_dead_letter_is_not_what_became_of_a_request(
    cli: Cli, bootstrap: str, tmp_path: Path
) -> None:
    """X.2: it was mended, replayed and signed before the record is published once more, to which
    the oracle says nothing. Nor does a rejection that a signed score stands beside count."""
    one = tmp_path / "mended.json"
    one.write_text(json.dumps({"address": ADDRESS[:-2] + "1a"}))
    request = request_of(one)
    records = [letter(request, SUBMITTED, "old"), end(rejected(request, ADDRESS))]
    write(bootstrap, *records, end(signed(request, ADDRESS)))
    result = cli(one, "--idempotent", "--wait", "--json", "--timeout", "5")
    assert result.exit_code == 0, result.stderr
    assert json.loads(result.stdout)["score"] == 500


def test_a_dead_letter_that_nobody_mended_is_tried_again_and_told_at_the_end(
    cli: Cli, bootstrap: str, tmp_path: Path
) -> None:
    """The new try's outcome counts; where none comes, the old reason is better than none."""
    one = tmp_path / "unmended.json"
    one.write_text(json.dumps({"address": ADDRESS[:-2] + "1b"}))
    write(bootstrap, letter(request_of(one), SUBMITTED, "old"))
    result = cli(one, "--idempotent", "--wait", "--timeout", "1")
    assert (result.exit_code, result.stdout) == (1, "")
    assert "no outcome within 1 s; a dead letter: old: said \\x1b[2J" in result.stderr
    with SmallOracle(bootstrap):
        result = cli(one, "--idempotent", "--wait", "--timeout", "10")
    assert result.exit_code == 0, result.stderr


def test_requests_that_all_ended_before_are_all_told(
    cli: Cli, tmp_path: Path, oracle: SmallOracle
) -> None:
    """More than may be in flight, from a pipe: their ends are read before any is published, and
    the oracle, like the real one, says nothing when it is asked again."""
    rows = "".join(json.dumps({"address": f"0x{n:038x}7a"}) + "\n" for n in range(100)).encode()
    first = cli("-", "--idempotent", "--wait", "--json", "--timeout", "10", stdin=rows)
    assert first.exit_code == 0, first.stderr
    oracle.silent = True
    again = cli("-", "--idempotent", "--wait", "--json", "--timeout", "5", stdin=rows)
    assert again.exit_code == 0, again.stderr
    assert sorted(again.stdout.splitlines()) == sorted(first.stdout.splitlines())


def test_a_strangers_dead_letter_ends_no_wait(bootstrap: str, tmp_path: Path) -> None:
    """Decision 20: on the topic that any client writes it bears whatever id that client chose. It
    is said, once and harmlessly, and the score that comes is what counts."""
    one = tmp_path / "victim.json"
    one.write_text(json.dumps({"address": ADDRESS[:-2] + "1c"}))
    request = request_of(one)
    run = started(bootstrap, one, "--idempotent", "--wait", "--json", "--timeout", "20")
    assert run.stderr is not None
    junk = letter(request, REQUESTED, "envelope")
    for _ in range(200):  # until it waits
        write(bootstrap, junk, junk)
        if select.select([run.stderr], [], [], 0.05)[0]:
            break
    assert run.poll() is None
    write(bootstrap, end(signed(request, ADDRESS)))
    out, errors = run.communicate(timeout=20)
    assert run.returncode == 0, errors
    assert json.loads(out)["request_id"] == request
    assert errors == (
        f"assay publish: {request}: a dead letter bears this id, perhaps a stranger's: "
        "envelope: said \\x1b[2J\n"
    )


def test_a_reader_that_leaves_ends_the_run_quietly(bootstrap: str, thousand: Path) -> None:
    """`assay publish … | head -1`"""
    run = started(bootstrap, thousand)
    assert run.stdout is not None
    assert run.stderr is not None
    run.stdout.readline()
    run.stdout.close()
    errors = run.stderr.read()
    assert run.wait(20) == 1
    assert "Traceback" not in errors
    assert "Broken" not in errors
    assert errors.startswith("assay publish: ended early: ")


def test_ctrl_c_ends_with_130_and_says_what_is_open(
    bootstrap: str, one: Path, oracle: SmallOracle
) -> None:
    one.write_text(json.dumps({"address": ADDRESS[:-2] + "00"}))
    run = started(bootstrap, one, "--wait")
    deadline = time.monotonic() + 20
    while not oracle.seen and time.monotonic() < deadline:
        time.sleep(0.02)
    time.sleep(0.1)
    os.kill(run.pid, signal.SIGINT)
    out, errors = run.communicate(timeout=20)
    assert run.returncode == 130
    assert out == ""
    assert errors == "assay publish: ended early: 1 published, 1 without an outcome\n"


def test_the_publisher_says_when_kafka_stops_confirming(embedded: EmbeddedBroker) -> None:
    """An idempotent producer would retry for ever, and closing it too."""
    import asyncio

    from assay.client import WalletPublisher
    from assay.errors import BrokerError

    async def lose_the_broker() -> None:
        async with WalletPublisher(embedded.bootstrap, deadline_s=0.5) as publisher:
            await publisher.publish({"address": ADDRESS})
            embedded.pause()
            with pytest.raises(BrokerError, match=r"confirmed nothing for 0\.5 s"):
                await publisher.publish({"address": ADDRESS})

    try:
        asyncio.run(asyncio.wait_for(lose_the_broker(), 20))
    finally:
        embedded.resume()
