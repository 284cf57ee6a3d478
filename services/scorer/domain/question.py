"""What a request comes to before a model is asked; pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from assay.events import Meta
from assay_gate.process import Process
from services.scorer.domain.provider import ModelCall


@dataclass(frozen=True, slots=True)
class Question:
    """A call to make. `meta` names the process and the step that ask, `input` is what the step
    sees, and `first` says that nothing was answered before."""

    process: Process
    meta: Meta
    input: dict[str, Any]
    call: ModelCall
    first: bool


@dataclass(frozen=True, slots=True)
class Unasked:
    """No model is asked, because a step before it failed; `fields` are the answered event's."""

    meta: Meta
    fields: dict[str, Any]
