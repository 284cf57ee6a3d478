"""Facts without a topic of their own, for the evidence log."""

from __future__ import annotations

from typing import Annotated, Any, ClassVar

from pydantic import Field

from assay.events.meta import InternalEvent


class EvidenceRecordSubmitted(InternalEvent):
    """`record` names the fact; these are written today or reserved by SPEC S2.6:

    SCORE_FALLBACK, SCORE_WITHHELD, LEDGER_CONFLICT, RAG_ADVISORY_LOW_CONFIDENCE,
    RAG_QUERY_EXECUTED.
    """

    type: ClassVar[str] = "evidence.record.submitted.v1"

    record: Annotated[str, Field(pattern=r"^[A-Z][A-Z0-9_]{2,63}$")]
    payload: dict[str, Any]
