"""A compiled `validation.<step>` mapping.

Plain comparisons and arithmetic run in this process, every other expression by asteval in a
worker that is killed when it hangs. A rule holds if its expression is true in Python's sense; one
that cannot be evaluated (an unknown name, a wrong type, no time or memory left) does not hold.
A rule whose `when` is false, or names fields that do not exist, is skipped.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextvars import ContextVar
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, ParamSpec, TypeVar

from assay_gate.config import GateConfig
from assay_gate.rules import checks, template
from assay_gate.rules.plain import Evaluate, NotPlain, compile_plain
from assay_gate.rules.sandbox import Outcome, Sandbox
from assay_gate.rules.shape import rule_problems
from assay_gate.verdict import GateError, Problem, problem

_EXHAUSTED = frozenset(("Timeout", "WorkerDied", "MemoryError"))
_WORKER_BARRED = ContextVar("assay_rules_worker_barred", default=False)

P = ParamSpec("P")
T = TypeVar("T")


class WorkerNeeded(Exception):
    """The worker would have to be waited for; raised in `without_worker` only."""


def without_worker(judge: Callable[P, T], *args: P.args, **named: P.kwargs) -> T:
    """What `judge` returns; rules that it checks raise WorkerNeeded instead of waiting for the
    worker, which may take `rule_seconds`. An event loop then has them judged in a thread."""
    token = _WORKER_BARRED.set(True)
    try:
        return judge(*args, **named)
    finally:
        _WORKER_BARRED.reset(token)


@dataclass(frozen=True, slots=True)
class _Rule:
    name: str
    expr: str
    when: str | None
    error: str
    level: str
    plain: Evaluate | None
    plain_when: Evaluate | None

    def task(self) -> dict[str, str]:
        task = {"expr": self.expr}
        return task if self.when is None else task | {"when": self.when}


class Rules:
    """The rules of one step; raises GateError for a configuration that `rule_problems` faults."""

    def __init__(self, rules: Mapping[str, Any], *, config: GateConfig | None = None) -> None:
        if found := rule_problems(rules):
            raise GateError("; ".join(f"{key}: {message}" for key, message in found))
        limits = config or GateConfig()
        self._sandbox = _sandbox(limits.rule_seconds, limits.rule_megabytes)
        self._required: list[str] = list(rules.get("required") or ())
        self._types: dict[str, str] = dict(rules.get("types") or {})
        self._enums: dict[str, list[Any]] = dict(rules.get("enums") or {})
        self._ranges: dict[str, list[float | None]] = dict(rules.get("ranges") or {})
        self._rules = [_compiled(rule) for rule in rules.get("rules") or ()]

    def check(
        self, record: Mapping[str, Any], unit_id: str = ""
    ) -> tuple[list[Problem], list[Problem]]:
        """What the record breaks: (errors, warnings). `unit_id` seeds `random` in expressions."""
        errors = [
            *checks.required(self._required, record),
            *checks.types(self._types, record),
            *checks.enums(self._enums, record),
            *checks.ranges(self._ranges, record),
        ]
        warnings: list[Problem] = []
        outcomes = self._outcomes(record, unit_id)
        for rule, outcome in zip(self._rules, outcomes, strict=True):
            found = outcome and _judged(rule, outcome, record)
            if not outcome or not found:
                continue
            only_warns = rule.level == "warning" or "skipped" in outcome
            if only_warns and outcome.get("error") not in _EXHAUSTED:
                warnings.append(found)
            else:
                errors.append(found)
        return errors, warnings

    def _outcomes(self, record: Mapping[str, Any], unit_id: str) -> list[Outcome | None]:
        """One outcome for each rule; None where a rule before it used up the time."""
        outcomes: list[Outcome | None] = [_in_process(rule, record) for rule in self._rules]
        open_rules = [index for index, outcome in enumerate(outcomes) if outcome is None]
        if open_rules:
            if _WORKER_BARRED.get():
                raise WorkerNeeded
            tasks = [self._rules[index].task() for index in open_rules]
            replies = self._sandbox.evaluate(tasks, record, unit_id)
            for index, reply in zip(open_rules, replies, strict=False):
                outcomes[index] = reply
        return outcomes


def _compiled(rule: Mapping[str, Any]) -> _Rule:
    expr, when = rule["expr"], rule.get("when")
    plain = plain_when = None
    try:
        plain = compile_plain(expr)
        plain_when = compile_plain(when) if when is not None else None
    except NotPlain:
        plain = None
    return _Rule(
        name=rule["name"], expr=expr, when=when, level=rule.get("level", "error"),
        error=rule.get("error") or f"must satisfy {expr}", plain=plain, plain_when=plain_when,
    )  # fmt: skip


def _in_process(rule: _Rule, record: Mapping[str, Any]) -> Outcome | None:
    """The outcome of a plain rule; None if it belongs to the worker."""
    if rule.plain is None:
        return None
    try:
        if rule.plain_when is not None:
            try:
                if not rule.plain_when(record):
                    return {"skipped": ""}
            except (LookupError, AttributeError):
                return {"skipped": ""}
            except (TypeError, ValueError, ArithmeticError) as error:
                return {"skipped": f"{type(error).__name__}: {error}"}
        return {"truth": bool(rule.plain(record))}
    except (NotPlain, RecursionError):
        return None
    except (LookupError, TypeError, ValueError, ArithmeticError) as error:
        return {"error": type(error).__name__, "message": str(error)[:200]}


def _judged(rule: _Rule, outcome: Outcome, record: Mapping[str, Any]) -> Problem | None:
    if "skipped" in outcome:
        if not outcome["skipped"]:
            return None
        return problem("$", rule.name, f"skipped, its `when` fails: {outcome['skipped']}")
    if "error" in outcome:
        text = f"rule {rule.name!r} cannot be evaluated: {outcome['error']}: {outcome['message']}"
        return problem("$", rule.name, text)
    if outcome["truth"]:
        return None
    return problem("$", rule.name, template.render(rule.error, record))


@lru_cache(maxsize=16)
def _sandbox(seconds: float, megabytes: int) -> Sandbox:
    """One worker for all rules with the same limits."""
    return Sandbox(seconds, megabytes)


def evaluate_expressions(
    expressions: Mapping[str, str],
    record: Mapping[str, Any],
    unit_id: str,
    *,
    config: GateConfig | None = None,
) -> dict[str, Any]:
    """The results of an expression step (SPEC S4.12), in order; later ones see earlier ones.

    Raises GateError naming the expression that cannot be evaluated.
    """
    limits = config or GateConfig()
    tasks = [{"name": name, "expr": expr} for name, expr in expressions.items()]
    replies = _sandbox(limits.rule_seconds, limits.rule_megabytes).evaluate(tasks, record, unit_id)
    results: dict[str, Any] = {}
    for task, reply in zip(tasks, replies, strict=False):
        if "error" in reply:
            raise GateError(f"{task['name']}: {reply['error']}: {reply['message']}")
        results[task["name"]] = reply["value"]
    return results
