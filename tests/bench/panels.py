"""From the figures of build/bench.json to the plot's panels; a section that is missing has none."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tests.bench.plot import Bar, Panel

Document = Mapping[str, Any]


def panels(document: Document) -> list[Panel]:
    """Everything that was measured, in the order of the table."""
    document = {row: section for row, section in document.items() if "error" not in section}
    made = (
        *_chain(document.get("chain")),
        *_latency(document.get("latency")),
        *_scaling(document.get("scaling")),
        *_memory(document.get("memory")),
        *_pipeline(document.get("pipeline")),
        *_model_stage(document.get("model_stage")),
        *_http(document.get("http_client")),
    )
    return [panel for panel in made if panel.bars]


def _chain(section: Document | None) -> list[Panel]:
    if not section:
        return []
    variants: Mapping[str, Mapping[str, Any]] = section["variants"]
    floor = variants.get("floor", {})
    found = []
    for figure, ratio, title, goal, most in (
        ("per_s", "rate_ratio", "scores per second", section["goals"]["rate_ratio"], False),
        ("cpu_us", "cpu_ratio", "CPU µs per message and hop", section["goals"]["cpu_ratio"], True),
    ):
        bars = tuple(
            Bar(name, v[figure], f"({v[ratio]:.2f} ×)" if ratio in v else "", name == "chain")
            for name, v in variants.items()
            if not (most and name == "faststream")  # thirty times the floor: no room for the rest
        )
        limit = floor.get(figure, 0) * goal or None
        label = f"goal: {'at most' if most else 'at least'} {goal:g} × floor"
        title = f"five validated hops on Kafka: {title}"
        found.append(Panel(title, bars, limit, label if limit else ""))
    return found


def _latency(section: Document | None) -> list[Panel]:
    if not section:
        return []
    bars = tuple(
        Bar(name, section[f"{name}_ms"], f"(goal {section['goal_ms'][name]:g})", True)
        for name in ("p50", "p99")
    )
    return [Panel(f"five hops at {section['per_second']:g}/s: milliseconds", bars)]


def _scaling(section: Document | None) -> list[Panel]:
    if not section:
        return []
    bars = tuple(
        Bar(f"{c['partitions']} partitions × {c['replicas']}", c["per_s"], ours=True)
        for c in section["cells"]
    )
    return [Panel("five hops: scores per second by partitions and replicas", bars)]


def _memory(section: Document | None) -> list[Panel]:
    if not section:
        return []
    bars = (
        Bar("peak", section["peak_rss_mb"], ours=True),
        Bar("at the end", section["rss_mb"], ours=True),
    )
    goal = section["goal_mb"]
    title = f"{section['backlog']:,} records behind a pass-through hop: resident MB"
    return [Panel(title, bars, goal, f"goal: at most {goal:g}")]


def _pipeline(section: Document | None) -> list[Panel]:
    if not section:
        return []
    found = []
    for broker, measured in section["brokers"].items():
        ranked = sorted(measured["processes"].values(), key=lambda one: -one["cpu_ms_per_score"])
        bars = tuple(
            Bar(one["what"], one["cpu_ms_per_score"], f"({one['cpu_share']:.0%})", True)
            for one in ranked
        )
        rate = f"{measured['scores_per_s']:.0f} scores/s"
        found.append(Panel(f"whole pipeline, {broker}: CPU ms per score ({rate})", bars))
    return found


def _model_stage(section: Document | None) -> list[Panel]:
    if not section:
        return []
    bars = tuple(
        Bar(s["name"], s["share"] * 100, f"% (goal {s['goal']:.0%})", True)
        for s in section["shapes"]
    )
    return [Panel("model stage: share of the ideal rate", bars)]


def _http(section: Document | None) -> list[Panel]:
    if not section:
        return []
    bars = tuple(
        Bar(name, client["calls_per_core_s"], ours=name in ("ollama", "openai"))
        for name, client in section["clients"].items()
    )
    goal = section["goal_calls_per_core_s"]
    title = f"model calls per second of one core, {section['connections']} connections"
    return [Panel(title, bars, goal, f"goal: at least {goal:,}")]
