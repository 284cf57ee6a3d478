"""Keys of config.yaml that mean nothing here, or nothing at all (SPEC S4.9): warnings only.

Seed 4's system also generates units, talks to providers and runs scripts over a finished run.
Those settings are said to be without effect, not refused.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from assay_gate.config_reading import CONFIG
from assay_gate.hints import hint
from assay_gate.process_config import SECTIONS
from assay_gate.process_findings import Findings

_MODEL = "the scorer's settings name the model"
_POLLING = "there is no provider's batch to poll or to cap"
_DELAY = "a retry is published at once; the scorer waits for its model"
_UNITS = "units come as requests, or from the items of a batch"
_KNOWN: dict[str, tuple[str, ...]] = {
    "pipeline": ("steps",),
    "prompts": ("template_dir", "templates", "global_context"),
    "schemas": ("schema_dir", "files"),
    "api": ("retry",),
    "api.retry": ("max_attempts",),
    "processing": ("validation_retry", "expressions"),
    "processing.validation_retry": ("max_attempts",),
}
_STEP = (
    "name", "description", "scope", "prompt_template", "depends_on", "context", "expressions",
    "init", "loop_until", "max_iterations",
)  # fmt: skip
_WITHOUT_EFFECT: dict[str, dict[str, str]] = {
    "": {"post_process": "nothing runs over finished results; read them from the output topic"},
    "schemas": {
        "strict_mode": "the gate is always strict after its repairs",
        "log_validation_errors": "every rejection is recorded",
    },
    "api": {
        "provider": _MODEL, "model": _MODEL, "models": _MODEL, "providers": _MODEL,
        "max_inflight_batches": _POLLING, "poll_interval_seconds": _POLLING, "realtime": _POLLING,
        "pricing": _POLLING, "batch": _POLLING,
        "subprocess_timeout_seconds": "rules have a limit of their own, assay.gate.rule_seconds",
    },
    "api.retry": {"initial_delay_seconds": _DELAY, "backoff_multiplier": _DELAY,
                  "max_delay_seconds": _DELAY},
    "processing": {
        "strategy": _UNITS, "chunk_size": _UNITS, "items": _UNITS, "positions": _UNITS,
        "repeat": f"{_UNITS}, each with its own _repetition_id and _repetition_seed",
    },
    "step": {
        "provider": _MODEL, "model": _MODEL,
        "requests_per_triple": "one request is one question",
        "outputs_per_request": "the schema says how much one answer holds",
    },
}  # fmt: skip


def check_keys(config: Mapping[str, Any], found: Findings) -> None:
    """Warns of each key without effect, and of each unknown one with what it may have meant."""
    own = "assay" in config
    for key in config:
        if key in _WITHOUT_EFFECT[""]:
            found.warning(CONFIG, str(key), f"has no effect here: {_WITHOUT_EFFECT[''][key]}")
        elif key not in SECTIONS and (own or hint(key, SECTIONS)):
            found.warning(CONFIG, str(key), "is no section" + hint(key, SECTIONS))
    for where, node in _mappings(config):
        kind = "step" if where.startswith("pipeline.steps[") else where
        known = _STEP if kind == "step" else _KNOWN[kind]
        without = _WITHOUT_EFFECT.get(kind, {})
        if kind == "step" and node.get("scope") == "run":
            continue
        for key in node:
            if key in without:
                found.warning(CONFIG, f"{where}.{key}", f"has no effect here: {without[key]}")
            elif key not in known:
                found.warning(CONFIG, f"{where}.{key}", "no such key" + hint(key, known))
    _check_orphans(config, found)


def _mappings(config: Mapping[str, Any]) -> Iterator[tuple[str, Mapping[str, Any]]]:
    for where in _KNOWN:
        node: Any = config
        for part in where.split("."):
            node = node.get(part) if isinstance(node, Mapping) else None
        if isinstance(node, Mapping):
            yield where, node
    for number, step in enumerate(_steps(config)):
        if isinstance(step, Mapping):
            yield f"pipeline.steps[{number}]", step


def _steps(config: Mapping[str, Any]) -> list[Any]:
    pipeline = config.get("pipeline")
    steps = pipeline.get("steps") if isinstance(pipeline, Mapping) else None
    return steps if isinstance(steps, list) else []


def _check_orphans(config: Mapping[str, Any], found: Findings) -> None:
    """Templates, schemas and rules of steps that do not exist."""
    names = [step.get("name") for step in _steps(config) if isinstance(step, Mapping)]
    for outer, inner in (("prompts", "templates"), ("schemas", "files"), ("validation", "")):
        node = config.get(outer)
        node = node.get(inner) if inner and isinstance(node, Mapping) else node
        where = f"{outer}.{inner}" if inner else outer
        for name in node if isinstance(node, Mapping) else ():
            if name not in names:
                found.warning(CONFIG, f"{where}.{name}", "no step has this name"
                              + hint(name, names))  # fmt: skip
