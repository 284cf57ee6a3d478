"""What `assay up` is asked to start, and the environment each service gets."""

from __future__ import annotations

import secrets
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

SERVICES = ("ingest", "features", "scorer", "validator", "signer", "evidence")
API_PORT = 8080
EVIDENCE_PORT = 8081
SIGNER_PORT = 8082
EMBEDDED_PARTITIONS = 4


class PlanError(ValueError):
    """An option of `assay up` that cannot be meant."""


@dataclass(frozen=True, slots=True)
class ModelChoice:
    """`simulator`, `ollama:NAME@URL` or `openai:NAME@URL`."""

    kind: Literal["simulator", "ollama", "openai"]
    name: str = "simulator"
    url: str = ""

    @classmethod
    def parse(cls, text: str) -> ModelChoice:
        if text == "simulator":
            return cls("simulator")
        kind, _, rest = text.partition(":")
        name, _, url = rest.partition("@")
        if (
            kind not in ("ollama", "openai")
            or not name
            or not url.startswith(("http://", "https://"))
        ):
            raise PlanError(
                f"--model {text!r}: simulator, ollama:NAME@URL or openai:NAME@URL is expected"
            )
        return cls("ollama" if kind == "ollama" else "openai", name, url)


@dataclass(frozen=True, slots=True)
class BrokerChoice:
    """`embedded`, `kafka` (one of our own), or the address of somebody else's."""

    kind: Literal["embedded", "kafka", "external"]
    bootstrap: str = ""

    @classmethod
    def parse(cls, text: str) -> BrokerChoice:
        if text == "embedded":
            return cls("embedded")
        if text == "kafka":
            return cls("kafka")
        host, _, port = text.rpartition(":")
        if not host or not port.isdigit():
            raise PlanError(f"--broker {text!r}: embedded, kafka or HOST:PORT is expected")
        return cls("external", text)


@dataclass(frozen=True, slots=True)
class StackPlan:
    """Everything `assay up` was told. `data` holds stores, key and logs."""

    broker: BrokerChoice
    model: ModelChoice
    data: Path
    kept: bool
    aggregator_url: str | None = None
    processes: Path | None = None
    simulator_options: tuple[str, ...] = ()
    network: str = "dev"
    evidence_tokens: dict[str, str] = field(default_factory=dict, repr=False)

    def environment(
        self, service: str, *, bootstrap: str, model_url: str, aggregator_url: str, log: str
    ) -> dict[str, str]:
        """The `ASSAY_…` settings of one service."""
        env = {
            "ASSAY_KAFKA__BOOTSTRAP": bootstrap,
            "ASSAY_KAFKA__LOG": log,
            # A stand-alone stack goes on, loudly, where a cluster should stop and be looked at.
            "ASSAY_KAFKA__OVERRUN": "continue",
        }
        if self.broker.kind == "embedded":
            # The mock answers an empty fetch only after this long, whatever arrives meanwhile.
            env["ASSAY_KAFKA__FETCH_WAIT_MS"] = "10"
            # It makes writers wait for as long as a slow model leaves their topic unread.
            env["ASSAY_KAFKA__SEND_DEADLINE_S"] = env["ASSAY_KAFKA__BUSY_STALL_S"] = "86400"
        store = "sqlite:///" + str(self.data / "{}.sqlite")
        processes = str(self.processes) if self.processes else ""
        own: dict[str, dict[str, str]] = {
            "ingest": {
                "ASSAY_HTTP__PORT": str(API_PORT),
                "ASSAY_INGEST__STORE": store.format("requests"),
                "ASSAY_INGEST__AGGREGATOR_URL": aggregator_url,
                "ASSAY_INGEST__PROCESSES": processes,
            },
            "features": {"ASSAY_FEATURES__PROCESSES": processes},
            "scorer": {
                "ASSAY_SCORER__PROCESSES": processes,
                "ASSAY_SCORER__PROVIDER": "openai" if self.model.kind == "openai" else "ollama",
                "ASSAY_SCORER__MODEL": self.model.name,
                "ASSAY_SCORER__URL": model_url,
            },
            "validator": {"ASSAY_VALIDATOR__PROCESSES": processes},
            "signer": {
                "ASSAY_HTTP__PORT": str(SIGNER_PORT),
                "ASSAY_SIGNER__KEY": f"file:{self.data / 'signer.key'}",
                "ASSAY_SIGNER__LEDGER": store.format("ledger"),
                "ASSAY_SIGNER__NETWORK": self.network,
            },
            "evidence": {
                "ASSAY_HTTP__PORT": str(EVIDENCE_PORT),
                "ASSAY_EVIDENCE__STORE": store.format("evidence"),
                **self.evidence_tokens,
            },
        }
        return env | {name: value for name, value in own[service].items() if value}

    def log_name(self) -> str:
        """An embedded broker's topics are made anew at each start; a real one's stay."""
        return f"embedded-{secrets.token_hex(4)}" if self.broker.kind == "embedded" else ""
