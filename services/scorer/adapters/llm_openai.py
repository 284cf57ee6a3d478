"""OpenAI-compatible servers: /v1/chat/completions with `response_format: json_schema`."""

from __future__ import annotations

import itertools
from typing import Any

from services.scorer.adapters.format_canary import ask_canary
from services.scorer.adapters.model_http import ModelHttp
from services.scorer.adapters.reply_fields import UNKNOWN, counts, named, whole_text
from services.scorer.domain.provider import ModelCall, ModelProtocolError, ModelReply, ProbeResult
from services.scorer.domain.wire_text import wire_text


class OpenAIProvider:
    """A model behind the chat completions API. Its weights are not told: the digest is unknown.

    `num_ctx` is the server's own affair here. A refusal is kept as the raw text with finish
    reason "refusal".
    """

    name = "openai"
    model_digest = UNKNOWN

    def __init__(
        self,
        http: ModelHttp,
        model: str,
        *,
        probe_deadline_s: float = 60.0,
        probe_num_ctx: int = 16_384,
    ) -> None:
        self.model = model
        self._http = http
        self._probe_deadline_s = probe_deadline_s
        self._probe_num_ctx = probe_num_ctx
        self._probes = itertools.count()

    async def generate(self, call: ModelCall) -> ModelReply:
        """One chat turn."""
        reply = await self._http.post(
            "/v1/chat/completions",
            self._payload(call),
            call.deadline_s,
            written={"response_format": _response_format(call)},
        )
        choices = reply.get("choices")
        choice = choices[0] if isinstance(choices, list) and choices else None
        message = choice.get("message") if isinstance(choice, dict) else None
        if not isinstance(choice, dict) or not isinstance(message, dict):
            raise ModelProtocolError("the reply has no message")
        reason = choice.get("finish_reason")
        finish = named(reason, UNKNOWN) if reason is not None else None
        content = message.get("content")
        if message.get("refusal") and not content:
            content, finish = message["refusal"], "refusal"
        usage = reply.get("usage")
        usage = usage if isinstance(usage, dict) else {}
        return ModelReply(
            raw=whole_text(content, finish),
            model=named(reply.get("model"), self.model),
            model_digest=UNKNOWN,
            finish_reason=finish,
            usage=counts(
                prompt_tokens=usage.get("prompt_tokens"),
                completion_tokens=usage.get("completion_tokens"),
            ),
        )

    async def probe(self) -> ProbeResult:
        """The format canary."""
        return await ask_canary(
            self, self._probe_deadline_s, self._probe_num_ctx, next(self._probes)
        )

    async def aclose(self) -> None:
        await self._http.aclose()

    def _payload(self, call: ModelCall) -> dict[str, Any]:
        return {
            "model": self.model,
            "messages": [{"role": "user", "content": call.prompt}],
            "stream": False,
            "temperature": call.temperature,
            "seed": call.seed,
            "max_tokens": call.max_tokens,
        }


def _response_format(call: ModelCall) -> str:
    if call.wire_schema is None:
        return '{"type":"json_object"}'
    schema = wire_text(call.wire_schema).text
    named = f'{{"name":"answer","strict":true,"schema":{schema}}}'
    return f'{{"type":"json_schema","json_schema":{named}}}'
