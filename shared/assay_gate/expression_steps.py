"""Expression steps: values computed without a model, by asteval in a killable worker (S4.12).

Seed 4's layout. `init` runs once, then `expressions` in order, each seeing the results before it;
with `loop_until` they run again until it is true, at most `max_iterations` times, and a step that
never gets there has failed. `random` is seeded by the unit and the step, so a redelivery computes
the same values and two steps do not draw the same cards.
"""

from __future__ import annotations

import ast
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from assay_gate.config import GateConfig
from assay_gate.rules.sandbox import Outcome, Sandbox
from assay_gate.verdict import GateError

MAX_ITERATIONS = 1000
MOST_ITERATIONS = 100_000
# A thousand iterations of a few expressions take half a second; a rule takes far less, so a step
# gets this many times `rule_seconds`.
TIMES_RULE_SECONDS = 10
LOOP = "loop_until"
# Names of the program below; a configuration cannot use names that begin like them.
PRIVATE = "_assay_"
_AT, _ROUND, _DONE = f"{PRIVATE}at", f"{PRIVATE}round", f"{PRIVATE}done"


class ExpressionError(GateError):
    """An expression cannot be evaluated; `expression` is its name, `kind` the Python error's."""

    def __init__(self, expression: str, kind: str, message: str) -> None:
        super().__init__(f"{expression}: {kind}: {message}")
        self.expression = expression
        self.kind = kind
        self.reason = message


@dataclass(frozen=True, slots=True)
class ExpressionProgram:
    """The expressions of one step, every one of them a single checked Python expression."""

    step: str
    init: Mapping[str, str]
    expressions: Mapping[str, str]
    loop_until: str | None = None
    max_iterations: int = MAX_ITERATIONS

    @property
    def names(self) -> list[str]:
        """The fields it computes, in order."""
        return list(dict.fromkeys([*self.init, *self.expressions]))

    def run(
        self, record: Mapping[str, Any], unit_id: str, config: GateConfig | None = None
    ) -> dict[str, Any]:
        """The computed fields; all JSON values. Raises ExpressionError, and GateError without a
        worker."""
        limits = config or GateConfig()
        tasks: list[dict[str, str]] = [{"expr": self._source()}, {"name": _AT, "expr": _AT}]
        tasks += [{"name": name, "expr": name} for name in (_DONE, *self.names)]
        seconds = TIMES_RULE_SECONDS * limits.rule_seconds
        sandbox = _sandbox(seconds, limits.rule_megabytes)
        outcomes = sandbox.evaluate(tasks, record, f"{unit_id}\n{self.step}")
        program, *values = outcomes
        if "error" in program:
            raise _fault(str(values[0].get("value", "")) if values else self.step, program)
        results: dict[str, Any] = {}
        for name, outcome in zip((_AT, _DONE, *self.names), values, strict=False):
            if "error" in outcome:
                raise _fault(name, outcome)
            results[name] = outcome["value"]
        if not results.pop(_DONE):
            reason = f"still false after {self.max_iterations} iterations"
            raise ExpressionError(LOOP, "Timeout", reason)
        del results[_AT]
        return results

    def _source(self) -> str:
        """The step as one asteval program, so that a loop costs one exchange with the worker."""
        lines = [f"{_AT} = ''", f"{_DONE} = {self.loop_until is None}"]
        for name, expression in self.init.items():
            lines += _assigned(name, expression, "init.")
        body = [
            line for name, text in self.expressions.items() for line in _assigned(name, text, "")
        ]
        if self.loop_until is not None:
            lines.append(f"for {_ROUND} in range({self.max_iterations}):")
            body += [f"{_AT} = {LOOP!r}", f"if {canonical(self.loop_until)}:"]
            body += [f"    {_DONE} = True", "    break"]
            body = [f"    {line}" for line in body]
        return "\n".join([*lines, *body, "True"])


def canonical(expression: str) -> str:
    """The expression on one line in Python's own spelling; SyntaxError if it is not exactly one."""
    return ast.unparse(ast.parse(expression.strip(), mode="eval"))


def _assigned(name: str, expression: str, where: str) -> list[str]:
    return [f"{_AT} = {where + name!r}", f"{name} = {canonical(expression)}"]


def _fault(name: str, outcome: Outcome) -> ExpressionError:
    return ExpressionError(name, outcome["error"], outcome["message"])


@lru_cache(maxsize=16)
def _sandbox(seconds: float, megabytes: int) -> Sandbox:
    """One worker for all expression steps with the same limits."""
    return Sandbox(seconds, megabytes)
