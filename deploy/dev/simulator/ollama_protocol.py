"""Ollama's native API: /api/chat, /api/generate, and what a client asks about the server."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
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

_MADE = "2026-01-01T00:00:00Z"
_DETAILS = {
    "parent_model": "",
    "format": "simulated",
    "family": "simulator",
    "families": ["simulator"],
    "parameter_size": "0",
    "quantization_level": "none",
}
VERSION = {"version": "0.0.0-simulator"}
TAGS = {
    "models": [
        {
            "name": MODEL,
            "model": MODEL,
            "modified_at": _MADE,
            "size": 0,
            "digest": DIGEST,
            "details": _DETAILS,
        }
    ]
}
SHOW = {
    "license": "No model: every answer is simulated.",
    "modelfile": f"# {MODEL}: no weights\n",
    "parameters": "",
    "template": "{{ .Prompt }}",
    "details": _DETAILS,
    "model_info": {"general.architecture": "simulator", "simulator.context_length": 131_072},
    "capabilities": ["completion"],
    "modified_at": _MADE,
    "digest": DIGEST,
}


def _read_chat(body: Mapping[str, Any]) -> Call:
    return _call(body, joined_messages(body))


def _read_generate(body: Mapping[str, Any]) -> Call:
    system = body.get("system")
    prompt = text_of(body, "prompt")
    return _call(body, f"{system}\n{prompt}" if isinstance(system, str) else prompt)


def _call(body: Mapping[str, Any], prompt: str) -> Call:
    options = body.get("options") or {}
    if not isinstance(options, Mapping):
        raise BadRequest("options: an object is required")
    wanted = body.get("format") or ""
    answer: Literal["schema", "json", "text"] = "text"
    schema: Mapping[str, Any] = {"type": "object"}
    if isinstance(wanted, Mapping):
        answer, schema = "schema", wanted
    elif wanted == "json":
        answer = "json"
    elif wanted != "":
        raise BadRequest('format: "json" or a JSON Schema is required')
    return Call(
        model=text_of(body, "model"),
        prompt=prompt,
        answer=answer,
        schema=schema,
        seed=int(number_of(options, "seed", 0)),
        temperature=number_of(options, "temperature", 0.8),
        max_tokens=int(number_of(options, "num_predict", -1)),
        stream=flag_of(body, "stream", default=True),
    )


def _usage(call: Call, reply: Reply, seconds: float) -> dict[str, Any]:
    nanoseconds = int(seconds * 1e9)
    return {
        "done": True,
        "done_reason": reply.finish,
        "total_duration": nanoseconds,
        "load_duration": 0,
        "prompt_eval_count": tokens(call.prompt),
        "prompt_eval_duration": 0,
        "eval_count": tokens(reply.text),
        "eval_duration": nanoseconds,
    }


def _head() -> dict[str, Any]:
    return {"model": MODEL, "created_at": datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")}


def _chat_reply(call: Call, reply: Reply, seconds: float) -> dict[str, Any]:
    message = {"role": "assistant", "content": reply.text}
    return {**_head(), "message": message, **_usage(call, reply, seconds)}


def _generate_reply(call: Call, reply: Reply, seconds: float) -> dict[str, Any]:
    return {**_head(), "response": reply.text, **_usage(call, reply, seconds)}


def _error(status: int, message: str) -> dict[str, Any]:
    return {"error": message}


CHAT = Protocol("ollama_chat", _read_chat, _chat_reply, _error)
GENERATE = Protocol("ollama_generate", _read_generate, _generate_reply, _error)
