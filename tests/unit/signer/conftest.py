"""Both ledgers behind one fixture, so that every test of the ledger runs on both."""

from __future__ import annotations

import uuid
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from services.signer.adapters.ledger_postgres import PostgresLedger
from services.signer.adapters.ledger_sqlite import SqliteLedger
from services.signer.domain.ports import Ledger
from services.signer.domain.reservation import Claim

WALLET = "0x5aAeb6053F3E94C9b9A09f33669435E7Ef1BeAed"
OTHER_WALLET = "0xfB6916095ca1df60bB79Ce92cE3Ea74c37c5d359"


def claim(
    request_id: str | None = None,
    *,
    wallet: str = WALLET,
    score: int = 640,
    source: str | None = None,
    sha256: bytes = b"\x01" * 32,
    network: str = "sui:testnet",
    body: bytes = b'{"a":1}',
) -> Claim:
    """A claim; without arguments of a request and a source event of its own."""
    return Claim(
        network=network,
        request_id=request_id or str(uuid.uuid4()),
        wallet=wallet,
        score=score,
        source_event_id=source or str(uuid.uuid4()),
        source_sha256=sha256,
        body=body,
    )


def open_ledger(address: str) -> Ledger:
    """The ledger of an address, as a process of a test is told it."""
    if address.startswith("postgresql://"):
        return PostgresLedger(address)
    return SqliteLedger(Path(address))


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
