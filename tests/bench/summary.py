"""`python -m tests.bench.summary [--write]`: build/bench.json as the README's table.

Prints it, or puts it between the README's `<!-- bench -->` marks; no other hand writes there, and
nothing that was measured with `--quick`.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Mapping
from typing import Any

from tests.bench.readme_table import tell
from tests.bench.report import RESULT, commits
from tests.fault.running_stack import SERVICES

Row = tuple[str, str, str]
_RIVALS = {
    "quixstreams": "quixstreams, same models",
    "faststream_batch": "FastStream in batches, same models, bare producer",
    "faststream": "FastStream as documented",
}


def markdown(document: Mapping[str, Any]) -> str:
    """The table of what was measured, and where."""
    lines = ["| what | measured | goal |", "|---|---|---|"]
    for name, rows in _ROWS.items():
        if section := document.get(name):
            made = [_unmeasured(name, section["error"])] if "error" in section else rows(section)
            lines += ["| " + " | ".join(row) + " |" for row in made]
    where = [section["machine"] for section in document.values()]
    first = where[0]
    days = sorted({machine["measured_at"][:10] for machine in where})
    loads = [machine["load_average_before"][0] for machine in where]
    lines += [
        "",
        f"{first['cores']} cores ({first['cpu']}) for broker, processes and load together. "
        f"Python {first['python']}; {commits(document.values())}; "
        f"{days[0] if len(days) == 1 else f'{days[0]} to {days[-1]}'}; "
        f"load average before each part {min(loads):.1f} to {max(loads):.1f}.",
    ]
    if some := quick(document):
        lines += ["", f"Not for publication, since quick: {', '.join(some)}."]
    return "\n".join(lines) + "\n"


def quick(document: Mapping[str, Any]) -> list[str]:
    """Sections of less than the full work; one that does not say may be such."""
    return [name for name, section in document.items() if section.get("quick", True)]


def _unmeasured(what: str, reason: str) -> Row:
    return what, f"not measured: {reason.replace('|', '/')}", ""


def _chain(section: Mapping[str, Any]) -> Iterator[Row]:
    variants, goals = section["variants"], section["goals"]
    hops = f"{section['hops']} pass-through hops"
    if "rate_ratio" in (ours := variants.get("chain", {})):
        yield (
            f"{hops}, every event validated: rate beside bare aiokafka + orjson "
            "that validates nothing",
            f"{ours['rate_ratio']:.2f} × ({ours['per_s']:,.0f}/s)",
            f"≥ {goals['rate_ratio']:.2f} ×",
        )
        yield (
            "its CPU per message and hop",
            f"{ours['cpu_ratio']:.2f} × ({ours['cpu_us']:.0f} µs)",
            f"≤ {goals['cpu_ratio']:g} ×",
        )
        if "rate_ratio" in (tuned := variants.get("tuned_floor", {})):
            rate = ours["rate_ratio"] / tuned["rate_ratio"]
            cpu = ours["cpu_ratio"] / tuned["cpu_ratio"]
            yield (
                "the same beside aiokafka + orjson with our zstd level and garbage collector "
                "settings: rate, CPU",
                f"{rate:.2f} ×, {cpu:.2f} ×",
                "",
            )
    for name, label in _RIVALS.items():
        if "rate_ratio" in (found := variants.get(name, {})):
            yield (
                f"{label}: rate, CPU",
                f"{found['rate_ratio']:.2f} ×, {found['cpu_ratio']:.2f} ×",
                "",
            )
    for name, reason in section.get("failed", {}).items():
        yield _unmeasured(f"{hops}, {name}", reason)


def _latency(section: Mapping[str, Any]) -> Iterator[Row]:
    goal, cold = section["goal_ms"], section["cold"]
    yield (
        f"{section['hops']} hops at {section['per_second']:g} events/s: p50, p99",
        f"{section['p50_ms']:.1f}, {section['p99_ms']:.1f} ms "
        f"(first {cold['events']} events: p99 {cold['p99_ms']:.0f} ms)",
        f"≤ {goal['p50']:g}, {goal['p99']:g} ms",
    )


def _model_stage(section: Mapping[str, Any]) -> Iterator[Row]:
    for shape in section["shapes"]:
        name = shape["name"].replace(" x ", " × ")
        # Of a key one call runs at a time, so fewer keys than slots cannot keep all slots busy.
        few = shape["keys"] < shape["slots"]
        share = f"share of what {shape['keys']} keys allow" if few else "slots busy"
        yield f"model stage, {name}: {share}", f"{shape['share']:.1%}", f"≥ {shape['goal']:.0%}"


def _http_client(section: Mapping[str, Any]) -> Iterator[Row]:
    ours = section["clients"]["ollama"]["calls_per_core_s"]
    bare = section["clients"].get("aiohttp", {}).get("calls_per_core_s")
    beside = f" (bare aiohttp {bare:,})" if bare else ""
    yield (
        f"model calls per second of one core, {section['connections']} connections",
        f"{ours:,}{beside}",
        f"≥ {section['goal_calls_per_core_s']:,}",
    )


def _memory(section: Mapping[str, Any]) -> Iterator[Row]:
    yield (
        f"memory of a pass-through hop, {section['backlog']:,} events of "
        f"{section['event_bytes'] / 1000:.1f} KB behind",
        f"{section['peak_rss_mb']:.0f} MB",
        f"≤ {section['goal_mb']:g} MB",
    )


def _pipeline(section: Mapping[str, Any]) -> Iterator[Row]:
    for broker, found in section["brokers"].items():
        low = found["at_rate_ms"]
        used = found["processes"]
        peaks = [used[name]["peak_rss_mb"] for name in SERVICES if name in used]
        yield (
            "all services, from submission until the signer appends the signed record, "
            f"{broker} broker",
            f"{found['scores_per_s']:,.0f} scores/s; at {found['rate_per_s']:g}/s "
            f"p50 {low['p50']:.0f}, p99 {low['p99']:.0f} ms; "
            f"a service's peak memory {min(peaks, default=0):.0f} to "
            f"{max(peaks, default=0):.0f} MB",
            "",
        )


_ROWS = {
    "chain": _chain,
    "latency": _latency,
    "model_stage": _model_stage,
    "http_client": _http_client,
    "memory": _memory,
    "pipeline": _pipeline,
}


def main() -> int:
    try:
        document = json.loads(RESULT.read_text(encoding="utf-8"))
    except FileNotFoundError:
        print(f"{RESULT} is not there: make bench", file=sys.stderr)
        return 1
    if "--write" in sys.argv[1:] and (some := quick(document)):
        told = f"not written, quick or not said to be full: {', '.join(some)}"
        print(f"{told}; make bench ONLY={','.join(some)}", file=sys.stderr)
        return 1
    tell("bench", markdown(document))
    return 0


if __name__ == "__main__":
    sys.exit(main())
