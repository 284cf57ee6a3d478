"""How far a batch is: which units ended at which step, and what that means in the end. Pure."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

ALL_VALID, SOME_FAILED, ZERO_VALID = 0, 1, 3


@dataclass(slots=True)
class StepCount:
    """Units of a step by the file they are in."""

    validated: int = 0
    failed: int = 0


@dataclass(slots=True)
class Standing:
    """A unit ends once, and has one line at most where a step's answer led on."""

    steps: dict[str, StepCount] = field(default_factory=dict)
    ended: set[str] = field(default_factory=set)
    _done: dict[str, set[str]] = field(default_factory=dict)
    _valid_ends: int = 0

    def note(self, step: str, unit: str, *, valid: bool, last: bool) -> bool:
        """Take in a line; False where it is one too many: the unit has ended, or the step's
        answer that led on stands there already."""
        done = self._done.setdefault(step, set())
        if unit in (self.ended if last else done):
            return False
        done.add(unit)
        count = self.steps.setdefault(step, StepCount())
        if valid:
            count.validated += 1
        else:
            count.failed += 1
        if last:
            self.ended.add(unit)
            self._valid_ends += valid
        return True

    def zero_valid(self) -> list[str]:
        """Steps at which every unit failed (SPEC S4.8). None where a unit got through: what then
        has failures alone is an expression step, whose successes have no lines of their own."""
        if self._valid_ends:
            return []
        return [name for name, c in self.steps.items() if c.failed and not c.validated]

    def failed(self) -> int:
        return sum(count.failed for count in self.steps.values())


@dataclass(frozen=True, slots=True)
class Summary:
    """What a run says at its end. `asked` counts requests published by this run."""

    batch: str
    process: str
    units: int
    ended: int
    asked: int
    duplicates: int
    unusable: int
    seconds: float
    steps: dict[str, StepCount]
    zero_valid: list[str]

    @property
    def open(self) -> int:
        return self.units - self.ended

    @property
    def exit_code(self) -> int:
        """3 only once all units ended: a step without a valid one is no result (SPEC S4.8)."""
        if self.zero_valid and not self.open:
            return ZERO_VALID
        failed = any(count.failed for count in self.steps.values())
        return SOME_FAILED if failed or self.open or self.unusable else ALL_VALID

    def to_json(self) -> dict[str, Any]:
        return {
            "batch": self.batch,
            "process": self.process,
            "units": self.units,
            "ended": self.ended,
            "open": self.open,
            "asked": self.asked,
            "duplicates": self.duplicates,
            "unusable_lines": self.unusable,
            "seconds": round(self.seconds, 1),
            "steps": {
                name: {"validated": c.validated, "failed": c.failed}
                for name, c in self.steps.items()
            },
            "zero_valid": self.zero_valid if not self.open else [],
        }
