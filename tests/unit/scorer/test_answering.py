"""From request to call and from reply to event (SPEC S1.4; DESIGN §2, §5)."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

import pytest

from assay_gate.process import Process, load_process
from services.scorer.domain.answering import (
    CallLimits,
    answered_fields,
    prepare_call,
    seed_of,
)
from services.scorer.domain.canary import canary_call, judge_canary
from services.scorer.domain.provider import (
    EmptyAnswer,
    ModelCall,
    ModelReply,
    ModelTimeout,
    PatienceExhausted,
)
from services.scorer.domain.wire_text import wire_text

REPO = Path(__file__).parents[3]
ADDRESS = "0x859e1Dfb430A7156fAEF11947F2FC2a3C34B733A"
LIMITS = CallLimits(max_tokens=500, num_ctx=8192, deadline_s=9)


@pytest.fixture(scope="module")
def process() -> Process:
    return load_process(REPO / "schemas" / "processes" / "wallet_score")


@pytest.fixture
def record(process: Process) -> dict[str, Any]:
    required = process.input_schema["properties"]["features"]["required"]
    return {
        "address": ADDRESS,
        "features": dict.fromkeys(required, 1) | {"protocolNames": []},
        "questionnaire": "Q1: a\nA1: b",
        "has_questionnaire": True,
        "evm_source": "inline",
        "evm_sha256": "0" * 64,
    }


def test_the_seed_is_the_start_of_the_address_hash() -> None:
    """DESIGN §5: first 4 bytes of SHA-256 of the lower-case address without 0x."""
    digest = hashlib.sha256(ADDRESS.lower()[2:].encode()).hexdigest()
    assert seed_of(ADDRESS) == int(digest[:8], 16)
    assert seed_of(ADDRESS) == seed_of(ADDRESS.lower())
    assert seed_of("0x" + "00" * 20) != seed_of("0x" + "11" * 20)
    assert all(0 <= seed_of(hex(n)) < 1 << 32 for n in range(200))
    assert any(seed_of(hex(n)) >= 1 << 31 for n in range(200))


@pytest.mark.parametrize(("attempt", "temperature"), [(1, 0.3), (2, 0.2), (3, 0.1), (9, 0.1)])
def test_the_temperature_decays(
    process: Process, record: dict[str, Any], attempt: int, temperature: float
) -> None:
    """S1.4: 0.3, 0.2, 0.1; the seed stays the wallet's."""
    call = prepare_call(process, "score", record, ADDRESS, attempt, [], LIMITS)
    assert call.temperature == temperature
    assert call.seed == seed_of(ADDRESS)
    assert ("PREVIOUS ATTEMPT" in call.prompt) is (attempt > 1)
    assert (call.max_tokens, call.num_ctx, call.deadline_s) == (1024, 8192, 9)
    assert call.wire_schema == process.wire_schema("score", record)


def call_with(schema: dict[str, Any] | None) -> ModelCall:
    return ModelCall("näh", schema, 0.3, 7, 10, 100, 1)


def test_the_fields_of_an_answer() -> None:
    """DESIGN §4: prompt, hashes and provenance travel with the raw text as it came."""
    reply = ModelReply('```{"a": 1}', "m:1", "sha256:ab", "stop", {"prompt_tokens": 3})
    fields = answered_fields({"x": 1}, call_with({"type": "object"}), "ollama", "m", reply)
    assert fields == {
        "input": {"x": 1},
        "outcome": "answered",
        "raw": '```{"a": 1}',
        "provider": "ollama",
        "model": "m:1",
        "model_digest": "sha256:ab",
        "finish_reason": "stop",
        "temperature": 0.3,
        "seed": 7,
        "prompt": "näh",
        "prompt_sha256": hashlib.sha256("näh".encode()).hexdigest(),
        "schema_sha256": hashlib.sha256(b'{"type":"object"}').hexdigest(),
        "usage": {"prompt_tokens": 3},
        "error": None,
    }


@pytest.mark.parametrize("reason", ["length", "content_filter", "refusal", "tool_calls", "load"])
def test_an_answer_that_is_not_whole_fails_its_attempt(reason: str) -> None:
    """DESIGN §5: `length` is a failure and never repaired; the text is kept (S4.1)."""
    reply = ModelReply('{"score": 1', "m", "d", reason)
    fields = answered_fields({}, call_with(None), "openai", "m", reply)
    assert fields["outcome"] == "failed"
    assert fields["raw"] == '{"score": 1'
    assert fields["finish_reason"] == reason
    assert fields["error"]["code"] == "answer_incomplete"
    assert fields["schema_sha256"] is None


def test_no_answer_is_failed_and_an_outage_unavailable() -> None:
    """X.6: a hang is this attempt's failure, an outage beyond the patience is none's."""
    hung = answered_fields({}, call_with(None), "ollama", "m", ModelTimeout("no answer in 1 s"))
    assert (hung["outcome"], hung["raw"], hung["model_digest"]) == ("failed", None, None)
    assert hung["error"] == {"code": "model_timeout", "message": "no answer in 1 s"}
    empty = answered_fields({}, call_with(None), "ollama", "m", EmptyAnswer("no text"))
    assert (empty["outcome"], empty["error"]["code"]) == ("failed", "empty_answer")
    away = answered_fields({}, call_with(None), "ollama", "m", PatienceExhausted("away"))
    assert (away["outcome"], away["error"]["code"]) == ("unavailable", "model_unavailable")


def test_the_order_of_the_grammar_is_part_of_its_hash() -> None:
    """DESIGN §4: models write keys in the grammar's order, so another order is another schema."""
    first, second = {"a": 1, "b": 2}, {"b": 2, "a": 1}
    assert wire_text(first).text == '{"a":1,"b":2}'
    assert wire_text(first).sha256 != wire_text(second).sha256
    assert wire_text(first) is wire_text(first)


def test_the_text_of_many_schemas_is_each_ones_own() -> None:
    """DESIGN §4: what is kept of a schema is never given for another one, however many come."""
    schemas = [{"n": number} for number in range(1000)]
    for _ in range(2):
        assert [wire_text(schema).text for schema in schemas] == [
            f'{{"n":{number}}}' for number in range(1000)
        ]
    assert all(wire_text({"n": number}).text == f'{{"n":{number}}}' for number in range(1000))


@pytest.mark.parametrize(
    ("raw", "verdict"),
    [
        ('{"probe": 7351}', "obeyed"),
        (' {"probe":7351}\n', "obeyed"),
        ('```json\n{"probe": 7351}\n```', "ignored"),
        ('{"probe": 1}', "ignored"),
        ('{"probe": 7351, "more": 1}', "ignored"),
        ("Spring is mild. \ud83d", "ignored"),
        ("[" * 100_000, "ignored"),
        ("\n" * 48, "ignored"),
    ],
)
def test_the_canary_only_trusts_what_only_a_grammar_can_write(raw: str, verdict: str) -> None:
    """DESIGN §5: the prompt asks for prose, so the object proves the grammar."""
    result = judge_canary(ModelReply(raw, "m", "d", "stop"))
    assert result.verdict == verdict
    assert len(result.detail) < 1000
    call = canary_call(5, 4096)
    assert "7351" not in call.prompt
    assert "JSON" not in call.prompt
