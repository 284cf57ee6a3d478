"""Who may write `llm.generation.requested.v1` gets answers, and no more: no signature, and no end
of another's request (ARCHITECTURE, decision 20)."""

from __future__ import annotations

import json
import os
import secrets
import signal
import threading
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from aiokafka.admin import AIOKafkaAdminClient

from tests.e2e.batches import Batch
from tests.e2e.outside import Reply, ScriptedModel, score_answer, seed_of
from tests.e2e.stacks import (
    QUICK,
    REJECTED,
    REQUESTED,
    SIGNED,
    VALIDATED,
    StackProcess,
    command,
    eventually,
    new_address,
)

GENERATED = "llm.generation.accepted.v1"
DEAD = "llm.generation.requested.v1.scorer.dlq"
API = "/api/v1/intelligence"
# What the richest and most faithful of borrowers would have.
INVENTED = {
    "walletAge": 4000, "totalTransactions": 90_000, "avgTxsPerMonth": 700.0,
    "uniqueCounterparties": 5000, "protocolsUsed": 40, "protocolNames": ["aave"],
    "borrowCount": 900, "repayCount": 900, "liquidateCount": 0, "numTokens": 80,
    "diversificationScore": 100, "concentrationRisk": 0.0, "supplyCount": 500,
    "withdrawCount": 1, "poapCount": 90, "nftCount": 90, "ethBalance": 90_000.5,
}  # fmt: skip


class Model(ScriptedModel):
    """Holds its answer to some wallets, and to notes that say so, until it is let go."""

    def __init__(self) -> None:
        super().__init__()
        self.held: set[int] = set()
        self.free = threading.Event()

    def post(self, path: str, body: bytes) -> Reply:
        if path != "/api/chat":
            return super().post(path, body)
        asked = json.loads(body)
        prompt = "\n".join(message["content"] for message in asked["messages"])
        if asked["options"]["seed"] in self.held or "HELD" in prompt:
            self.free.wait(60)
        if asked.get("format") != "json":
            return super().post(path, body)
        answer = {} if "WRONG" in prompt else {"title": "HELD" if "HELD" in prompt else "Other"}
        return Reply(json.dumps({
            "model": self.name, "created_at": "2026-01-01T00:00:00Z", "done": True,
            "done_reason": "stop", "prompt_eval_count": 1, "eval_count": 1,
            "message": {"role": "assistant", "content": json.dumps(answer)},
        }))  # fmt: skip


@pytest.fixture
def model() -> Iterator[Model]:
    with Model() as running:
        try:
            yield running
        finally:
            running.free.set()


@pytest.fixture
def stack(broker: str, model: Model, tmp_path: Path) -> Iterator[StackProcess]:
    running = StackProcess(
        tmp_path,
        ["--broker", broker, "--model", f"ollama:{model.name}@{model.url}"],
        {**QUICK, "ASSAY_SCORER__DEADLINE_S": "60"},
    )
    try:
        yield running.ready()
    finally:
        model.free.set()
        running.stop()


def score_input(address: str) -> dict[str, Any]:
    return {
        "address": address, "features": INVENTED, "questionnaire": "No questionnaire data.",
        "has_questionnaire": False, "evm_source": "inline", "evm_sha256": "cd" * 32,
    }  # fmt: skip


async def forge(
    stack: StackProcess,
    request: str,
    process: str,
    given: Any,
    wallet: str | None = None,
    **more: str,
) -> None:
    """A request as any client may publish it, under a request id that is another's."""
    meta = {
        "request_id": request, "tenant_id": "acme", "process_id": process, "unsealed": False,
        "wallet": wallet.lower() if wallet else None,
    }  # fmt: skip
    headers = {
        "ce_specversion": "1.0", "ce_id": str(uuid.uuid4()), "ce_source": "/forger",
        "ce_type": REQUESTED, "ce_requestid": request, "ce_subject": (wallet or "0x").lower(),
        **more,
    }  # fmt: skip
    await stack.send(
        json.dumps({"meta": meta, "input": given}).encode(),
        key=secrets.token_bytes(8),  # records of one key wait for each other
        headers=[(name, text.encode()) for name, text in headers.items()],
        topic=REQUESTED,
    )


async def ended(stack: StackProcess, topic: str, *requests: str) -> list[dict[str, Any]]:
    """The terminal events of the requests on a topic, at least one of each."""

    async def look() -> list[dict[str, Any]]:
        found = [json.loads(record.value) for record in await stack.records(topic)]
        return [event for event in found if event["meta"]["request_id"] in requests
                and event.get("terminal", True) and event.get("final", True)]  # fmt: skip

    return await eventually(
        look, lambda found: {event["meta"]["request_id"] for event in found} == set(requests)
    )


def asked(stack: StackProcess) -> httpx.Client:
    """A caller of the Intelligence API."""
    made = command("keys", "create", "--tenant", "acme", "--name", "test", "--data", stack.data,
                   "--json", "--rate", "6000", "--burst", "500")  # fmt: skip
    assert made.returncode == 0, made.stderr
    key = json.loads(made.stdout)["key"]
    return httpx.Client(base_url=stack.addresses["api"], timeout=60,
                        headers={"Authorization": f"Bearer {key}"})  # fmt: skip


async def test_a_forged_request_is_answered_and_neither_signed_nor_anothers_end(
    stack: StackProcess, model: Model
) -> None:
    """Decision 20: by acceptance, rejection and dead letter, while the wallet event and the API
    request of the same ids wait; both then end as they would have, a retry on the way."""
    wallet, forger = new_address(), new_address()
    model.held.add(seed_of(wallet))
    model.script(wallet, "nonsense", score_answer())
    api = asked(stack)
    at_once = {"Prefer": "wait=0"}
    score = stack.post({"address": wallet}, headers=at_once).json()["request_id"]
    note = api.post(f"{API}/open_notes/generate", json={"input": {"text": "HELD"}},
                    headers=at_once).json()["meta"]["request_id"]  # fmt: skip

    await forge(stack, score, "wallet_score", score_input(forger), forger)
    await forge(stack, note, "open_notes", {"text": "another's"})
    accepted = await ended(stack, GENERATED, score, note)
    for request in (score, note):
        await forge(stack, request, "open_notes", {"text": "WRONG"}, forger)
        await forge(stack, request, "open_notes", {"text": 7}, forger)
        await forge(stack, request, "open_notes", "no object", forger)
    rejected = await ended(stack, REJECTED, score, note)
    assert all(event["meta"]["unsealed"] for event in accepted + rejected)

    async def letters() -> int:
        return len(await stack.records(DEAD))

    await forge(stack, score, "wallet_score", score_input(forger), forger, assay_seal="ab" * 32)
    assert await eventually(letters, lambda count: count >= 5) == 5
    # Behind the forged ones, so that they have been projected by then if ever.
    assert api.post(f"{API}/open_notes/generate", json={"text": "x"}).status_code == 200
    assert api.get(f"{API}/requests/{note}").status_code == 202
    assert stack.get(f"/scores/{score}").status_code == 202
    assert await stack.records(VALIDATED) == await stack.records(SIGNED) == []

    model.free.set()
    [signed] = await stack.of_wallet(SIGNED, wallet)
    event = json.loads(signed.value)
    assert (event["meta"]["request_id"], event["meta"]["unsealed"]) == (score, False)
    assert event["metadata"]["attempts"] == 2

    async def answer() -> httpx.Response:
        return api.get(f"{API}/requests/{note}")

    done = await eventually(answer, lambda response: response.status_code == 200)
    assert done.json()["data"] == {"title": "HELD"}
    assert stack.get(f"/scores/{score}").json()["wallet_address"] == wallet
    await forge(stack, str(uuid.uuid4()), "wallet_score", score_input(wallet), wallet)
    of_wallet = await stack.of_wallet(GENERATED, wallet)
    assert [json.loads(record.value)["meta"]["unsealed"] for record in of_wallet] == [True]
    assert len(await stack.records(VALIDATED)) == len(await stack.records(SIGNED)) == 1

    said = [line["event"] for line in stack.log("scorer")]
    assert "request_unsealed" in said
    assert "seals_off" not in said
    assert 'assay_unsealed_requests_total{seal="wrong"}' in stack.page("scorer", "/metrics").text


async def test_a_batch_of_scores_ends_accepted_and_unsigned(
    stack: StackProcess, tmp_path: Path
) -> None:
    """Decision 20, S4.5: the units have their scores in the files, and nobody has a signature."""
    addresses = [new_address() for _ in range(5)]
    batch = Batch(stack, tmp_path, "wallet_score")
    batch.items(*({"unit_id": a, **score_input(a)} for a in addresses))
    code, summary = batch.run()
    assert (code, summary["open"]) == (0, 0), summary
    [file] = batch.out.glob("*_validated.jsonl")
    lines = batch.read(file.stem)
    assert {line["unit_id"] for line in lines} == set(addresses)
    outcomes = [json.loads(record.value) for record in await stack.records(GENERATED)]
    assert len(outcomes) == 5
    assert all(event["meta"]["unsealed"] and event["final"] for event in outcomes)
    assert {event["output"]["score"] for event in outcomes} == {json.loads(score_answer())["score"]}
    assert await stack.records(VALIDATED) == await stack.records(SIGNED) == []


async def committed(stack: StackProcess, group: str) -> int:
    """Records that the group has finished."""
    admin = AIOKafkaAdminClient(bootstrap_servers=stack.bootstrap)
    await admin.start()
    try:
        offsets = await admin.list_consumer_group_offsets(group)
        return sum(max(0, at.offset) for at in offsets.values())
    finally:
        await admin.close()


# The embedded broker's records end with it, so nothing would be left to sign.
@pytest.mark.parametrize("broker", [pytest.param("kafka", marks=pytest.mark.kafka)], indirect=True)
async def test_what_was_asked_before_a_restart_is_still_signed(
    broker: str, model: Model, tmp_path: Path
) -> None:
    """Decision 20: the key is kept beside the data, its owner's alone, so the second stack knows
    what the first one sealed."""
    wallet = new_address()
    arguments = ["--broker", broker, "--model", f"ollama:{model.name}@{model.url}"]
    model.held.add(seed_of(wallet))
    patient = {**QUICK, "ASSAY_SCORER__DEADLINE_S": "60"}
    first = StackProcess(tmp_path, arguments, patient)
    try:
        first.ready().post({"address": wallet}, headers={"Prefer": "wait=0"})
        before = await first.of_wallet(REQUESTED, wallet)
        # Features must not ask again, under the key that it has then.
        assert await eventually(lambda: committed(first, "assay.features"), bool)
        scorer = first.pid("scorer")
    finally:
        first.process.kill()
        first.stop()
    os.kill(scorer, signal.SIGKILL)  # it would wait for the answer it is held for
    assert (first.data / "seal.key").stat().st_mode & 0o777 == 0o600
    model.free.set()
    second = StackProcess(tmp_path, arguments, patient)
    try:
        [signed] = await second.ready().of_wallet(SIGNED, wallet)
        assert len(await second.of_wallet(REQUESTED, wallet)) == len(before)
        assert json.loads(signed.value)["meta"]["unsealed"] is False
    finally:
        second.stop()
