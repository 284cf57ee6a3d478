"""How requests end, as the records that say so are read (SPEC X.2, X.4)."""

from __future__ import annotations

import json
from collections.abc import Collection
from dataclasses import dataclass
from typing import Any, Literal

from assay.dead_letters import FIRST_ADDED
from assay.envelope import Headers, text_headers
from assay.events import (
    GenerationAccepted,
    GenerationRejected,
    GenerationRequested,
    WalletEventSubmitted,
    WalletScoreSigned,
)
from assay.retry_headers import behind_last
from assay.scores import flat_score
from assay.topics import catalogue

SIGNED = WalletScoreSigned.type
ACCEPTED = GenerationAccepted.type
REJECTED = GenerationRejected.type
# Of records that any client may write: on the first topic ingest works out whose request it was, on
# the second the record says so itself.
_SUBMITTED, _REQUESTED = (
    frozenset(
        topic.dead_letter(service)
        for topic in catalogue()
        if topic.event == event.type and "anyone" in topic.producers
        for service in topic.consumers
    )
    for event in (WalletEventSubmitted, GenerationRequested)
)
# Beginnings of topics whose events' meta may bear a mark, as `shadow`.
_MARKED = ("llm.generation.", "wallet.score.validated.")


@dataclass(frozen=True, slots=True)
class Outcome:
    """How a request ended. `score` is the flat signed score, `reason` says why there is none.

    `answer` is the result of a process that makes no score: `{output, process_id,
    process_version, attempts, model, fallback, repairs}`. `errors` says field by field what was
    wrong with the last answer or with the request: `{path, rule, message}`. `unsealed` where no
    service asked, but a client on the bus: it says nothing about another's request of the same id.
    `doubtful` where that may be so: a request that could not be handled bears whatever id its
    writer gave it, and only who has the seals' keys can tell (ARCHITECTURE, decision 20).
    """

    request_id: str
    status: Literal["signed", "accepted", "rejected", "dead_lettered"]
    score: dict[str, Any] | None = None
    reason: str | None = None
    code: str | None = None
    answer: dict[str, Any] | None = None
    errors: tuple[dict[str, str], ...] = ()
    unsealed: bool = False
    doubtful: bool = False

    def to_json(self) -> dict[str, Any]:
        if self.score is not None:
            return self.score
        shown: dict[str, Any] = {"request_id": self.request_id, "status": self.status}
        if self.answer is not None:
            return shown | self.answer
        shown |= {"code": self.code, "reason": self.reason}
        return shown | ({"errors": list(self.errors)} if self.errors else {})


def read_outcome(
    topic: str, value: bytes, headers: Collection[tuple[str, bytes | None]]
) -> Outcome | None:
    """The terminal outcome a record stands for, or None where it stands for none: an attempt or a
    step that another follows, and whatever comes of a shadow process.

    ValueError where the record is not what its topic promises.
    """
    if topic == SIGNED:
        event = WalletScoreSigned.model_validate_json(value)
        return Outcome(event.meta.request_id, "signed", score=flat_score(event))
    if topic == ACCEPTED:
        return _accepted(GenerationAccepted.model_validate_json(value))
    if topic == REJECTED:
        return _rejected(GenerationRejected.model_validate_json(value))
    return _dead_lettered(topic, value, tuple(headers))


def _accepted(event: GenerationAccepted) -> Outcome | None:
    meta = event.meta
    if meta.shadow or not event.final:
        return None
    answer = {
        "output": event.output,
        "process_id": meta.process_id,
        "process_version": meta.process_version,
        "attempts": event.attempts,
        "model": event.model,
        "fallback": event.fallback,
        "repairs": event.repairs,
    }
    reason = f"process {meta.process_id} makes no score"
    if meta.unsealed:
        reason = "no score is signed of what a client asked for on the bus"
    return Outcome(
        meta.request_id, "accepted", reason=reason, answer=answer, unsealed=meta.unsealed
    )


def _rejected(event: GenerationRejected) -> Outcome | None:
    followed = event.ends_as == "fallback_score" or event.empty_result
    if event.meta.shadow or followed or not event.terminal:
        return None
    return Outcome(
        event.meta.request_id,
        "rejected",
        reason="; ".join(error.message for error in event.errors)[:1000],
        code=event.reason,
        errors=tuple(
            {"path": error.path, "rule": error.rule, "message": error.message}
            for error in event.errors
        ),
        unsealed=event.meta.unsealed,
    )


def _dead_lettered(topic: str, value: bytes, headers: Headers) -> Outcome | None:
    # What the runtime added stands behind the record's own headers, of whatever name those are.
    cut = behind_last(headers, FIRST_ADDED)
    told = text_headers(headers if cut is None else headers[cut:])
    request = told.get("assay.request.id")
    if topic not in _SUBMITTED:
        request = request or text_headers(headers).get("ce_requestid")
    meta = _meta_of(value) if topic.startswith(_MARKED) else {}
    if not request or meta.get("shadow") is True:
        return None
    code = told.get("assay.error.code", "unknown")
    reason = told.get("__connect.errors.exception.message", "no reason recorded")
    path = "$" + told.get("assay.error.pointer", "").replace("/", ".")
    errors = () if path == "$" else ({"path": path, "rule": code, "message": reason},)
    return Outcome(
        request,
        "dead_lettered",
        reason=reason,
        code=code,
        errors=errors,
        unsealed=meta.get("unsealed") is True,
        doubtful=topic in _REQUESTED,
    )


def _meta_of(value: bytes) -> dict[str, Any]:
    """The meta of a dead letter's event, where it can be read. Its marks tell of shadows, which
    have their original's request id, and of whatever id a client wrote on a request."""
    try:
        meta = json.loads(value)["meta"]
        return meta if isinstance(meta, dict) else {}
    except (ValueError, TypeError, LookupError, RecursionError):
        return {}
