"""Phase 2 of the gate: business rules over the merged record (SPEC S4.4)."""

from __future__ import annotations

from assay_gate.rules.ruleset import Rules, evaluate_expressions
from assay_gate.rules.shape import rule_problems, syntax_problem

__all__ = ["Rules", "evaluate_expressions", "rule_problems", "syntax_problem"]
