"""The availability state machine (DESIGN §5, SPEC X.6)."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from services.scorer.domain.availability import Availability, Policy, State

POLICY = Policy(
    failures_to_open=3,
    suspicions_to_open=5,
    patience_s=60.0,
    probe_initial_s=1.0,
    probe_max_s=16.0,
)
START = Availability(POLICY)


def opened(now: float = 0.0) -> Availability:
    return START.call_failed(now).call_failed(now).call_failed(now)


def test_failures_in_a_row_open() -> None:
    """X.6: two failures wait, the third pauses; a success in between starts over."""
    assert START.call_failed(0).call_failed(0).state is State.CLOSED
    assert opened().state is State.OPEN
    interrupted = START.call_failed(0).call_failed(0).succeeded().call_failed(0).call_failed(0)
    assert interrupted.state is State.CLOSED


def test_patience_counts_from_opening_not_from_old_failures() -> None:
    """DESIGN §5: a failure an hour ago is no hour of unavailability."""
    state = START.call_failed(0).call_failed(0).call_failed(3600)
    assert state.probe_failed(3601).state is State.OPEN
    assert state.probe_failed(3659.9).state is State.OPEN
    assert state.probe_failed(3660).state is State.EXHAUSTED


def test_time_alone_never_exhausts() -> None:
    """DESIGN §5: a process stopped for an hour asks once more before it gives up."""
    state = opened(0)
    assert state.next_probe_at <= 1
    assert state.call_failed(3600).state is State.OPEN
    assert state.probe_failed(3600).state is State.EXHAUSTED


def test_the_first_success_closes() -> None:
    """DESIGN §5: from OPEN and from EXHAUSTED alike."""
    exhausted = opened(0).probe_failed(61)
    assert exhausted.state is State.EXHAUSTED
    assert exhausted.succeeded() == START
    assert opened(0).succeeded() == START


def test_a_single_hang_does_not_open_and_a_series_does() -> None:
    """DESIGN §5: one hang costs one attempt; five without any success are an outage."""
    state = START
    for _ in range(4):
        state = state.suspected(0)
    assert state.state is State.CLOSED
    assert state.succeeded().suspected(0).state is State.CLOSED
    assert state.suspected(0).state is State.OPEN


def test_many_calls_failing_at_once_do_not_slow_the_probes_down() -> None:
    """X.6: 64 calls in flight when the endpoint dies are one outage."""
    state = opened(10)
    for _ in range(61):
        state = state.call_failed(10).suspected(10)
    assert state == opened(10)


def test_probes_back_off_and_one_falls_on_the_end_of_the_patience() -> None:
    """DESIGN §5: intervals double up to the maximum; giving up is not put off by the backoff."""
    state, times = opened(0), []
    while state.state is State.OPEN:
        times.append(state.next_probe_at)
        state = state.probe_failed(state.next_probe_at)
    assert times == [1, 3, 7, 15, 31, 47, 60]
    assert state.state is State.EXHAUSTED
    assert state.next_probe_at == 76


steps = st.lists(
    st.tuples(
        st.sampled_from(["succeeded", "call_failed", "probe_failed", "suspected"]),
        st.floats(min_value=0, max_value=30),
    ),
    max_size=80,
)


@given(steps, st.integers(1, 5), st.integers(1, 5), st.floats(0.5, 100))
def test_what_always_holds(
    events: list[tuple[str, float]], failures: int, suspicions: int, patience: float
) -> None:
    """X.6: EXHAUSTED only after a whole patience of OPEN and a failed probe; success closes."""
    policy = Policy(failures, suspicions, patience, 1.0, 16.0)
    state, now, opened_at = Availability(policy), 0.0, 0.0
    unlucky = 0
    for name, passed in events:
        now += passed
        before = state
        state = state.succeeded() if name == "succeeded" else getattr(state, name)(now)
        unlucky = 0 if name == "succeeded" else unlucky + 1
        if name == "succeeded":
            assert state.state is State.CLOSED
        if before.state is State.CLOSED:
            assert state.state is not State.EXHAUSTED
            if state.state is State.OPEN:
                opened_at = now
                assert unlucky >= min(failures, suspicions)
        if state.state is State.CLOSED and before.state is not State.CLOSED:
            assert name == "succeeded"
        if state.state is State.EXHAUSTED and before.state is State.OPEN:
            assert name == "probe_failed"
            assert now - opened_at >= patience - 1e-6
        if before.state is State.EXHAUSTED and name != "succeeded":
            assert state.state is State.EXHAUSTED
        if state.state is State.OPEN:
            assert state.next_probe_at <= max(state.gives_up_at, now)
        if state.state is State.EXHAUSTED and name == "probe_failed":
            assert now < state.next_probe_at <= now + policy.probe_max_s
