"""Processes by id and by recorded hash, several versions of one id side by side (DESIGN §2, §4).

A root holds one folder per version. `<id>/` is the current one, `<id>@<version>/` is kept beside
it, so that answers recorded under its hash are still judged by it, or runs as a shadow. An id
with a single folder needs no `<id>/`.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Mapping

from assay_gate.config_reading import CONFIG
from assay_gate.process_definition import Process
from assay_gate.process_folder import ProcessError

Version = tuple[str, str]
"""(process id, version)."""


class ProcessRegistry:
    """All processes of a system; ProcessError where they contradict each other or the past.

    `used` says which hash each (id, version) had when it was first used; a version is immutable
    from then on. `versions` is what has to be remembered for the next start.
    """

    def __init__(
        self, processes: Iterable[Process], used: Mapping[Version, str] | None = None
    ) -> None:
        self._by_hash: dict[str, Process] = {}
        by_version: dict[Version, Process] = {}
        for process in processes:
            where = f"{process.folder.name}/{CONFIG}"
            other = by_version.get((process.id, process.version))
            other = other or self._by_hash.get(process.hash)
            if other is not None:
                same = f"{other.folder.name} is {other.id!r} {other.version} already"
                raise ProcessError(where, "assay.version", same)
            recorded = (used or {}).get((process.id, process.version), process.hash)
            if recorded != process.hash:
                raise ProcessError(
                    where, "assay.version",
                    f"{process.id!r} {process.version} was used with other content (then "
                    f"{recorded[:12]}, now {process.hash[:12]}); give the change a new version",
                )  # fmt: skip
            by_version[process.id, process.version] = process
            self._by_hash[process.hash] = process
        self._current = _current(self._by_hash.values())
        self._shadows: dict[str, list[Process]] = {}
        for process in self:
            if process.shadow is None:
                continue
            if process.shadow.of not in self._current:
                raise ProcessError(
                    f"{process.folder.name}/{CONFIG}", "assay.shadow.of",
                    f"there is no process {process.shadow.of!r}",
                )  # fmt: skip
            self._shadows.setdefault(process.shadow.of, []).append(process)

    def __iter__(self) -> Iterator[Process]:
        return iter(self._by_hash.values())

    @property
    def versions(self) -> dict[Version, str]:
        """The hash of every (id, version), to be kept for `used`."""
        return {(process.id, process.version): process.hash for process in self}

    @property
    def by_id(self) -> Mapping[str, Process]:
        """The current version of every id; shadows are never current."""
        return self._current

    def current(self, process_id: str) -> Process | None:
        """The version that answers a request without a recorded hash."""
        return self._current.get(process_id)

    def by_hash(self, process_hash: str) -> Process | None:
        """The version that a recorded hash names, current or not."""
        return self._by_hash.get(process_hash)

    def shadows_for(self, process_id: str, key: str) -> list[Process]:
        """The shadows that a request of `process_id` also goes to: each takes the same keys every
        time, its share of them. Their requests carry `meta.shadow`, which the signer refuses."""
        place = _place(f"{process_id}\n{key.lower()}")
        shadows = self._shadows.get(process_id, [])
        return [shadow for shadow in shadows if shadow.shadow and place < shadow.shadow.share]


def _current(processes: Iterable[Process]) -> dict[str, Process]:
    candidates: dict[str, list[Process]] = {}
    for process in processes:
        if process.shadow is None:
            candidates.setdefault(process.id, []).append(process)
    current: dict[str, Process] = {}
    for process_id, versions in candidates.items():
        plain = [process for process in versions if "@" not in process.folder.resolve().name]
        chosen = versions if len(versions) == 1 else plain
        if len(chosen) != 1:
            folders = ", ".join(sorted(process.folder.name for process in versions))
            raise ProcessError(
                f"{versions[-1].folder.name}/{CONFIG}", "assay.id",
                f"{folders} are versions of {process_id!r}; exactly one folder must be without "
                "@version, and is the current one",
            )  # fmt: skip
        current[process_id] = chosen[0]
    return current


def _place(text: str) -> float:
    """A number from 0 to below 1, the same for the same text."""
    return int.from_bytes(hashlib.sha256(text.encode(errors="replace")).digest()[:6], "big") / 2**48
