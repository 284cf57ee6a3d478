"""A request as HTTP shows it: pending, scored, or ended without a score."""

from __future__ import annotations

import json
from typing import Any

from fastapi.responses import JSONResponse

from assay_runtime.problem import problem
from services.ingest.store import Known

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
    "handler_failed": 500,
    "output_too_large": 500,
    "envelope": 500,
    "event_type": 500,
    "schema": 500,
}


def answer(known: Known, request_id: str) -> JSONResponse:
    """200 with the flat signed score, 202 with where to ask again, or a problem."""
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
