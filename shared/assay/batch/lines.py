"""Lines of a batch's result files (SPEC S4.5). Pure."""

from __future__ import annotations

import re
from typing import Any

from assay.batch.step_outcomes import StepOutcome

_OTHER_CHARACTERS = re.compile(r"[^\w.-]")
RETRYABLE = ("schema_validation", "validation")


def result_line(unit_id: str | int, given: dict[str, Any], outcome: StepOutcome) -> dict[str, Any]:
    """The line for a step of a unit: seed 4's merged record where it is valid, its failure record
    where it is not. `given` is the unit's own input, for records that do not repeat it.

    An answer that is no object stands under `output`. `_metadata.last` says that no step follows.
    """
    record = outcome.input if outcome.input is not None else given
    metadata = {
        "request_id": outcome.request_id,
        "step": outcome.step,
        "last": outcome.last,
        **outcome.metadata,
    }
    if outcome.failure is None:
        answer = outcome.output if isinstance(outcome.output, dict) else {"output": outcome.output}
        return {**record, **answer, "unit_id": unit_id, "_metadata": metadata}
    return {
        "unit_id": unit_id,
        "failure_stage": outcome.failure["failure_stage"],
        "input": record,
        "raw_response": outcome.failure["raw_response"],
        "errors": outcome.failure["errors"],
        "retry_count": outcome.failure["retry_count"],
        "_metadata": metadata,
    }


def file_step(step: str) -> str:
    """A step's name in file names; it comes from the bus and must not lead elsewhere."""
    return _OTHER_CHARACTERS.sub("_", step).lstrip(".") or "_"


def is_retryable(failure: dict[str, Any]) -> bool:
    """Whether another answer may pass (SPEC S4.6); `pipeline_internal` is not asked again."""
    return failure.get("failure_stage") in RETRYABLE
