"""What is wrong with a process definition, gathered so that one run names every mistake (S4.9)."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Literal

from assay_gate.process_folder import ProcessError

Level = Literal["mistake", "warning"]


@dataclass(frozen=True, slots=True)
class Finding:
    """One mistake or warning: the file, the key in it ("" for the whole file), and why."""

    level: Level
    file: str
    key: str
    message: str

    def __str__(self) -> str:
        return ": ".join(part for part in (self.file, self.key, self.message) if part)


@dataclass(slots=True)
class Findings:
    """Collects findings while a definition is read; the first mistake can be raised at the end."""

    all: list[Finding] = field(default_factory=list)

    @property
    def mistakes(self) -> list[Finding]:
        return [finding for finding in self.all if finding.level == "mistake"]

    def mistake(self, file: str, key: str, message: str) -> None:
        self._add(Finding("mistake", file, key, message))

    def warning(self, file: str, key: str, message: str) -> None:
        self._add(Finding("warning", file, key, message))

    @contextlib.contextmanager
    def caught(self) -> Iterator[None]:
        """Keeps the ProcessError of its block as a mistake, so that reading goes on after it."""
        try:
            yield
        except ProcessError as error:
            self.mistake(error.file, error.key, error.reason)

    def raise_first(self) -> None:
        """ProcessError for the first mistake, if there is one."""
        for finding in self.mistakes:
            raise ProcessError(finding.file, finding.key, finding.message)

    def _add(self, finding: Finding) -> None:
        if finding not in self.all:
            self.all.append(finding)
