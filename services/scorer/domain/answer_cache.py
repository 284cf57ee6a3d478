"""Accepted answers that may be served again, and the question that each one answers (seed 5).

In memory of one replica, gone with it. Serving is the process's choice (`assay.cache`).
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from typing import Any

from services.scorer.domain.answering import answered_fields
from services.scorer.domain.bounded import Bounded
from services.scorer.domain.provider import ModelReply
from services.scorer.domain.question import Question
from services.scorer.domain.wire_text import wire_text

# What an entry takes besides its texts: key, objects, dictionary slots; a rough upper bound.
_OVERHEAD = 1_024


@dataclass(frozen=True, slots=True)
class KeptAnswer:
    """An accepted answer: the event it stands in, the text, and what gave it; seconds since any
    fixed moment."""

    event_id: str
    raw: str
    model: str
    model_digest: str
    finish_reason: str | None
    kept_at: float


class AnswerCache:
    """Kept answers by question, bounded by entries and bytes."""

    def __init__(self, entries: int, most_bytes: int) -> None:
        self._kept: Bounded[KeptAnswer] = Bounded(entries, most_bytes)

    @property
    def bytes(self) -> int:
        return self._kept.bytes

    def find(self, name: str, now: float, max_age_s: float | None) -> KeptAnswer | None:
        """The answer to this question, unless it is too old."""
        kept = self._kept.get(name)
        if kept is not None and max_age_s is not None and now - kept.kept_at > max_age_s:
            self._kept.drop(name)
            return None
        return kept

    def keep(self, name: str, answer: KeptAnswer) -> None:
        self._kept.put(name, answer, len(answer.raw.encode()) + _OVERHEAD)


def may_be_served(question: Question) -> bool:
    """A first attempt at a process that allows it: a retry wants another answer, not the same."""
    return question.process.caching is not None and question.first


def question_name(question: Question, provider: str, model: str, model_digest: str) -> str:
    """Hex SHA-256 of all that the answer depends on, and of whose it is.

    A canonical JSON array of strings: tenant, process hash, step, provider, model, digest of its
    weights, temperature, seed, SHA-256 of prompt, wire schema and input. The input is named
    besides the prompt, because rules see fields that the prompt need not show.

    An unsealed request may say that it is any tenant's. It asks the model the same, so it could
    plant nothing, but it would learn what a tenant has asked before, and choose which of several
    draws that tenant is served: its answers are kept apart.
    """
    call, meta = question.call, question.meta
    schema = call.wire_schema
    record = json.dumps(question.input, sort_keys=True, separators=(",", ":"))
    parts = (
        "unsealed" if meta.unsealed else "",
        meta.tenant_id,
        question.process.hash,
        meta.step or "",
        provider,
        model,
        model_digest,
        repr(call.temperature),
        str(call.seed),
        _sha256(call.prompt),
        "" if schema is None else wire_text(schema).sha256,
        _sha256(record),
    )
    return _sha256(json.dumps(parts, separators=(",", ":")))


def served_fields(question: Question, provider: str, kept: KeptAnswer) -> dict[str, Any]:
    """The answered event's fields but `meta`; no tokens are counted, for no model was asked."""
    reply = ModelReply(kept.raw, kept.model, kept.model_digest, kept.finish_reason)
    fields = answered_fields(question.input, question.call, provider, kept.model, reply)
    return fields | {"served_from": kept.event_id}


def accepted_now(question: Question, raw: str) -> bool:
    """Whether the step's gate accepts the answer, as the validator will judge it."""
    meta = question.meta
    unit_id = meta.unit_id or meta.request_id
    return question.process.judge(meta.step or "", raw, question.input, unit_id).accepted


def _sha256(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()
