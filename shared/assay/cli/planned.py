"""What a run of `assay publish` is to publish: the submissions of its files and their ids."""

from __future__ import annotations

import hashlib
import json
import uuid
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

from assay.cli.record_files import RereadRecords
from assay.errors import AssayError
from assay.submission import submission_from_record


class Planned:
    """Iterates over (place, event id, submission) of every usable record; the others are refused,
    a file that cannot be opened too. Where it is `idempotent` a record's id is made of what it
    says, and of the same ones the first is enough."""

    def __init__(
        self, files: list[Path], *, idempotent: bool, refuse: Callable[[str, Exception | str], None]
    ) -> None:
        self._files = files
        self._idempotent = idempotent
        self._refuse = refuse
        self._records = RereadRecords()
        self._seen: set[str] = set()

    def __iter__(self) -> Iterator[tuple[str, str, dict[str, Any]]]:
        for file in self._files:
            try:
                for place, record in self._records.of(file):
                    if (submission := self._submission(place, record)) is None:
                        continue
                    event_id = self._event_id(submission)
                    if event_id not in self._seen:
                        yield place, event_id, submission
                    if self._idempotent:
                        self._seen.add(event_id)
            except OSError as error:
                self._refuse(str(file), error.strerror or error)

    def event_ids(self) -> Iterator[str]:
        """Those that iterating will give, where it is idempotent; nothing is refused yet."""
        self._records.hold(self._files)
        for file in self._files:
            with suppress(OSError):
                for _, record in self._records.of(file):
                    with suppress(AssayError):  # of a BadRecord too
                        yield self._event_id(submission_from_record(record))

    def _submission(self, place: str, record: Any) -> dict[str, Any] | None:
        try:
            if isinstance(record, ValueError):
                raise record
            return submission_from_record(record)
        except (AssayError, ValueError) as error:
            self._refuse(place, error)
            return None

    def _event_id(self, submission: dict[str, Any]) -> str:
        if not self._idempotent:
            return str(uuid.uuid4())
        return hashlib.sha256(json.dumps(submission, sort_keys=True).encode()).hexdigest()
