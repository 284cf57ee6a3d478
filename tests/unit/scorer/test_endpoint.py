"""Waiting out outages in place (DESIGN §5, SPEC X.6)."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import replace

import pytest

from services.scorer.adapters.endpoint import Endpoint
from services.scorer.adapters.format_canary import FormatIgnored, check_format
from services.scorer.adapters.model_errors import Busy
from services.scorer.domain.availability import Policy, State
from services.scorer.domain.provider import (
    AttemptFailed,
    BadGateway,
    ConnectionLost,
    ModelCall,
    ModelMisconfigured,
    ModelReply,
    ModelServerError,
    ModelTimeout,
    ModelUnavailable,
    PatienceExhausted,
    ProbeResult,
)

CALL = ModelCall("p", None, 0.3, 1, 10, 100, 5)
POISON = replace(CALL, prompt="poison")
REPLY = ModelReply("{}", "m", "d", "stop")
DOWN = ProbeResult("unreachable", "refused")
UP = ProbeResult("obeyed", "fine")


class ScriptedProvider:
    """A provider that does what the script says: `say` for calls, `poisoned` for the poisonous
    one, `health` for probes."""

    name = "scripted"
    model = "m"
    model_digest = "d"

    def __init__(self) -> None:
        self.say: Callable[[], ModelReply | Exception] = lambda: REPLY
        self.poisoned: Callable[[], Exception] = lambda: ModelServerError("500")
        self.health: Callable[[], ProbeResult | Exception] = lambda: DOWN
        self.calls = 0
        self.probes = 0
        self.running = 0
        self.most_running = 0
        self.hold = 0.0
        self.probe_hangs = False

    async def generate(self, call: ModelCall) -> ModelReply:
        self.calls += 1
        self.running += 1
        self.most_running = max(self.most_running, self.running)
        try:
            await asyncio.sleep(self.hold)
            result = self.poisoned() if call is POISON else self.say()
        finally:
            self.running -= 1
        if isinstance(result, Exception):
            raise result
        return result

    async def probe(self) -> ProbeResult:
        self.probes += 1
        if self.probe_hangs:
            await asyncio.Event().wait()
        result = self.health()
        if isinstance(result, Exception):
            raise result
        return result

    async def aclose(self) -> None:
        pass


@asynccontextmanager
async def endpoint_of(
    provider: ScriptedProvider, patience_s: float = 30.0, slots: int = 4
) -> AsyncIterator[Endpoint]:
    endpoint = Endpoint(provider, Policy(3, 3, patience_s, 0.01, 0.05), slots=slots)
    try:
        yield endpoint
    finally:
        await endpoint.aclose()


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(5):
        while not condition():
            await asyncio.sleep(0.005)


async def test_an_outage_costs_no_attempt_and_ends_by_itself() -> None:
    """X.6: calls wait in place while the endpoint is away and are answered when it is back."""
    provider = ScriptedProvider()
    provider.say = lambda: ModelUnavailable("refused")
    async with endpoint_of(provider) as endpoint:
        waiting = [asyncio.create_task(endpoint.generate(CALL)) for _ in range(10)]
        await until(lambda: endpoint.state is State.OPEN and provider.probes >= 3)
        asked = provider.calls
        await asyncio.sleep(0.05)
        assert provider.calls == asked  # only probes go out
        assert not any(task.done() for task in waiting)
        provider.say = lambda: REPLY
        provider.health = lambda: UP
        async with asyncio.timeout(5):
            assert await asyncio.gather(*waiting) == [REPLY] * 10
        assert endpoint.state is State.CLOSED


async def test_after_the_patience_requests_end_at_once_and_probes_go_on() -> None:
    """X.6: the pipeline never stands still; the first success resumes."""
    provider = ScriptedProvider()
    provider.say = lambda: ModelUnavailable("refused")
    async with endpoint_of(provider, patience_s=0.15) as endpoint:
        waiting = [asyncio.create_task(endpoint.generate(CALL)) for _ in range(6)]
        done, _ = await asyncio.wait(waiting, timeout=5)
        assert len(done) == 6
        assert all(isinstance(task.exception(), PatienceExhausted) for task in waiting)
        asked = provider.calls
        with pytest.raises(PatienceExhausted, match="away for more than"):
            await endpoint.generate(CALL)
        assert provider.calls == asked
        probed = provider.probes
        await until(lambda: provider.probes > probed)
        provider.say, provider.health = (lambda: REPLY), (lambda: UP)
        await until(lambda: endpoint.state is State.CLOSED)
        assert await endpoint.generate(CALL) == REPLY


async def test_a_hanging_probe_does_not_put_off_the_end_of_the_patience() -> None:
    """X.6: a black hole exhausts like a refusal, and the probe is still waited for."""
    provider = ScriptedProvider()
    provider.say = lambda: ModelUnavailable("refused")
    provider.probe_hangs = True
    async with endpoint_of(provider, patience_s=0.1) as endpoint:
        with pytest.raises(PatienceExhausted):
            async with asyncio.timeout(5):
                await endpoint.generate(CALL)
        assert provider.probes == 1


async def test_one_hang_costs_one_attempt() -> None:
    """DESIGN §5: the failure is raised, nothing pauses."""
    provider = ScriptedProvider()
    provider.say = lambda: ModelTimeout("hangs")
    async with endpoint_of(provider) as endpoint:
        with pytest.raises(ModelTimeout):
            await endpoint.generate(CALL)
        assert endpoint.state is State.CLOSED
        assert provider.calls == 1


async def test_hangs_without_any_success_are_an_outage() -> None:
    """DESIGN §5: the third in a row opens, and is repeated instead of costing its attempt."""
    provider = ScriptedProvider()
    provider.say = lambda: ModelTimeout("hangs")
    async with endpoint_of(provider) as endpoint:
        for _ in range(2):
            with pytest.raises(ModelTimeout):
                await endpoint.generate(CALL)
        third = asyncio.create_task(endpoint.generate(CALL))
        await until(lambda: endpoint.state is State.OPEN)
        assert not third.done()
        provider.say, provider.health = (lambda: REPLY), (lambda: UP)
        async with asyncio.timeout(5):
            assert await third == REPLY


async def test_a_request_that_kills_the_backend_does_not_block_for_ever() -> None:
    """X.6: a connection lost again and again on one call becomes that call's failure."""
    provider = ScriptedProvider()
    provider.say = lambda: ConnectionLost("reset")
    provider.health = lambda: UP
    async with endpoint_of(provider) as endpoint:
        with pytest.raises(ModelServerError, match="broke 3 times"):
            async with asyncio.timeout(5):
                await endpoint.generate(CALL)
        assert provider.calls == 3


TURNED_AWAY = [BadGateway("502"), ModelMisconfigured("403"), Busy("429", None)]


@pytest.mark.parametrize("error", TURNED_AWAY)
async def test_slots_full_of_calls_that_are_always_turned_away_get_free(
    error: ModelUnavailable,
) -> None:
    """X.6: every probe is good, so no patience would ever end them; others go on afterwards."""
    provider = ScriptedProvider()
    provider.poisoned = lambda: error
    provider.health = lambda: UP
    async with endpoint_of(provider, patience_s=0.3) as endpoint, asyncio.timeout(10):
        poison = [asyncio.create_task(endpoint.generate(POISON)) for _ in range(4)]
        await asyncio.sleep(0)
        assert await endpoint.generate(CALL) == REPLY
        await asyncio.wait(poison)
        for task in poison:
            assert isinstance(task.exception(), ModelServerError)
            assert str(error) in str(task.exception())


@pytest.mark.parametrize("error", TURNED_AWAY)
async def test_a_call_that_is_always_turned_away_ends_among_others(
    error: ModelUnavailable,
) -> None:
    """X.6: and none of the others is harmed."""
    provider = ScriptedProvider()
    provider.poisoned = lambda: error
    provider.health = lambda: UP
    async with endpoint_of(provider) as endpoint, asyncio.timeout(10):
        poison = asyncio.create_task(endpoint.generate(POISON))
        while not poison.done():
            assert await endpoint.generate(CALL) == REPLY
            await asyncio.sleep(0.001)
        with pytest.raises(ModelServerError, match=str(error)):
            await poison


class DyingProvider(ScriptedProvider):
    """A backend behind a proxy; it dies of more than `most` calls at once, or of the poison, and
    all that it has in hand are 502."""

    def __init__(self, most: int = 1_000) -> None:
        super().__init__()
        self.health = lambda: UP
        self.most = most
        self.life = asyncio.Event()

    async def generate(self, call: ModelCall) -> ModelReply:
        self.calls += 1
        self.running += 1
        self.most_running = max(self.most_running, self.running)
        life = self.life
        if self.running > self.most:
            self._die()
        if call is POISON:
            asyncio.get_running_loop().call_later(0.01, self._die)
        try:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(0.02):
                    await life.wait()
        finally:
            self.running -= 1
        if life.is_set():  # on a busy machine the time can run out in that same moment
            raise BadGateway("502")
        return REPLY

    def _die(self) -> None:
        self.life.set()
        self.life = asyncio.Event()


async def test_a_backend_that_many_calls_kill_costs_no_attempt() -> None:
    """DESIGN §5: a backlog never becomes a mass of failures."""
    provider = DyingProvider(most=2)
    async with endpoint_of(provider, slots=8) as endpoint, asyncio.timeout(20):
        replies = await asyncio.gather(*(endpoint.generate(CALL) for _ in range(16)))
    assert replies == [REPLY] * 16
    assert provider.most_running > 2


async def test_a_poison_takes_nobody_along() -> None:
    """X.6: the call that kills the backend fails, and those in flight with it are answered."""
    provider = DyingProvider()
    async with endpoint_of(provider, slots=8) as endpoint, asyncio.timeout(20):
        poison = asyncio.create_task(endpoint.generate(POISON))
        replies = await asyncio.gather(*(endpoint.generate(CALL) for _ in range(24)))
        assert replies == [REPLY] * 24
        while not poison.done():
            assert await endpoint.generate(CALL) == REPLY
        with pytest.raises(ModelServerError, match="502"):
            await poison


async def test_a_call_that_hangs_does_not_keep_the_others_long() -> None:
    """After an outage it may be the one that goes first."""
    provider = ScriptedProvider()
    provider.say = lambda: BadGateway("502")
    async with endpoint_of(provider) as endpoint, asyncio.timeout(10):
        waiting = [asyncio.create_task(endpoint.generate(CALL)) for _ in range(4)]
        await until(lambda: endpoint.state is State.OPEN)
        provider.say, provider.health, provider.hold = (lambda: REPLY), (lambda: UP), 0.5
        await until(lambda: provider.most_running == 4 and provider.running == 4)
        assert await asyncio.gather(*waiting) == [REPLY] * 4


@pytest.mark.parametrize("error", TURNED_AWAY)
async def test_an_outage_that_probes_meet_costs_no_attempt(error: ModelUnavailable) -> None:
    """DESIGN §5: whatever the server says meanwhile, and though it comes back for a moment."""
    provider = ScriptedProvider()
    provider.say = lambda: error
    story = iter(([DOWN] * 4 + [UP]) * 2)
    provider.health = lambda: next(story, DOWN)
    async with endpoint_of(provider) as endpoint, asyncio.timeout(10):
        waiting = [asyncio.create_task(endpoint.generate(CALL)) for _ in range(4)]
        await until(lambda: provider.probes >= 12)
        assert not any(task.done() for task in waiting)
        provider.say, provider.health = (lambda: REPLY), (lambda: UP)
        assert await asyncio.gather(*waiting) == [REPLY] * 4


async def test_a_failing_call_among_others_never_spins_for_ever() -> None:
    """X.6: a call that fails in every outage ends as failed, not in an endless loop."""
    provider = ScriptedProvider()
    provider.say = lambda: ModelServerError("500")
    provider.health = lambda: UP
    async with endpoint_of(provider) as endpoint:
        for _ in range(6):
            with pytest.raises(AttemptFailed):
                async with asyncio.timeout(5):
                    await endpoint.generate(CALL)
        assert provider.calls <= 6 * 3


async def test_slots_bound_the_calls_in_flight() -> None:
    """DESIGN §5: never more calls than slots."""
    provider = ScriptedProvider()
    provider.hold = 0.01
    async with endpoint_of(provider, slots=3) as endpoint:
        await asyncio.gather(*(endpoint.generate(CALL) for _ in range(20)))
        assert provider.most_running == 3


async def test_waiting_calls_can_be_cancelled() -> None:
    """DESIGN §3: a shutdown or rebalance takes the call away at any point."""
    provider = ScriptedProvider()
    provider.say = lambda: ModelUnavailable("refused")
    async with endpoint_of(provider) as endpoint:
        waiting = asyncio.create_task(endpoint.generate(CALL))
        await until(lambda: endpoint.state is State.OPEN)
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        provider.say, provider.health = (lambda: REPLY), (lambda: UP)
        await until(lambda: endpoint.state is State.CLOSED)
        assert await endpoint.generate(CALL) == REPLY


async def test_a_probe_with_a_bug_does_not_end_the_probing() -> None:
    """X.6: whatever a probe raises, the next one goes out."""
    provider = ScriptedProvider()
    provider.say = lambda: ModelUnavailable("refused")
    provider.health = lambda: RuntimeError("bug")
    async with endpoint_of(provider) as endpoint:
        waiting = asyncio.create_task(endpoint.generate(CALL))
        await until(lambda: provider.probes >= 2)
        provider.say, provider.health = (lambda: REPLY), (lambda: UP)
        async with asyncio.timeout(5):
            assert await waiting == REPLY


async def test_states_are_told() -> None:
    """DESIGN §5: readiness and metrics see every change."""
    provider = ScriptedProvider()
    provider.say = lambda: ModelUnavailable("refused")
    seen: list[State] = []
    endpoint = Endpoint(provider, Policy(1, 1, 0.1, 0.01, 0.05), slots=1, on_state=seen.append)
    with pytest.raises(PatienceExhausted):
        await endpoint.generate(CALL)
    provider.health = lambda: UP
    await until(lambda: endpoint.state is State.CLOSED)
    await endpoint.aclose()
    assert seen == [State.OPEN, State.EXHAUSTED, State.CLOSED]


async def test_the_canary_at_start() -> None:
    """DESIGN §5: warns or refuses when the format is ignored; an outage refuses nothing."""
    provider = ScriptedProvider()
    assert await check_format(provider, "off") is None
    assert provider.probes == 0
    provider.health = lambda: UP
    assert await check_format(provider, "refuse") == UP
    provider.health = lambda: DOWN
    assert await check_format(provider, "refuse") == DOWN
    ignored = ProbeResult("ignored", "wrote prose")
    provider.health = lambda: ignored
    assert await check_format(provider, "warn") == ignored
    provider.probes = 0
    with pytest.raises(FormatIgnored, match="wrote prose"):
        await check_format(provider, "refuse")
    assert provider.probes == 3
    answers = iter([ignored, UP])
    provider.health = lambda: next(answers)
    assert await check_format(provider, "refuse") == UP
