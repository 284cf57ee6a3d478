"""Judging what a model answered: raw text, schema and rules in, one verdict out.

Pure: reads no network and writes nothing; only `assay_gate.process` reads files.
"""

from assay_gate.config import GateConfig
from assay_gate.gate import Gate
from assay_gate.rules import Rules
from assay_gate.verdict import GateError, Problem, Repair, Verdict

__all__ = ["Gate", "GateConfig", "GateError", "Problem", "Repair", "Rules", "Verdict"]
