"""Settings of the signer: `ASSAY_SIGNER__<KEY>`."""

from __future__ import annotations

from pydantic import Field

from assay_runtime.settings import Section, Settings


class SignerSection(Section):
    """The key, the network it signs for, and the ledger."""

    key: str = Field(
        "file:data/signer.key",
        description="key URI, file:PATH: 32 raw bytes, 0600, or root's and 0640",
    )
    network: str = Field(
        "sui:testnet",
        min_length=1,
        max_length=64,
        pattern=r"^[a-z0-9][a-z0-9:._-]*$",
        description="where the scores are used; one score per request on each",
    )
    ledger: str = Field(
        "sqlite:///data/ledger.sqlite", description="sqlite:///PATH or postgresql://…"
    )
    previous_keys: tuple[str, ...] = Field(
        (), description="hex public keys that signed for this network before, as a JSON list"
    )
    batch: int = Field(200, ge=1, description="records per ledger transaction")


class SignerSettings(Settings):
    signer: SignerSection = SignerSection()
