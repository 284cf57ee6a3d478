"""Ollama's own protocol: /api/chat with a JSON Schema in `format`."""

from __future__ import annotations

import asyncio
import itertools
import sys
from collections.abc import Awaitable, Mapping
from typing import Any

from services.scorer.adapters.format_canary import ask_canary
from services.scorer.adapters.model_http import ModelHttp
from services.scorer.adapters.reply_fields import UNKNOWN, counts, named, whole_text
from services.scorer.domain.provider import (
    ModelCall,
    ModelError,
    ModelMisconfigured,
    ModelProtocolError,
    ModelRefused,
    ModelReply,
    ProbeResult,
)
from services.scorer.domain.wire_text import wire_text

_IDENTITY_DEADLINE_S = 5.0
_THINK: Mapping[str, bool | str] = {"on": True, "off": False}


class OllamaProvider:
    """A model served by Ollama. `think` is "" (the model's default), on, off, low, medium, high.

    Digest and context length are read before the first call and again by every probe. The digest
    names the exact weights, which a model's name does not.
    """

    name = "ollama"

    def __init__(
        self,
        http: ModelHttp,
        model: str,
        *,
        keep_alive: str = "10m",
        think: str = "",
        probe_deadline_s: float = 60.0,
        probe_num_ctx: int = 16_384,
    ) -> None:
        self.model = model
        self._http = http
        self._keep_alive = keep_alive
        self._think = think
        self._probe_deadline_s = probe_deadline_s
        self._probe_num_ctx = probe_num_ctx
        self._probes = itertools.count()
        self._digest: str | None = None
        self._context = sys.maxsize
        self._reading: asyncio.Task[None] | None = None

    @property
    def model_digest(self) -> str | None:
        return self._digest

    async def generate(self, call: ModelCall) -> ModelReply:
        """One chat turn. A prompt that the backend cut to fit is a ModelProtocolError."""
        if self._digest is None:
            await self._known()
        schema = call.wire_schema
        reply = await self._http.post(
            "/api/chat",
            self._payload(call),
            call.deadline_s,
            written={"format": '"json"' if schema is None else wire_text(schema).text},
        )
        message = reply.get("message")
        if not isinstance(message, dict):
            raise ModelProtocolError("the reply has no message")
        reason = reply.get("done_reason")
        finish = named(reason, UNKNOWN) if reason is not None else None
        usage = counts(
            prompt_tokens=reply.get("prompt_eval_count"), completion_tokens=reply.get("eval_count")
        )
        # Versions that do not know `truncate` cut the prompt without a word, to num_ctx or to the
        # context the model was made for, whichever is smaller.
        context = min(call.num_ctx, self._context)
        if usage.get("prompt_tokens", 0) >= context:
            raise ModelProtocolError(
                f"the prompt did not fit into {context} tokens of context and was cut"
            )
        return ModelReply(
            raw=whole_text(message.get("content"), finish),
            model=named(reply.get("model"), self.model),
            model_digest=self._digest or UNKNOWN,
            finish_reason=finish,
            usage=usage,
        )

    async def probe(self) -> ProbeResult:
        """The format canary; reads the digest anew, since the model may have been replaced."""
        await self._read_identity()
        return await ask_canary(
            self, self._probe_deadline_s, self._probe_num_ctx, next(self._probes)
        )

    async def aclose(self) -> None:
        if self._reading is not None:
            self._reading.cancel()
        await self._http.aclose()

    def _payload(self, call: ModelCall) -> dict[str, Any]:
        payload: dict[str, Any] = {
            "model": self.model,
            "messages": [{"role": "user", "content": call.prompt}],
            "stream": False,
            # All four always: Ollama's defaults are 0.8, random, unlimited and by free memory.
            "options": {
                "temperature": call.temperature,
                "seed": call.seed,
                "num_predict": call.max_tokens,
                "num_ctx": call.num_ctx,
            },
            "keep_alive": self._keep_alive,
            "truncate": False,
            "shift": False,
        }
        if self._think:
            payload["think"] = _THINK.get(self._think, self._think)
        return payload

    async def _known(self) -> None:
        """Reads the identity where it is not known, once for all calls that wait for it."""
        if self._reading is None or self._reading.done():
            self._reading = asyncio.create_task(self._read_identity())
        await asyncio.shield(self._reading)

    async def _read_identity(self) -> None:
        """Reads digest and context length. What the server does not tell is unknown; a server
        that is away is asked again by the next call."""
        try:
            listing = await self._told(self._http.get("/api/tags", _IDENTITY_DEADLINE_S))
            shown = await self._told(
                self._http.post(
                    "/api/show", {"model": self.model}, _IDENTITY_DEADLINE_S, attempts=1
                )
            )
        except ModelError:
            self._digest, self._context = None, sys.maxsize
            return
        self._digest, self._context = UNKNOWN, sys.maxsize
        models = listing.get("models")
        names = (self.model, f"{self.model}:latest")
        for entry in models if isinstance(models, list) else ():
            if isinstance(entry, dict) and entry.get("name") in names:
                self._digest = named(entry.get("digest"), UNKNOWN)
        info = shown.get("model_info")
        for key, value in info.items() if isinstance(info, dict) else ():
            if key.endswith(".context_length") and isinstance(value, int) and value > 0:
                self._context = value

    @staticmethod
    async def _told(reply: Awaitable[dict[str, Any]]) -> dict[str, Any]:
        """The reply, or nothing where the server answers and does not tell."""
        try:
            return await reply
        except (ModelMisconfigured, ModelProtocolError, ModelRefused):
            return {}
