"""What is wrong with a `validation.<step>` mapping, before anything runs (SPEC S4.9)."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping
from typing import Any

from assay_gate.rules import template
from assay_gate.rules.checks import TYPES

_KEYS = ("required", "types", "enums", "ranges", "rules")
_LEVELS = ("error", "warning")


def rule_problems(rules: Any) -> list[tuple[str, str]]:
    """Every mistake as (key, message), the key as in `rules[2].when`."""
    if not isinstance(rules, Mapping):
        return [("", "must be a mapping")]
    return list(_problems(rules))


def _problems(rules: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    for key in rules:
        if key not in _KEYS:
            yield str(key), f"unknown; known are {', '.join(_KEYS)}"
    required = rules.get("required") or []
    if not isinstance(required, list) or not all(isinstance(name, str) for name in required):
        yield "required", "must be a list of field names"
    for key in ("types", "enums", "ranges"):
        section = rules.get(key) or {}
        if not isinstance(section, Mapping):
            yield key, "must be a mapping from field names"
            continue
        for name, setting in section.items():
            if message := _setting(key, setting):
                yield f"{key}.{name}", message
    listed = rules.get("rules") or []
    if not isinstance(listed, list):
        yield "rules", "must be a list"
        return
    for index, rule in enumerate(listed):
        for key, message in _rule(rule):
            yield f"rules[{index}]{key}", message


def _setting(key: str, setting: Any) -> str | None:
    if key == "types" and setting not in TYPES:
        return f"must be one of {', '.join(TYPES)}, got {setting!r}"
    if key == "enums" and not (isinstance(setting, list) and setting):
        return "must be a list of values"
    if key == "ranges":
        numbers = isinstance(setting, list) and len(setting) == 2 and all(
            bound is None or (isinstance(bound, int | float) and not isinstance(bound, bool))
            for bound in setting
        )  # fmt: skip
        if not numbers:
            return "must be [min, max]"
        low, high = setting
        if low is not None and high is not None and low > high:
            return "its minimum is above its maximum"
    return None


def _rule(rule: Any) -> Iterator[tuple[str, str]]:
    if not isinstance(rule, Mapping):
        yield "", "must be a mapping"
        return
    for key in ("name", "expr"):
        if not isinstance(rule.get(key), str) or not rule[key].strip():
            yield f".{key}", "is missing or no text"
    for key in ("expr", "when"):
        if isinstance(rule.get(key), str) and (message := syntax_problem(rule[key])):
            yield f".{key}", message
    if rule.get("when") is not None and not isinstance(rule["when"], str):
        yield ".when", "must be an expression"
    if rule.get("level", "error") not in _LEVELS:
        yield ".level", f"must be one of {', '.join(_LEVELS)}, got {rule['level']!r}"
    error = rule.get("error")
    if error is not None and not isinstance(error, str):
        yield ".error", "must be text"
    elif error:
        try:
            template.check(error)
        except ValueError as fault:
            yield ".error", str(fault)


def syntax_problem(expression: str) -> str | None:
    """Why a text is no expression; None if it is one."""
    try:
        ast.parse(expression.strip())
    except (SyntaxError, ValueError, RecursionError, MemoryError) as fault:
        return f"syntax error: {fault}"
    return None
