"""Whose wallet a submission is about, as its value says. Pure."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

from assay.envelope import Headers, is_structured
from assay.events import WalletEventSubmitted
from assay.topics import catalogue

SUBMISSIONS = frozenset(
    topic.name for topic in catalogue().everything() if topic.event == WalletEventSubmitted.type
)
"""The topic of submissions and its dead letters."""

_WALLET = re.compile(r"0x[0-9a-f]{40}", re.ASCII)
# One of our submissions has three, an event's attributes are a dozen.
_MOST_MEMBERS = 64
_SPACE = re.compile(r"[ \t\n\r]*")


class _TooMany(Exception):
    """An object with more members than are gone through one by one."""


def address_in(text: str | None) -> str | None:
    """The text in lower case where it is an address."""
    lower = (text or "").lower()
    return lower if _WALLET.fullmatch(lower) else None


def named_wallet(headers: Headers, value: bytes) -> str | None:
    """The wallet that ingest scores a submission for: the `address` of the value, of a structured
    event that of its `data`; never raises.

    Ingest refuses what is not wholly right, and refused text is somebody's as well: so the value is
    read no further than to its address, and where there is none in its place, the other counts.
    """
    place = "data" if is_structured(headers) else "address"
    text = value.decode(json.detect_encoding(value), "replace")
    found: dict[str, str] = {}
    try:
        for name, wallet in _addresses(text):
            if wallet is not None:
                found.setdefault(name, wallet)
                if name == place:
                    break
    except _TooMany:
        found = _in_whole(text) or found
    except (ValueError, RecursionError):
        pass
    return found.get(place) or next(iter(found.values()), None)


def _addresses(text: str) -> Iterator[tuple[str, str | None]]:
    """What `address` and the `address` of `data` say, in their order."""
    for name, at in _members(text, 0):
        if name == "address":
            yield name, _address_at(text, at)
        elif name == "data":
            for inner, inner_at in _members(text, at):
                if inner == "address":
                    yield name, _address_at(text, inner_at)


def _address_at(text: str, at: int) -> str | None:
    return _address(_DECODER.raw_decode(text, at)[0]) if text.startswith('"', at) else None


def _address(value: object) -> str | None:
    return address_in(value.strip()) if isinstance(value, str) else None


def _members(text: str, at: int) -> Iterator[tuple[str, int]]:
    """The names of the object there and where their values begin, for as far as it is one."""
    at = _behind_space(text, at)
    before = "{"
    for _ in range(_MOST_MEMBERS):
        if not text.startswith(before, at):
            return
        at = _behind_space(text, at + 1)
        if not text.startswith('"', at):
            return
        name, at = _DECODER.raw_decode(text, at)
        at = _behind_space(text, at)
        if not text.startswith(":", at):
            return
        at = _behind_space(text, at + 1)
        yield name, at
        at = _behind_space(text, _DECODER.raw_decode(text, at)[1])
        before = ","
    raise _TooMany


def _in_whole(text: str) -> dict[str, str]:
    """The same, of a value that has too many members to go through them one by one."""
    try:
        document = _DECODER.decode(text)
    except (ValueError, RecursionError):
        return {}
    if not isinstance(document, dict):
        return {}
    data = document.get("data")
    nested = data.get("address") if isinstance(data, dict) else None
    told = {"address": document.get("address"), "data": nested}
    return {name: wallet for name, said in told.items() if (wallet := _address(said))}


def _behind_space(text: str, at: int) -> int:
    found = _SPACE.match(text, at)
    return found.end() if found else at


def _unread(_: str) -> Any:
    return None


# Numbers are passed over: one of thousands of digits would take long, or not be read at all.
_DECODER = json.JSONDecoder(parse_int=_unread, parse_float=_unread, strict=False)
