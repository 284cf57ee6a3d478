"""Which stores a service watches while it runs (SPEC X.2)."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from assay_runtime.service import Service
from services.evidence.app import build as build_evidence
from services.evidence.settings import EvidenceSection, EvidenceSettings
from services.ingest.app import build as build_ingest
from services.ingest.settings import IngestSection, IngestSettings
from services.signer.app import build as build_signer
from services.signer.settings import SignerSection, SignerSettings


def _evidence(url: str, folder: Path) -> Service:
    return build_evidence(EvidenceSettings(evidence=EvidenceSection(store=url)))


def _ingest(url: str, folder: Path) -> Service:
    return build_ingest(IngestSettings(ingest=IngestSection(store=url)))


def _signer(url: str, folder: Path) -> Service:
    key = folder / "signer.key"
    key.write_bytes(b"\x09" * 32)
    key.chmod(0o600)
    section = SignerSection(key=f"file:{key}", network="testnet", ledger=url)
    return build_signer(SignerSettings(signer=section))


def _watched(service: Service) -> list[str]:
    """The classes of the stores whose watch runs beside the service."""
    owners = [getattr(work, "__self__", None) for work in service.background]
    return [type(o).__name__ for o in owners if type(o).__name__.startswith(("Postgres", "Sqlite"))]


@pytest.mark.parametrize(
    ("build", "store"),
    [
        (_evidence, "PostgresEvidence"),
        (_ingest, "PostgresRequests"),
        (_signer, "PostgresLedger"),
    ],
)
def test_a_server_is_watched_and_a_file_is_not(
    build: Callable[[str, Path], Service], store: str, tmp_path: Path
) -> None:
    """A failover must end the service that has no work too; a file cannot fail over."""
    assert _watched(build("postgresql://nobody@localhost/none", tmp_path)) == [store]
    assert _watched(build(f"sqlite:///{tmp_path / 'store.sqlite'}", tmp_path)) == []
