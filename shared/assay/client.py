"""Publish wallet events and follow what becomes of them, over Kafka alone (SPEC X.1)."""

from __future__ import annotations

import asyncio
import json
import uuid
from collections.abc import Mapping
from typing import Any, Self

from aiokafka import AIOKafkaProducer
from aiokafka.errors import KafkaError, MessageSizeTooLargeError

from assay.connection import connected, idempotent_producer, stopped
from assay.errors import BrokerError, RecordTooLarge
from assay.events import WalletEventSubmitted
from assay.ids import request_id
from assay.outcomes import Outcome, Outcomes, read_outcome
from assay.topics import catalogue

__all__ = ["Outcome", "Outcomes", "WalletPublisher", "read_outcome", "submission_bytes"]

SUBMITTED = WalletEventSubmitted.type
_MOST_BYTES = catalogue()[SUBMITTED].max_bytes


class WalletPublisher:
    """Publishes submissions to `wallet.event.submitted.v1`; an async context manager.

    `tenant` must be the topic's tenant (the operator's setting), or the request ids computed here
    differ from the oracle's. `deadline_s` is how long Kafka may take to confirm a record.
    """

    def __init__(
        self,
        bootstrap: str,
        *,
        source: str = "/assay/client",
        tenant: str = "default",
        deadline_s: float = 60,
    ) -> None:
        self._source = source
        self._tenant = tenant
        self._deadline_s = deadline_s
        self._bootstrap = bootstrap
        self._producer: AIOKafkaProducer | None = None

    async def __aenter__(self) -> Self:
        self._producer = idempotent_producer(self._bootstrap, max_batch_size=262_144)
        await connected(self._producer.start, self._producer.stop, self._bootstrap)
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._producer is not None:
            await stopped(self._producer)

    def request_id(self, event_id: str) -> str:
        """The request id the oracle gives to a submission published under `event_id`."""
        return request_id(self._tenant, self._source, event_id)

    async def publish(self, submission: Mapping[str, Any], *, event_id: str | None = None) -> str:
        """Publish `{address, questionnaire?, evm_data?}`; returns the request id once the broker
        has it. The same `event_id` again is the same request; without one it is a new request.

        RecordTooLarge where the topic does not take it. BrokerError where Kafka did not confirm it:
        it may have it all the same, so publish it again under the same `event_id`.
        """
        if self._producer is None:
            raise RuntimeError("enter the publisher first: async with WalletPublisher(…)")
        event_id = event_id or str(uuid.uuid4())
        value = submission_bytes(submission)
        if len(value) > _MOST_BYTES:
            raise RecordTooLarge(f"{len(value):,} bytes; {SUBMITTED} takes {_MOST_BYTES:,}")
        headers = {
            "content-type": "application/json",
            "ce_specversion": "1.0",
            "ce_id": event_id,
            "ce_source": self._source,
            "ce_type": SUBMITTED,
        }
        address = submission.get("address")
        key = address.lower().encode(errors="replace") if isinstance(address, str) else None
        raw_headers = [(name, text.encode()) for name, text in headers.items()]
        try:
            async with asyncio.timeout(self._deadline_s):
                await self._producer.send_and_wait(
                    SUBMITTED, value=value, key=key, headers=raw_headers
                )
        except MessageSizeTooLargeError as error:
            raise RecordTooLarge(str(error)) from error
        except TimeoutError as error:
            reason = f"Kafka at {self._bootstrap} confirmed nothing for {self._deadline_s:g} s"
            raise BrokerError(reason) from error
        except KafkaError as error:
            raise BrokerError(f"Kafka at {self._bootstrap} refused a record: {error}") from error
        return self.request_id(event_id)


def submission_bytes(submission: Mapping[str, Any]) -> bytes:
    """The value as published: compact JSON in UTF-8; escaped where UTF-8 cannot carry it, which
    is a lone surrogate's case."""
    text = json.dumps(submission, ensure_ascii=False, separators=(",", ":"))
    try:
        return text.encode()
    except UnicodeEncodeError:
        return json.dumps(submission, separators=(",", ":")).encode()
