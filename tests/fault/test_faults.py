"""Schedules repeat from their seed, faults overlap, and what is measured is what happened."""

from __future__ import annotations

import asyncio
import threading
import time
from typing import Any

import pytest

from assay.events import WalletScoreValidated
from tests.fault import faults
from tests.fault.acts import BROKER, DISK, MODEL, ON_THE_WIRE, Scene
from tests.fault.checker import check
from tests.fault.fault_run import lost_calls
from tests.fault.faults import Inflicted, Planned, drawn, inflict
from tests.fault.findings import Findings
from tests.fault.lineage_rules import ANSWERED, check_repeated_calls
from tests.fault.recovery import recovery_s
from tests.fault.running_stack import SERVICES
from tests.fault.seen import SIGNED
from tests.fault.surroundings import Disk, disk_possible
from tests.fault.synthetic_run import PUBLIC_KEY, SyntheticRun
from tests.fault.workload import displaced, submissions


def test_a_schedule_follows_from_its_seed() -> None:
    """A run that failed is repeated with the seed it printed."""
    parts = {BROKER, MODEL, DISK}
    assert drawn(7, 20, 12, parts=parts) == drawn(7, 20, 12, parts=list(parts))
    assert drawn(7, 20, 12, parts=parts) != drawn(8, 20, 12, parts=parts)


def test_a_schedule_has_each_part_beside_the_services_once() -> None:
    found = drawn(3, 20, 10, parts={BROKER, MODEL, DISK})
    assert sorted(p.part for p in found if p.part not in SERVICES) == sorted((BROKER, MODEL, DISK))
    assert [p.at_s for p in found] == sorted(p.at_s for p in found)
    assert all(0 <= p.at_s <= 20 for p in found)
    assert not {p.fault for p in drawn(3, 20, 60, parts={BROKER})} & ON_THE_WIRE
    cut = drawn(3, 20, 60, parts={BROKER}, wire=True)
    assert {p.fault for p in cut} >= ON_THE_WIRE
    assert all(p.lasts_s >= 2 for p in cut if p.fault in ON_THE_WIRE)


def test_the_workload_follows_from_its_seed() -> None:
    """X.2: late records are the same records in another order."""
    work = list(submissions(300, 20, seed=5, bare=0.2))
    assert list(submissions(300, 20, seed=5, bare=0.2)) == work
    late = displaced(work, 0.1, seed=5)
    assert late != work
    assert sorted(item.event_id for item in late) == sorted(item.event_id for item in work)
    assert displaced(work, 0.0, seed=5) == work
    bare = sum(b"evm_data" not in item.value for item in work)
    assert 20 < bare < 120


async def test_faults_of_one_part_follow_each_other_and_others_overlap(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    at_work: set[str] = set()
    together: list[frozenset[str]] = []
    guard = threading.Lock()

    def act(scene: Any, part: str, lasts_s: float) -> bool:
        with guard:
            assert part not in at_work
            at_work.add(part)
            together.append(frozenset(at_work))
        time.sleep(lasts_s)
        with guard:
            at_work.remove(part)
        return part != "b"

    monkeypatch.setattr(faults, "ON_PARTS", {name: {"x": act} for name in "abc"})
    schedule = [Planned(0, "x", part, 0.1) for part in "aabbc"]
    met = await inflict(None, schedule)  # type: ignore[arg-type]
    assert [inflicted.planned.part for inflicted in met] == ["a", "a", "c"]
    assert max(map(len, together)) > 1
    assert all(inflicted.over_ms - inflicted.began_ms >= 100 for inflicted in met)
    await asyncio.sleep(0)


async def test_a_run_that_is_cut_leaves_nothing_cut_or_stopped(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """What lasts ends at once, and what would have come does not."""
    done: list[str] = []

    def act(scene: Scene, part: str, lasts_s: float) -> bool:
        scene.wait(lasts_s)
        done.append(part)
        return True

    monkeypatch.setattr(faults, "ON_PARTS", {name: {"x": act} for name in "ab"})
    scene = Scene(None, None)  # type: ignore[arg-type]
    schedule = [Planned(0, "x", "a", 60.0), Planned(30.0, "x", "b", 1.0)]
    task = asyncio.create_task(inflict(scene, schedule))
    await asyncio.sleep(0.2)
    assert done == []
    task.cancel()
    started = time.monotonic()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert done == ["a"]
    assert time.monotonic() - started < 30


def at(times_ms: list[int], topic: str = SIGNED) -> SyntheticRun:
    """A run whose records on a topic have these times."""
    run = SyntheticRun()
    for item in submissions(len(times_ms), 1, seed=1):
        run.request(item)
    records = run.records[topic]
    records[:] = [
        record._replace(timestamp_ms=ms) for record, ms in zip(records, times_ms, strict=True)
    ]
    return run


@pytest.mark.parametrize(
    ("times_ms", "seconds"),
    [
        ([1_000, 5_000, 9_000], 3.0),  # silent from the kill on
        ([1_000, 1_900, 2_100, 2_300, 5_000], 3.0),  # drained for a while first
        ([1_000, 1_900, 2_001, 2_100], 0.1),  # another replica wrote on
        ([1_000, 1_500], None),  # nothing was left to do
    ],
)
def test_recovery_is_the_end_of_the_silence(times_ms: list[int], seconds: float | None) -> None:
    inflicted = Inflicted(Planned(0, "kill -9", "signer"), 2_000, 2_000)
    found = recovery_s(at(times_ms).log(), inflicted)
    assert found == pytest.approx(seconds)


def test_what_writes_no_topic_has_no_recovery() -> None:
    inflicted = Inflicted(Planned(0, "kill -9", "evidence"), 0, 0)
    assert recovery_s(at([1_000, 2_000]).log(), inflicted) is None


def asked_once() -> tuple[SyntheticRun, Any, dict[str, str]]:
    """A flawless run of one request, its request to the model, and what names it in an event."""
    run = SyntheticRun()
    (item,) = submissions(1, 1, seed=2)
    run.request(item)
    asked = run.records["llm.generation.requested.v1"][0]
    return run, asked, {"request_id": item.request_id, "wallet": item.key.decode()}


def test_a_planted_call_that_nobody_can_have_lost() -> None:
    """Issue 6: model calls are paid again only where their answers died with their process."""
    run, asked, common = asked_once()
    run.event(ANSWERED, asked, common, attempt=1, raw="another answer")
    findings = check(run.log(), run.stores(), run.asked, PUBLIC_KEY)
    assert findings.counts["repeated_model_calls"] == 1
    check_repeated_calls(0, findings)
    assert set(findings.violations) == {"paid_again"}
    allowed = Findings(counts=findings.counts)
    check_repeated_calls(1, allowed)
    assert allowed.clean


def test_an_answer_written_twice_was_paid_once() -> None:
    run = SyntheticRun()
    (item,) = submissions(1, 1, seed=2)
    run.request(item)
    run.repeat(run.records[ANSWERED][0])
    findings = check(run.log(), run.stores(), run.asked, PUBLIC_KEY)
    assert findings.counts["repeated_model_calls"] == 0
    assert findings.counts[f"repeats {ANSWERED}"] == 1
    assert WalletScoreValidated.type in run.records


def test_a_call_that_failed_may_be_made_again() -> None:
    """A request that comes twice is asked twice where the first call brought no answer."""
    run, asked, common = asked_once()
    run.event(ANSWERED, asked, common, attempt=1, outcome="failed")
    findings = check(run.log(), run.stores(), run.asked, PUBLIC_KEY)
    assert findings.counts["repeated_model_calls"] == 0


def test_only_what_can_lose_calls_allows_repeats() -> None:
    met = [Inflicted(Planned(0, "x", part), 0, 0) for part in ("scorer", "signer", BROKER, MODEL)]
    assert lost_calls(met) == 2


def test_a_full_disk_is_full_until_it_is_cleared(tmp_path: Any) -> None:
    """The fault does what it says: not a byte can be written, then it can again."""
    if not disk_possible():
        pytest.skip("mounting a disk needs root")
    disk = Disk(tmp_path / "disk")
    assert disk.mount()
    try:
        disk.fill()
        with pytest.raises(OSError, match="No space left"):
            (disk.folder / "more").write_bytes(b"x" * 4_096)
        disk.clear()
        (disk.folder / "more").write_bytes(b"x" * 4_096)
    finally:
        disk.unmount()
