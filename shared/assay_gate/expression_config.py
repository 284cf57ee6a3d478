"""Reading an expression step of config.yaml: `expressions`, `init`, `loop_until` (SPEC S4.12)."""

from __future__ import annotations

import keyword
from collections.abc import Mapping
from typing import Any

from assay_gate.config_reading import CONFIG, section, whole
from assay_gate.expression_steps import (
    MAX_ITERATIONS,
    MOST_ITERATIONS,
    PRIVATE,
    ExpressionProgram,
    canonical,
)
from assay_gate.process_findings import Findings
from assay_gate.process_folder import ProcessError

_TAKEN = frozenset(("random", "dir", "unit_id", "_metadata"))


def parse_program(
    name: str, entry: Mapping[str, Any], where: str, found: Findings
) -> ExpressionProgram:
    """The program of one step; each wrong expression is a mistake of its own."""
    init = _expressions(entry, "init", where, found, optional=True)
    expressions = _expressions(entry, "expressions", where, found, optional=False)
    loop_until = entry.get("loop_until")
    iterations = MAX_ITERATIONS
    with found.caught():
        if loop_until is not None:
            loop_until = _expression(loop_until, f"{where}.loop_until")
    with found.caught():
        key = f"{where}.max_iterations"
        iterations = whole(entry.get("max_iterations"), key) or MAX_ITERATIONS
        if iterations > MOST_ITERATIONS:
            raise ProcessError(CONFIG, key, f"must be at most {MOST_ITERATIONS}")
    return ExpressionProgram(name, init, expressions, loop_until, iterations)


def _expressions(
    entry: Mapping[str, Any], key: str, where: str, found: Findings, *, optional: bool
) -> dict[str, str]:
    checked: dict[str, str] = {}
    with found.caught():
        given = section(entry, key, {} if optional else None, f"{where}.")
        if not given and not optional:
            raise ProcessError(CONFIG, f"{where}.{key}", "must hold at least one expression")
        for name, expression in given.items():
            with found.caught():
                checked[_name(name, f"{where}.{key}")] = _expression(
                    expression, f"{where}.{key}.{name}"
                )
    return checked


def _name(name: object, where: str) -> str:
    usable = isinstance(name, str) and name.isidentifier() and not keyword.iskeyword(name)
    if not usable or str(name).startswith((PRIVATE, "__")):
        raise ProcessError(CONFIG, f"{where}.{name}", "must be a field name of letters and digits")
    if name in _TAKEN:
        raise ProcessError(CONFIG, f"{where}.{name}", "is a name the system gives itself")
    return str(name)


def _expression(value: object, where: str) -> str:
    if isinstance(value, bool | int | float):
        return repr(value)
    if not isinstance(value, str) or not value.strip():
        raise ProcessError(CONFIG, where, f"must be an expression, in quotes, not {value!r}")
    try:
        canonical(value)
    except (SyntaxError, ValueError, RecursionError, MemoryError) as fault:
        reason = getattr(fault, "msg", fault)
        raise ProcessError(CONFIG, where, f"syntax error: {reason}") from None
    return value
