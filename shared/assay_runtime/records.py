"""Records as they come from the broker, and as a handler sees them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Generic, NamedTuple, TypeVar

from aiokafka import ConsumerRecord
from pydantic import ValidationError

from assay.envelope import Attributes, Headers, read_binary
from assay.errors import EnvelopeError
from assay.events.meta import Event
from assay_runtime.failures import DeadLetter
from assay_runtime.tracing import Span, span_after

E = TypeVar("E", covariant=True)

# Record and Delivery are tuples because one of each is made for every record: a frozen dataclass
# takes four times as long to make.


class Position(NamedTuple):
    """A partition of a topic."""

    topic: str
    partition: int


class Record(NamedTuple):
    """A record's bytes and where they stand; `timestamp_ms` is the broker's, `attempt` counts its
    waits in retry topics so far."""

    topic: str
    partition: int
    offset: int
    timestamp_ms: int
    key: bytes | None
    value: bytes | None
    headers: Headers
    attempt: int = 0

    @classmethod
    def of(cls, raw: ConsumerRecord | Record) -> Record:
        """From aiokafka's record, where it is not one of ours yet; header bytes are kept as they
        are (our own parser)."""
        if isinstance(raw, Record):
            return raw
        return cls(
            raw.topic, raw.partition, raw.offset, raw.timestamp, raw.key, raw.value, raw.headers
        )

    def header(self, name: str) -> str | None:
        """The last header of that name as text, bad UTF-8 replaced; None where absent."""
        for key, value in reversed(self.headers):
            if key == name:
                return (value or b"").decode("utf-8", errors="replace")
        return None

    def span(self) -> Span:
        """This hop's span: a child of the sender's, or a new trace."""
        for key, value in reversed(self.headers):
            if key == "traceparent":
                return span_after(value)
        return span_after(None)


def size_of(record: ConsumerRecord | Record) -> int:
    """Bytes of key, value and headers."""
    headers = sum(len(name) + len(value or b"") for name, value in record.headers)
    return len(record.key or b"") + len(record.value or b"") + headers


class Delivery(NamedTuple, Generic[E]):
    """A decoded record: its event, its CloudEvents attributes, this hop's span."""

    record: Record
    event: E
    attributes: Attributes
    span: Span

    @property
    def id(self) -> str:
        return self.attributes.id

    @property
    def value(self) -> bytes:
        return self.record.value or b""


Decoder = Callable[[Record], Delivery[Any]]


def event_decoder(*models: type[Event]) -> Decoder:
    """Decoder for internal topics: binary CloudEvents whose type is one of `models`.

    A record that is none raises DeadLetter with the field and the reason.
    """
    # What model_validate_json calls, without the checks of its options.
    by_type = {model.type: model.__pydantic_validator__.validate_json for model in models}

    def decode(record: Record) -> Delivery[Any]:
        try:
            attributes = read_binary(record.headers)
        except EnvelopeError as error:
            raise DeadLetter(str(error), code="envelope") from error
        validate = by_type.get(attributes.type)
        if validate is None:
            raise DeadLetter(
                f"event type {attributes.type!r} does not belong on {record.topic}",
                code="event_type",
                request_id=attributes.request_id,
            )
        try:
            event = validate(record.value or b"")
        except ValidationError as error:
            first = error.errors(include_url=False, include_input=False)[0]
            pointer = "/" + "/".join(str(part) for part in first["loc"])
            raise DeadLetter(
                f"{pointer}: {first['msg']}",
                code="schema",
                pointer=pointer,
                request_id=attributes.request_id,
            ) from error
        return Delivery(record, event, attributes, record.span())

    return decode


def raw_decoder(record: Record) -> Delivery[None]:
    """Decoder for sinks: the bytes are all that is wanted, so nothing can be wrong with them."""
    try:
        attributes = read_binary(record.headers)
    except EnvelopeError:
        coordinates = f"{record.topic}/{record.partition}/{record.offset}"
        attributes = Attributes(coordinates, "", record.topic, record.header("ce_requestid"))
    return Delivery(record, None, attributes, record.span())
