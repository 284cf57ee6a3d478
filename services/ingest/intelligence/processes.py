"""The processes that callers of the Intelligence API may ask, and the versions once used."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import cache
from typing import Any

from assay.events import GenerationAccepted
from assay_gate.process import Process, ProcessError
from assay_gate.process_registry import ProcessRegistry
from assay_gate.schema import Schema
from assay_gate.verdict import Problem
from assay_runtime.settings import SettingsError
from services.ingest.store import RequestStore

SETTING = "ASSAY_INGEST__PROCESSES"


@asynccontextmanager
async def versions_in_use(store: RequestStore, processes: ProcessRegistry) -> AsyncIterator[None]:
    """Refuses a folder that changed under a version used before, and remembers the new ones.

    Used means: ingest has started with it. Requests also come over Kafka and from batches, which
    ingest does not see, so this is the first moment that is surely early enough. A version that
    config.yaml does not name is the folder's own hash and cannot be refused.
    """
    # Looked at again after writing: another replica may have started with another folder.
    for _ in range(2):
        used = await store.used_versions()
        try:
            ProcessRegistry(processes, used)
        except ProcessError as error:
            raise SettingsError(f"{SETTING}: {error}") from error
        if used.keys() >= processes.versions.keys():
            break
        await store.use_versions(processes.versions, time.time_ns() // 1_000_000)
    yield


def is_callable(process: Process) -> bool:
    """Whether callers may bring its input themselves. A process whose result is signed takes its
    input from accepted wallet events alone: invented features must not earn a signature."""
    return process.result == GenerationAccepted.type


def input_problems(process: Process, given: Any) -> list[Problem]:
    """Why `given` is no input of the process, each with the path of the field at fault."""
    found = process.input_problems(given)
    return (_schema(process).problems(given) or found) if found else []


def described(process: Process) -> dict[str, Any]:
    """What a caller has to know of a process. `output_schema` is null where any JSON is taken,
    and that of the last question where there are several steps, whose fields come on top."""
    models = [step for step in process.steps if step.kind == "model"]
    return {
        "process_id": process.id,
        "version": process.version,
        "url": f"/api/v1/intelligence/{process.id}/generate",
        "steps": [step.name for step in process.steps],
        "input_schema": process.input_schema,
        "output_schema": models[-1].output_schema,
    }


@cache
def _schema(process: Process) -> Schema:
    return Schema(process.input_schema)
