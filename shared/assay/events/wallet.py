"""Wallet events: submission, acceptance, features, scores."""

from __future__ import annotations

from typing import Annotated, Any, ClassVar, Literal

from pydantic import Field

from assay.events.meta import Address, Event, InternalEvent, Part, Sha256

Share = Annotated[int, Field(ge=0, le=100)]
Score = Annotated[int, Field(ge=0, le=1000)]
Count = Annotated[int, Field(ge=0)]
EvmSource = Literal["inline", "aggregator"]
FallbackReason = Literal["provider_unavailable", "answers_rejected"]


class QuestionAnswer(Part):
    """One question of the borrower questionnaire; an empty or null answer was not given."""

    question: str
    answer: str | None = None


class WalletEventSubmitted(Event):
    """A wallet to score, as any publisher writes it (SPEC X.1, S3.8)."""

    type: ClassVar[str] = "wallet.event.submitted.v1"

    address: Address
    questionnaire: list[QuestionAnswer] | None = None
    evm_data: dict[str, Any] | None = None


class WalletEventAccepted(InternalEvent):
    """A checked submission; `evm_sha256` is over the canonical bytes of `evm_data`."""

    type: ClassVar[str] = "wallet.event.accepted.v1"

    address: Address
    questionnaire: list[QuestionAnswer]
    evm_data: dict[str, Any]
    evm_source: EvmSource
    evm_sha256: Sha256


class WalletFeatures(Part):
    """The features of SPEC S3.1, spelled as the prompt and seed 3 spell them."""

    walletAge: Count
    totalTransactions: Count
    avgTxsPerMonth: Annotated[float, Field(ge=0)]
    uniqueCounterparties: Count
    protocolsUsed: Count
    protocolNames: list[str]
    borrowCount: Count
    repayCount: Count
    liquidateCount: Count
    numTokens: Count
    diversificationScore: Count | Annotated[float, Field(ge=0)]
    concentrationRisk: Annotated[float, Field(ge=0)]
    supplyCount: Count
    withdrawCount: Count
    poapCount: Count
    nftCount: Count
    ethBalance: Annotated[float, Field(ge=0)]


class Defaulted(Part):
    """A feature's source that was missing or unusable, and why."""

    path: str
    reason: str


class WalletFeaturesExtracted(InternalEvent):
    """Features of a wallet, and what had to be defaulted (SPEC S3.1)."""

    type: ClassVar[str] = "wallet.features.extracted.v1"

    address: Address
    features: WalletFeatures
    defaulted: list[Defaulted]
    evm_source: EvmSource
    evm_sha256: Sha256


class ScoreBreakdown(Part):
    """Five dimensions, each 0-100 (SPEC S1.1)."""

    activity: Share
    maturity: Share
    diversity: Share
    riskBehavior: Share
    surveyMatch: Share


class WalletScoreValidated(InternalEvent):
    """A score that may be signed; `fallback` says why it is not the model's (SPEC S3.6)."""

    type: ClassVar[str] = "wallet.score.validated.v1"

    address: Address
    score: Score
    scoreBreakdown: ScoreBreakdown
    reasoning: str
    risk_factors: list[str]
    strengths: list[str]
    fallback: FallbackReason | None = None
    attempts: Annotated[int, Field(ge=0)]
    model: str | None
    evm_source: EvmSource
    evm_sha256: Sha256
    repairs: list[dict[str, Any]] = []


class Attestation(Part):
    """A signature over exactly {score, wallet_address, timestamp_ms} (SPEC S3.9)."""

    scheme: str
    network: str
    kid: str
    public_key: Annotated[str, Field(pattern=r"^[0-9a-f]{66}$")]
    signature: Annotated[str, Field(pattern=r"^[0-9a-f]+$")]


class WalletScoreSigned(InternalEvent):
    """The one signed score of a request; `metadata` is not covered by the signature."""

    type: ClassVar[str] = "wallet.score.signed.v1"

    score: Score
    wallet_address: Address
    timestamp_ms: Annotated[int, Field(ge=0)]
    attestations: Annotated[list[Attestation], Field(min_length=1)]
    metadata: dict[str, Any]
