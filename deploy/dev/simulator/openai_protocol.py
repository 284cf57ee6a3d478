"""The OpenAI-compatible API: /v1/chat/completions and /v1/models."""

from __future__ import annotations

import time
from collections.abc import Mapping
from hashlib import blake2b
from typing import Any, Literal

from deploy.dev.simulator.protocols import (
    DIGEST,
    MODEL,
    BadRequest,
    Call,
    Protocol,
    Reply,
    flag_of,
    joined_messages,
    number_of,
    text_of,
    tokens,
)

_MADE = 1_767_225_600
CARD = {
    "id": MODEL,
    "object": "model",
    "created": _MADE,
    "owned_by": "simulator",
    "digest": DIGEST,
}
MODELS = {"object": "list", "data": [CARD]}
_CODES = {404: "model_not_found", 429: "rate_limit_exceeded"}


def _read(body: Mapping[str, Any]) -> Call:
    answer, schema = _answer(body.get("response_format"))
    most = body.get("max_completion_tokens", body.get("max_tokens"))
    return Call(
        model=text_of(body, "model"),
        prompt=joined_messages(body),
        answer=answer,
        schema=schema,
        seed=int(number_of(body, "seed", 0)),
        temperature=number_of(body, "temperature", 1.0),
        max_tokens=int(number_of({"max_tokens": most}, "max_tokens", -1)),
        stream=flag_of(body, "stream", default=False),
    )


def _answer(
    wanted: Any,
) -> tuple[Literal["schema", "json", "text"], Mapping[str, Any] | bool]:
    anything = {"type": "object"}
    if wanted is None:
        return "text", anything
    kind = wanted.get("type") if isinstance(wanted, Mapping) else None
    if kind == "text":
        return "text", anything
    if kind == "json_object":
        return "json", anything
    if kind == "json_schema":
        described = wanted.get("json_schema")
        schema = described.get("schema") if isinstance(described, Mapping) else None
        if isinstance(schema, Mapping | bool):
            return "schema", schema
        raise BadRequest("response_format.json_schema.schema: a JSON Schema is required")
    raise BadRequest("response_format.type: text, json_object or json_schema is required")


def _reply(call: Call, reply: Reply, seconds: float) -> dict[str, Any]:
    asked, written = tokens(call.prompt), tokens(reply.text)
    message = {
        "role": "assistant",
        "content": None if reply.refused else reply.text,
        "refusal": reply.text if reply.refused else None,
    }
    identity = blake2b(f"{call.seed}\n{call.prompt}\n{reply.text}".encode(errors="replace"))
    return {
        "id": f"chatcmpl-{identity.hexdigest()[:24]}",
        "object": "chat.completion",
        "created": int(time.time()),
        "model": MODEL,
        "system_fingerprint": f"simulator-{DIGEST[:12]}",
        "choices": [
            {"index": 0, "message": message, "logprobs": None, "finish_reason": reply.finish}
        ],
        "usage": {
            "prompt_tokens": asked,
            "completion_tokens": written,
            "total_tokens": asked + written,
        },
    }


def _error(status: int, message: str) -> dict[str, Any]:
    kind = "invalid_request_error" if status < 500 else "server_error"
    error = {"message": message, "type": kind, "param": None, "code": _CODES.get(status)}
    return {"error": error}


CHAT = Protocol("openai_chat", _read, _reply, _error)
