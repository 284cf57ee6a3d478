"""What the OpenAPI document says of the public API beyond its routes."""

from __future__ import annotations

from typing import Any

_PROBLEM = {
    "description": "What is wrong, and with which field (RFC 9457)",
    "content": {
        "application/problem+json": {
            "schema": {
                "type": "object",
                "required": ["type", "title", "status", "code", "detail"],
                "properties": {
                    "type": {"type": "string"},
                    "title": {"type": "string"},
                    "status": {"type": "integer"},
                    "code": {"type": "string"},
                    "detail": {"type": "string"},
                    "errors": {
                        "type": "array",
                        "items": {
                            "type": "object",
                            "properties": {
                                "pointer": {"type": "string"},
                                "detail": {"type": "string"},
                            },
                        },
                    },
                },
            }
        }
    },
}
_SCORE = {
    "description": "The signed score; the signature covers score, wallet_address, timestamp_ms",
    "content": {
        "application/json": {
            "schema": {
                "type": "object",
                "required": ["score", "wallet_address", "timestamp_ms", "signature", "metadata"],
                "properties": {
                    "request_id": {"type": "string", "format": "uuid"},
                    "score": {"type": "integer", "minimum": 0, "maximum": 1000},
                    "wallet_address": {"type": "string"},
                    "timestamp_ms": {"type": "integer"},
                    "signature": {"type": "string", "pattern": "^0x[0-9a-f]{128}$"},
                    "public_key": {"type": "string", "pattern": "^[0-9a-f]{66}$"},
                    "metadata": {"type": "object"},
                },
            }
        }
    },
}
_PENDING = {
    "description": "Not scored yet; ask again at `url`",
    "content": {
        "application/json": {
            "schema": {
                "type": "object",
                "required": ["request_id", "status", "url"],
                "properties": {
                    "request_id": {"type": "string", "format": "uuid"},
                    "status": {"const": "pending"},
                    "url": {"type": "string"},
                },
            }
        }
    },
}
_RESPONSES = {"200": _SCORE, "202": _PENDING, "default": _PROBLEM}
IDEMPOTENCY_KEY = {
    "name": "Idempotency-Key",
    "in": "header",
    "description": "The same key with the same content is the same request",
    "schema": {"type": "string", "maxLength": 255},
}

POST_SCORE: dict[str, Any] = {
    "parameters": [IDEMPOTENCY_KEY],
    "requestBody": {
        "required": True,
        "content": {
            "application/json": {
                "schema": {
                    "type": "object",
                    "required": ["address"],
                    "properties": {
                        "address": {"type": "string", "pattern": "^0x[0-9a-fA-F]{40}$"},
                        "questionnaire": {
                            "type": ["array", "null"],
                            "items": {
                                "type": "object",
                                "required": ["question"],
                                "properties": {
                                    "question": {"type": "string"},
                                    "answer": {"type": ["string", "null"]},
                                },
                            },
                        },
                        "evm_data": {"type": ["object", "null"]},
                    },
                }
            }
        },
    },
    "responses": _RESPONSES,
}
GET_SCORE: dict[str, Any] = {
    "parameters": [
        IDEMPOTENCY_KEY,
        {
            "name": "address",
            "in": "query",
            "required": True,
            "schema": {"type": "string", "pattern": "^0x[0-9a-fA-F]{40}$"},
        },
    ],
    "responses": _RESPONSES,
}
GET_SCORES: dict[str, Any] = {"responses": {**_RESPONSES, "404": _PROBLEM}}
