"""What the query of a page asks for."""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import UTC, datetime

from starlette.requests import Request

from services.evidence.store import Query

LIMIT = 100
MOST = 1_000
_MOST_NUMBER = 2**63 - 1
_FIELD = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,63}(?:\.[A-Za-z_][A-Za-z0-9_]{0,63}){0,7}")
_MOST_FIELDS = 32


class BadParameter(ValueError):
    """A parameter that cannot be meant; the message says why."""

    def __init__(self, name: str, reason: str) -> None:
        super().__init__(reason)
        self.name = name


def given(request: Request, known: tuple[str, ...]) -> dict[str, str]:
    """The parameters, each known, given once and printable."""
    found: dict[str, str] = {}
    for name, text in request.query_params.multi_items():
        if name not in known:
            raise BadParameter(name[:64], f"no such parameter; there are {', '.join(known)}")
        if name in found:
            raise BadParameter(name, f"{name} is given more than once")
        if not text.isprintable():
            raise BadParameter(name, f"{name} has characters that cannot be printed")
        found[name] = text
    return found


def query_of(asked: Mapping[str, str]) -> Query:
    """The filters."""
    return Query(
        request_id=asked.get("request_id"),
        wallet=asked["wallet"].lower() if "wallet" in asked else None,
        type=asked.get("type"),
        since_ms=_since(asked["since"]) if "since" in asked else None,
    )


def place_of(asked: Mapping[str, str]) -> tuple[int, int]:
    """The cursor to go on behind, and rows a page."""
    return _number(asked, "after", 0), min(MOST, max(1, _number(asked, "limit", LIMIT)))


def flag(asked: Mapping[str, str], name: str) -> bool:
    """`true` or `false`, false where it is not given."""
    text = asked.get(name, "false").lower()
    if text not in ("true", "false", "1", "0"):
        raise BadParameter(name, f"{name} is true or false")
    return text in ("true", "1")


def fields_of(asked: Mapping[str, str]) -> list[list[str]] | None:
    """The payload's members that are wanted, each a path of names; None for all."""
    if "fields" not in asked:
        return None
    names = asked["fields"].split(",")
    if len(names) > _MOST_FIELDS or not all(_FIELD.fullmatch(name) for name in names):
        raise BadParameter(
            "fields", f"fields is up to {_MOST_FIELDS} names such as meta.process_id, with commas"
        )
    return [name.split(".") for name in names]


def _number(asked: Mapping[str, str], name: str, default: int) -> int:
    text = asked.get(name)
    if text is None:
        return default
    if not (text.isascii() and text.isdecimal()) or int(text[:20]) > _MOST_NUMBER:
        raise BadParameter(name, f"{name} is a whole number")
    return int(text)


def _since(text: str) -> int:
    """Milliseconds since 1970 from those or from an ISO 8601 time, UTC unless it says otherwise."""
    if text.isascii() and text.isdecimal():
        return min(int(text[:20]), _MOST_NUMBER)
    try:
        when = datetime.fromisoformat(text)
        when = when if when.tzinfo else when.replace(tzinfo=UTC)
        return int(when.timestamp() * 1000)
    except (ValueError, OverflowError) as error:
        raise BadParameter(
            "since", "since is neither milliseconds since 1970 nor an ISO 8601 time"
        ) from error
