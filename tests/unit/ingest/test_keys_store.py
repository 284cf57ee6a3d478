"""The table of API keys, on SQLite and on PostgreSQL (issue 5 item 3)."""

from __future__ import annotations

import secrets
from collections.abc import AsyncIterator, Callable
from dataclasses import replace
from pathlib import Path

import pytest

from assay_runtime.failures import Pause
from assay_runtime.settings import SettingsError
from services.ingest.app import open_store
from services.ingest.domain.api_keys import ApiKey, Minted
from services.ingest.keys.store import KeyStore, open_key_store


@pytest.fixture(params=["sqlite", pytest.param("postgres", marks=pytest.mark.postgres)])
def store_url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """The setting of an empty ingest store."""
    if request.param == "postgres":
        return str(request.getfixturevalue("postgres_url"))
    return f"sqlite:///{tmp_path}/requests.sqlite"


@pytest.fixture
def new_keys(store_url: str) -> Callable[[], KeyStore]:
    return lambda: open_key_store(store_url)


@pytest.fixture
async def table(new_keys: Callable[[], KeyStore]) -> AsyncIterator[KeyStore]:
    """An open, empty table."""
    opened = new_keys()
    await opened.open()
    yield opened
    await opened.close()


def a_key(**fields: object) -> ApiKey:
    presented = Minted.make(secrets.randbelow).presented
    given = {"tenant": "acme", "name": "ci", "scopes": frozenset({"*"}), "created_ms": 5, **fields}
    return ApiKey(presented.id, presented.digest, **given)  # type: ignore[arg-type]


async def test_every_field_comes_back(table: KeyStore) -> None:
    full = a_key(
        tenant="Ünïcode", name="a 'quoted\" name", scopes=frozenset({"b", "a,c"}),
        created_ms=1_800_000_000_000, expires_ms=1_900_000_000_000, revoked_ms=1_850_000_000_000,
        last_used_ms=1_840_000_000_000, per_minute=7, burst=3, concurrency=2, replaces="x" * 12,
    )  # fmt: skip
    bare = a_key(created_ms=1)
    await table.add(bare)
    await table.add(full)
    assert list(await table.keys()) == [full, bare]


async def test_every_change_makes_another_revision(table: KeyStore) -> None:
    """Replicas read the table only when it changed, so no change may go unseen; the note of a
    key's use is none, or every use would make all replicas read."""
    key, successor = a_key(), a_key()
    seen = [await table.revision()]
    await table.add(key)
    seen.append(await table.revision())
    assert await table.rotate(replace(key, expires_ms=9), successor)
    seen.append(await table.revision())
    assert await table.revoke(key.id, 8)
    seen.append(await table.revision())
    assert len(set(seen)) == 4
    await table.touch({key.id: 7})
    assert await table.revision() == seen[-1]


async def test_revocation_is_final_and_the_first_counts(table: KeyStore) -> None:
    key, other = a_key(), a_key()
    await table.add(key)
    await table.add(other)
    assert await table.revoke(key.id, 10)
    assert await table.revoke(key.id, 20)
    assert not await table.revoke("a" * 12, 10)
    assert set(await table.keys()) == {replace(key, revoked_ms=10), other}


async def test_rotation_is_one_change(table: KeyStore) -> None:
    """Either both are as they should be or nothing has happened."""
    key, successor = a_key(), a_key(created_ms=6)
    await table.add(key)
    ending = replace(key, expires_ms=100)
    assert await table.rotate(ending, successor)
    assert list(await table.keys()) == [successor, ending]
    # A later end than what stands there, a revoked key, an unknown one, a taken id.
    assert not await table.rotate(replace(key, expires_ms=101), a_key())
    await table.revoke(key.id, 10)
    assert not await table.rotate(replace(key, expires_ms=50), a_key())
    assert not await table.rotate(a_key(expires_ms=50), a_key())
    with pytest.raises(Exception, match=r"(?i)unique"):
        await table.rotate(replace(successor, expires_ms=50), key)
    assert list(await table.keys()) == [successor, replace(ending, revoked_ms=10)]


async def test_the_last_use_never_goes_back(table: KeyStore) -> None:
    """Replicas note it in any order."""
    key, other = a_key(), a_key()
    await table.add(key)
    await table.add(other)
    await table.touch({key.id: 50, "gone" * 3: 1})
    await table.touch({key.id: 40, other.id: 60})
    assert {k.id: k.last_used_ms for k in await table.keys()} == {key.id: 50, other.id: 60}


async def test_an_id_is_given_once(table: KeyStore) -> None:
    key = a_key()
    await table.add(key)
    with pytest.raises(Exception, match=r"(?i)unique"):
        await table.add(replace(a_key(), id=key.id))
    assert list(await table.keys()) == [key]


async def test_service_and_command_share_the_table(new_keys: Callable[[], KeyStore]) -> None:
    """Issue 5: `assay keys` works against a running stack."""
    service, command = new_keys(), new_keys()
    await service.open()
    await command.open()
    before = await service.revision()
    key = a_key()
    await command.add(key)
    await command.close()
    assert await service.revision() != before
    assert list(await service.keys()) == [key]
    await service.close()


async def test_keys_and_requests_migrate_apart(store_url: str) -> None:
    """Both tables belong to one setting; neither counts the other's migrations."""
    for order in (("keys", "requests"), ("requests", "keys")):
        for which in order:
            store = open_store(store_url) if which == "requests" else open_key_store(store_url)
            await store.open()
            await store.close()


async def test_the_secret_is_not_in_the_file(tmp_path: Path) -> None:
    """Issue 5: hashed at rest; the id is there, so that the search can find."""
    minted = Minted.make(secrets.randbelow)
    table = open_key_store(f"sqlite:///{tmp_path}/requests.sqlite")
    await table.open()
    key = a_key()
    await table.add(replace(key, id=minted.presented.id, digest=minted.presented.digest))
    during = b"".join(file.read_bytes() for file in tmp_path.iterdir())
    await table.close()
    after = b"".join(file.read_bytes() for file in tmp_path.iterdir())
    secret = minted.text.rpartition("_")[2]
    for kept in (during, after):
        assert minted.presented.id.encode() in kept
        assert minted.presented.digest in kept
        assert secret.encode() not in kept
        assert secret[:43].encode() not in kept


async def test_a_table_that_is_not_open_pauses(new_keys: Callable[[], KeyStore]) -> None:
    table = new_keys()
    for question in (table.revision, table.keys):
        with pytest.raises(Pause):
            await question()


def test_other_urls_are_refused() -> None:
    with pytest.raises(SettingsError, match="ASSAY_INGEST__STORE"):
        open_key_store("mysql://localhost/x")
