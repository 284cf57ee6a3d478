"""Both evidence stores behind one fixture, so that every test of the store runs on both."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest

from services.evidence.app import open_store
from services.evidence.store import EvidenceStore


@pytest.fixture(params=["sqlite", pytest.param("postgres", marks=pytest.mark.postgres)])
def store_url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """Where an empty store can be made."""
    if request.param == "postgres":
        return str(request.getfixturevalue("postgres_url"))
    return f"sqlite:///{tmp_path}/evidence.sqlite"


@pytest.fixture
def new_store(store_url: str) -> Callable[[], EvidenceStore]:
    """Makes stores on the same empty database, as several writers have them; not opened."""
    return lambda: open_store(store_url)


@pytest.fixture
async def store(new_store: Callable[[], EvidenceStore]) -> AsyncIterator[EvidenceStore]:
    """An open, empty store."""
    opened = new_store()
    await opened.open()
    yield opened
    await opened.close()
