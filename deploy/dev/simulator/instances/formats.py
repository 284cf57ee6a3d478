"""Texts in the formats JSON Schema names; `size` letters where the format leaves room."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from random import Random
from uuid import UUID

_LETTERS = "abcdefghijklmnopqrstuvwxyz"
_EPOCH = datetime(2024, 1, 1, tzinfo=UTC)


def _word(rng: Random, size: int) -> str:
    return "".join(rng.choices(_LETTERS, k=max(1, size)))


def _moment(rng: Random) -> datetime:
    return _EPOCH + timedelta(seconds=rng.randrange(730 * 86_400))


def _host(rng: Random, size: int) -> str:
    return f"{_word(rng, min(size, 60))}.example"


def _ipv6(rng: Random, size: int) -> str:
    return ":".join(f"{rng.randrange(1, 65_536):x}" for _ in range(8))


FORMATS: dict[str, Callable[[Random, int], str]] = {
    "date-time": lambda rng, size: _moment(rng).strftime("%Y-%m-%dT%H:%M:%SZ"),
    "date": lambda rng, size: _moment(rng).strftime("%Y-%m-%d"),
    "time": lambda rng, size: _moment(rng).strftime("%H:%M:%SZ"),
    "duration": lambda rng, size: f"P{rng.randint(1, 30)}D",
    "email": lambda rng, size: f"{_word(rng, min(size, 60))}@a.example",
    "idn-email": lambda rng, size: f"{_word(rng, min(size, 60))}@a.example",
    "hostname": _host,
    "idn-hostname": _host,
    "ipv4": lambda rng, size: f"192.0.2.{rng.randint(1, 254)}",
    "ipv6": _ipv6,
    "uri": lambda rng, size: f"https://a.example/{_word(rng, size)}",
    "iri": lambda rng, size: f"https://a.example/{_word(rng, size)}",
    "uri-reference": lambda rng, size: f"/{_word(rng, size)}",
    "iri-reference": lambda rng, size: f"/{_word(rng, size)}",
    "uri-template": lambda rng, size: f"/{_word(rng, size)}/{{id}}",
    "uuid": lambda rng, size: str(UUID(int=rng.getrandbits(128), version=4)),
    "json-pointer": lambda rng, size: f"/{_word(rng, size)}",
    "relative-json-pointer": lambda rng, size: f"0/{_word(rng, size)}",
    "regex": lambda rng, size: f"^{_word(rng, size)}$",
}
