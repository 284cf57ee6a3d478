"""Versions of processes are immutable once used (issue 5 item 1, DESIGN §2)."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from assay_runtime.processes import read_registry
from assay_runtime.settings import SettingsError
from services.ingest.app import build
from services.ingest.intelligence.processes import SETTING, versions_in_use
from services.ingest.settings import IngestSection, IngestSettings
from services.ingest.store import RequestStore

PROCESSES = Path(__file__).resolve().parents[3] / "schemas" / "processes"


@pytest.fixture
def root(tmp_path: Path) -> Path:
    shutil.copytree(PROCESSES / "open_notes", tmp_path / "processes" / "open_notes")
    return tmp_path / "processes"


async def started(store: RequestStore, root: Path) -> None:
    async with versions_in_use(store, read_registry(str(root), SETTING)):
        pass


def edit(root: Path, old: str, new: str) -> None:
    config = root / "open_notes" / "config.yaml"
    text = config.read_text(encoding="utf-8")
    assert old in text
    config.write_text(text.replace(old, new), encoding="utf-8")


async def test_a_changed_folder_needs_a_new_version(
    new_store: Callable[[], RequestStore], root: Path
) -> None:
    """Over a restart: refused by folder, file, key and hint; good again once it is a new version,
    and the old content may come back under the old one."""
    original = (root / "open_notes" / "config.yaml").read_text(encoding="utf-8")
    for text, refused in (
        (original, False),
        (original, False),
        (original.replace("max_tokens: 800", "max_tokens: 700"), True),
        (original.replace('"1.0.0"', '"1.1.0"').replace("800", "700"), False),
        (original.replace('"1.0.0"', '"1.1.0"'), True),
        (original, False),
    ):
        (root / "open_notes" / "config.yaml").write_text(text, encoding="utf-8")
        store = new_store()
        await store.open()
        if refused:
            with pytest.raises(SettingsError) as caught:
                await started(store, root)
            said = str(caught.value)
            assert "\n" not in said  # one line, so that `assay up` shows all of it
            for part in ("ASSAY_INGEST__PROCESSES", "open_notes/config.yaml", "assay.version",
                         "was used with other content", "new version"):  # fmt: skip
                assert part in said
        else:
            await started(store, root)
        await store.close()


async def test_a_folder_without_a_version_may_change(store: RequestStore, root: Path) -> None:
    """Its version is its content."""
    edit(root, '  version: "1.0.0"\n', "")
    await started(store, root)
    edit(root, "max_tokens: 800", "max_tokens: 700")
    await started(store, root)
    assert len(await store.used_versions()) == 2


class _Racing:
    """A store to which another replica writes between the look and the write."""

    def __init__(self, store: RequestStore, other: dict[tuple[str, str], str]) -> None:
        self._store = store
        self._other = other

    async def used_versions(self) -> object:
        return await self._store.used_versions()

    async def use_versions(self, hashes: dict[tuple[str, str], str], now_ms: int) -> None:
        await self._store.use_versions(self._other, 1)
        await self._store.use_versions(hashes, now_ms)


async def test_two_replicas_with_different_folders_do_not_both_start(
    store: RequestStore, root: Path
) -> None:
    """The second one sees what the first has written, even when both began at once."""
    racing = _Racing(store, {("open_notes", "1.0.0"): "f" * 64})
    with pytest.raises(SettingsError, match="was used with other content"):
        await started(racing, root)  # type: ignore[arg-type]


def test_a_mistake_in_a_folder_is_a_setting_that_cannot_be_used(root: Path) -> None:
    """X.4: by folder, file and key; no traceback."""
    edit(root, "max_attempts: 2", "max_attempts: many")
    with pytest.raises(
        SettingsError, match=r"ASSAY_INGEST__PROCESSES: open_notes/config\.yaml: api"
    ):
        build(IngestSettings(ingest=IngestSection(processes=str(root))))
    with pytest.raises(SettingsError, match="ASSAY_INGEST__PROCESSES"):
        read_registry(str(root / "nowhere"), SETTING)
