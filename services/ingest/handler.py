"""Submitted to accepted: check, fetch what is missing, remember, publish once."""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from typing import Any, Protocol

import structlog

from assay.envelope import Attributes, Message, emit, is_structured, read_structured
from assay.errors import EnvelopeError
from assay.events import Meta, WalletEventAccepted
from assay.identity import Identity, identify
from assay.ids import request_id_from_position
from assay.submission import SubmissionError
from assay_runtime.failures import DeadLetter, RetryLater
from assay_runtime.records import Decoder, Delivery, Record
from assay_runtime.stage import Outcome
from services.ingest.adapters.aggregator_http import (
    AggregatorError,
    AggregatorRefused,
    AggregatorRubbish,
    AggregatorTimeout,
    AggregatorUnavailable,
    WalletUnknown,
)
from services.ingest.domain.fingerprint import evm_sha256
from services.ingest.domain.strict_json import JsonLimits, read_json
from services.ingest.domain.submission import Submission, parse_submission
from services.ingest.store import ENDED, RequestStore

log = structlog.get_logger()

SOURCE = "/assay/ingest"
AGGREGATOR_CODES: dict[type, str] = {
    AggregatorTimeout: "aggregator_timeout",
    AggregatorUnavailable: "aggregator_unavailable",
    WalletUnknown: "wallet_unknown",
    AggregatorRefused: "aggregator_refused",
    AggregatorRubbish: "aggregator_rubbish",
}


class Aggregator(Protocol):
    async def fetch(self, address: str) -> dict[str, Any]: ...


def submission_decoder(tenant: str, log_name: str = "") -> Decoder:
    """Decoder of the public input topic: any record has an identity, whatever else it lacks."""

    def decode(record: Record) -> Delivery[Identity]:
        identity = identify(
            record.topic,
            record.partition,
            record.offset,
            record.headers,
            record.value or b"",
            tenant=tenant,
            log=log_name,
        )
        attributes = Attributes(
            identity.event_id, identity.source, record.topic, identity.request_id
        )
        return Delivery(record, identity, attributes, record.span())

    return decode


def submitted_bytes(record: Record, limits: JsonLimits) -> bytes:
    """The submission's own bytes, out of a structured-mode event where it is one."""
    value = record.value or b""
    if not is_structured(record.headers):
        return value
    document, notes = read_json(value, limits)
    if not isinstance(document, dict):
        return value  # the submission parser says what is wrong with it
    try:
        if notes:
            # Data are mended, attributes never: two ids could become one.
            read_structured(json.loads(value))
        return read_structured(document)[1]
    except EnvelopeError as error:
        raise SubmissionError("envelope", "", str(error)) from error


class IngestHandler:
    """One accepted event per request id, the same bytes however often it is submitted."""

    def __init__(
        self, store: RequestStore, aggregator: Aggregator | None, limits: JsonLimits, tenant: str
    ) -> None:
        self._store = store
        self._aggregator = aggregator
        self._limits = limits
        self._tenant = tenant

    async def __call__(self, deliveries: Sequence[Delivery[Identity]], /) -> Sequence[Outcome]:
        return [await self._one(delivery) for delivery in deliveries]

    async def _one(self, delivery: Delivery[Identity]) -> Outcome:
        request_id = delivery.event.request_id
        try:
            submission = parse_submission(
                submitted_bytes(delivery.record, self._limits), self._limits
            )
        except SubmissionError as error:
            known = await self._store.get(request_id)
            # Whoever writes rubbish under another's id must not end that request.
            others = known is not None and known.content_sha256 is not None
            return DeadLetter(
                error.message,
                code=error.code,
                pointer=error.pointer,
                request_id=_own_id(delivery) if others else request_id,
            )
        if submission.notes:
            log.info(
                "submission_normalised",
                request_id=request_id,
                notes=[f"{note.path}: {note.reason}" for note in submission.notes[:5]],
            )
        content = submission.content_sha256
        known = await self._store.get(request_id)
        if known is not None and known.content_sha256 not in (None, content):
            return _other_content(delivery)
        if known is not None and known.status in ENDED:
            return ()  # a repeat must not reach the model again
        if known is not None and known.accepted is not None:
            return [_message(delivery, known.accepted)]
        try:
            accepted = await self._accept(delivery, submission)
        except AggregatorError as error:
            later = isinstance(error, AggregatorTimeout | AggregatorUnavailable)
            return (RetryLater if later else DeadLetter)(
                str(error),
                code=_code_of(error),
                pointer="/evm_data",
                request_id=request_id,
            )
        except SubmissionError as error:
            return DeadLetter(
                error.message, code=error.code, pointer=error.pointer, request_id=request_id
            )
        value = accepted.to_bytes()
        known = await self._store.accept(request_id, content, value, _now_ms())
        if known.content_sha256 != content:
            return _other_content(delivery)
        if known.accepted is None:
            return ()  # another replica was so fast that it has ended meanwhile
        return [_message(delivery, known.accepted, accepted if known.accepted == value else None)]

    async def _accept(
        self, delivery: Delivery[Identity], submission: Submission
    ) -> WalletEventAccepted:
        """The accepted event; its time is the broker's, so a redelivery repeats it."""
        if submission.evm_data is not None:
            evm_data, sha256, source = submission.evm_data, submission.evm_sha256, "inline"
        elif self._aggregator is None:
            raise SubmissionError(
                "missing_field", "/evm_data", "evm_data is missing and no aggregator is configured"
            )
        else:
            evm_data = await self._aggregator.fetch(submission.address)
            sha256, source = evm_sha256(evm_data), "aggregator"
        meta = Meta(
            request_id=delivery.event.request_id,
            tenant_id=self._tenant,
            wallet=submission.key,
            accepted_at_ms=max(0, delivery.record.timestamp_ms),
        ).caused_by(delivery.id, delivery.value)
        return WalletEventAccepted.model_validate(
            {
                "meta": meta,
                "address": submission.address,
                "questionnaire": submission.questionnaire,
                "evm_data": evm_data,
                "evm_source": source,
                "evm_sha256": sha256,
            }
        )


def _message(
    delivery: Delivery[Identity], value: bytes, accepted: WalletEventAccepted | None = None
) -> Message:
    """The stored bytes as they are; `accepted` is what they say, where that is known."""
    event = accepted or WalletEventAccepted.model_validate_json(value)
    log.info(
        "wallet_event_accepted",
        request_id=event.meta.request_id,
        trace_id=delivery.span.trace_id,
        evm_source=event.evm_source,
        bytes=len(value),
    )
    return emit(
        event,
        topic=event.type,
        source=SOURCE,
        parent_id=event.meta.causation_id or delivery.id,
        value=value,
    )


def _code_of(error: AggregatorError) -> str:
    """The code of the error's kind, which may be a refinement of one of those above."""
    kinds = (AGGREGATOR_CODES.get(kind) for kind in type(error).__mro__)
    return next((code for code in kinds if code), "aggregator_failed")


def _other_content(delivery: Delivery[Identity]) -> DeadLetter:
    return DeadLetter(
        f"request {delivery.event.request_id} was submitted before with other content",
        code="idempotency_conflict",
        request_id=_own_id(delivery),
    )


def _own_id(delivery: Delivery[Identity]) -> str:
    """For the end of a record that must not be the end of the request it names. Without any id the
    reader would believe the publisher's own headers."""
    record = delivery.record
    return request_id_from_position(record.topic, record.partition, record.offset)


def _now_ms() -> int:
    return time.time_ns() // 1_000_000
