"""The key by which a stack's services know each other's requests: made once, kept with its data."""

from __future__ import annotations

import secrets
from collections.abc import Mapping
from pathlib import Path

from deploy.dev.data_folder import write_private

SEALING = frozenset({"features", "ingest", "scorer", "validator"})
_KEYS = "ASSAY_SEALS__KEYS"


def ensure_seal_key(folder: Path, environ: Mapping[str, str]) -> dict[str, str]:
    """The setting for the services of SEALING; none where the environment has keys already."""
    if _KEYS in environ or f"{_KEYS}_FILE" in environ:
        return {}
    file = folder / "seal.key"
    if not file.exists():
        write_private(file, secrets.token_hex(32) + "\n")
    return {f"{_KEYS}_FILE": str(file)}
