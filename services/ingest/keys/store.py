"""The table of API keys: what is asked of it, and which database holds it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Protocol

from assay_runtime.stores import sqlite_path
from services.ingest.adapters.keys_postgres import PostgresKeys
from services.ingest.adapters.keys_sqlite import SqliteKeys
from services.ingest.domain.api_keys import ApiKey


class KeyStore(Protocol):
    """Shared by all replicas and by `assay keys`. Raises Pause while the database is away.

    The revision is a text that is another one after every change but those of `touch`.
    """

    async def open(self) -> None: ...

    async def close(self) -> None: ...

    async def revision(self) -> str: ...

    async def keys(self) -> Sequence[ApiKey]:
        """All keys, the newest first."""
        ...

    async def add(self, key: ApiKey) -> None: ...

    async def rotate(self, old: ApiKey, successor: ApiKey) -> bool:
        """Store `old`'s expiry and add its successor, in one transaction; False, and nothing is
        done, where the old one was revoked, shortened or removed meanwhile."""
        ...

    async def revoke(self, key_id: str, now_ms: int) -> bool:
        """False where there is no such key. Revoked again, the first time stays."""
        ...

    async def touch(self, used_ms: Mapping[str, int]) -> None:
        """Record when keys were last used; a later time is never replaced by an earlier one."""
        ...


def open_key_store(url: str, setting: str = "ASSAY_INGEST__STORE") -> KeyStore:
    """The key table of an ingest store: in PostgreSQL the same database; for SQLite a file of its
    own beside, because a file counts the migrations of one owner. Not opened yet."""
    path = sqlite_path(url, setting)
    return PostgresKeys(url) if path is None else SqliteKeys(keys_file(path))


def keys_file(requests: Path) -> Path:
    """`requests.sqlite` → `requests.keys.sqlite`."""
    return requests.with_name(f"{requests.stem}.keys{requests.suffix}")
