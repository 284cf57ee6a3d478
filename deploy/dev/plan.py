"""What `assay up` is asked to start, and the environment each service gets."""

from __future__ import annotations

import re
import secrets
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal
from urllib.parse import urlsplit

from services.ingest.domain.aggregator_url import checked_template

SERVICES = ("ingest", "features", "scorer", "validator", "signer", "evidence")
API_PORT = 8080
EVIDENCE_PORT = 8081
SIGNER_PORT = 8082
EMBEDDED_PARTITIONS = 4
# A name or IPv4 address, of labels that DNS can carry, or an IPv6 address in brackets.
_LABEL = r"[A-Za-z0-9_](?:[A-Za-z0-9_-]{0,61}[A-Za-z0-9_])?"
_HOST = re.compile(
    rf"{_LABEL}(?:\.{_LABEL})*\.?|\[[0-9A-Fa-f:.]*:[0-9A-Fa-f:.]*(?:%\w+)?\]", re.ASCII
)
_LONGEST_HOST = 253
_HIGHEST_PORT = 65_535


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
        if kind not in ("ollama", "openai") or not name or not _is_server(url):
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
        for address in text.split(","):
            host, _, port = address.rpartition(":")
            if not _HOST.fullmatch(host) or len(host) > _LONGEST_HOST:
                raise PlanError(
                    f"--broker {text!r}: embedded, kafka or HOST:PORT[,HOST:PORT…] is expected"
                )
            if not re.fullmatch("[0-9]{1,5}", port) or not 0 < int(port) <= _HIGHEST_PORT:
                raise PlanError(
                    f"--broker {text!r}: a port is a number from 1 to {_HIGHEST_PORT}, not {port!r}"
                )
        return cls("external", text)


def aggregator_of(text: str | None) -> str | None:
    """The URL of `--aggregator`, as ingest will take it."""
    try:
        return checked_template(text) if text else None
    except ValueError as error:
        raise PlanError(f"--aggregator {text!r}: {error}") from None


def _is_server(url: str) -> bool:
    """Whether it is an http(s) URL with a host and no port that cannot be."""
    try:
        parts = urlsplit(url)
        return parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        return False


def is_set(name: str, environ: Mapping[str, str]) -> bool:
    """Whether an environment has a setting, as a value or as the path of a file that holds it."""
    return name in environ or f"{name}_FILE" in environ


def without_effect(made: Iterable[Mapping[str, str]], environ: Mapping[str, str]) -> list[str]:
    """Settings of the environment that those made for the services replace."""
    return sorted(
        {
            name
            for settings in made
            for name, value in settings.items()
            if is_set(name, environ) and environ.get(name) != value
        }
    )


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
        self,
        service: str,
        *,
        bootstrap: str,
        model_url: str,
        aggregator_url: str,
        log: str,
        environ: Mapping[str, str] | None = None,
    ) -> dict[str, str]:
        """The `ASSAY_…` settings of one service: what holds the stack together and what its
        options say, and of what is only this stack's default that which `environ` has not."""
        given = environ or {}
        defaults = self._defaults(service)
        made = {name: value for name, value in defaults.items() if not is_set(name, given)}
        return made | self._fixed(service, bootstrap, model_url, aggregator_url, log)

    def _defaults(self, service: str) -> dict[str, str]:
        # A stand-alone stack goes on, loudly, where a cluster should stop and be looked at.
        made = {"ASSAY_KAFKA__OVERRUN": "continue"}
        if self.broker.kind == "embedded":
            # The mock answers an empty fetch only after this long, whatever arrives meanwhile.
            made["ASSAY_KAFKA__FETCH_WAIT_MS"] = "10"
            # It makes writers wait for as long as a slow model leaves their topic unread.
            made["ASSAY_KAFKA__SEND_DEADLINE_S"] = made["ASSAY_KAFKA__BUSY_STALL_S"] = "86400"
        if service == "signer":
            made["ASSAY_SIGNER__NETWORK"] = self.network
        return made

    def _fixed(
        self, service: str, bootstrap: str, model_url: str, aggregator_url: str, log: str
    ) -> dict[str, str]:
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
            },
            "evidence": {
                "ASSAY_HTTP__PORT": str(EVIDENCE_PORT),
                "ASSAY_EVIDENCE__STORE": store.format("evidence"),
                **self.evidence_tokens,
            },
        }
        # One port of the environment cannot be meant for six services.
        shared = {
            "ASSAY_KAFKA__BOOTSTRAP": bootstrap,
            "ASSAY_KAFKA__LOG": log,
            "ASSAY_HTTP__PORT": "0",
        }
        return {name: value for name, value in (shared | own[service]).items() if value}

    def log_name(self) -> str:
        """An embedded broker's topics are made anew at each start; a real one's stay."""
        return f"embedded-{secrets.token_hex(4)}" if self.broker.kind == "embedded" else ""
