"""What the checker found: violations by kind, and plain counts."""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import dataclass, field
from typing import Any

VIOLATIONS = {
    "lost": "no signed event, no terminal rejection, no dead letter",
    "signed_twice": "two distinct signed events for one request",
    "repeat_differs": "one event id over different bytes",
    "order_violations": "a wallet's timestamps or first attempts out of order (SPEC X.2)",
    "same_timestamp": "two scores for one network, wallet and timestamp",
    "bad_signature": "a signature that the trusted key did not make",
    "shadow_signed": "a signed score that goes back to a shadow's request",
    "unsealed_signed": "a signed score that goes back to a request no service vouched for",
    "unasked": "a signed score that nobody asked for",
    "bad_event": "an event whose id, headers or key contradict its value",
    "chain_broken": "an event whose parent is not on the bus",
    "impure": "a computing stage made two different events of one parent",
    "conflict_unrecorded": "a second validated score without its conflict record",
    "ledger_mismatch": "ledger and signed topic contradict each other",
    "evidence_missing": "an event that evidence does not hold",
    "evidence_twice": "an event that evidence holds more than once",
    "evidence_altered": "an evidence row that is not the record it names",
    "result_wrong": "the request table contradicts the topics",
    "paid_again": "more model calls repeated than can have been in flight at the faults",
    "unread": "records the broker dropped, so that nothing can be said of them",
}
_SHOWN = 10


@dataclass(slots=True)
class Findings:
    """Violations with a line of text each, and counts of what is allowed but worth knowing."""

    violations: dict[str, list[str]] = field(default_factory=lambda: defaultdict(list))
    counts: Counter[str] = field(default_factory=Counter)

    def add(self, kind: str, text: str) -> None:
        """One violation; its kind stands in VIOLATIONS."""
        if kind not in VIOLATIONS:
            raise KeyError(kind)
        self.violations[kind].append(text)

    def of(self, kind: str) -> int:
        return len(self.violations.get(kind, ()))

    @property
    def clean(self) -> bool:
        return not any(self.violations.values())

    def to_json(self) -> dict[str, Any]:
        """Every kind with its number, the counts, and the first few texts of each kind found."""
        return {
            **{kind: self.of(kind) for kind in VIOLATIONS},
            "clean": self.clean,
            "counts": dict(sorted(self.counts.items())),
            "examples": {k: texts[:_SHOWN] for k, texts in self.violations.items() if texts},
        }
