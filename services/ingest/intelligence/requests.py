"""From the body of a generation request to its event (SPEC S5.1)."""

from __future__ import annotations

import hashlib
import re
from typing import Any

from assay.envelope import Message, emit
from assay.events import GenerationRequested, Meta
from assay_gate.chain import request_meta
from assay_gate.process import Process
from services.ingest.domain.fingerprint import canonical_bytes
from services.ingest.domain.strict_json import JsonLimits, read_json
from services.ingest.intelligence.answers import ApiError, issue
from services.ingest.intelligence.processes import input_problems

SOURCE = "/assay/intelligence"
_WALLET = re.compile(r"0x[0-9a-fA-F]{40}")


def read_input(body: bytes, process: Process, limits: JsonLimits) -> dict[str, Any]:
    """The process's input in `{"input": {…}}`, or in a body that has no member `input` and is the
    input itself; so a process with a field of that name is asked in the first form.

    SubmissionError for what is no JSON, ApiError with its issues for what is no input.
    """
    document, notes = read_json(body, limits)
    if notes:  # wallet data may be dirty; what a caller asks is never changed behind its back
        raise _refused([issue(_path(note.path), _fault(note.reason)) for note in notes[:20]])
    if not isinstance(document, dict):
        raise _refused([issue((), "the body must be a JSON object")])
    given = document
    if "input" in document:
        given = document["input"]
        beside = [name for name in document if name != "input"]
        if beside:
            raise _refused([issue((name,), "no such field beside 'input'") for name in beside[:20]])
        if not isinstance(given, dict):
            raise _refused([issue(("input",), "must be an object")])
    if found := input_problems(process, given):
        raise _refused([issue(problem["path"], problem["message"]) for problem in found])
    return given


def content_sha256(process: Process, given: dict[str, Any]) -> str:
    """Hex SHA-256 by which a repeat is told from other content; another version is no other."""
    return hashlib.sha256(canonical_bytes({"process": process.id, "input": given})).hexdigest()


def generation_request(
    process: Process, given: dict[str, Any], identity: str, tenant: str
) -> Message:
    """The event that asks for an answer: made again for a repeat, it is the same event."""
    key = given.get(process.key) if process.key else None
    wallet = key.lower() if isinstance(key, str) and _WALLET.fullmatch(key) else None
    meta = request_meta(process, Meta(request_id=identity, tenant_id=tenant, wallet=wallet))
    event = GenerationRequested(meta=meta, input=given)
    return emit(event, topic=event.type, source=SOURCE, parent_id=identity)


def _path(pointer: str) -> list[str | int]:
    tokens = [token.replace("~1", "/").replace("~0", "~") for token in pointer.split("/")[1:]]
    tokens = tokens[1:] if tokens[:1] == ["input"] else tokens
    return [int(token) if token.isdecimal() else token for token in tokens]


def _fault(reason: str) -> str:
    """What was wrong, without what became of it: here nothing did."""
    return reason.partition("replaced")[0].rstrip(" ,")


def _refused(issues: list[dict[str, Any]]) -> ApiError:
    return ApiError(400, "VALIDATION_ERROR", "The input is not valid", issues=issues)
