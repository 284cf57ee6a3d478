"""The laws of the token bucket (issue 5 item 3)."""

from __future__ import annotations

from fractions import Fraction

from hypothesis import given
from hypothesis import strategies as st

from services.ingest.domain.limits import Allowance, Limiter

S = 1_000_000_000
MINUTE = 60 * S

rates = st.integers(1, 5_000)
bursts = st.integers(1, 50)
# From the same nanosecond to beyond any refill, and around one token of common rates.
pauses = st.one_of(
    st.just(0), st.integers(0, 5), st.integers(0, 2 * S), st.integers(0, 3 * MINUTE),
    st.sampled_from([S, MINUTE, MINUTE // 7, MINUTE // 7 + 1]),
)  # fmt: skip


@given(rate=rates, burst=bursts, waits=st.lists(pauses, min_size=1, max_size=60))
def test_never_more_than_burst_and_rate_in_any_interval(
    rate: int, burst: int, waits: list[int]
) -> None:
    """Between any two moments: at most burst + rate x time."""
    limiter, mine = Limiter(), {"k": Allowance(rate, burst, 10**6)}
    now, admitted = 0, []
    for wait in waits:
        now += wait
        if limiter.enter(mine, now) is None:
            admitted.append(now)
    for first, start in enumerate(admitted):
        for number, end in enumerate(admitted[first:], 1):
            assert number <= burst + Fraction(rate * (end - start), MINUTE)


@given(rate=rates, burst=bursts, waits=st.lists(pauses, min_size=1, max_size=60))
def test_whoever_waits_as_told_is_let_in(rate: int, burst: int, waits: list[int]) -> None:
    """Retry-After is honest: honoured, it admits; a second earlier it would not have."""
    limiter, mine = Limiter(), {"k": Allowance(rate, burst, 10**6)}
    now = 0
    for wait in waits:
        now += wait
        refusal = limiter.enter(mine, now)
        if refusal is None:
            continue
        assert refusal.retry_after_s >= 1
        assert limiter.enter(mine, now + (refusal.retry_after_s - 1) * S) is not None
        now += refusal.retry_after_s * S
        assert limiter.enter(mine, now) is None


@given(
    rate=rates, burst=bursts, tenant_rate=rates, tenant_burst=bursts,
    steps=st.lists(st.tuples(pauses, st.sampled_from(["a", "b"])), max_size=60),
)  # fmt: skip
def test_a_tenants_keys_together_keep_the_tenants_limit(
    rate: int, burst: int, tenant_rate: int, tenant_burst: int, steps: list[tuple[int, str]]
) -> None:
    """And Retry-After names the time at which both, key and tenant, have a token."""
    limiter = Limiter()
    key, tenant = Allowance(rate, burst, 10**6), Allowance(tenant_rate, tenant_burst, 10**6)
    now = 0
    for admitted, (wait, name) in enumerate(steps, 1):
        now += wait
        holders = {name: key, "tenant": tenant}
        if refusal := limiter.enter(holders, now):
            now += refusal.retry_after_s * S
            assert limiter.enter(holders, now) is None
        assert admitted <= tenant_burst + Fraction(tenant_rate * now, MINUTE)


@given(
    concurrency=st.integers(1, 5),
    steps=st.lists(st.booleans(), max_size=80),
)
def test_slots_are_never_overdrawn(concurrency: int, steps: list[bool]) -> None:
    limiter, mine = Limiter(), {"k": Allowance(10**6, 10**6, concurrency)}
    running = 0
    for comes in steps:
        if comes:
            admitted = limiter.enter(mine, 0) is None
            assert admitted == (running < concurrency)
            running += admitted
        elif running:
            limiter.leave(mine)
            running -= 1


@given(
    steps=st.lists(st.tuples(pauses, st.booleans()), max_size=60), rate=rates, burst=bursts
)  # fmt: skip
def test_forgetting_changes_nothing(steps: list[tuple[int, bool]], rate: int, burst: int) -> None:
    """A limiter that forgets idle holders admits exactly as one that does not."""
    mine = {"k": Allowance(rate, burst, 10**6)}
    one, other, now = Limiter(), Limiter(), 0
    for wait, forget in steps:
        now += wait
        if forget:
            one.forget_idle(now)
        first, second = one.enter(mine, now), other.enter(mine, now)
        assert first == second
        if first is None:
            one.leave(mine)
            other.leave(mine)
