"""What becomes of requests that are open when a stack ends: kept where they can be, or said."""

from __future__ import annotations

import asyncio
import sqlite3
import time
from collections.abc import Callable, Mapping

from aiokafka.errors import KafkaError

from deploy.dev.kept_records import prepare_stores, stores_exist
from deploy.dev.kept_requests import KeptRequests, OpenRequests
from deploy.dev.plan import StackPlan
from deploy.dev.taking_up import all_read, publish
from deploy.owned_process import ServerError

_TENANT = "ASSAY_INGEST__TENANT"
# Evidence reads thousands of records per second; more is hardly ever left.
_EVIDENCE_S = 15.0


class Unfinished:
    """One per stack. On an embedded broker whose data are kept, requests are taken up again at the
    next start; elsewhere the broker keeps them, or nobody does."""

    def __init__(
        self, plan: StackPlan, environ: Mapping[str, str], say: Callable[[str], None]
    ) -> None:
        self._plan = plan
        self._say = say
        self._again = plan.broker.kind == "embedded" and plan.kept
        self._requests = KeptRequests(plan.data, environ.get(_TENANT, "default"))
        self._bootstrap = ""
        self._open = OpenRequests(())
        self._ready = False
        self._taking: asyncio.Task[None] | None = None

    @property
    def by_evidence(self) -> bool:
        """Whether what evidence has not read at the end is lost."""
        return self._again and self._ready

    async def before_services(self, bootstrap: str) -> None:
        """Put the newest endings on the bus, and see what is open before anything goes on."""
        self._bootstrap = bootstrap
        if not self._again:
            return
        await prepare_stores(self._plan.data)
        try:
            history = await asyncio.to_thread(self._requests.history)
            self._open = await asyncio.to_thread(self._requests.open_requests, _now_ms())
        except sqlite3.Error as error:
            raise ServerError(f"the stores in {self._plan.data}: {error}") from error
        if history:
            count = await publish(bootstrap, history)
            self._say(f"outcomes of earlier requests put back on the bus: {count}")

    def take_up(self) -> None:
        """Offer what is open again; beside the services, which make the writer wait."""
        self._ready = True
        if self._open.found:
            self._say(f"open requests of an earlier run are taken up: {len(self._open.found)}")
            self._taking = asyncio.create_task(self._take_up())
        if self._open.unrecorded:
            self._say(f"{_unrecorded(self._open)}; publish them again under the same ids")

    async def _take_up(self) -> None:
        try:
            await publish(self._bootstrap, self._requests.records(self._open.found))
        except (KafkaError, OSError, sqlite3.Error, ValueError) as error:
            self._say(f"open requests could not be taken up: {error!r}; the next start tries again")

    async def leave_off(self) -> None:
        """The stack ends; what was not offered again by now is still open."""
        if self._taking is not None:
            self._taking.cancel()
            await asyncio.wait([self._taking])

    async def wait_for_evidence(self) -> None:
        """Let it read what the other services have written last; no later run can."""
        try:
            read = await all_read(self._bootstrap, "evidence", _EVIDENCE_S)
        except (KafkaError, OSError):
            read = False
        if not read:
            self._say("evidence was ended before it had read everything; the rest is lost")

    def say_what_is_open(self) -> None:
        """At the end, when nothing runs any more."""
        if not self._ready or not stores_exist(self._plan.data):
            return
        try:
            found = self._requests.open_requests(_now_ms())
        except sqlite3.Error as error:
            self._say(f"what is open cannot be read: {error}")
            return
        count = len(found.found) + found.unrecorded
        if not count:
            return
        if self._again:
            if found.found:
                self._say(
                    f"open requests: {len(found.found)}; "
                    "the next start with this data takes them up again"
                )
            if found.unrecorded:
                self._say(_unrecorded(found))
        elif self._plan.broker.kind == "external":
            self._say(f"open requests: {count}; their records stay on {self._bootstrap}")
        elif self._plan.kept:
            self._say(f"open requests: {count}; the next start with this data goes on with them")
        else:
            self._say(f"LOST open requests: {count}; nothing is kept without --data")


def _now_ms() -> int:
    return time.time_ns() // 1_000_000


def _unrecorded(found: OpenRequests) -> str:
    return f"LOST open requests of which nothing was recorded: {found.unrecorded}"
