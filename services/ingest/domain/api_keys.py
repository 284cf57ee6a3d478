"""API keys: what they look like, what is kept of them, when they count (SPEC S5.1).

    assay_key_<id>_<secret><checksum>

`id` is public: 12 of 0-9a-z. `secret` is 43 of 0-9A-Za-z, 256 bits. `checksum` is the CRC-32 of
all before it, six of 0-9A-Za-z, so that a typing mistake is refused without asking a store and a
secret scanner knows a real key from a look-alike. All of it is ASCII and selects with one click.

Only the SHA-256 of the whole key is kept. A slow hash protects passwords, which can be guessed;
256 random bits cannot, and every request would pay for it.
"""

from __future__ import annotations

import hashlib
import hmac
import re
import zlib
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Literal, Self

from services.ingest.domain.limits import Allowance

MARK = "assay_key_"
EVERY_PROCESS = "*"
# The column and the events' meta.tenant_id have the same limit.
MOST_CHARACTERS = 128

_DIGITS = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
_ID_DIGITS = "0123456789abcdefghijklmnopqrstuvwxyz"
_ID, _SECRET, _CHECKSUM = 12, 43, 6
_KEY = re.compile(
    rf"({MARK}([0-9a-z]{{{_ID}}})_[0-9A-Za-z]{{{_SECRET}}})([0-9A-Za-z]{{{_CHECKSUM}}})"
)
_PUBLIC = re.compile(rf"(?:{MARK})?([0-9a-z]{{{_ID}}})")

Standing = Literal["active", "expired", "revoked"]


@dataclass(frozen=True, slots=True)
class Presented:
    """A well-formed key somebody showed, without its secret."""

    id: str
    digest: bytes = field(repr=False)


@dataclass(frozen=True, slots=True)
class ApiKey:
    """What is kept of a key. Times are milliseconds since 1970; `per_minute`, `burst` and
    `concurrency` override the defaults where they are set; `replaces` is the id of the key this
    one was made from by rotation."""

    id: str
    digest: bytes = field(repr=False)
    tenant: str
    name: str
    scopes: frozenset[str]
    created_ms: int
    expires_ms: int | None = None
    revoked_ms: int | None = None
    last_used_ms: int | None = None
    per_minute: int | None = None
    burst: int | None = None
    concurrency: int | None = None
    replaces: str | None = None

    def __post_init__(self) -> None:
        for what, text in (("tenant", self.tenant), ("name", self.name)):
            _check_text(what, text)
        if not self.scopes:
            raise ValueError("a key covers at least one process")
        for scope in self.scopes:
            _check_text("process", scope)
        if any(
            own is not None and own < 1 for own in (self.per_minute, self.burst, self.concurrency)
        ):
            raise ValueError("rate, burst and concurrency are at least 1")
        if self.expires_ms is not None and self.expires_ms < self.created_ms:
            raise ValueError("a key does not expire before it is made")

    @property
    def prefix(self) -> str:
        """The public part of the key."""
        return MARK + self.id

    def matches(self, presented: Presented) -> bool:
        """Whether that is this key, in constant time."""
        return hmac.compare_digest(self.digest, presented.digest)

    def covers(self, process_id: str) -> bool:
        return EVERY_PROCESS in self.scopes or process_id in self.scopes

    def standing(self, now_ms: int) -> Standing:
        if self.revoked_ms is not None:
            return "revoked"
        expired = self.expires_ms is not None and now_ms >= self.expires_ms
        return "expired" if expired else "active"

    def allowance(self, default: Allowance) -> Allowance:
        """The key's own limits over the defaults. The default burst is never above the key's own
        rate: one request a minute does not mean twenty at once."""
        rate = self.per_minute
        return Allowance(
            per_minute=rate or default.per_minute,
            burst=self.burst or min(default.burst, rate or default.burst),
            concurrency=self.concurrency or default.concurrency,
        )

    def rotated(
        self, successor: Presented, now_ms: int, overlap_ms: int, life_ms: int | None = None
    ) -> tuple[ApiKey, ApiKey]:
        """(this key, which ends with the overlap at the latest; its successor).

        The successor lives for `life_ms`, else as long as this key was made for. ValueError where
        this key counts no more.
        """
        standing = self.standing(now_ms)
        if standing != "active":
            raise ValueError(f"{self.prefix} is {standing}; make a new key instead")
        if life_ms is None and self.expires_ms is not None:
            life_ms = self.expires_ms - self.created_ms
        end = now_ms + overlap_ms
        fresh = replace(
            self,
            id=successor.id,
            digest=successor.digest,
            created_ms=now_ms,
            expires_ms=None if life_ms is None else now_ms + life_ms,
            last_used_ms=None,
            replaces=self.id,
        )
        return replace(self, expires_ms=min(end, self.expires_ms or end)), fresh


@dataclass(frozen=True, slots=True)
class Minted:
    """A new key: `text` is for its holder, once; the rest is what may be kept."""

    text: str = field(repr=False)
    presented: Presented

    @classmethod
    def make(cls, below: Callable[[int], int]) -> Self:
        """`below(n)` is a random number from 0 to n - 1, from a source fit for secrets."""
        public = "".join(_ID_DIGITS[below(len(_ID_DIGITS))] for _ in range(_ID))
        secret = "".join(_DIGITS[below(len(_DIGITS))] for _ in range(_SECRET))
        body = f"{MARK}{public}_{secret}"
        text = body + _checksum(body)
        return cls(text, Presented(public, hashlib.sha256(text.encode()).digest()))


def parse_key(text: str) -> Presented | None:
    """The key that a text is, None where it is none by shape or checksum."""
    found = _KEY.fullmatch(text)
    if found is None or _checksum(found[1]) != found[3]:
        return None
    return Presented(found[2], hashlib.sha256(text.encode()).digest())


def parse_id(text: str) -> str | None:
    """The id in an id, in a public prefix, or in a whole key; None where it is none of them."""
    if presented := parse_key(text):
        return presented.id
    found = _PUBLIC.fullmatch(text)
    return found[1] if found else None


def _checksum(body: str) -> str:
    number = zlib.crc32(body.encode())
    digits = ""
    for _ in range(_CHECKSUM):
        number, digit = divmod(number, len(_DIGITS))
        digits = _DIGITS[digit] + digits
    return digits


def _check_text(what: str, text: str) -> None:
    if not (0 < len(text) <= MOST_CHARACTERS and text.isprintable() and text == text.strip()):
        raise ValueError(
            f"{what}: 1 to {MOST_CHARACTERS} printable characters, no spaces at the ends"
        )
