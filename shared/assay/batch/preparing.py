"""From a folder and an input file to the plan of a run."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from typing import IO

from assay.batch.folder import FolderError, ResultFolder
from assay.batch.items import MOST_LINE_BYTES, index_items, numbered_lines
from assay.batch.plan import MANIFEST, Plan, read_standing
from assay.batch.requests import Batch


@dataclass(frozen=True, slots=True)
class Wanted:
    """What the command was asked for."""

    process: str
    tenant: str
    most: int | None
    retry_failures: bool


def prepare(folder: ResultFolder, source: IO[bytes], wanted: Wanted) -> Plan:
    """The plan; FolderError where the folder belongs to another batch.

    The batch's identity is made once and kept in the folder, so that a later run asks under the
    same request ids.
    """
    manifest = folder.load(MANIFEST)
    known = manifest is not None
    if manifest is None:
        if any(folder.lines()):
            raise FolderError(f"{folder.path}: result files, but no {MANIFEST} to go with them")
        manifest = {
            "batch": str(uuid.uuid4()),
            "process": wanted.process,
            "tenant": wanted.tenant,
            "first_step": None,
        }
    for name, given in (("process", wanted.process), ("tenant", wanted.tenant)):
        if manifest.get(name) != given:
            was = manifest.get(name)
            raise FolderError(f"{folder.path}: a batch of {name} {was!r}, not {given!r}")
    if wanted.retry_failures:
        folder.archive_retryable()
    plan = Plan(
        batch=Batch(str(manifest["batch"]), wanted.process, wanted.tenant),
        index=index_items(numbered_lines(_bounded(source)), wanted.most),
        standing=read_standing(folder.lines()),
        line_at=_LineReader(source),
        resumed=known,
        archived=list(folder.archived()),
        first_step=manifest.get("first_step"),
    )
    if not known:
        folder.save(MANIFEST, plan.manifest())
    return plan


class _LineReader:
    def __init__(self, source: IO[bytes]) -> None:
        self._source = source

    def __call__(self, offset: int) -> bytes:
        self._source.seek(offset)
        return self._source.readline(MOST_LINE_BYTES + 1)


def _bounded(source: IO[bytes]) -> Iterator[bytes]:
    """Lines; of an overlong one its pieces, each of them too long or no JSON."""
    source.seek(0)
    while line := source.readline(MOST_LINE_BYTES + 1):
        yield line
