"""Requests of a batch: the same unit of the same batch is the same event, whenever it is made."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from pydantic import ValidationError

from assay.batch.items import BadItem, Item, content_hash
from assay.envelope import Message, emit
from assay.events import FieldError, GenerationRequested, Meta
from assay.ids import request_id
from assay.topics import catalogue

SOURCE = "/assay/batch"
REQUESTED = GenerationRequested.type
_MOST_BYTES = catalogue()[REQUESTED].max_bytes
_WALLET = re.compile(r"0x[0-9a-fA-F]{40}")


@dataclass(frozen=True, slots=True)
class Batch:
    """Whose batch it is; with a unit's id and content that is a request's identity."""

    id: str
    process: str
    tenant: str = "default"

    def request_of(self, item: Item) -> str:
        """The request id of a unit's first request."""
        return self._request_id(item.unit, item.input)

    def first_request(self, item: Item) -> Message:
        """The unit as a request; BadItem where no event can carry it."""
        return self._message(self.request_of(item), item.unit, item.input)

    def retry_of(self, failure: Mapping[str, Any]) -> str:
        """The request id that asks again about a failed unit."""
        again = ["retry", str(failure["_metadata"]["step"]), str(failure["retry_count"])]
        return self._request_id(str(failure["unit_id"]), failure["input"], *again)

    def retry_request(self, failure: Mapping[str, Any]) -> Message:
        """The next attempt at the step that failed, told why the last one did (SPEC S4.6)."""
        return self._message(
            self.retry_of(failure),
            str(failure["unit_id"]),
            failure["input"],
            step=failure["_metadata"]["step"],
            attempt=failure["retry_count"] + 2,
            feedback=[FieldError.model_validate(error) for error in failure["errors"]],
        )

    def _request_id(self, unit: str, record: Any, *again: str) -> str:
        name = [self.id, self.process, unit, content_hash(record).hex(), *again]
        return request_id(self.tenant, SOURCE, json.dumps(name))

    def _message(
        self, request: str, unit: str, record: dict[str, Any], *, step: str | None = None,
        attempt: int = 1, feedback: list[FieldError] | None = None,
    ) -> Message:  # fmt: skip
        address = record.get("address")
        is_wallet = isinstance(address, str) and _WALLET.fullmatch(address)
        meta = Meta(
            request_id=request,
            tenant_id=self.tenant,
            wallet=str(address).lower() if is_wallet else None,
            process_id=self.process,
            step=step,
            unit_id=unit,
            attempt=attempt,
        )
        try:
            event = GenerationRequested(meta=meta, input=record, feedback=feedback or [])
            message = emit(event, topic=REQUESTED, source=SOURCE, parent_id=request)
        except (ValidationError, ValueError, RecursionError) as error:
            raise BadItem(f"no event can carry it: {str(error)[:200]}") from None
        if len(message.value) > _MOST_BYTES:
            size = len(message.value)
            raise BadItem(f"{size:,} bytes as an event; {REQUESTED} takes {_MOST_BYTES:,}")
        return message
