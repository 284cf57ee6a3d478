"""A stack's tokens for its evidence: made once, kept with its data, left where `assay` looks."""

from __future__ import annotations

import contextlib
import json
import os
import secrets
from collections.abc import Mapping
from pathlib import Path

from assay.cli.evidence_access import ERASURE, FULL_TEXT, tokens_file
from assay.cli.stack import stack_file
from deploy.dev.data_folder import write_private

_SETTINGS = {
    FULL_TEXT: "ASSAY_EVIDENCE__FULL_TEXT_TOKEN",
    ERASURE: "ASSAY_EVIDENCE__ERASURE_TOKEN",
}


def ensure_evidence_tokens(folder: Path, environ: Mapping[str, str]) -> dict[str, str]:
    """The settings to give to evidence, none that the environment has already. Tokens are made
    unless the folder keeps some, in a file that its owner alone can read."""
    wanted = [
        name
        for name, setting in _SETTINGS.items()
        if setting not in environ and f"{setting}_FILE" not in environ
    ]
    if not wanted:
        return {}
    file = folder / "evidence-tokens.json"
    try:
        kept: dict[str, str] = json.loads(file.read_text(encoding="utf-8"))
    except FileNotFoundError:
        kept = {name: secrets.token_urlsafe(24) for name in _SETTINGS}
        write_private(file, json.dumps(kept))
    return {_SETTINGS[name]: kept[name] for name in wanted}


def leave_evidence_tokens(address: str, given: Mapping[str, str]) -> None:
    """For commands of the same user, as long as this process runs; only what was made here."""
    names = {setting: name for name, setting in _SETTINGS.items()}
    tokens = {names[setting]: token for setting, token in given.items()}
    if tokens:
        file = tokens_file(address)
        file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        write_private(file, json.dumps({"pid": os.getpid(), **tokens}))


def remove_evidence_tokens() -> None:
    """What this process left, or one that was killed; this user's other stacks keep theirs."""
    for file in stack_file().parent.glob("evidence-*.json"):
        with contextlib.suppress(OSError, ValueError, KeyError, TypeError):
            pid = int(json.loads(file.read_text(encoding="utf-8"))["pid"])
            if pid == os.getpid() or not _runs(pid):
                file.unlink()


def _runs(pid: int) -> bool:
    with contextlib.suppress(PermissionError):  # somebody else's runs, too
        try:
            os.kill(pid, 0)
        except ProcessLookupError:
            return False
    return True
