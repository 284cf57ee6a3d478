"""Both ledgers behind one fixture, so that every test of the ledger runs on both."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from services.signer.domain.ports import Ledger
from tests.unit.signer.claims import open_ledger


@pytest.fixture(params=["sqlite", pytest.param("postgres", marks=pytest.mark.postgres)])
def ledger_address(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """Where an empty ledger can be made: a path, or a PostgreSQL URL."""
    if request.param == "postgres":
        return str(request.getfixturevalue("postgres_url"))
    return str(tmp_path / "ledger.sqlite")


@pytest.fixture
async def ledger(ledger_address: str) -> AsyncIterator[Ledger]:
    """An open, empty ledger."""
    opened = open_ledger(ledger_address)
    await opened.open()
    yield opened
    await opened.close()
