"""Trying the expressions of a step on a sample record (SPEC S4.9, fifth check).

What fails on values that only stand for real ones may be right for those: an unknown name and a
wrong type are mistakes, anything else on a made-up value is a warning.
"""

from __future__ import annotations

import ast
from typing import Any

from assay_gate.config import GateConfig
from assay_gate.config_reading import CONFIG
from assay_gate.expression_steps import LOOP, ExpressionError, ExpressionProgram
from assay_gate.hints import hint
from assay_gate.process_fields import Certainty, Fields
from assay_gate.process_findings import Findings
from assay_gate.verdict import GateError

_WRONG_TYPE = ("TypeError", "AttributeError")
_UNIT = "sample-unit"
_FAILED = 0  # what a result that could not be computed is for the expressions after it


def try_program(
    program: ExpressionProgram, fields: Fields, where: str, limits: GateConfig, found: Findings
) -> None:
    """Evaluates init, expressions and loop_until once, in order; adds the results to `fields`."""
    parts = [("init", name, text) for name, text in program.init.items()]
    parts += [("expressions", name, text) for name, text in program.expressions.items()]
    for block, name, text in parts:
        key = f"{where}.{block}.{name}"
        value, certainty = _tried(text, fields, key, limits, found)
        fields.add(name, value, certainty)
    if program.loop_until is not None:
        _tried(program.loop_until, fields, f"{where}.{LOOP}", limits, found)


def _tried(
    text: str, fields: Fields, key: str, limits: GateConfig, found: Findings
) -> tuple[Any, Certainty]:
    tree = ast.parse(text.strip(), mode="eval")
    names = {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)}
    certainty = _certainty(names, fields)
    program = ExpressionProgram("trial", {}, {"_trial": text})
    try:
        return program.run(fields.samples, _UNIT, limits)["_trial"], certainty
    except ExpressionError as error:
        _judge(error, tree, names, certainty, fields, key, found)
    except GateError as error:
        found.warning(CONFIG, key, f"could not be tried: {error}")
    return _FAILED, "guessed"


def _certainty(names: set[str], fields: Fields) -> Certainty:
    kinds = {fields.certainty[name] for name in names if name in fields.certainty}
    order: tuple[Certainty, ...] = ("guessed", "typed")
    return next((kind for kind in order if kind in kinds), "given")


def _judge(
    error: ExpressionError, tree: ast.AST, names: set[str], certainty: Certainty,
    fields: Fields, key: str, found: Findings,
) -> None:  # fmt: skip
    reason = f"{error.kind}: {error.reason}"
    if error.kind == "NameError":
        called = {
            node.func.id
            for node in ast.walk(tree)
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name)
        }
        missing = next((n for n in sorted(names) if f"'{n}'" in error.reason), "")
        if missing in called or not fields.open:
            known = [*fields.samples, "random", "len", "sum", "min", "max", "sorted", "round"]
            found.mistake(CONFIG, key, f"{missing or reason} is no field known here, nor a "
                          "function" + hint(missing, known))  # fmt: skip
        return
    if certainty == "given" or (certainty == "typed" and error.kind in _WRONG_TYPE):
        found.mistake(CONFIG, key, reason)
    else:
        found.warning(CONFIG, key, f"fails on a made-up sample record: {reason}; real ones may do")
