"""`assay dlq` against a whole stack: listed, shown, replayed, and once signed (SPEC X.2, X.4)."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from aiokafka import ConsumerRecord

from assay.identity import identify
from assay.topics import retry_name
from tests.e2e.conftest import broker as _broker
from tests.e2e.outside import Reply, ScriptedAggregator, ScriptedModel
from tests.e2e.stacks import (
    QUICK,
    SIGNED,
    SUBMITTED,
    SUBMITTED_DLQ,
    StackProcess,
    command,
    eventually,
    headers_of,
    new_address,
)

broker = _broker
DOWN = Reply(status=500)
RETRY = retry_name(SUBMITTED, "ingest", 1)
CODE = "aggregator_unavailable"


class Recovering(ScriptedAggregator):
    """One that may be down for a wallet for some calls, then well."""

    def __init__(self) -> None:
        super().__init__()
        self.down_for: dict[str, int] = {}

    def get(self, path: str) -> Reply:
        reply = super().get(path)
        address = path.rpartition("/")[2].lower()
        left = self.down_for.get(address, 0)
        self.down_for[address] = left - 1
        return DOWN if left > 0 else reply


@pytest.fixture(scope="module")
def aggregator() -> Iterator[Recovering]:
    with Recovering() as running:
        yield running


@pytest.fixture(scope="module")
def stack(
    broker: str, aggregator: Recovering, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[StackProcess]:
    """With one short wait: what the aggregator refuses twice is a dead letter."""
    with ScriptedModel() as model:
        running = StackProcess(
            tmp_path_factory.mktemp(f"dlq-{broker}"),
            ["--broker", broker, "--model", f"ollama:{model.name}@{model.url}",
             "--aggregator", aggregator.template],
            {
                **QUICK,
                "ASSAY_KAFKA__RETRY_DELAYS_S": "[0.1]",
                # It refuses at once; on a machine that is busy it must not seem to be silent.
                "ASSAY_INGEST__AGGREGATOR_DEADLINE_S": "20",
                "ASSAY_INGEST__AGGREGATOR_READ_S": "10",
            },
        )  # fmt: skip
        try:
            yield running.ready()
        finally:
            running.stop()


def dlq(stack: StackProcess, *arguments: str) -> subprocess.CompletedProcess[str]:
    return command("dlq", *arguments, "--bootstrap", stack.bootstrap)


def lines(done: subprocess.CompletedProcess[str]) -> list[dict[str, Any]]:
    assert done.returncode == 0, done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()]


def incarnation(stack: StackProcess) -> str:
    """Of the topics: an embedded broker's offsets start anew, so ids of places name it."""
    environment = Path(f"/proc/{stack.pid('ingest')}/environ").read_bytes().decode()
    pairs = dict(item.partition("=")[::2] for item in environment.split("\0"))
    return pairs.get("ASSAY_KAFKA__LOG", "")


def named(event_id: str) -> list[tuple[str, bytes]]:
    return [
        ("ce_specversion", b"1.0"), ("ce_id", event_id.encode()), ("ce_source", b"/test"),
        ("ce_type", SUBMITTED.encode()), ("content-type", b"application/json"),
    ]  # fmt: skip


async def buried(
    stack: StackProcess, aggregator: Recovering, headers: list[tuple[str, bytes]]
) -> tuple[str, ConsumerRecord]:
    """A wallet whose data the aggregator did not give, and its dead letter; the aggregator is
    well again."""
    address = new_address()
    aggregator.script(address, DOWN)
    value = json.dumps({"address": address}).encode()
    await stack.send(value, key=address.lower().encode(), headers=headers)
    (letter,) = await stack.of_wallet(SUBMITTED_DLQ, address)
    aggregator.script(address, Reply(json.dumps({"wallet": address})))
    return address, letter


async def signed(stack: StackProcess, address: str) -> dict[str, Any]:
    """The wallet's signed record's headers; there is one request and so one distinct event."""
    records = await stack.of_wallet(SIGNED, address)
    assert len({record.value for record in records}) == 1
    return headers_of(records[0])


@pytest.mark.parametrize("anonymous", [False, True])
async def test_an_outage_that_passes_ends_in_a_score(
    stack: StackProcess, aggregator: Recovering, anonymous: bool
) -> None:
    """X.6: the submission is tried again by itself, under the id it had, and is no dead letter."""
    address = new_address()
    aggregator.down_for[address.lower()] = 1
    headers = [] if anonymous else named(new_address())
    value = json.dumps({"address": address}).encode()
    await stack.send(value, key=address.lower().encode(), headers=headers)
    (submitted,) = await stack.of_wallet(SUBMITTED, address)
    place = (submitted.topic, submitted.partition, submitted.offset)
    who = identify(
        *place, submitted.headers, submitted.value, tenant="default", log=incarnation(stack)
    )
    assert (await signed(stack, address))["ce_requestid"] == who.request_id
    assert len(await stack.of_wallet(RETRY, address)) == 1
    assert [r for r in await stack.records(SUBMITTED_DLQ) if r.key == submitted.key] == []
    assert aggregator.asked.count(address) + aggregator.asked.count(address.lower()) == 2


@pytest.mark.parametrize("anonymous", [False, True])
async def test_a_dead_letter_replayed_twice_is_signed_once(
    stack: StackProcess, aggregator: Recovering, anonymous: bool
) -> None:
    """X.2, X.4: the request that had ended ends again in its score, under the id it had, also
    where its place was its id; whatever comes after changes nothing."""
    headers = [] if anonymous else named(new_address())
    address, letter = await buried(stack, aggregator, headers)
    request = headers_of(letter)["assay.request.id"]
    chosen = [SUBMITTED_DLQ, "--request-id", request]

    async def status() -> Any:
        return stack.get(f"/scores/{request}").json()

    assert (await eventually(status, lambda s: "outcome" in s))["outcome"] == "dead_lettered"
    tried = dlq(stack, "replay", *chosen, "--dry-run", "--json")
    assert [(line["request_id"], line["sent"]) for line in lines(tried)] == [(request, False)]
    assert (await status())["outcome"] == "dead_lettered"
    sent = dlq(stack, "replay", *chosen, "--yes", "--json")
    assert [(line["request_id"], line["code"], line["sent"]) for line in lines(sent)] == [
        (request, CODE, True)
    ]
    assert (await signed(stack, address))["ce_requestid"] == request
    assert (await eventually(status, lambda s: "score" in s))["request_id"] == request

    remembered = dlq(stack, "replay", *chosen, "--yes")
    assert (remembered.stdout, remembered.returncode) == ("", 0)
    assert len(lines(dlq(stack, "replay", *chosen, "--yes", "--again", "--json"))) == 1
    # A request behind it has gone all the way, so the repeat would have, too.
    other, _ = await buried(stack, aggregator, named(new_address()))
    assert dlq(stack, "replay", SUBMITTED_DLQ, "--yes").returncode == 0
    await signed(stack, other)
    assert (await signed(stack, address))["ce_requestid"] == request


async def test_a_replay_is_the_record_as_it_was(
    stack: StackProcess, aggregator: Recovering
) -> None:
    """X.4: bytes, headers, key and partition; nothing of what the runtime added."""
    address, _ = await buried(stack, aggregator, [*named(new_address()), ("odd", b"\xff\xfe")])
    assert dlq(stack, "replay", SUBMITTED_DLQ, "--code", CODE, "--yes").returncode == 0
    first, again = await stack.of_wallet(SUBMITTED, address, at_least=2)
    assert (again.value, again.key, again.headers) == (first.value, first.key, first.headers)
    assert again.partition == first.partition


async def test_what_lies_there_is_counted_and_shown(
    stack: StackProcess, aggregator: Recovering
) -> None:
    """X.4: by code, with reason, field and place; the value on demand only."""
    await stack.send(b'{"address": "nobody"}', key=b"k", headers=named(new_address()))
    address, letter = await buried(stack, aggregator, named(new_address()))

    async def groups() -> dict[str, Any]:
        found = lines(dlq(stack, "list", "--service", "ingest", "--json"))
        return {group["code"]: group for group in found}

    found = await eventually(groups, lambda g: len(g) >= 2)
    assert set(found) >= {CODE}
    assert all(g["topic"] == SUBMITTED_DLQ and g["count"] >= 1 for g in found.values())
    assert found[CODE]["oldest"] <= found[CODE]["newest"]
    assert found[CODE]["bytes"] > 0
    assert lines(dlq(stack, "list", "--since", "0s", "--json")) == []
    assert SUBMITTED_DLQ in dlq(stack, "list").stdout

    place = [SUBMITTED_DLQ, str(letter.partition), str(letter.offset)]
    shown = dlq(stack, "show", *place)
    assert shown.returncode == 0
    for fact in (
        CODE,
        "answers 500",
        "/evm_data",
        "tries: 2",
        headers_of(letter)["assay.request.id"],
    ):
        assert fact in shown.stdout, shown.stdout
    assert '{"address"' not in shown.stdout
    (full,) = lines(dlq(stack, "show", *place, "--full", "--json"))
    assert json.loads(full["value"]) == {"address": address}
    assert full["origin"]["topic"] == SUBMITTED
    request = headers_of(letter)["assay.request.id"]
    (by_request,) = lines(dlq(stack, "show", "--request-id", request, "--full", "--json"))
    assert by_request == full


def test_what_is_not_there_is_said(stack: StackProcess) -> None:
    """A question without an answer is exit code 1."""
    for arguments in (["show", SUBMITTED_DLQ, "0", "999999"], ["show", "--request-id", "nobody"]):
        done = dlq(stack, *arguments)
        assert (done.returncode, done.stdout) == (1, "")
        assert done.stderr == "assay dlq show: no such dead letter\n"


async def test_a_replay_wants_to_be_confirmed(stack: StackProcess, aggregator: Recovering) -> None:
    """Nobody at a terminal and no --yes: nothing is sent."""
    address, letter = await buried(stack, aggregator, named(new_address()))
    place = ["--partition", str(letter.partition), "--offset", str(letter.offset)]
    done = dlq(stack, "replay", SUBMITTED_DLQ, *place)
    assert done.returncode == 2
    assert "--yes" in done.stderr
    assert len(await stack.of_wallet(SUBMITTED, address)) == 1
    assert len(lines(dlq(stack, "replay", SUBMITTED_DLQ, *place, "--yes", "--json"))) == 1
    assert len(await stack.of_wallet(SUBMITTED, address, at_least=2)) == 2
