"""Rate and concurrency limits, case by case (issue 5 item 3); tests/property has the laws."""

from __future__ import annotations

from itertools import repeat

import pytest

from services.ingest.domain.limits import Allowance, Limiter, Refusal

S = 1_000_000_000


def test_a_burst_and_then_the_rate() -> None:
    """Issue 5: 429 tells when the next token comes."""
    limiter, mine = Limiter(), {"k": Allowance(per_minute=6, burst=3, concurrency=100)}
    assert [limiter.enter(mine, 0) for _ in range(3)] == list(repeat(None, 3))
    assert limiter.enter(mine, 0) == Refusal("rate", "k", 10)
    assert limiter.enter(mine, 1) == Refusal("rate", "k", 10)
    assert limiter.enter(mine, 7 * S + 1) == Refusal("rate", "k", 3)
    assert limiter.enter(mine, 10 * S - 1) == Refusal("rate", "k", 1)
    assert limiter.enter(mine, 10 * S) is None
    assert limiter.enter(mine, 10 * S) == Refusal("rate", "k", 10)


def test_a_rest_refills_no_more_than_the_burst() -> None:
    limiter, mine = Limiter(), {"k": Allowance(60, 2, 100)}
    answers = [limiter.enter(mine, 10**6 * S) for _ in range(3)]
    assert answers == [None, None, Refusal("rate", "k", 1)]


def test_a_rate_that_divides_no_minute_is_exact() -> None:
    """Seven a minute: after 60 s there are seven, and not a nanosecond earlier."""
    limiter, mine = Limiter(), {"k": Allowance(7, 7, 100)}
    for _ in range(7):
        assert limiter.enter(mine, 0) is None
    assert limiter.enter(mine, 60 * S // 7) == Refusal("rate", "k", 1)
    for number in range(1, 8):
        assert limiter.enter(mine, -(-60 * S * number // 7)) is None
    assert limiter.enter(mine, 60 * S) == Refusal("rate", "k", 9)


def test_slots_are_given_back() -> None:
    limiter, mine = Limiter(), {"k": Allowance(600, 100, 2)}
    assert limiter.enter(mine, 0) is None
    assert limiter.enter(mine, 0) is None
    assert limiter.enter(mine, 0) == Refusal("concurrency", "k", 1)
    limiter.leave(mine)
    assert limiter.enter(mine, 0) is None


def test_a_refusal_takes_nothing_of_anybody() -> None:
    """Neither a key's token when its tenant is refused, nor any when all slots are taken: who asks
    too often must not be later for it."""
    limiter = Limiter()
    key, tenant = Allowance(60, 2, 100), Allowance(1, 1, 1)
    assert limiter.enter({"k": key, "t": tenant}, 0) is None
    for _ in range(50):
        assert limiter.enter({"k": key, "t": tenant}, 0) == Refusal("concurrency", "t", 1)
    limiter.leave({"t": tenant})
    for _ in range(50):
        assert limiter.enter({"k": key, "t": tenant}, 0) == Refusal("rate", "t", 60)
    assert limiter.enter({"k": key}, 0) is None
    assert limiter.enter({"k": key}, 0) == Refusal("rate", "k", 1)


def test_keys_of_one_tenant_share_its_limit_and_no_other() -> None:
    limiter = Limiter()
    one, tenant = Allowance(60, 5, 5), Allowance(60, 3, 100)
    entered = [limiter.enter({f"key {n}": one, "tenant": tenant}, 0) for n in range(4)]
    assert entered == [None, None, None, Refusal("rate", "tenant", 1)]
    assert limiter.enter({"key 9": one, "tenant b": tenant}, 0) is None


def test_other_limits_count_from_now_on() -> None:
    limiter = Limiter()
    assert limiter.enter({"k": Allowance(60, 100, 100)}, 0) is None
    smaller = {"k": Allowance(1, 1, 100)}
    assert limiter.enter(smaller, 0) is None
    assert limiter.enter(smaller, 0) == Refusal("rate", "k", 60)


def test_what_is_as_good_as_new_is_forgotten() -> None:
    """Memory is for those who ask, not for all who ever asked."""
    limiter, allowance = Limiter(), Allowance(60, 1, 1)
    for name in ("running", "waiting", "rested"):
        assert limiter.enter({name: allowance}, 0 if name == "rested" else S) is None
    limiter.leave({"waiting": allowance})
    limiter.leave({"rested": allowance})
    limiter.forget_idle(S)
    assert len(limiter) == 2
    limiter.forget_idle(3 * S)
    assert len(limiter) == 1
    assert limiter.enter({"running": allowance}, 3 * S) == Refusal("concurrency", "running", 1)
    limiter.leave({"running": allowance})


def test_nothing_is_no_allowance() -> None:
    for parts in ((0, 1, 1), (1, 0, 1), (1, 1, 0), (-1, 1, 1)):
        with pytest.raises(ValueError, match="at least 1"):
            Allowance(*parts)
