"""What a run has to do: the units that are open, and what to ask about each. Pure."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from assay.batch.items import Index, Item, parse_item
from assay.batch.lines import file_step
from assay.batch.requests import Batch
from assay.batch.standing import Standing
from assay.batch.step_outcomes import StepOutcome
from assay.envelope import Message

MANIFEST = "batch.json"
Line = dict[str, Any]


@dataclass(slots=True)
class Plan:
    """`open` has the unit of each open request, `requests` that of every request of this batch.

    `line_at` reads the input's line at a byte offset, `index` says which. `archived` are failures
    that were taken out to be asked again, `retries` those among them that are open, by unit.
    `first_step` is where units begin, once an acceptance has told it.
    """

    batch: Batch
    index: Index
    standing: Standing
    line_at: Callable[[int], bytes]
    resumed: bool
    archived: Sequence[Line] = ()
    first_step: str | None = None
    failed_step: str | None = None
    retries: Mapping[str, Line] = field(default_factory=dict)
    requests: dict[str, str] = field(default_factory=dict)
    open: dict[str, str] = field(default_factory=dict)
    total: int = 0

    def __post_init__(self) -> None:
        self.retries = open_retries(self.archived, self.batch, self.standing)
        for failure in self.archived:
            unit = str(failure["unit_id"])
            if unit in self.retries or unit in self.index.places:
                self.requests[self.batch.retry_of(failure)] = unit
        for unit, failure in self.retries.items():
            self.open[self.batch.retry_of(failure)] = unit
        for unit in self.index.places:
            request = self.batch.request_of(self._item(unit))
            self.requests[request] = unit
            if unit not in self.standing.ended and unit not in self.retries:
                self.open[request] = unit
        self.total = len(self.index.places.keys() | self.retries.keys())

    def manifest(self) -> Line:
        """What a later run must find again."""
        return {
            "batch": self.batch.id,
            "process": self.batch.process,
            "tenant": self.batch.tenant,
            "first_step": self.first_step,
        }

    def message(self, request: str) -> Message:
        """The request as published; BadItem where no event can carry it."""
        unit = self.open[request]
        if unit in self.retries:
            return self.batch.retry_request(self.retries[unit])
        return self.batch.first_request(self._item(unit))

    def given(self, request: str) -> tuple[str | int, Line]:
        """The unit's id as its line spells it, and what was asked with."""
        unit = self.requests[request]
        if unit in self.retries:
            return self.retries[unit]["unit_id"], self.retries[unit]["input"]
        item = self._item(unit)
        return item.unit_id, item.input

    def step_of(self, outcome: StepOutcome) -> str:
        """The step whose files the outcome goes to; records without one are of a single step."""
        return file_step(outcome.step or self.first_step or self.batch.process)

    def _item(self, unit: str) -> Item:
        return parse_item(self.line_at(self.index.places[unit]))


def read_standing(lines: Iterable[tuple[str, str, Line]]) -> Standing:
    """How far the lines of a folder say that it is."""
    standing = Standing()
    for step, kind, record in lines:
        metadata = record.get("_metadata")
        last = not isinstance(metadata, dict) or bool(metadata.get("last", True))
        standing.note(step, str(record["unit_id"]), valid=kind == "validated", last=last)
    return standing


def open_retries(archived: Iterable[Line], batch: Batch, standing: Standing) -> dict[str, Line]:
    """Failures that were taken out to be asked again and whose units have not ended since, by
    unit. Of several the last: the one whose retry has no failure of its own among them."""
    of_unit: dict[str, list[Line]] = defaultdict(list)
    for record in archived:
        if str(record["unit_id"]) not in standing.ended:
            of_unit[str(record["unit_id"])].append(record)
    found: dict[str, Line] = {}
    for unit, records in of_unit.items():
        failed = {record["_metadata"]["request_id"] for record in records}
        found[unit] = [r for r in records if batch.retry_of(r) not in failed][-1]
    return found
