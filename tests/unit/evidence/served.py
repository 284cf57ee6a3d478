"""Evidence's pages over HTTP on a port of their own, for commands that read them."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import AsyncIterator, Coroutine, Iterator
from pathlib import Path
from typing import Any

from assay_runtime import http
from assay_runtime.settings import HttpSection
from services.evidence.access import Access
from services.evidence.app import open_store
from services.evidence.domain import Entry
from services.evidence.pages import build_pages
from services.evidence.store import EvidenceStore

READ, FULL, ERASE = "reader", "full-text", "eraser"


class Served:
    """A running service; `keep` adds entries to its store."""

    def __init__(self, url: str, store: EvidenceStore, loop: asyncio.AbstractEventLoop) -> None:
        self.url = url
        self.store = store
        self._loop = loop

    def keep(self, *entries: Entry) -> None:
        self.run(self.store.append(entries, {}))

    def run(self, work: Coroutine[Any, Any, Any]) -> Any:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(30)


@contextlib.contextmanager
def served(folder: Path, access: Access | None = None) -> Iterator[Served]:
    """Serve a new SQLite store until the block ends."""
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever, daemon=True)
    thread.start()
    store = open_store(f"sqlite:///{folder}/evidence.sqlite")

    @contextlib.asynccontextmanager
    async def serving() -> AsyncIterator[str]:
        await store.open()
        sock = http.bind(HttpSection())
        server = http.server(build_pages(store, access or Access("", FULL, ERASE)))
        task = asyncio.create_task(server.serve(sockets=[sock]))
        yield f"http://127.0.0.1:{sock.getsockname()[1]}"
        server.should_exit = True
        await task
        await store.close()

    async def entered() -> str:
        return await running.__aenter__()

    async def left() -> None:
        await running.__aexit__(None, None, None)

    running = serving()
    url = asyncio.run_coroutine_threadsafe(entered(), loop).result(30)
    try:
        yield Served(url, store, loop)
    finally:
        asyncio.run_coroutine_threadsafe(left(), loop).result(30)
        loop.call_soon_threadsafe(loop.stop)
        thread.join(10)
        loop.close()
