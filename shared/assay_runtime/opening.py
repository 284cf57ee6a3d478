"""Resources that are opened before a service runs, and waited for while they are away."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Protocol, TypeVar

import structlog

from assay_runtime.failures import Pause

log = structlog.get_logger()


class Openable(Protocol):
    async def open(self) -> None: ...

    async def close(self) -> None: ...


O = TypeVar("O", bound=Openable)  # noqa: E741


@asynccontextmanager
async def opened(resource: O, what: str) -> AsyncIterator[O]:
    """Open `resource`, waiting aloud for as long as it raises Pause; close it at the end."""
    wait = 0.5
    while True:
        try:
            await resource.open()
            break
        except Pause as outage:
            log.warning("waiting_for_resource", what=what, reason=str(outage))
            await asyncio.sleep(wait)
            wait = min(wait * 2, 5.0)
    try:
        yield resource
    finally:
        await resource.close()
