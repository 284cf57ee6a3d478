"""What a handler says to the runtime by raising or returning (DESIGN §3).

HandlerInstruction
├── DeadLetter   this record can never be handled: keep it with its reason, go on
│   └── RetryLater   not now, but perhaps in a while: postpone it, and keep it when that is over
├── Pause        something every record needs is away: wait in place, readiness off, lose nothing
└── Stop         only a restart can mend this: end the process with a non-zero exit

An outage is never a record's failure: `Pause` puts nothing into a dead-letter topic. Any other
exception is a bug in the handler; the record is tried again a few times, then dead-lettered.
"""

from __future__ import annotations


class HandlerInstruction(Exception):
    """Base of what a handler may tell the runtime; the message is written for a person."""


class DeadLetter(HandlerInstruction):
    """Keep the record with this reason; `code` is for programs, `pointer` names the field.

    `request_id` lets the requester be told even when the event itself could not be read.
    """

    def __init__(
        self,
        message: str,
        *,
        code: str = "rejected",
        pointer: str | None = None,
        request_id: str | None = None,
    ) -> None:
        super().__init__(message)
        self.code = code
        self.pointer = pointer
        self.request_id = request_id


class RetryLater(DeadLetter):
    """Try the record again after each of the pipeline's waits, then keep it as a DeadLetter.

    For a failure that is one record's alone and may pass (an outside system that only this record
    needs); the records behind it go on, so it may be overtaken. Where a pipeline declares no
    retries it is a DeadLetter at once.
    """


class Pause(HandlerInstruction):
    """Wait in place and try the same records again; `what` names the thing that is away."""

    def __init__(self, what: str, message: str) -> None:
        super().__init__(f"{what}: {message}")
        self.what = what


class Stop(HandlerInstruction):
    """End the process; its supervisor starts it again (crash-only)."""
