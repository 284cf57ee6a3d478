"""The keys in memory, so that neither a request nor a guess costs the store anything.

A request with a key that is known asks nothing of the store; every FRESH_S one of them looks at
the table's revision, one row, and only another revision reads the table. A key that is not known
waits until the table was looked at after it came, which happens at most once in SPACING_S however
many are guessed; so a key is good from the moment `assay keys create` has printed it, and a guess
takes as long whether its id exists or not. While the store is away, what was read counts for
USABLE_S since it was last seen to be current, and then nobody is let in. All keys are held: the
table is meant for some ten thousand.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import structlog

from assay_runtime.failures import Pause, Stop
from services.ingest.domain.api_keys import ApiKey, Presented
from services.ingest.keys.store import KeyStore

log = structlog.get_logger()

FRESH_S = 5.0
USABLE_S = 30.0
SPACING_S = 0.25
# After so long without the store's answer it counts as away.
PATIENCE_S = 2.0
# A key's last use is written once in this time.
_USE_MS = 60_000
_S = 1_000_000_000


class KeyRing:
    """`reloaded` is called after the table was read."""

    def __init__(
        self,
        store: KeyStore,
        monotonic_ns: Callable[[], int],
        reloaded: Callable[[], None] = lambda: None,
    ) -> None:
        self._store = store
        self._clock = monotonic_ns
        self._reloaded = reloaded
        self._keys: dict[str, ApiKey] = {}
        self._revision: str | None = None
        self._read_at: int | None = None
        # Looks are counted from the moment they ask; when the last began, when the last that was
        # answered began, and what went wrong in the last that ended.
        self._begun = self._ended = 0
        self._looked_at: int | None = None
        self._current_at: int | None = None
        self._outage: Pause | Stop | None = None
        self._looking: asyncio.Task[None] | None = None
        self._used: dict[str, int] = {}
        self._unwritten: dict[str, int] = {}
        self._writing: asyncio.Task[None] | None = None

    async def close(self) -> None:
        """Waits for the last uses to be written, as long as for any answer of the store."""
        if self._looking is not None:
            self._looking.cancel()
        tasks = [task for task in (self._looking, self._writing) if task is not None]
        if tasks:
            await asyncio.wait(tasks, timeout=PATIENCE_S)

    async def find(self, presented: Presented) -> ApiKey | None:
        """The key that is presented, None where there is none; Pause where that cannot be told."""
        key = self._match(presented)
        if key is not None and self._within(self._current_at, FRESH_S):
            return key
        outage = await self._looked()
        key = self._match(presented)
        if outage is None or (key is not None and self._within(self._current_at, USABLE_S)):
            return key
        raise Pause("API keys", str(outage)) from outage

    def used(self, key: ApiKey, now_ms: int) -> None:
        """Note that the key was used; written in the background, at most once a minute."""
        last = max(self._used.get(key.id, 0), key.last_used_ms or 0)
        if now_ms - last < _USE_MS:
            return
        self._used[key.id] = self._unwritten[key.id] = now_ms
        if self._writing is None or self._writing.done():
            self._writing = asyncio.create_task(self._write_uses(), name="api key uses")

    def _match(self, presented: Presented) -> ApiKey | None:
        key = self._keys.get(presented.id)
        return key if key is not None and key.matches(presented) else None

    def _within(self, moment: int | None, seconds: float) -> bool:
        return moment is not None and self._clock() - moment <= seconds * _S

    async def _looked(self) -> Exception | None:
        """Wait until a look that began after this call has ended; what went wrong in it."""
        needed = self._begun + 1
        try:
            async with asyncio.timeout(PATIENCE_S):
                while self._ended < needed:
                    if self._looking is None or self._looking.done():
                        self._looking = asyncio.create_task(self._look(), name="api keys")
                    # The look is for all who wait, whoever of them is cancelled.
                    await asyncio.shield(self._looking)
        except TimeoutError:
            return TimeoutError(f"no answer within {PATIENCE_S:g} s")
        return self._outage

    async def _look(self) -> None:
        if self._looked_at is not None and self._within(self._looked_at, SPACING_S):
            await asyncio.sleep((self._looked_at - self._clock()) / _S + SPACING_S)
        self._begun += 1
        self._looked_at = began = self._clock()
        try:
            await self._read(began)
        except (Pause, Stop) as outage:  # a Stop is for the request store's watch to raise
            if self._outage is None:
                log.warning("api_keys_unreadable", reason=str(outage))
            self._outage = outage
        else:
            self._outage = None
            self._current_at = began
        self._ended = self._begun

    async def _read(self, began: int) -> None:
        revision = await self._store.revision()
        # Now and then in any case, for changes made by hand, which leave the revision alone.
        if revision == self._revision and self._within(self._read_at, USABLE_S):
            return
        self._keys = {key.id: key for key in await self._store.keys()}
        self._revision, self._read_at = revision, began
        self._used = {name: used for name, used in self._used.items() if name in self._keys}
        self._reloaded()

    async def _write_uses(self) -> None:
        while self._unwritten:
            uses, self._unwritten = self._unwritten, {}
            try:
                await self._store.touch(uses)
            except (Pause, Stop) as outage:
                log.warning("api_key_uses_not_written", reason=str(outage))
