"""The one handler shape (DESIGN §3)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol

from assay.envelope import Message
from assay_runtime.failures import DeadLetter, Stop
from assay_runtime.records import Delivery

Outcome = Sequence[Message] | DeadLetter


class Handler(Protocol):
    """The one handler shape: deliveries in, one outcome each in the same order out.

    An outcome is the messages to publish (none is fine), a DeadLetter or a RetryLater. Raising
    one of these is for a single delivery; Pause and Stop concern them all. The lane engine calls
    with one delivery, the batch engine with many; repeats of a call must be harmless.
    """

    async def __call__(self, deliveries: Sequence[Delivery[Any]], /) -> Sequence[Outcome]: ...


class PerRecord:
    """Handler from a pure function of one delivery.

    The stage may call `function` itself, one record after the other: an event that is read,
    handled and written before the next one is read costs a tenth less than five hundred of each
    at a time, because it stays in the processor's caches, and needs the memory of one.
    """

    def __init__(self, function: Callable[[Delivery[Any]], Sequence[Message]]) -> None:
        self.function = function

    async def __call__(self, deliveries: Sequence[Delivery[Any]], /) -> Sequence[Outcome]:
        outcomes: list[Outcome] = []
        for delivery in deliveries:
            try:
                outcomes.append(self.function(delivery))
            except DeadLetter as reason:
                outcomes.append(reason)
        return outcomes

    def one(self, delivery: Delivery[Any]) -> Outcome | None:
        """The outcome of one, or None where the function raises what is no outcome: the record
        is then to be tried as any other handler's is."""
        try:
            return self.function(delivery)
        except DeadLetter as reason:
            return reason
        except Stop:
            raise
        except Exception:
            return None


def per_record(function: Callable[[Delivery[Any]], Sequence[Message]]) -> Handler:
    """Handler from a pure function of one delivery."""
    return PerRecord(function)
