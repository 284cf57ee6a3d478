"""A request as HTTP shows it: pending, scored, or ended without a score."""

from __future__ import annotations

import json
from typing import Any

from fastapi.responses import JSONResponse

from assay.submission import SubmissionError
from assay_runtime.problem import problem
from services.ingest.store import Known

_REFUSED = {
    "invalid_json": 400,
    "invalid_utf8": 400,
    "empty": 400,
    "bad_idempotency_key": 400,
    "too_slow": 408,
    "too_large": 413,
    "busy": 503,
}
# Failures before acceptance that were somebody else's outage: the same key may try again.
_OUTAGES = {"aggregator_timeout", "aggregator_unavailable"}

# How an ending without a score is told to the caller; what is not named here is 422, the
# submission's own fault.
_STATUS = {
    "provider_unavailable": 503,
    "answers_rejected": 502,
    "aggregator_timeout": 504,
    "aggregator_unavailable": 502,
    "aggregator_rubbish": 502,
    "aggregator_refused": 502,
    "wallet_unknown": 404,
    "request_too_large": 413,
    "handler_failed": 500,
    "output_too_large": 500,
    "envelope": 500,
    "event_type": 500,
    "schema": 500,
}


def answer(known: Known) -> JSONResponse:
    """200 with the flat signed score, 202 with where to ask again, or a problem."""
    request_id = known.request_id
    if known.outcome is None:
        place = f"/scores/{request_id}"
        return JSONResponse(
            {"request_id": request_id, "status": "pending", "url": place},
            status_code=202,
            headers={"Location": place, "Retry-After": "2"},
        )
    outcome: dict[str, Any] = json.loads(known.outcome)
    if known.status == "signed":
        # Seed 3 shows the signature in this answer with 0x in front.
        return JSONResponse({**outcome, "signature": f"0x{outcome['signature']}"})
    code = str(outcome.get("code") or known.status)
    return problem(
        _STATUS.get(code, 422),
        code,
        str(outcome.get("reason") or "no reason recorded"),
        request_id=request_id,
        outcome=known.status,
    )


def may_be_tried_again(known: Known) -> bool:
    """Whether a repeat of this request is more than a question for its answer."""
    return (
        known.status == "dead_lettered"
        and known.outcome is not None
        and json.loads(known.outcome).get("code") in _OUTAGES
    )


def refused(error: SubmissionError) -> JSONResponse:
    """A submission that cannot be taken, with the field at fault."""
    status = _REFUSED.get(error.code, 422)
    headers = {"Retry-After": "5"} if status == 503 else None
    return problem(status, error.code, error.message, pointer=error.pointer, headers=headers)


def unavailable(error: Exception) -> JSONResponse:
    """Store or broker are away."""
    return problem(503, "unavailable", str(error) or "the broker did not answer in time",
                   headers={"Retry-After": "5"})  # fmt: skip
