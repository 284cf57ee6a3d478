"""Advisory events; the answer is the locked contract 1.0.0 of seed 2, closed as a whole."""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal

from pydantic import BaseModel, ConfigDict, Field

from assay.events.meta import InternalEvent

Country = Literal["IN", "US", "UK"]
Confidence = Annotated[float, Field(ge=0, le=1)]
Timestamp = Annotated[
    str,
    Field(
        pattern=r"^[0-9]{4}(-[0-9]{2}){2}T([0-9]{2}:){2}[0-9]{2}(\.[0-9]+)?(Z|[+-][0-9]{2}:[0-9]{2})$"
    ),
]


class Closed(BaseModel):
    """A part of the locked contract: no field beyond those it names (SPEC S2.1)."""

    model_config = ConfigDict(frozen=True, strict=True, extra="forbid")


class MarketContext(Closed):
    location_insights: str
    price_trends: str
    market_conditions: str
    comparable_properties: str | None = None


class RiskSignal(Closed):
    type: Literal["PRICE", "LOCATION", "LEGAL", "MARKET", "REGULATORY"]
    severity: Literal["LOW", "MEDIUM", "HIGH"]
    description: str
    source: str


class ValuationHint(Closed):
    estimated_range: str | None = None
    factors: list[str]
    methodology: str
    confidence: Confidence


class Source(Closed):
    type: Literal["GOVERNMENT", "MARKET_DATA", "REGULATORY", "THIRD_PARTY"]
    name: str
    url: str | None = None
    date: str


class Advisory(Closed):
    """The advisory, advisory only: it can never change a score (SPEC S2.7)."""

    schema_version: Literal["1.0.0"] = "1.0.0"
    summary: str
    country: Country
    confidence: Confidence
    retrieval_timestamp: Timestamp
    model_version: str
    market_context: MarketContext
    risk_signals: list[RiskSignal]
    valuation_hint: ValuationHint
    sources: list[Source]
    advisory_flag: Literal["LOW_CONFIDENCE"] | None = None
    advisory_note: str | None = None


class AdvisoryQueryAccepted(InternalEvent):
    """A question for the advisor; GB is accepted on input and written UK (SPEC S2.4)."""

    type: ClassVar[str] = "advisory.query.accepted.v1"

    query: Annotated[str, Field(min_length=1, max_length=4000)]
    country: Country
    locality: str | None = None


class AdvisoryAnswerDelivered(InternalEvent):
    """The advisory and the documents it was made from."""

    type: ClassVar[str] = "advisory.answer.delivered.v1"

    advisory: Advisory
    document_ids: list[str]
