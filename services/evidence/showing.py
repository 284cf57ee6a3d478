"""Rows and attempt records as JSON: redacted unless full text is asked for (SPEC S5.5)."""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Mapping, Sequence
from typing import Any

from assay_runtime.redaction import redact, redact_json
from services.evidence.domain import Row
from services.evidence.domain.attempts import Cause, Judged, attempt_record
from services.evidence.domain.clipping import clip
from services.evidence.domain.erasure import erasure_note

# No span is longer: what a cut goes through lies behind the text that is shown.
_MARGIN = 320

Erasures = Mapping[str, bytes]
"""The values of erasure records by their event ids."""


def page_bytes(items: Sequence[bytes], following: int | None, *, full: bool) -> bytes:
    """A page of items that are JSON already."""
    rest = json.dumps({"next": following, "redacted": not full})[1:]
    return b'{"items": [' + b", ".join(items) + b"], " + rest.encode()


def item_bytes(
    cursor: int, row: Row, erasures: Erasures, *, full: bool, fields: list[list[str]] | None
) -> bytes:
    """A row: `payload` is the value parsed where it is JSON, `payload_text` where it is text.

    Bytes that are neither are shown in full text alone, as `payload_base64`. `value_sha256` is of
    the value as stored, whatever is shown of it; an erased row has none.
    """
    entry = row.entry
    item: dict[str, Any] = {
        "cursor": cursor,
        "shard": row.shard,
        "seq": row.seq,
        "event_id": entry.event_id,
        "type": entry.type,
        "request_id": entry.request_id,
        "wallet": entry.wallet,
        "timestamp_ms": entry.timestamp_ms,
        "topic": entry.topic,
        "partition": entry.partition,
        "offset": entry.offset,
        "leaf_hash": row.leaf_hash.hex(),
    }
    if not full:
        # Ids and types of records from outside are what their publishers made of them.
        for name in ("event_id", "type", "request_id"):
            item[name] = item[name] and redact(item[name])
    if row.erased_by:
        item |= {"value_sha256": None, "value_bytes": None}
        return _dumped(item | {"erased": _erased(row.erased_by, erasures, full=full)})
    item["value_sha256"] = hashlib.sha256(entry.value).hexdigest()
    item["value_bytes"] = len(entry.value)
    if fields is None:
        headers = {n: (value or b"").decode("utf-8", "replace") for n, value in entry.headers}
        item["headers"] = headers if full else redact_json(headers)
    try:
        return _dumped(item | _payload(_parsed(entry.value), fields, full=full))
    except (ValueError, RecursionError):
        return _dumped(item | _no_json(entry.value, full=full))


def attempt_bytes(
    cursor: int, row: Row, verdicts: Mapping[Cause, Judged], erasures: Erasures, *, full: bool
) -> bytes:
    """An attempt record (SPEC S5.5)."""
    record = attempt_record(row, verdicts)
    if not full:
        record, _ = clip(record, _shortened)
        record = redact_json(record)
    if row.erased_by:
        record["erased"] = _erased(row.erased_by, erasures, full=full)
    return _dumped({"cursor": cursor, **record})


def _payload(value: Any, fields: list[list[str]] | None, *, full: bool) -> dict[str, Any]:
    if fields is not None:
        value = _projected(value, fields)
    if full:
        return {"payload": value}
    shown, clipped = clip(value, _shortened)
    return {"payload": redact_json(shown), **({"clipped": True} if clipped else {})}


def _no_json(value: bytes, *, full: bool) -> dict[str, Any]:
    if full:
        return {"payload_base64": base64.b64encode(value).decode()}
    try:
        text = value.decode()
    except UnicodeDecodeError:
        text = "\x00"
    if "\x00" in text:  # UTF-16, for one
        return {"payload_omitted": "neither JSON nor text; shown in full text only"}
    shown, clipped = clip(text, _shortened)
    return {"payload_text": redact_json(shown), **({"clipped": True} if clipped else {})}


def _shortened(text: str, length: int, key: str) -> str:
    """About `length` characters, redacted: cut first, a telephone number could lose its end."""
    if not length:
        return ""
    shown: str = redact_json(text[: length + _MARGIN], under=key)
    return shown[: max(0, len(shown) - _MARGIN)]


def _erased(erased_by: str, erasures: Erasures, *, full: bool) -> Any:
    value = erasures.get(erased_by)
    note = {"record": erased_by} if value is None else erasure_note(erased_by, value)
    return note if full else redact_json(note)


def _projected(value: Any, fields: list[list[str]]) -> Any:
    """The members on these paths; what is not there is left out."""
    made: dict[str, Any] = {}
    # The longest first, so that a whole member replaces parts of it.
    for path in sorted(fields, key=len, reverse=True):
        source = value
        for name in path:
            if not isinstance(source, dict) or name not in source:
                break
            source = source[name]
        else:
            target = made
            for name in path[:-1]:
                target = target.setdefault(name, {})
            target[path[-1]] = source
    return made


def _parsed(value: bytes) -> Any:
    return json.loads(value, parse_constant=_refused)


def _refused(name: str) -> Any:
    raise ValueError(f"{name} is no JSON")


def _dumped(item: dict[str, Any]) -> bytes:
    return json.dumps(item, separators=(",", ":"), allow_nan=False).encode()
