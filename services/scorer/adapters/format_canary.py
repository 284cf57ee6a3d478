"""Asking the format canary, as a probe and at start."""

from __future__ import annotations

from typing import Literal, Protocol

import structlog

from services.scorer.domain.canary import canary_call, judge_canary
from services.scorer.domain.provider import (
    EmptyAnswer,
    ModelCall,
    ModelError,
    ModelRefused,
    ModelReply,
    ProbeResult,
    Provider,
)

log = structlog.get_logger()
_TRIES = 3


class FormatIgnored(Exception):
    """The backend ignores the schema it is sent, and the setting says not to start then."""


class Generates(Protocol):
    async def generate(self, call: ModelCall) -> ModelReply: ...


async def ask_canary(
    model: Generates, deadline_s: float, num_ctx: int, seed: int = 0
) -> ProbeResult:
    """One canary. A backend that refuses the tiny schema or says nothing ignores it; one that
    does not answer at all is unreachable."""
    try:
        reply = await model.generate(canary_call(deadline_s, num_ctx, seed))
    except (ModelRefused, EmptyAnswer) as error:
        return ProbeResult("ignored", f"{error.code}: {error}")
    except ModelError as error:
        return ProbeResult("unreachable", f"{error.code}: {error}")
    return judge_canary(reply)


async def check_format(
    provider: Provider, mode: Literal["warn", "refuse", "off"]
) -> ProbeResult | None:
    """The verdict at start: obeyed once in three tries is obeyed. None when switched off.

    Raises FormatIgnored under `refuse`. An unreachable backend is an outage and never refuses.
    """
    if mode == "off":
        return None
    result = await provider.probe()
    for _ in range(_TRIES - 1):
        if result.verdict != "ignored":
            break
        result = await provider.probe()
    fields = {"provider": provider.name, "model": provider.model, "detail": result.detail}
    if result.verdict == "obeyed":
        log.info("format_canary_obeyed", **fields)
    elif result.verdict == "unreachable":
        log.warning("format_canary_unreachable", **fields)
    elif mode == "refuse":
        raise FormatIgnored(
            f"{provider.name} {provider.model} does not obey the schema it is sent: {result.detail}"
        )
    else:
        log.warning(
            "format_canary_ignored",
            consequence="answers are judged all the same; expect more retries and fallbacks",
            **fields,
        )
    return result
