"""`assay process compare`: two versions from what evidence keeps (issue 5 point 7)."""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from assay_gate.cli.compare_numbers import wilson
from assay_gate.cli.process import app
from services.evidence.access import Access
from services.evidence.domain import Entry
from tests.unit.evidence.entries import entry, erasure
from tests.unit.evidence.served import READ, Served, served

ANSWERED = "llm.generation.answered.v1"
REJECTED = "llm.generation.rejected.v1"
ACCEPTED = "llm.generation.accepted.v1"
VALIDATED = "wallet.score.validated.v1"
_cursor = itertools.count()


@pytest.fixture
def evidence(tmp_path: Path) -> Iterator[Served]:
    with served(tmp_path) as running:
        yield running


def event(kind: str, request: str, version: str = "1", **members: Any) -> Entry:
    """A kept event; `meta` members may be given as such."""
    meta = {
        "request_id": request, "process_id": "wallet_score", "process_version": version,
        "wallet": wallet(request), "step": "score", "attempt": 1, "shadow": version == "2",
        **members.pop("meta", {}),
    }  # fmt: skip
    value = json.dumps({"meta": meta, "input": {"long": "x" * 500}, **members}).encode()
    at = members.pop("at_ms", 1_790_000_000_000)
    return entry(type=kind, topic=kind, request_id=request, value=value, timestamp_ms=at)


def wallet(request: str) -> str:
    """Requests r1 and r1b are of one wallet."""
    return "0x" + request[1].encode().hex() * 20


def answered(request: str, version: str = "1", attempts: int = 1) -> list[Entry]:
    numbers = range(1, attempts + 1)
    return [event(ANSWERED, request, version, meta={"attempt": n}) for n in numbers]


def scored(request: str, score: float, **members: Any) -> Entry:
    """The main version's: a validated score."""
    return event(VALIDATED, request, score=score, **{"fallback": None, **members})


def shadowed(request: str, score: Any, **members: Any) -> Entry:
    """The shadow's: an accepted answer."""
    return event(ACCEPTED, request, "2", output={"score": score}, **members)


def rejected(request: str, version: str = "1", **members: Any) -> Entry:
    return event(REJECTED, request, version, **{"terminal": False, "ends_as": None, **members})


def compare(*arguments: str) -> Result:
    return CliRunner().invoke(app, ["compare", *arguments])


def compared(evidence: Served, *arguments: str) -> dict[str, Any]:
    result = compare(*(arguments or ("1", "2")), "--evidence", evidence.url, "--json")
    assert result.exit_code == 0, result.output
    found: dict[str, Any] = json.loads(result.stdout)
    return found


def test_every_number_by_hand(evidence: Served) -> None:
    """Version 1: five requests: 400, 500, 800 accepted (the first after a retry), one fallback,
    one open. Version 2: four requests: 450, 500, 600 accepted, one rejected after three."""
    evidence.keep(
        *answered("r1", attempts=2), rejected("r1"), scored("r1", 400),
        *answered("r2"), scored("r2", 500),
        *answered("r3"), scored("r3", 800),
        *answered("r4", attempts=3), rejected("r4"), rejected("r4"),
        rejected("r4", terminal=True, ends_as="fallback_score"),
        scored("r4", 150, fallback="answers_rejected"),
        *answered("r5"),
        *answered("r1", "2"), shadowed("r1", 450),
        *answered("r2", "2"), shadowed("r2", 500),
        *answered("r3", "2", attempts=2), rejected("r3", "2"), shadowed("r3", 600),
        *answered("r4", "2", attempts=3), rejected("r4", "2"), rejected("r4", "2"),
        rejected("r4", "2", terminal=True, ends_as="rejected"),
    )  # fmt: skip
    found = compared(evidence)
    one, two = found["versions"]
    assert (one["process"], one["version"], two["version"]) == ("wallet_score", "1", "2")
    assert (one["requests"], one["ended"], one["open"]) == (5, 4, 1)
    assert (two["requests"], two["ended"], two["open"]) == (4, 4, 0)
    rates = ("accepted", "fallback", "rejected", "retried")
    assert [(one[name]["count"], one[name]["of"]) for name in rates] == [
        (3, 4), (1, 4), (0, 4), (2, 5)
    ]  # fmt: skip
    assert [(two[name]["count"], two[name]["of"]) for name in rates] == [
        (3, 4), (0, 4), (1, 4), (2, 4)
    ]  # fmt: skip
    assert one["accepted"]["rate"] == 0.75
    # 2 + 1 + 1 + 3 + 1 answers to five questions; 1 + 1 + 2 + 3 to four.
    assert (one["mean_attempts"], two["mean_attempts"]) == (1.6, 1.75)
    assert {n: one["scores"][n] for n in ("count", "min", "p10", "p50", "p90", "max", "mean")} == {
        "count": 3, "min": 400, "p10": 420, "p50": 500, "p90": 740, "max": 800, "mean": 566.6667,
    }  # fmt: skip
    assert one["scores"]["histogram"] == {
        "edges": [0, 100, 200, 300, 400, 500, 600, 700, 800, 900, 1000],
        "counts": [0, 0, 0, 0, 1, 1, 0, 0, 1, 0],
    }
    assert two["scores"]["histogram"]["counts"] == [0, 0, 0, 0, 1, 1, 1, 0, 0, 0]
    # Deltas +50, 0 and -200; of their sizes 0, 50 and 200 the 90th percentile is 170.
    assert found["delta"]["by_request"] == {
        "count": 3, "mean": -50, "median": 0, "p90_abs": 170
    }  # fmt: skip
    assert found["delta"]["by_wallet"] == found["delta"]["by_request"]


def test_wilson_as_published() -> None:
    """Wilson 1927; 3 of 4 and 50 of 100 worked out by hand, and the ends."""
    assert wilson(0, 0) is None
    assert wilson(3, 4) == pytest.approx((0.3006, 0.9544), abs=1e-4)
    assert wilson(50, 100) == pytest.approx((0.4038, 0.5962), abs=1e-4)
    assert wilson(0, 10) == pytest.approx((0, 0.2775), abs=1e-4)
    assert wilson(10, 10) == pytest.approx((0.7225, 1), abs=1e-4)


def test_wallets_are_paired_by_their_last_score(evidence: Served) -> None:
    """Versions that ran one after the other share no request; they share wallets."""
    evidence.keep(
        scored("r1", 100), scored("r1b", 300), scored("r2", 500),
        shadowed("r1c", 310), shadowed("r3", 900),
    )  # fmt: skip
    delta = compared(evidence)["delta"]
    assert delta["by_request"] == {"count": 0, "mean": None, "median": None, "p90_abs": None}
    assert delta["by_wallet"] == {"count": 1, "mean": 10, "median": 10, "p90_abs": 10}


def test_repeats_count_once(evidence: Served) -> None:
    """A model asked again after a crash: one attempt, and the first outcome is the request's."""
    evidence.keep(
        *answered("r1"), *answered("r1"), scored("r1", 400), scored("r1", 700),
        *answered("r1", "2"), shadowed("r1", 400), rejected("r1", "2", terminal=True),
    )  # fmt: skip
    found = compared(evidence)
    one, two = found["versions"]
    assert (one["requests"], one["mean_attempts"], one["scores"]["max"]) == (1, 1, 400)
    assert (two["accepted"]["count"], two["rejected"]["count"]) == (1, 0)


def test_several_steps_and_empty_results(evidence: Served) -> None:
    """A chain ends with its last step; an empty result is a fallback; a process without a score
    has no distribution."""
    for version in ("1", "2"):
        for request in ("r1", "r2"):
            evidence.keep(
                event(ANSWERED, request, version, meta={"step": "a"}),
                event(ACCEPTED, request, version, output={"score": 1}, final=False),
                event(ANSWERED, request, version, meta={"step": "b"}),
            )
        evidence.keep(
            event(ACCEPTED, "r1", version, output={"text": "x", "score": True}, final=True),
            rejected("r2", version, terminal=True, ends_as="rejected", empty_result=True),
            event(ACCEPTED, "r2", version, output={}, fallback="answers_rejected"),
        )
    one = compared(evidence)["versions"][0]
    assert (one["requests"], one["ended"], one["mean_attempts"]) == (2, 2, 1)
    assert (one["accepted"]["count"], one["fallback"]["count"]) == (1, 1)
    assert one["scores"] is None


@pytest.mark.parametrize(
    ("scores", "edges"),
    [
        ((0.25, 1), (0, 1)), ((0, 0), (0, 1)), ((4.5, 9), (0, 10)), ((3, 87), (0, 100)),
        ((5, 1001), (0, 10_000)), ((-5, 5), (-5, 5)), ((-5, -5), (-5, -4)),
    ],
)  # fmt: skip
def test_the_bins_hold_every_score(
    evidence: Served, scores: tuple[float, float], edges: tuple[float, float]
) -> None:
    """Both versions have the same bins, whatever the score's range is."""
    evidence.keep(scored("r1", scores[0]), shadowed("r1", scores[1]))
    for version in compared(evidence)["versions"]:
        histogram = version["scores"]["histogram"]
        assert (histogram["edges"][0], histogram["edges"][-1]) == edges
        assert sum(histogram["counts"]) == 1


def test_another_member_is_the_score(evidence: Served) -> None:
    """`--field` names it, also inside."""
    nested = {"scoreBreakdown": {"activity": 40}}
    evidence.keep(
        scored("r1", 400, **nested),
        event(ACCEPTED, "r1", "2", output={"scoreBreakdown": {"activity": 45}}),
    )
    found = compared(evidence, "1", "2", "--field", "scoreBreakdown.activity")
    assert found["delta"]["by_request"]["mean"] == 5


def test_processes_by_id(evidence: Served) -> None:
    """A version that several processes have must be named; ID@VERSION compares two processes."""
    other = {"meta": {"process_id": "other"}}
    evidence.keep(scored("r1", 400), shadowed("r1", 500), event(ACCEPTED, "r1", "2", **other,
                  output={"score": 100}))  # fmt: skip
    refused = compare("1", "2", "--evidence", evidence.url)
    assert refused.exit_code == 2
    assert "other, wallet_score" in " ".join(refused.output.replace("│", " ").split())
    by_option = compared(evidence, "1", "2", "--process", "wallet_score")
    assert by_option["delta"]["by_request"]["mean"] == 100
    named = compared(evidence, "wallet_score@1", "other@2")
    assert named["delta"]["by_request"]["mean"] == -300


def test_since_a_time(evidence: Served) -> None:
    """What came before is left out."""
    for number, at in (("1", 1_000), ("2", 3_000)):
        evidence.keep(scored(f"r{number}", 1, at_ms=at), shadowed(f"r{number}", 2, at_ms=at))
    found = compared(evidence, "1", "2", "--since", "2000")
    assert [version["requests"] for version in found["versions"]] == [1, 1]


def test_pages_of_many_and_rubbish_between(evidence: Served) -> None:
    """More than a page; erased, unreadable and odd events are passed over, the erased ones said."""
    evidence.keep(*(scored(f"r{n:04}", n % 7) for n in range(700)))
    evidence.keep(*(shadowed(f"r{n:04}", n % 7 + 2) for n in range(700)))
    evidence.keep(
        event(VALIDATED, "r-gone", score=1, fallback=None),
        entry(type=ACCEPTED, topic=ACCEPTED, value=b"no json"),
        entry(type=ACCEPTED, topic=ACCEPTED, value=b'{"meta": []}'),
        event(ACCEPTED, "r-odd", "2", output=[1], meta={"wallet": 7}),
        event(ANSWERED, "r-odd", "2", meta={"attempt": "many"}),
    )
    evidence.run(evidence.store.erase(erasure(request_id="r-gone")))
    found = compared(evidence)
    assert [version["requests"] for version in found["versions"]] == [700, 701]
    assert found["delta"]["by_request"] == {"count": 700, "mean": 2, "median": 2, "p90_abs": 2}
    assert found["erased_events"] == 1


def test_the_report_is_for_people(evidence: Served) -> None:
    """Counts beside every rate, and a word on small samples."""
    evidence.keep(*answered("r1"), scored("r1", 400), *answered("r1", "2"), shadowed("r1", 450))
    result = compare("1", "2", "--evidence", evidence.url)
    assert result.exit_code == 0, result.output
    assert "wallet_score 1" in result.stdout
    assert "1 = 100.0% [20.7%, 100.0%]" in result.stdout
    assert "requests both accepted: 1; second minus first: mean +50" in result.stdout
    assert "fewer than 30" in result.stdout


def test_what_cannot_be_compared(tmp_path: Path) -> None:
    """Exit codes: 1 without a request or without access, 2 for wrong usage."""
    with served(tmp_path, Access(read=READ)) as evidence:
        there = ("--evidence", evidence.url)
        assert compare("1", "1", *there).exit_code == 2
        assert compare("1", "2", "--field", "a b", *there).exit_code == 2
        refused = compare("1", "2", *there)
        assert (refused.exit_code, "401" in refused.output) == (1, True)
        empty = compare("1", "2", *there, "--token", READ)
        assert empty.exit_code == 1
        assert "no request of 1, 2" in empty.output
    gone = compare("1", "2", "--evidence", "http://127.0.0.1:9")
    assert gone.exit_code == 1
