"""Seals: the services' own requests, told from those of clients (ARCHITECTURE, decision 20).

On a topic that clients write too, a service puts a seal on what it writes: the header `assay_seal`,
a hex HMAC-SHA256 over the event's id and value under a secret that no client has. A copy of a
sealed record under its id is that record again, a redelivery; under another id it has no seal.
"""

from __future__ import annotations

import hmac
from collections.abc import Sequence
from typing import Any, Literal, TypeAlias

from pydantic import Field, SecretStr, field_validator

from assay.envelope import Headers, Message
from assay_runtime.settings import Section

SEAL = "assay_seal"
# No other use of the same secret can ever make a seal.
_DOMAIN = b"assay seal 1\n"
_SHORTEST = 32

Doubt: TypeAlias = Literal["missing", "wrong"]
"""Why a record cannot be taken for a service's: it has no seal, or one that no key made."""


class SealsSection(Section):
    """The secret by which services know each other's requests on `llm.generation.requested.v1`
    from clients'; the same for features, ingest, scorer and validator."""

    keys: tuple[SecretStr, ...] = Field(
        (),
        description="one a line, or a JSON list, of at least 32 characters each: the first makes "
        "seals, all are good for checking; unset: whoever may write that topic is trusted",
    )

    @field_validator("keys", mode="before")
    @classmethod
    def _lines(cls, value: Any) -> Any:
        return value.split() if isinstance(value, str) else value

    @field_validator("keys")
    @classmethod
    def _usable(cls, value: tuple[SecretStr, ...]) -> tuple[SecretStr, ...]:
        if not value:
            raise ValueError("it is set and holds no key")
        if any(len(key.get_secret_value()) < _SHORTEST for key in value):
            raise ValueError(f"a key has at least {_SHORTEST} characters; `openssl rand -hex 32`")
        return value


class Seals:
    """Makes and checks seals; without keys it makes none and doubts nothing."""

    __slots__ = ("_keys",)

    def __init__(self, keys: Sequence[bytes] = ()) -> None:
        self._keys = tuple(keys)

    @classmethod
    def of(cls, section: SealsSection) -> Seals:
        return cls([key.get_secret_value().encode() for key in section.keys])

    def __bool__(self) -> bool:
        """Whether there are keys."""
        return bool(self._keys)

    def __repr__(self) -> str:
        return f"Seals({len(self._keys)} keys)"

    def put(self, message: Message) -> Message:
        """The message with the first key's seal."""
        if not self._keys:
            return message
        seal = _made(self._keys[0], _sealed(message.id, message.value))
        return message._replace(headers=(*message.headers, (SEAL, seal)))

    def doubt(self, event_id: str, headers: Headers, value: bytes) -> Doubt | None:
        """None where a key of ours has sealed the record, or where there are no keys."""
        if not self._keys:
            return None
        given = next((value or b"" for name, value in reversed(headers) if name == SEAL), None)
        if given is None:
            return "missing"
        sealed = _sealed(event_id, value)
        found = any(hmac.compare_digest(_made(key, sealed), given) for key in self._keys)
        return None if found else "wrong"


TRUSTING = Seals()
"""No keys."""


def _sealed(event_id: str, value: bytes) -> bytes:
    # With its length the id ends where it ends, whatever characters it holds.
    name = event_id.encode()
    return b"%b%d:%b%b" % (_DOMAIN, len(name), name, value)


def _made(key: bytes, sealed: bytes) -> bytes:
    return hmac.digest(key, sealed, "sha256").hex().encode()
