"""What the OpenAPI document says of the Intelligence API beyond its routes."""

from __future__ import annotations

from typing import Any

from services.ingest.intelligence.shapes import failure, success
from services.ingest.scores.docs import IDEMPOTENCY_KEY

_ID = "6e3a2f0c-7c35-5b5e-9a41-0d8f6a1b2c3d"
_META: dict[str, Any] = {
    "request_id": {"type": "string", "format": "uuid"},
    "process_id": {"type": "string"},
    "process_version": {"type": "string"},
    "attempts": {"type": "integer", "description": "How often the model was asked, last step"},
    "model": {"type": ["string", "null"]},
    "repairs": {
        "type": "array",
        "items": {"type": "object"},
        "description": "What was mended in the model's text; absent where nothing was",
    },
    "fallback": {
        "enum": ["provider_unavailable", "answers_rejected"],
        "description": "Why `data` is the process's empty result; absent where it is an answer",
    },
}
_ANSWER = success(
    "The output, which fits the process's output schema",
    {"description": "As the process's output schema says"},
    _META,
    {
        "success": True,
        "data": {"title": "Delivery", "topics": ["late", "refund"]},
        "meta": {"request_id": _ID, "process_id": "open_notes", "process_version": "1.0.0",
                 "attempts": 1, "model": "llama3.2"},
    },
)  # fmt: skip
_PLACE = f"/api/v1/intelligence/requests/{_ID}"
_PENDING = success(
    "No answer within the deadline; ask again at `url`",
    {"type": "null"},
    {**{name: _META[name] for name in ("request_id", "process_id")},
     "status": {"const": "pending"}, "url": {"type": "string"}},
    {"success": True, "data": None,
     "meta": {"request_id": _ID, "process_id": "open_notes", "status": "pending", "url": _PLACE}},
)  # fmt: skip
_NO_KEY = failure("No API key, or none that counts", "UNAUTHORIZED", "This API key is revoked")
_LIMITED = failure(
    "The key's or the tenant's rate or concurrency is used up", "RATE_LIMITED",
    "too many requests with this key in this time", retry=True,
)  # fmt: skip
_AWAY = failure(
    "The model (PROVIDER_UNAVAILABLE), the broker or the store (UNAVAILABLE) is away",
    "UNAVAILABLE", "The broker did not answer in time", retry=True,
)  # fmt: skip
_FAILED = failure(
    "No attempt brought a valid answer; the issues are the last attempt's",
    "OUTPUT_VALIDATION_FAILED",
    "Failed to generate valid response after retry",
    [{"path": ["claims", 0, "polarity"], "message": 'must be one of "positive", "negative"'}],
)
_INVALID = failure(
    "The body is no JSON, or no input of the process", "VALIDATION_ERROR",
    "The input is not valid",
    [{"path": ["text"], "message": 'required field "text" is missing'}],
)  # fmt: skip
_ENDS = {"200": _ANSWER, "202": _PENDING, "400": _INVALID, "401": _NO_KEY, "429": _LIMITED,
         "500": _FAILED, "503": _AWAY}  # fmt: skip

GENERATE: dict[str, Any] = {
    "operationId": "generate",
    "description": (
        "Publishes one generation request and waits for its answer. The body is "
        '`{"input": {…}}`; a body without a member `input` is taken as the input itself. '
        "`GET /api/v1/intelligence` shows each process's input schema. The same Idempotency-Key "
        "with the same content is the same request, also after it has failed."
    ),
    "parameters": [
        {"name": "process_id", "in": "path", "required": True, "schema": {"type": "string"}},
        IDEMPOTENCY_KEY,
        {
            "name": "Prefer",
            "in": "header",
            "description": "`wait=SECONDS` shortens the wait (RFC 7240)",
            "schema": {"type": "string"},
        },
    ],
    "requestBody": {
        "required": True,
        "content": {
            "application/json": {
                "schema": {
                    "type": "object",
                    "required": ["input"],
                    "additionalProperties": False,
                    "properties": {
                        "input": {"type": "object", "description": "As the process's input schema"}
                    },
                },
                "example": {"input": {"text": "The parcel came a week late."}},
            }
        },
    },
    "responses": {
        **_ENDS,
        "403": failure("The key does not cover the process, or its result is a signed score",
                      "FORBIDDEN", "this API key does not cover this process"),
        "404": failure("No such process", "NOT_FOUND", "There is no process 'no_such'"),
        "413": failure("Larger than the topic takes", "PAYLOAD_TOO_LARGE", "the body is too large"),
        "422": failure("The Idempotency-Key was used before with other content",
                      "IDEMPOTENCY_CONFLICT",
                      "this Idempotency-Key was used before with other content"),
    },
}  # fmt: skip
REQUEST: dict[str, Any] = {
    "operationId": "request",
    "parameters": [
        {"name": "request_id", "in": "path", "required": True,
         "schema": {"type": "string", "format": "uuid"}},
    ],
    "responses": {
        **_ENDS,
        "404": failure("No such request of this key's tenant and processes", "NOT_FOUND",
                      f"No request {_ID} is known here"),
    },
}  # fmt: skip
PROCESSES: dict[str, Any] = {
    "operationId": "processes",
    "responses": {
        "200": success(
            "The processes that the key covers",
            {
                "type": "array",
                "items": {
                    "type": "object",
                    "properties": {
                        "process_id": {"type": "string"},
                        "version": {"type": "string"},
                        "url": {"type": "string"},
                        "steps": {"type": "array", "items": {"type": "string"}},
                        "input_schema": {"type": "object"},
                        "output_schema": {
                            "type": ["object", "null"],
                            "description": "Of the last question; null: any JSON",
                        },
                    },
                },
            },
            {},
            {"success": True, "data": [{
                "process_id": "open_notes", "version": "1.0.0",
                "url": "/api/v1/intelligence/open_notes/generate", "steps": ["note"],
                "input_schema": {"type": "object", "required": ["text"]}, "output_schema": None,
            }]},
        ),
        "401": _NO_KEY,
        "429": _LIMITED,
        "503": _AWAY,
    },
}  # fmt: skip
