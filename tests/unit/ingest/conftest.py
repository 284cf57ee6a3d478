"""Both request stores behind one fixture, so that every test of the store runs on both."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest

from services.ingest.app import open_store
from services.ingest.store import RequestStore


@pytest.fixture(params=["sqlite", pytest.param("postgres", marks=pytest.mark.postgres)])
def new_store(request: pytest.FixtureRequest, tmp_path: Path) -> Callable[[], RequestStore]:
    """Makes stores on the same empty database, as several replicas have them; not opened."""
    url = f"sqlite:///{tmp_path}/requests.sqlite"
    if request.param == "postgres":
        url = str(request.getfixturevalue("postgres_url"))
    return lambda: open_store(url)


@pytest.fixture
async def store(new_store: Callable[[], RequestStore]) -> AsyncIterator[RequestStore]:
    """An open, empty store."""
    opened = new_store()
    await opened.open()
    yield opened
    await opened.close()
