"""Arithmetic of the bench's reports: medians, paired ratios, tables and the picture."""

from __future__ import annotations

import io
import json
import math
import xml.etree.ElementTree as ET
from typing import Any

import pytest
from rich.console import Console

from assay.envelope import read_binary
from assay.events import WalletFeaturesExtracted
from assay_runtime.tracing import parse_traceparent
from tests.bench.chain import summary
from tests.bench.chain_events import rows
from tests.bench.figures import median_of, paired_ratio, percentile
from tests.bench.panels import panels
from tests.bench.plot import Bar, Panel, render
from tests.bench.scaling import _wanted
from tests.bench.summary import markdown
from tests.bench.tables import show

SVG = "{http://www.w3.org/2000/svg}"
MACHINE = {"cores": 2, "cpu": "some", "python": "3.11", "load_average_before": [1.5, 1, 1],
           "measured_at": "2026-01-02T03:04:05+00:00"}  # fmt: skip
SECTIONS: dict[str, dict[str, Any]] = {
    "chain": {
        "hops": 5, "event_bytes": 1277, "sampled_share": 0.01, "rounds": 2, "missing": {"x": "y"},
        "failed": {"z": "1 missing"},
        "goals": {"rate_ratio": 0.8, "cpu_ratio": 1.5}, "machine": MACHINE,
        "variants": {
            "floor": {"per_s": 8000, "cpu_us": 30, "peak_rss_mb": 40, "rate_ratio": 1,
                      "cpu_ratio": 1},
            "chain": {"per_s": 6800, "cpu_us": 39, "peak_rss_mb": 70, "rate_ratio": 0.85,
                      "cpu_ratio": 1.3},
            "tuned_floor": {"per_s": 8500, "cpu_us": 28, "peak_rss_mb": 40, "rate_ratio": 1.0625,
                              "cpu_ratio": 0.93},
        },
    },
    "latency": {"hops": 5, "per_second": 50, "p50_ms": 9, "p90_ms": 12, "p99_ms": 30, "max_ms": 40,
                "cold": {"events": 500, "p50_ms": 20, "p99_ms": 300},
                "goal_ms": {"p50": 15, "p99": 50}, "machine": MACHINE},
    "scaling": {"machine": MACHINE, "cells": [
        {"partitions": 1, "replicas": 1, "per_s": 5000, "cpu_us": 40,
         "floor_per_s": 6000, "floor_cpu_us": 30}]},
    "memory": {"backlog": 1_000_000, "event_bytes": 1277, "partitions": 12, "goal_mb": 150,
               "peak_rss_mb": 80, "rss_mb": 75, "worked_off": 100_000, "seconds": 10,
               "machine": MACHINE},
    "model_stage": {"machine": MACHINE, "shapes": [
        {"name": "64 x 50 ms", "slots": 64, "keys": 5000, "rate": 1200, "ideal": 1280,
         "share": 0.94, "goal": 0.9},
        {"name": "5 hot keys, 64 x 50 ms", "slots": 64, "keys": 5, "rate": 93, "ideal": 100,
         "share": 0.93, "goal": 0.8}]},
    "http_client": {"connections": 64, "goal_calls_per_core_s": 2500, "machine": MACHINE,
                    "clients": {"ollama": {"calls_per_core_s": 5000, "cpu_us_per_call": 200}}},
}  # fmt: skip


def test_percentiles_are_nearest_ranks() -> None:
    ranked = [float(value) for value in range(1, 101)]
    assert [percentile(ranked, share) for share in (0.5, 0.99, 1.0)] == [51, 100, 100]


def test_ratios_are_of_the_rounds_that_ran_side_by_side() -> None:
    """A round in which the machine was slow for both says as much as any other."""
    floor = [{"per_s": 8000.0}, {"per_s": 2000.0}, {"per_s": 4000.0}]
    ours = [{"per_s": 6400.0}, {"per_s": 1800.0}, {"per_s": 3400.0}]
    assert median_of(ours, "per_s") == 3400
    assert paired_ratio(ours, floor, "per_s") == pytest.approx(0.85)


def test_a_variant_without_all_its_rounds_has_no_ratio() -> None:
    full = {"per_s": 100.0, "cpu_us": 30.0, "peak_rss_mb": 40.0}
    half = {"per_s": 80.0, "cpu_us": 45.0, "peak_rss_mb": 60.0}
    made = summary({"floor": [full, full], "chain": [half, half], "other": [half]})
    assert (made["chain"]["rate_ratio"], made["chain"]["cpu_ratio"]) == (0.8, 1.5)
    assert "rate_ratio" not in made["other"]
    assert made["other"]["per_s"] == 80


def test_events_are_the_real_model_with_all_that_a_publisher_sends() -> None:
    """Issue 6.7: 1.3 KB, valid, the same for the same seed, one trace in a hundred sampled."""
    made = list(rows(2_000))
    assert [row.value for row in rows(5)] == [row.value for row in made[:5]]
    assert 1_250 <= len(made[0].value) <= 1_350
    assert len({row.key for row in made}) == 2_000
    sampled = 0
    for row in made:
        event = WalletFeaturesExtracted.model_validate_json(row.value)
        assert event.key.encode() == row.key
        assert read_binary(row.headers).type == WalletFeaturesExtracted.type
        span = parse_traceparent(dict(row.headers)["traceparent"].decode())
        assert span is not None
        sampled += span.sampled
    assert 5 <= sampled <= 50


def test_replicas_without_a_partition_are_not_measured() -> None:
    assert _wanted((1, 2), (1, 4)) == [(1, 1), (1, 4), (2, 4)]


def test_bars_are_in_proportion_and_the_goal_is_on_their_scale() -> None:
    panel = Panel("t", (Bar("a", 200.0), Bar("b", 50.0, "(x)", ours=True)), 100.0, "goal")
    root = ET.fromstring(render([panel], "where <&>"))
    widths = [float(bar.attrib["width"]) for bar in root.iter(f"{SVG}rect") if bar.get("class")]
    assert widths[0] == pytest.approx(4 * widths[1], rel=0.01)
    [bar, *_] = [bar for bar in root.iter(f"{SVG}rect") if bar.get("class")]
    [goal] = list(root.iter(f"{SVG}line"))
    assert float(goal.attrib["x1"]) - float(bar.attrib["x"]) == pytest.approx(
        widths[0] / 2, abs=0.2
    )
    assert root[-1].text == "where <&>"


def test_every_section_has_its_panel_and_its_table() -> None:
    """And one that was not measured has none."""
    assert [panel.title.split(":")[0] for panel in panels({"memory": SECTIONS["memory"]})] == [
        "1,000,000 records behind a pass-through hop"
    ]
    drawn = panels(SECTIONS)
    assert len(drawn) == len(SECTIONS) + 1, "the chain has two"
    assert all(math.isfinite(bar.value) for panel in drawn for bar in panel.bars)
    ET.fromstring(render(drawn, ""))
    console = Console(record=True, width=130, file=io.StringIO())
    show(console, json.loads(json.dumps(SECTIONS)))
    text = console.export_text()
    for shown in ("6,800", "0.85", "1.30", "not measured: y", "not measured: 1 missing", "94.0%",
                  "10,000", "5,000"):  # fmt: skip
        assert shown in text


def test_a_label_says_what_was_measured() -> None:
    """Fewer keys than slots keep fewer busy, a hop is no service, signed is not confirmed yet."""
    services = {
        name: {"what": name, "peak_rss_mb": mb}
        for name, mb in (("ingest", 93.5), ("signer", 64.1), ("broker", 371.0), ("load", 10.0))
    }
    kafka = {
        "at_rate_ms": {"p50": 40, "p99": 90}, "scores_per_s": 298, "rate_per_s": 20,
        "processes": services,
    }  # fmt: skip
    document = {
        **{name: SECTIONS[name] for name in ("chain", "memory", "model_stage")},
        "pipeline": {"brokers": {"kafka": kafka}, "machine": MACHINE},
    }
    made = markdown(document)
    assert "our zstd level and garbage collector settings: rate, CPU | 0.80 ×, 1.40 × |" in made
    assert "| model stage, 64 × 50 ms: slots busy | 94.0% |" in made
    assert "| model stage, 5 hot keys, 64 × 50 ms: share of what 5 keys allow | 93.0% |" in made
    assert "pass-through hop, 1,000,000 events of 1.3 KB behind | 80 MB |" in made
    assert "from submission until the signer appends the signed record, kafka broker" in made
    assert "a service's peak memory 64 to 94 MB" in made
