"""The format canary: does the backend obey the grammar it is sent? (DESIGN §5)

The prompt asks for prose and never mentions the schema, so only an enforced grammar makes the
answer exactly this object. Backends that ignore `format` answer 200 and would go unnoticed.
"""

from __future__ import annotations

import json

from services.scorer.domain.provider import ModelCall, ModelReply, ProbeResult

_NUMBER = 7351
_SCHEMA = {
    "type": "object",
    "properties": {"probe": {"type": "integer", "enum": [_NUMBER]}},
    "required": ["probe"],
    "additionalProperties": False,
}
_PROMPT = "Describe the weather in spring in one short sentence."
_MAX_TOKENS = 48
_SHOWN = 80


def canary_call(deadline_s: float, num_ctx: int, seed: int = 0) -> ModelCall:
    """The tiny question, with the model's own context size so that it need not be reloaded."""
    return ModelCall(
        prompt=_PROMPT,
        wire_schema=_SCHEMA,
        temperature=0.0,
        seed=seed,
        max_tokens=_MAX_TOKENS,
        num_ctx=num_ctx,
        deadline_s=deadline_s,
    )


def judge_canary(reply: ModelReply) -> ProbeResult:
    """Obeyed only if the text is the one object that the grammar allows, and nothing else."""
    try:
        value = json.loads(reply.raw)
    except (ValueError, RecursionError):
        value = None
    if value == {"probe": _NUMBER}:
        return ProbeResult("obeyed", f"{reply.model} obeys the schema it is sent")
    shown = reply.raw[:_SHOWN].encode("ascii", "backslashreplace").decode()
    return ProbeResult("ignored", f"{reply.model} ignored the schema and answered {shown!r}")
