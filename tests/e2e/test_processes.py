"""Processes that the project does not ship, dropped into a folder: over Kafka and in batches; and
shadows beside a shipped one (issue 5 items 1, 5, 7; SPEC S4.12, S5.7, S4.5)."""

from __future__ import annotations

import json
import os
import shutil
import signal
import uuid
from collections import Counter, defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from assay.client import read_outcome
from tests.e2e.batches import Batch, processes_in, until
from tests.e2e.stacks import (
    QUICK,
    REJECTED,
    REPO,
    REQUESTED,
    SIGNED,
    VALIDATED,
    StackProcess,
    command,
    eventually,
    flat,
    headers_of,
    new_address,
)

ACCEPTED = "llm.generation.accepted.v1"
SIGNER_DLQ = "wallet.score.validated.v1.signer.dlq"
# Where shadows end.
BESIDE = (ACCEPTED, REJECTED, f"{REQUESTED}.scorer.dlq")
SAMPLE = next(iter(sorted((REPO / "deploy" / "dev" / "samples").glob("*.json"))))
UNITS = 200

# Two questions with an expression step between them, as seed 4 writes such a pipeline.
TRIP = {
    "config.yaml": """
pipeline:
  steps:
    - name: plan
      description: Where to go
    - name: budget
      scope: expression
      init: {spent: "0"}
      expressions:
        spent: "spent + 1"
        daily: "round(money / days, 2)"
        surprise: "random.choice(stops)"
      loop_until: "spent >= days"
    - name: letter
      description: A letter about it
prompts:
  template_dir: templates
  templates: {plan: plan.jinja2, letter: letter.jinja2}
  global_context: {agency: Far and Away}
schemas:
  schema_dir: schemas
  files: {plan: plan.json, letter: letter.json}
validation:
  plan:
    required: [stops, days]
    ranges: {days: [1, 14]}
  letter:
    required: [title, body]
    types: {title: string, body: string}
    rules:
      - name: has_a_budget
        expr: "daily > 0 and spent == days and surprise in stops and len(unit_id) > 0"
        error: "daily {daily}"
        level: error
api:
  provider: somebody
  retry: {max_attempts: 3}
processing:
  validation_retry: {max_attempts: 2}
""",
    "templates/plan.jinja2": "{{ agency }}: plan a trip to {{ country }} for {{ money }}.",
    "templates/letter.jinja2": (
        "Write about {{ stops | join(', ') }}: {{ daily }} a day, first {{ surprise }}."
    ),
    "schemas/plan.json": json.dumps(
        {
            "type": "object",
            "required": ["stops", "days"],
            "properties": {
                "stops": {"type": "array", "minItems": 2, "maxItems": 5,
                          "items": {"type": "string", "minLength": 2, "maxLength": 20}},
                "days": {"type": "integer", "minimum": 1, "maximum": 14},
            },
        }
    ),
    "schemas/letter.json": json.dumps(
        {
            "type": "object",
            "required": ["title", "body"],
            "properties": {
                "title": {"type": "string", "maxLength": 60},
                "body": {"type": "string", "maxLength": 400},
            },
        }
    ),
}  # fmt: skip
# One question, and any JSON for an answer.
WORDS = {
    "config.yaml": """
pipeline: {steps: [{name: say}]}
prompts: {template_dir: ., templates: {say: say.jinja2}}
schemas: {files: {say: null}}
validation: {say: {}}
api: {}
processing: {validation_retry: {max_attempts: 2}}
""",
    "say.jinja2": "Say something about {{ thing }}, as JSON.",
}
MONEY = [300 + 7 * number for number in range(UNITS)]


def shadow_of_scores(root: Path, version: str, *, rule: bool = False, wants: str = "") -> None:
    """A wallet_score beside the current one for every wallet; `rule` refuses all its answers, and
    an input without the field it `wants` is refused."""
    folder = root / f"wallet_score@{version}"
    shutil.copytree(root / "wallet_score", folder)
    config = yaml.safe_load((folder / "config.yaml").read_text(encoding="utf-8"))
    config["assay"] |= {"version": version, "shadow": {"of": "wallet_score", "share": 1.0}}
    if rule:
        never = {"name": "never", "expr": "False", "error": "no", "level": "error"}
        config["validation"]["score"]["rules"].append(never)
    if wants:
        schema = json.loads((folder / "input.schema.json").read_text(encoding="utf-8"))
        schema["required"].append(wants)
        (folder / "input.schema.json").write_text(json.dumps(schema), encoding="utf-8")
    (folder / "config.yaml").write_text(yaml.safe_dump(config), encoding="utf-8")


@pytest.fixture(scope="module")
def stack(broker: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[StackProcess]:
    """A stack with the new processes and three shadows, and a model that misbehaves somewhat."""
    folder = tmp_path_factory.mktemp(f"processes-{broker}")
    root = processes_in(folder, trip_letter=TRIP, any_words=WORDS)
    shadow_of_scores(root, "next")
    shadow_of_scores(root, "strict", rule=True)
    shadow_of_scores(root, "deaf", wants="nowhere")
    running = StackProcess(
        folder,
        ["--broker", broker, "--processes", str(root), "--simulator=--fault-rate=0.6"],
        QUICK,
    )
    try:
        yield running.ready()
    finally:
        running.stop()


async def asked(stack: StackProcess, process: str, inputs: list[dict[str, Any]]) -> list[str]:
    """Publish requests as any client may; their ids, the same in every run."""
    ids = []
    async with stack.producer() as producer:
        for given in inputs:
            name = json.dumps([process, given])
            request = str(uuid.uuid5(uuid.NAMESPACE_URL, name))
            meta = {"request_id": request, "tenant_id": "default", "process_id": process}
            headers = {
                "ce_specversion": "1.0", "ce_id": f"{request}-1", "ce_source": "/a/client",
                "ce_type": REQUESTED, "content-type": "application/json",
            }  # fmt: skip
            await producer.send_and_wait(
                REQUESTED,
                value=json.dumps({"meta": meta, "input": given}).encode(),
                key=request.encode(),
                headers=[(header, text.encode()) for header, text in headers.items()],
            )
            ids.append(request)
    return ids


async def ends(stack: StackProcess, ids: list[str]) -> tuple[dict[str, Any], dict[str, Any]]:
    """(accepted events, terminal rejections) by request and step, once every request has ended."""

    async def look() -> tuple[dict[str, Any], dict[str, Any]]:
        found: tuple[dict[str, Any], dict[str, Any]] = defaultdict(dict), defaultdict(dict)
        for topic, events in zip((ACCEPTED, REJECTED), found, strict=True):
            for record in await stack.records(topic):
                event = json.loads(record.value)
                if event["meta"]["request_id"] in ids and event.get("terminal", True):
                    events[event["meta"]["request_id"]][event["meta"]["step"]] = event
        return found

    def ended(found: tuple[dict[str, Any], dict[str, Any]]) -> bool:
        accepted, rejected = found
        return all(
            request in rejected or any(e["final"] for e in accepted[request].values())
            for request in ids
        )

    found = await eventually(look, ended, 60)
    assert ended(found)
    return found


async def test_a_chain_of_steps_over_kafka(stack: StackProcess) -> None:
    """S4.12: each step recorded, its fields in the next request, the expression step's among
    them; the result has them all."""
    inputs = [{"country": f"land {n}", "money": 1000 + n} for n in range(8)]
    ids = await asked(stack, "trip_letter", inputs)
    accepted, rejected = await ends(stack, ids)
    done = [request for request in ids if request not in rejected]
    assert len(done) > len(ids) / 2
    for request in done:
        plan, letter = accepted[request]["plan"], accepted[request]["letter"]
        assert (plan["final"], letter["final"]) == (False, True)
        assert plan["input"] == inputs[ids.index(request)]
        days, stops = plan["output"]["days"], plan["output"]["stops"]
        grown = letter["input"]
        assert {**grown, **plan["input"], **plan["output"]} == grown
        assert (grown["daily"], grown["spent"]) == (round(grown["money"] / days, 2), days)
        assert grown["surprise"] in stops
        assert letter["output"].keys() >= {"title", "body", "stops", "daily", "surprise"}
    for request in ids:
        requests = [
            json.loads(record.value)["meta"]
            for record in await stack.records(REQUESTED)
            if json.loads(record.value)["meta"]["request_id"] == request
        ]
        steps = [meta.get("step") for meta in requests]
        assert steps == [None, *(["letter"] if "plan" in accepted[request] else [])]


async def test_any_json_over_kafka(stack: StackProcess) -> None:
    """S5.7: a process without output schema, which the model is asked for JSON only."""
    ids = await asked(stack, "any_words", [{"thing": f"thing {n}"} for n in range(8)])
    accepted, rejected = await ends(stack, ids)
    done = [request for request in ids if request not in rejected]
    assert len(done) > len(ids) / 2
    for request in done:
        event = accepted[request]["say"]
        assert event["output"] not in (None, "", {})
        assert event["meta"]["process_version"].startswith("sha256-"), "a version by its content"


def test_kills_in_the_middle_of_a_chain(stack: StackProcess, tmp_path: Path) -> None:
    """S4.5, S4.12: kill -9 of the validator, of the scorer and of the batch; each unit ends in the
    last step's validated file or in one of the files of failures, and nowhere twice."""
    batch = Batch(stack, tmp_path, "trip_letter")
    units = [f"trip {n}" for n in range(UNITS)]
    batch.items(
        *({"unit_id": unit, "country": unit, "money": money}
          for unit, money in zip(units, MONEY, strict=True))
    )  # fmt: skip
    first = batch.start()
    until(lambda: len(batch.ends("letter")) > 20)
    os.kill(stack.pid("validator"), signal.SIGKILL)
    until(lambda: len(batch.ends("letter")) > 60)
    os.kill(stack.pid("scorer"), signal.SIGKILL)
    until(lambda: len(batch.ends("letter")) > 90)
    first.kill()
    assert first.wait() == -signal.SIGKILL

    code, summary = batch.run()
    assert (code, summary["open"]) == (1, 0), "the model misbehaves too little for this test"
    assert Counter(batch.ends("letter")) == Counter(units)
    plans, letters = batch.ids("plan_validated"), batch.ids("letter_validated")
    assert Counter(plans) == Counter([*letters, *batch.ids("letter_failures")])
    assert len(letters) > UNITS / 2
    assert not batch.ids("budget_failures")
    for line in batch.read("letter_validated"):
        assert line["money"] == MONEY[units.index(line["unit_id"])]
        assert {"country", "stops", "days", "daily", "surprise", "title", "body"} <= line.keys()
    assert batch.run()[1]["asked"] == 0

    failed = batch.ids("letter_failures")
    retryable = [
        line for name in ("plan_failures", "letter_failures") for line in batch.read(name)
        if line["failure_stage"] != "pipeline_internal"
    ]  # fmt: skip
    code, summary = batch.run("--retry-failures")
    assert summary["asked"] == len(retryable) > 0
    assert Counter(batch.ends("letter")) == Counter(units)
    assert set(failed) <= set(batch.ids("plan_validated"))


def test_any_json_in_a_batch(stack: StackProcess, tmp_path: Path) -> None:
    """S5.7, S4.5: over units without ids."""
    batch = Batch(stack, tmp_path, "any_words")
    batch.items(*({"thing": f"thing {n}"} for n in range(30)))
    _, summary = batch.run()
    assert (summary["units"], summary["open"]) == (30, 0)
    assert len(set(batch.ends("say"))) == 30
    assert len(batch.ids("say_validated")) > 15


async def test_shadows_beside_a_score(stack: StackProcess) -> None:
    """Issue 5 item 7: what shadows answer is on record and marked; whether they answer, fail or are
    refused, the request's one score is signed and returned, and nothing else is."""
    wallets = [new_address() for _ in range(3)]
    answers = [stack.post({"address": wallet}) for wallet in wallets]
    assert [answer.status_code for answer in answers] == [200] * 3
    done = command("publish", "--bootstrap", stack.bootstrap, "--wait", "--json", SAMPLE)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["signature"]
    for wallet, answer in zip(wallets, answers, strict=True):
        (signed,) = await stack.of_wallet(SIGNED, wallet)
        request = flat(signed)["request_id"]
        assert answer.json()["request_id"] == request
        assert answer.json()["signature"] == "0x" + flat(signed)["signature"]

        async def beside(request: str = request) -> dict[str, dict[str, Any]]:
            records = [
                json.loads(record.value)
                for topic in BESIDE
                for record in await stack.records(topic)
            ]
            return {
                event["meta"]["process_version"]: event
                for event in records
                if event["meta"]["request_id"] == request
                and event["meta"]["shadow"]
                and event.get("terminal", True)
            }

        events = await eventually(beside, lambda found: len(found) == 3, 60)
        assert set(events) == {"next", "strict", "deaf"}
        assert events["strict"]["ends_as"] == "rejected", "no fallback is made up for a shadow"
        if "output" in events["next"]:
            assert 0 <= events["next"]["output"]["score"] <= 1000
        outcomes = [
            read_outcome(topic, record.value, record.headers)
            for topic in (SIGNED, *BESIDE)
            for record in await stack.records(topic)
            if headers_of(record)["ce_requestid"] == request
        ]
        assert {outcome.status for outcome in outcomes if outcome} == {"signed"}
        (validated,) = await stack.of_wallet(VALIDATED, wallet)
        assert json.loads(validated.value)["meta"]["process_version"] == "1.0.0"
        assert not json.loads(validated.value)["meta"]["shadow"]
        kept = await stack.evidence_with(ACCEPTED, REJECTED, request_id=request)
        assert {item["type"] for item in kept} >= {SIGNED, VALIDATED}
    assert await stack.records(SIGNER_DLQ) == []
