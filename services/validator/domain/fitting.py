"""What follows a verdict, no event of it larger than its topic takes. Pure.

Clients choose how large inputs are, so what outgrows a topic ends its own request: as a dead
letter it would count against the deploy and could stop the service.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

from assay.events import (
    FieldError,
    GenerationAnswered,
    GenerationRejected,
    GenerationRequested,
    InternalEvent,
    Meta,
)
from assay.topics import catalogue
from assay_gate import Verdict
from assay_gate.chain import Failed
from assay_gate.process import Process
from assay_gate.verdict import Problem, problem
from services.validator.domain.acceptance import Published, accepted_events, failed_step
from services.validator.domain.endings import (
    RETRIED,
    Consequence,
    Overrides,
    consequence,
    rejected_events,
)
from services.validator.domain.judgement import unit_of

REQUEST_TOO_LARGE = "request_too_large"
"""The rule of a rejection behind which no next step and no further attempt can be asked."""
RESULT_TOO_LARGE = "result_too_large"
"""The rule of an answer that no event can carry, or of an end that could not be told."""
LEFT_OUT = "left_out"

_REQUESTS = (GenerationRequested.type, RETRIED)
_MOST_BYTES = {topic.name: topic.max_bytes for topic in catalogue()}
_MOST_ERRORS = 20
_MOST_CHARACTERS = 300


class Sized(NamedTuple):
    """An event for a topic with its bytes, which are made once."""

    topic: str
    event: InternalEvent
    value: bytes

    @property
    def fits(self) -> bool:
        return len(self.value) <= _MOST_BYTES[self.topic]


def following(
    answered: GenerationAnswered,
    meta: Meta,
    process: Process,
    verdict: Verdict,
    overrides: Overrides,
) -> tuple[Verdict, list[Sized]]:
    """The verdict and what follows it, in order; `meta` names the answer as the cause.

    A next step that cannot be asked ends the request as a failed expression step does. An answer
    that its own event cannot carry is refused like any other. A retry that cannot be asked makes
    the attempt the last one, and where that end does not fit, a rejection is all.
    """
    if verdict.accepted:
        found = _sized(accepted_events(answered, meta, process, verdict))
        over = _outgrown(found)
        if over is None:
            return verdict, found
        if over.topic == GenerationRequested.type:
            # Its input is what does not fit: the rejection repeats the one before it.
            step = over.event.meta.step or ""
            unasked = Failed(step, answered.input, [_too_large(over)])
            ended = failed_step(unasked, meta, unit_of(answered))
            return verdict, [*found[:-1], *_sized([(GenerationRejected.type, ended)])]
        verdict = Verdict(False, stage="pipeline_internal", errors=[_too_large(over)])
    follows = consequence(answered, process, overrides)
    found = _sized(rejected_events(answered, meta, process, verdict, follows))
    over = _outgrown(found)
    if over is not None and over.topic == RETRIED:
        verdict = _with(verdict, over)
        follows = consequence(answered, process, overrides, last=True)
        found = _sized(rejected_events(answered, meta, process, verdict, follows))
        over = _outgrown(found)
    if over is not None:
        verdict = _with(verdict, over)
        follows = Consequence(reason=follows.reason, ends_as="rejected")
        found = _sized(rejected_events(answered, meta, process, verdict, follows))
    return verdict, found


def _sized(events: Published) -> list[Sized]:
    """The events with their bytes, rejections cut where they do not fit."""
    found = []
    for topic, event in events:
        made = Sized(topic, event, event.to_bytes())
        if isinstance(event, GenerationRejected) and not made.fits:
            cut = _cut(event)
            made = Sized(topic, cut, cut.to_bytes())
        found.append(made)
    return found


def _outgrown(found: Sequence[Sized]) -> Sized | None:
    """The first that does not fit. Rejections are not asked: there is none shorter."""
    for made in found:
        if not made.fits and made.topic != GenerationRejected.type:
            return made
    return None


def _cut(rejected: GenerationRejected) -> GenerationRejected:
    """The rejection without input and raw answer, which the event that caused it holds."""
    most = _MOST_CHARACTERS
    errors = [
        FieldError(path=each.path[:most], rule=each.rule[:most], message=each.message[:most])
        for each in rejected.errors[:_MOST_ERRORS]
    ]
    message = f"input and raw answer stand in event {rejected.meta.causation_id} alone"
    return rejected.model_copy(
        update={
            "unit_id": rejected.unit_id[:most],
            "input": {},
            "raw_response": None,
            "errors": [*errors, FieldError(path="$", rule=LEFT_OUT, message=message)],
        }
    )


def _too_large(over: Sized) -> Problem:
    size = f"{len(over.value):,} bytes, more than the {_MOST_BYTES[over.topic]:,} of {over.topic}"
    if over.topic in _REQUESTS:
        return problem("$", REQUEST_TOO_LARGE, f"the next request would have {size}")
    return problem("$", RESULT_TOO_LARGE, f"the result would have {size}; answer more briefly")


def _with(verdict: Verdict, over: Sized) -> Verdict:
    return replace(verdict, errors=[*verdict.errors, _too_large(over)])
