"""The two shapes of the Intelligence API as OpenAPI responses: success and error."""

from __future__ import annotations

from typing import Any

_REQUEST_ID = {"X-Request-Id": {"description": "Of this request", "schema": {"type": "string"}}}
_RETRY_AFTER = {"Retry-After": {"description": "Seconds", "schema": {"type": "integer"}}}
_ISSUE = {
    "type": "object",
    "required": ["path", "message"],
    "properties": {
        "path": {"type": "array", "items": {"type": ["string", "integer"]}},
        "message": {"type": "string"},
    },
}
_ERROR_SCHEMA = {
    "type": "object",
    "required": ["success", "error"],
    "properties": {
        "success": {"const": False},
        "error": {
            "type": "object",
            "required": ["code", "message"],
            "properties": {
                "code": {"type": "string"},
                "message": {"type": "string"},
                "details": {
                    "type": "object",
                    "properties": {
                        "reason": {"type": "string", "description": "A finer code"},
                        "issues": {"type": "array", "items": _ISSUE},
                    },
                },
            },
        },
    },
}


def failure(
    description: str,
    code: str,
    message: str,
    issues: list[dict[str, Any]] | None = None,
    *,
    retry: bool = False,
) -> dict[str, Any]:
    error: dict[str, Any] = {"code": code, "message": message}
    if issues:
        error["details"] = {"issues": issues}
    return {
        "description": description,
        "headers": _REQUEST_ID | (_RETRY_AFTER if retry else {}),
        "content": {
            "application/json": {
                "schema": _ERROR_SCHEMA,
                "example": {"success": False, "error": error},
            }
        },
    }


def success(description: str, data: Any, meta: dict[str, Any], example: Any) -> dict[str, Any]:
    return {
        "description": description,
        "headers": _REQUEST_ID,
        "content": {
            "application/json": {
                "schema": {
                    "type": "object",
                    "required": ["success", "data"],
                    "properties": {
                        "success": {"const": True},
                        "data": data,
                        **({"meta": {"type": "object", "properties": meta}} if meta else {}),
                    },
                },
                "example": example,
            }
        },
    }
