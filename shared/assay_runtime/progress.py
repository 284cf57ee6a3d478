"""Tells a consumer that is stuck from one that waits for good reason (research point 17)."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable

from aiokafka.errors import KafkaError

from assay_runtime.failures import Stop
from assay_runtime.settings import KafkaSection

# Nothing read and nothing done for so long: ask the broker whether there is anything to do.
_QUIET_S = 5.0


class Progress:
    """Ends the process when there is work, the broker answers, and nothing happens.

    Records in flight have `busy_stall_s`, since one model call may take minutes and its deadline
    is the handler's; a consumer that reads nothing in spite of lag has `stall_s`. An outage that
    is waited out, of the broker or of anything behind a Pause, is no stall.
    """

    def __init__(
        self,
        kafka: KafkaSection,
        pipeline: str,
        on_broker: Callable[[str | None], None],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._kafka = kafka
        self._pipeline = pipeline
        self._on_broker = on_broker
        self._clock = clock
        self._at = clock()
        self._away = False

    def note(self) -> None:
        """A record was done, or is waited with on purpose."""
        self._at = self._clock()

    async def check(self, in_flight: int, waiting: Callable[[], Awaitable[str | None]]) -> None:
        """Raise Stop on a stall. `waiting` asks the broker and answers in words what is to be
        done, None where there is nothing; KafkaError and TimeoutError mean that it is away."""
        # Once said to be away, it is asked until it answers, however busy this is by then.
        if not self._away and self._clock() - self._at < _QUIET_S:
            return
        try:
            work = await waiting()
        except (KafkaError, OSError, TimeoutError) as error:
            self._on_broker(f"broker at {self._kafka.bootstrap} does not answer: {error!r}")
            self._away = True
            self.note()
            return
        self._away = False
        self._on_broker(None)
        idle = self._clock() - self._at
        if in_flight:
            if idle > self._kafka.busy_stall_s:
                raise Stop(
                    f"{self._pipeline}: {in_flight} records in flight, none done, {idle:.0f} s"
                )
        elif work is None:
            self.note()
        elif idle > self._kafka.stall_s:
            raise Stop(f"{self._pipeline}: {work} and no progress for {idle:.0f} s")
