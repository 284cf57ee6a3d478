"""From a request to a call, and from a reply or failure to the answered event's fields; pure."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from assay_gate.process import Process
from assay_gate.verdict import Problem
from services.scorer.domain.provider import ModelCall, ModelError, ModelReply, ModelUnavailable
from services.scorer.domain.wire_text import wire_text

COMPLETE = frozenset((None, "stop", "eos", "eos_token", "end_turn", "stop_sequence"))
"""Finish reasons of a whole answer; every other is a failed attempt, never repaired."""


@dataclass(frozen=True, slots=True)
class CallLimits:
    """Bounds of one call: tokens of the answer, tokens of both, seconds in total."""

    max_tokens: int
    num_ctx: int
    deadline_s: float


def seed_of(key: str) -> int:
    """First 4 bytes, big endian, of SHA-256 of the lower-case key without 0x (DESIGN §5).

    The full unsigned 32-bit range, 0 to 4294967295: Ollama and OpenAI-compatible servers take
    64-bit seeds, so nothing is masked off. (llama.cpp reads the highest value as "random".)
    """
    digest = hashlib.sha256(key.lower().removeprefix("0x").encode(errors="replace")).digest()
    return int.from_bytes(digest[:4], "big")


def prepare_call(
    process: Process,
    step: str,
    record: Mapping[str, Any],
    key: str,
    attempt: int,
    feedback: list[Problem],
    limits: CallLimits,
    unit_id: str = "",
) -> ModelCall:
    """The call for one attempt; raises PromptError for an input the template cannot take."""
    return ModelCall(
        prompt=process.render_prompt(step, record, feedback, attempt, unit_id),
        wire_schema=process.wire_schema(step, record),
        temperature=process.temperature(attempt, step),
        seed=seed_of(key),
        max_tokens=process.step(step).attempts.max_tokens or limits.max_tokens,
        num_ctx=limits.num_ctx,
        deadline_s=limits.deadline_s,
    )


def answered_fields(
    record: Mapping[str, Any],
    call: ModelCall,
    provider: str,
    model: str,
    result: ModelReply | ModelError,
) -> dict[str, Any]:
    """The fields of llm.generation.answered.v1 except `meta`; no clock and no duration in them.

    `outcome` is "answered" only for a whole answer. A cut-off or withheld one is "failed" with
    its text kept in `raw`; an outage beyond the patience is "unavailable".
    """
    schema = call.wire_schema
    fields: dict[str, Any] = {
        "input": dict(record),
        "outcome": "answered",
        "raw": None,
        "provider": provider,
        "model": model,
        "model_digest": None,
        "finish_reason": None,
        "temperature": call.temperature,
        "seed": call.seed,
        "prompt": call.prompt,
        "prompt_sha256": hashlib.sha256(call.prompt.encode()).hexdigest(),
        "schema_sha256": None if schema is None else wire_text(schema).sha256,
        "usage": {},
        "error": None,
    }
    if isinstance(result, ModelError):
        fields["outcome"] = "unavailable" if isinstance(result, ModelUnavailable) else "failed"
        fields["error"] = {"code": result.code, "message": str(result)}
        return fields
    fields |= {
        "raw": result.raw,
        "model": result.model,
        "model_digest": result.model_digest,
        "finish_reason": result.finish_reason,
        "usage": result.usage,
    }
    if result.finish_reason not in COMPLETE:
        message = f"the answer ended by {result.finish_reason!r} and is not whole"
        fields["outcome"] = "failed"
        fields["error"] = {"code": "answer_incomplete", "message": message}
    return fields


def unasked_fields(
    record: Mapping[str, Any], provider: str, model: str, code: str, message: str
) -> dict[str, Any]:
    """The same for a request that no model was asked for, because a step before it failed."""
    return {
        "input": dict(record),
        "outcome": "failed",
        "raw": None,
        "provider": provider,
        "model": model,
        "temperature": 0.0,
        "seed": 0,
        "prompt": "",
        "prompt_sha256": hashlib.sha256(b"").hexdigest(),
        "error": {"code": code, "message": message},
    }
