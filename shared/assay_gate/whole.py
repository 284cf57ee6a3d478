"""Texts that are one JSON value from end to end: scalars, and JSON inside a string."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from assay_gate.config import GateConfig
from assay_gate.reader import TolerantReader
from assay_gate.strict import NotStrict, StrictReader
from assay_gate.tokens import Unreadable, read_word, skip_blank
from assay_gate.verdict import Repair, repair


@dataclass(frozen=True, slots=True)
class Candidate:
    """One JSON value found in the text.

    bare   it holds words without quotes
    clean  it was strict JSON without numbers like 5.0, so it needs no coercion if it validates
    """

    value: Any
    repairs: list[Repair]
    bare: bool = False
    clean: bool = False


def read_scalar(text: str, strict: StrictReader) -> Candidate:
    """The whole text, without fences, as one scalar: `True`, `12`, `"two"`."""
    body = _without_fences(text.strip())
    repairs = [] if body == text.strip() else [repair("$", "extracted", text.strip(), body)]
    try:
        return Candidate(strict.read(body), repairs)
    except NotStrict:
        pass
    if not body or len(body) > 64 or any(char.isspace() for char in body):
        raise Unreadable("not_json", "no JSON was found in the answer", 0)
    value, kind = read_word(body)
    if kind and kind != "unquoted":
        repairs.append(repair("$", kind, body, value))
    return Candidate(value, repairs, bare=kind == "unquoted")


def read_whole(text: str, config: GateConfig, strict: StrictReader) -> Any:
    """The value of a text that is JSON from end to end, repaired if need be.

    For JSON inside a string, where prose would be a reason to leave the string alone. Raises
    Unreadable.
    """
    body = _without_fences(text.strip())
    try:
        return strict.read(body)
    except NotStrict:
        pass
    if body[:1] not in ("{", "[") or len(body) > config.max_repair_characters:
        raise Unreadable("not_json", "no JSON", 0)
    value, end, _, bare = TolerantReader(body, config).read(0)
    if bare or skip_blank(body, end)[0] != len(body):
        raise Unreadable("not_json", "text follows after the JSON", end)
    return value


def _without_fences(text: str) -> str:
    """The text between one pair of code fences, if it begins and ends with them."""
    if not (text.startswith("```") and text.endswith("```") and len(text) > 6):
        return text
    body = text.strip("`")
    tag_end = body.find("\n")
    first = body[:tag_end] if tag_end >= 0 else ""
    return (body[tag_end:] if first.strip().isalnum() or not first.strip() else body).strip()
