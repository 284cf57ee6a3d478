"""Limits and choices of a gate; every default is safe for an unknown model."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any

from assay_gate.verdict import GateError

WRAPPER_KEYS = (
    "response", "result", "output", "answer", "data", "json", "content", "message", "text",
    "value", "final", "final_answer", "final_result", "completion", "reply", "payload",
    "arguments", "parameters", "object", "assessment", "evaluation", "analysis", "score_result",
    "wallet_score", "root",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class GateConfig:
    """How much a gate reads and how it reads it.

    max_characters     longest raw answer that is looked at
    max_repair_characters  longest answer that is repaired; a longer one must be correct JSON
    max_depth          deepest nesting of objects and arrays
    max_work           steps of repair and coercion for one answer
    max_candidates     JSON values in one text that are tried against the schema
    enum_prefixes      words stripped from the front of an enum value, as the seed's "shadow "
    enum_delimiter     what ends an enum value, as the seed's " | "; empty: nothing does
    wrapper_keys       names whose only value is taken for the answer if the object is not
    reserved_fields    fields the pipeline adds; an answer that names one is rejected (SPEC S4.10)
    assert_formats     whether `format` (date-time, …) rejects; JSON Schema says it only informs
    rule_seconds       wall-clock time for all expression rules of one unit
    rule_megabytes     address space of the process that evaluates them
    """

    max_characters: int = 1_000_000
    max_repair_characters: int = 262_144
    max_depth: int = 64
    max_work: int = 40_000
    max_candidates: int = 128
    enum_prefixes: tuple[str, ...] = ()
    enum_delimiter: str = " | "
    wrapper_keys: tuple[str, ...] = WRAPPER_KEYS
    reserved_fields: tuple[str, ...] = ("unit_id", "_metadata")
    assert_formats: bool = False
    rule_seconds: float = 1.0
    rule_megabytes: int = 384

    @classmethod
    def from_mapping(cls, settings: Mapping[str, Any] | None) -> GateConfig:
        """The configuration a YAML mapping describes; an unknown key raises GateError."""
        settings = settings or {}
        known = {f.name for f in fields(cls)}
        if unknown := sorted(set(settings) - known):
            raise GateError(f"unknown gate setting {unknown[0]!r}; known: {sorted(known)}")
        values: dict[str, Any] = {
            key: tuple(value) if isinstance(value, list) else value
            for key, value in settings.items()
        }
        return cls(**values)
