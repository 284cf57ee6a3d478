"""A model endpoint that waits out its outages in place (DESIGN §5)."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Callable
from dataclasses import replace

import structlog

from services.scorer.adapters.slow_start import SlowStart
from services.scorer.domain.availability import Availability, Policy, State
from services.scorer.domain.own_failures import REPEATS, Answers, OwnFailures
from services.scorer.domain.provider import (
    AttemptFailed,
    ConnectionLost,
    ModelCall,
    ModelError,
    ModelReply,
    ModelServerError,
    ModelUnavailable,
    PatienceExhausted,
    ProbeResult,
    Provider,
)

log = structlog.get_logger()

# In intervals of probes: how long a call that goes alone keeps the others waiting.
_TURN = 5


class Endpoint:
    """One provider with its slots, its availability and its probes.

    `generate` waits while the endpoint is away, so whoever feeds it stops taking records, and
    raises PatienceExhausted once the patience is over; probes go on until something answers.
    `on_state` is told of every change (readiness, metrics). `clock` is monotonic, in seconds.
    """

    def __init__(
        self,
        provider: Provider,
        policy: Policy,
        *,
        slots: int,
        clock: Callable[[], float] = time.monotonic,
        on_state: Callable[[State], None] = lambda state: None,
    ) -> None:
        self.provider = provider
        self._availability = Availability(policy)
        self._policy = policy
        self._answers = Answers()
        self._slow_start = SlowStart(_TURN * policy.probe_initial_s, clock)
        self._slot_count = slots
        self._slots = asyncio.Semaphore(slots)
        self._clock = clock
        self._on_state = on_state
        self._changed = asyncio.Event()
        self._prober: asyncio.Task[None] | None = None

    @property
    def state(self) -> State:
        return self._availability.state

    def _is(self, state: State) -> bool:
        return self._availability.state is state

    async def generate(self, call: ModelCall) -> ModelReply:
        """The reply, however long the endpoint was away before it.

        Raises AttemptFailed for a call that brought no answer and PatienceExhausted; an outage
        costs no attempt. A failure met while the endpoint turns out to be away is repeated, but
        not for ever where others are answered.
        """
        repeats = 0
        own = OwnFailures(self._slot_count, self._policy.patience_s)
        while True:
            await self._admitted()
            async with self._slots, self._slow_start.turn() as alone:
                if not self._is(State.CLOSED):
                    continue
                asked_at = self._clock()
                try:
                    reply = await self._timed(call)
                except ConnectionLost as error:
                    self._note(self._availability.call_failed(self._clock()), str(error))
                    repeats += 1
                    if repeats > REPEATS:
                        message = f"the connection broke {repeats} times on this call: {error}"
                        raise ModelServerError(message, seconds=error.seconds) from error
                except ModelUnavailable as error:
                    self._note(self._availability.call_failed(self._clock()), str(error))
                    if own.enough(error, self._answers, self._clock(), alone=alone()):
                        message = f"others are answered and this call is not: {error}"
                        raise ModelServerError(message, seconds=error.seconds) from error
                except AttemptFailed as error:
                    self._note(self._availability.suspected(self._clock()), str(error))
                    repeats += 1
                    if self._is(State.CLOSED) or repeats > REPEATS:
                        raise
                else:
                    self._answers.call(asked_at)
                    self._slow_start.end()
                    self._note(self._availability.succeeded(), "answered")
                    return reply
            if self._is(State.CLOSED):
                await asyncio.sleep(self._policy.probe_initial_s)

    async def _timed(self, call: ModelCall) -> ModelReply:
        """One call, with the seconds that it took."""
        begun = self._clock()
        try:
            reply = await self.provider.generate(call)
        except ModelError as error:
            error.seconds = self._clock() - begun
            raise
        return replace(reply, seconds=self._clock() - begun)

    async def aclose(self) -> None:
        """Stops the probes and closes the provider."""
        if self._prober is not None:
            self._prober.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._prober
        await self.provider.aclose()

    async def _admitted(self) -> None:
        while not self._is(State.CLOSED):
            if self._is(State.EXHAUSTED):
                raise PatienceExhausted(
                    f"{self.provider.name} {self.provider.model} has been away for more than "
                    f"{self._policy.patience_s:g} s"
                )
            await self._changed.wait()

    def _note(self, availability: Availability, reason: str) -> None:
        before, self._availability = self._availability.state, availability
        if availability.state is before:
            return
        log.warning(
            "model_endpoint_state",
            provider=self.provider.name,
            model=self.provider.model,
            before=before.value,
            state=availability.state.value,
            reason=reason,
        )
        self._changed.set()
        self._changed = asyncio.Event()
        if availability.state is State.CLOSED:
            self._slow_start.begin()
        if before is State.CLOSED and (self._prober is None or self._prober.done()):
            self._prober = asyncio.create_task(self._probe_until_closed())
        self._on_state(availability.state)

    async def _probe_until_closed(self) -> None:
        while not self._is(State.CLOSED):
            wait = self._availability.next_probe_at - self._clock()
            if wait > 0:
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(wait):
                        await self._changed.wait()
                continue
            asked_at = self._clock()
            result = await self._probe()
            if result.verdict != "unreachable":
                self._answers.probe(asked_at)
                self._note(self._availability.succeeded(), result.detail)
            elif not self._is(State.CLOSED):
                self._note(self._availability.probe_failed(self._clock()), result.detail)

    async def _probe(self) -> ProbeResult:
        """One probe. One that still hangs at the end of the patience counts as failed there, and
        is waited for all the same: it may be a model that takes its time to load."""
        probe = asyncio.ensure_future(self.provider.probe())
        try:
            if self._is(State.OPEN):
                left = self._availability.gives_up_at - self._clock()
                left = max(left, self._policy.probe_initial_s)
                done, _ = await asyncio.wait({probe}, timeout=left)
                if not done and self._is(State.OPEN):
                    self._note(self._availability.probe_failed(self._clock()), "the probe hangs")
            return await probe
        except Exception as error:
            log.exception("probe_failed")
            return ProbeResult("unreachable", f"{type(error).__name__}: {error}")
        finally:
            probe.cancel()
