"""Structured logs: one JSON object a line, with request and trace ids where there are any.

Services log a line for every record, so a line is made without the standard library's loggers,
records and formatters, which take as long again as the rest. What libraries log through those
comes out in the same shape.
"""

from __future__ import annotations

import json
import logging
import sys
from collections.abc import MutableMapping
from typing import Any, TextIO

import structlog

from assay_runtime import tracing
from assay_runtime.redaction import redact_event
from assay_runtime.settings import LogSection

# `json.dumps` with options makes an encoder for every call.
_encode = json.JSONEncoder(default=repr).encode


def configure(section: LogSection, service: str) -> None:
    """Route structlog and the libraries' stdlib logging to stderr in one shape, and say how many
    traces log their spans."""
    level = getattr(logging, section.level.upper())
    shared: list[structlog.typing.Processor] = [
        structlog.contextvars.merge_contextvars,
        structlog.stdlib.add_log_level,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
        structlog.processors.format_exc_info,
        redact_event,
    ]
    renderer: structlog.typing.Processor = (
        _as_json
        if section.format == "json"
        else structlog.dev.ConsoleRenderer(colors=sys.stderr.isatty())
    )
    structlog.configure(
        processors=[*shared, renderer],
        wrapper_class=structlog.make_filtering_bound_logger(level),
        logger_factory=lambda *names: _Lines(sys.stderr),
        cache_logger_on_first_use=True,
    )
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(
        structlog.stdlib.ProcessorFormatter(
            foreign_pre_chain=shared,
            processors=[structlog.stdlib.ProcessorFormatter.remove_processors_meta, renderer],
        )
    )
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(level)
    # Libraries that log every request or every metadata refresh at info.
    for noisy in ("aiokafka", "httpx", "uvicorn.access", "asyncio"):
        logging.getLogger(noisy).setLevel(max(level, logging.WARNING))
    structlog.contextvars.bind_contextvars(service=service)
    tracing.sample(section.spans)


def _as_json(logger: Any, method: str, event: MutableMapping[str, Any]) -> str:
    return _encode(event)


class _Lines:
    """Writes each line with one call, so that lines of several threads do not mix."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def msg(self, line: str) -> None:
        self._stream.write(line + "\n")
        self._stream.flush()

    debug = info = warning = error = critical = exception = fatal = msg
