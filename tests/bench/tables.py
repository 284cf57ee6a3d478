"""The figures as tables, goals beside them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rich.console import Console
from rich.table import Table

from tests.bench import pipeline
from tests.bench.report import commits


def show(console: Console, found: Mapping[str, Mapping[str, Any]]) -> None:
    """One table per section that was measured now, or why it was not."""
    for row, section in found.items():
        if "error" in section:
            console.print(f"{row}: not measured: {section['error']}", markup=False)
        elif row == "pipeline":
            pipeline.show(console, section["machine"], section["brokers"])
        else:
            console.print(_TABLES[row](section))
    if found:
        where = next(iter(found.values()))["machine"]
        loads = {
            row: section["machine"]["load_average_before"][0] for row, section in found.items()
        }
        shown = ", ".join(f"{row} {load:g}" for row, load in loads.items())
        console.print(
            f"{where['cores']} cores, {where['cpu']}; {commits(found.values())}; "
            f"load average before: {shown}"
        )
        if some := [row for row, section in found.items() if section.get("quick")]:
            console.print(f"quick: {', '.join(some)}")


def _table(title: str, *headings: str) -> Table:
    table = Table(title=title)
    for number, heading in enumerate(headings):
        table.add_column(heading, justify="right" if number else "left")
    return table


def chain(section: Mapping[str, Any]) -> Table:
    goals = section["goals"]
    table = _table(
        f"chain: {section['hops']} validated hops, {section['event_bytes']} B events, "
        f"{section['sampled_share']:.0%} of traces sampled, {section['rounds']} rounds",
        "variant", "scores/s", f"of floor (goal {goals['rate_ratio']:g})", "CPU µs/message-hop",
        f"of floor (goal {goals['cpu_ratio']:g})", "peak RSS MB",
    )  # fmt: skip
    for name, found in section["variants"].items():
        table.add_row(
            name, f"{found['per_s']:,.0f}", _ratio(found, "rate_ratio"), f"{found['cpu_us']:.1f}",
            _ratio(found, "cpu_ratio"), f"{found['peak_rss_mb']:.0f}",
        )  # fmt: skip
    for name, reason in (section["missing"] | section["failed"]).items():
        table.add_row(name, f"not measured: {reason}")
    return table


def _ratio(found: Mapping[str, Any], name: str) -> str:
    return f"{found[name]:.2f}" if name in found else "–"


def latency(section: Mapping[str, Any]) -> Table:
    goal = section["goal_ms"]
    table = _table(
        f"latency: {section['hops']} hops at {section['per_second']:g}/s, ms",
        f"p50 (goal {goal['p50']:g})", "p90", f"p99 (goal {goal['p99']:g})", "max",
        f"first {section['cold']['events']} events p50 / p99",
    )  # fmt: skip
    cold = section["cold"]
    table.add_row(
        *(f"{section[f'{name}_ms']:.1f}" for name in ("p50", "p90", "p99", "max")),
        f"{cold['p50_ms']:.1f} / {cold['p99_ms']:.1f}",
    )
    return table


def scaling(section: Mapping[str, Any]) -> Table:
    table = _table("chain by partitions and replicas", "partitions", "replicas", "scores/s",
                   "of floor", "CPU µs/message-hop", "of floor")  # fmt: skip
    for cell in section["cells"]:
        table.add_row(
            str(cell["partitions"]), str(cell["replicas"]), f"{cell['per_s']:,.0f}",
            f"{cell['per_s'] / cell['floor_per_s']:.2f}",
            f"{cell['cpu_us']:.1f}", f"{cell['cpu_us'] / cell['floor_cpu_us']:.2f}",
        )  # fmt: skip
    return table


def memory(section: Mapping[str, Any]) -> Table:
    table = _table(
        f"memory: {section['backlog']:,} records of {section['event_bytes']:,} B behind "
        f"a pass-through hop, {section['partitions']} partitions",
        f"peak RSS MB (goal {section['goal_mb']:g})", "RSS MB at the end", "records/s",
    )  # fmt: skip
    rate = section["worked_off"] / section["seconds"]
    table.add_row(f"{section['peak_rss_mb']:.0f}", f"{section['rss_mb']:.0f}", f"{rate:,.0f}")
    return table


def model_stage(section: Mapping[str, Any]) -> Table:
    table = _table(
        "model stage: share of what the slots, or fewer keys, allow",
        "shape", "records/s", "ideal", "share", "goal",
    )  # fmt: skip
    for shape in section["shapes"]:
        table.add_row(
            shape["name"], f"{shape['rate']:,.0f}", f"{shape['ideal']:,.0f}",
            f"{shape['share']:.1%}", f"{shape['goal']:.0%}",
        )  # fmt: skip
    return table


def http_client(section: Mapping[str, Any]) -> Table:
    table = _table(
        f"model calls, {section['connections']} connections "
        f"(goal {section['goal_calls_per_core_s']:,}/s/core)",
        "client", "calls/s/core", "CPU µs/call",
    )  # fmt: skip
    for name, found in section["clients"].items():
        table.add_row(name, f"{found['calls_per_core_s']:,}", f"{found['cpu_us_per_call']:.0f}")
    return table


_TABLES = {
    "chain": chain,
    "latency": latency,
    "scaling": scaling,
    "memory": memory,
    "model_stage": model_stage,
    "http_client": http_client,
}
