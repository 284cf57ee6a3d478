"""Settings from the environment: `ASSAY_<SECTION>__<KEY>`, secrets also as `…_FILE`."""

from __future__ import annotations

import difflib
import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal, TypeVar

from pydantic import BaseModel, ConfigDict, Field, ValidationError

_PREFIX = "ASSAY_"
# One ConfigMap may serve all services, so a section that others read is not a mistake.
_SERVICE_SECTIONS = {
    "ingest", "features", "scorer", "validator", "signer", "evidence", "advisor", "seals",
}  # fmt: skip


class SettingsError(Exception):
    """One line per unknown or bad key, each naming the environment variable."""


class Section(BaseModel):
    """A group of settings; unknown keys are refused."""

    model_config = ConfigDict(frozen=True, extra="forbid")


class KafkaSection(Section):
    """Broker access; times in the unit of their name."""

    bootstrap: str = Field("127.0.0.1:9092", description="host:port[,host:port…]")
    log: str = Field(
        "", description="name of these topics' incarnation; another one once they are made anew"
    )
    compression: Literal["zstd", "gzip", "lz4", "snappy", ""] = "zstd"
    linger_ms: int = Field(2, ge=0, description="wait for a fuller batch")
    max_request_bytes: int = Field(8_388_608, gt=0)
    send_deadline_s: float = Field(120, gt=0, description="no confirmation for so long: exit")
    session_timeout_ms: int = Field(15_000, ge=1_000)
    drain_s: float = Field(
        5, ge=0, description="wait for running records on a rebalance; longer ones run again"
    )
    fetch_wait_ms: int = Field(50, ge=1, description="broker holds an empty fetch this long")
    retry_delays_s: tuple[float, ...] = Field(
        (10, 60, 300), description="waits before a postponed record is tried again; []: none"
    )
    dead_letter_ratio: float = Field(
        0.5,
        ge=0,
        lt=1,
        description="exit when more than this share of the last records could not be handled; 0: "
        "never. Not for topics that anyone may write",
    )
    dead_letter_window: int = Field(
        200, ge=1, description="the last records of a pipeline that DEAD_LETTER_RATIO looks at"
    )
    overrun: Literal["stop", "continue"] = Field(
        "stop", description="what to do when retention removed unread records"
    )
    stall_s: float = Field(120, gt=0, description="lag and nothing read for so long: exit")
    busy_stall_s: float = Field(
        900, gt=0, description="records in flight and none done for so long: exit"
    )


class HttpSection(Section):
    """Where health, metrics and the service's own pages listen."""

    host: str = "127.0.0.1"
    port: int = Field(0, ge=0, le=65_535, description="0 picks a free port")
    fd: int | None = Field(
        None,
        ge=3,
        description="file descriptor of a listening socket that whoever starts the service holds "
        "and passes on, instead of host and port",
    )


class LogSection(Section):
    """Logging."""

    level: Literal["debug", "info", "warning", "error"] = "info"
    format: Literal["json", "console"] = "json"
    spans: float = Field(
        0.01, ge=0, le=1, description="share of the traces starting here that log their spans"
    )


class Settings(BaseModel):
    """What every service needs; a service adds its own section."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    kafka: KafkaSection = KafkaSection()
    http: HttpSection = HttpSection()
    log: LogSection = LogSection()


S = TypeVar("S", bound=Settings)


def load(model: type[S], environ: Mapping[str, str] | None = None) -> S:
    """Settings of one service; SettingsError lists every unknown or bad key at once."""
    environ = os.environ if environ is None else environ
    tree: dict[str, dict[str, Any]] = {}
    problems: list[str] = []
    known = _known_keys(model)
    for name, raw in sorted(environ.items()):
        if not name.startswith(_PREFIX):
            continue
        section, separator, key = name[len(_PREFIX) :].lower().partition("__")
        if section in _SERVICE_SECTIONS and section not in model.model_fields:
            continue
        if not separator and not _misspelt(name, known):
            continue  # a variable of the project's tools and tests, as ASSAY_REQUIRE_SERVERS
        value: Any = raw
        if (section, key) not in known and key.endswith("_file"):
            key = key.removesuffix("_file")
            try:
                value = Path(raw).read_text(encoding="utf-8").strip()
            except (OSError, UnicodeError) as error:
                reason = error.strerror if isinstance(error, OSError) else "it is no UTF-8 text"
                problems.append(f"{name}: cannot read {raw!r}: {reason}")
                continue
        if (section, key) not in known:
            problems.append(_unknown(name, known))
            continue
        if key in tree.setdefault(section, {}):
            problems.append(f"{name}: set beside {_variable(section, key)}; one of them must go")
            continue
        tree[section][key] = _decoded(value, known[section, key])
    try:
        settings = model.model_validate(tree)
    except ValidationError as error:
        for item in error.errors(include_url=False):
            where = _variable(*(str(part) for part in item["loc"][:2]))
            problems.append(f"{where}: {item['msg']}")
        settings = None
    if problems or settings is None:
        raise SettingsError("\n".join(problems))
    return settings


def _variable(section: str, key: str = "") -> str:
    return f"{_PREFIX}{section.upper()}__{key.upper()}".removesuffix("__")


def _known_keys(model: type[Settings]) -> dict[tuple[str, str], Any]:
    known = {}
    for section, field in model.model_fields.items():
        annotation = field.annotation
        if isinstance(annotation, type) and issubclass(annotation, BaseModel):
            for key, inner in annotation.model_fields.items():
                known[section, key] = inner.annotation
    return known


def _misspelt(name: str, known: Mapping[tuple[str, str], Any]) -> bool:
    """Whether a name without the double underscore was meant as a setting."""
    sections = {f"{_PREFIX}{section.upper()}" for section, _ in known}
    names = [_variable(*pair) for pair in known]
    return (
        name in sections
        or any(name.startswith(f"{section}_") for section in sections)
        or bool(difflib.get_close_matches(name, names, n=1, cutoff=0.85))
    )


def _unknown(name: str, known: Mapping[tuple[str, str], Any]) -> str:
    names = [_variable(*pair) for pair in known]
    close = difflib.get_close_matches(name, names, n=1, cutoff=0.6)
    return f"{name}: no such setting" + (f"; did you mean {close[0]}?" if close else "")


def _decoded(value: str, annotation: Any) -> Any:
    """Lists and objects are written as JSON; everything else pydantic reads from the text."""
    origin = getattr(annotation, "__origin__", annotation)
    if origin in (list, dict, tuple) and value[:1] in "[{":
        try:
            return json.loads(value)
        except ValueError:
            return value
    return value
