"""Generation events: what a model is asked, what it said, what the gate made of it."""

from __future__ import annotations

from typing import Annotated, Any, ClassVar, Literal

from pydantic import Field

from assay.events.meta import InternalEvent, Part, Sha256

Stage = Literal["pipeline_internal", "schema_validation", "validation"]


class FieldError(Part):
    """Why a value was refused: where, under which rule, in words (SPEC S4.5)."""

    path: str
    rule: str
    message: str


class GenerationRequested(InternalEvent):
    """One answer wanted under `meta.process_id`; `feedback` holds the last attempt's errors."""

    type: ClassVar[str] = "llm.generation.requested.v1"

    input: dict[str, Any]
    feedback: list[FieldError] = []


class ModelFault(Part):
    """Why there is no answer to judge."""

    code: str
    message: str


class GenerationAnswered(InternalEvent):
    """What the model said, untouched.

    `outcome` is "answered" (raw holds the text), "failed" (this attempt brought none: hang,
    protocol error) or "unavailable" (the endpoint was away longer than the patience, DESIGN §5).
    `served_from` names the event whose accepted answer was served again from the cache, which no
    model was asked for.
    """

    type: ClassVar[str] = "llm.generation.answered.v1"

    input: dict[str, Any]
    outcome: Literal["answered", "failed", "unavailable"]
    raw: str | None
    provider: str
    model: str
    model_digest: str | None = None
    finish_reason: str | None = None
    temperature: Annotated[float, Field(ge=0)]
    seed: int
    prompt: str
    prompt_sha256: Sha256
    schema_sha256: Sha256 | None = None
    usage: dict[str, int] = {}
    error: ModelFault | None = None
    served_from: str | None = None


class GenerationRejected(InternalEvent):
    """A refused attempt in the shape of seed 4's failure records (SPEC S4.5).

    `terminal` when no attempt follows; `reason` then says why and `ends_as` what came of the
    request: a marked fallback score, or nothing. `empty_result` says that the process's empty
    result, an accepted event, stands in for the answer.
    """

    type: ClassVar[str] = "llm.generation.rejected.v1"

    terminal: bool
    unit_id: str
    failure_stage: Stage
    input: dict[str, Any]
    raw_response: str | None
    errors: list[FieldError]
    retry_count: Annotated[int, Field(ge=0)]
    reason: Literal["provider_unavailable", "answers_rejected"] | None = None
    ends_as: Literal["fallback_score", "withheld", "rejected"] | None = None
    empty_result: bool = False


class GenerationAccepted(InternalEvent):
    """An accepted answer of a process that has no topic of its own.

    `final` is False for a step that another one follows; the last one's `output` is the process's
    result. `fallback` marks the process's empty result and says why it stands there.
    """

    type: ClassVar[str] = "llm.generation.accepted.v1"

    input: dict[str, Any]
    output: Any
    repairs: list[dict[str, Any]] = []
    attempts: Annotated[int, Field(ge=1)]
    model: str | None
    final: bool = True
    fallback: Literal["provider_unavailable", "answers_rejected"] | None = None
