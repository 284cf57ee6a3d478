"""Structured logs: one JSON object a line, with request and trace ids where there are any."""

from __future__ import annotations

import logging
import sys

import structlog

from assay_runtime.redaction import redact_event
from assay_runtime.settings import LogSection


def configure(section: LogSection, service: str) -> None:
    """Route structlog and the libraries' stdlib logging to stderr in one shape."""
    level = getattr(logging, section.level.upper())
    shared: list[structlog.typing.Processor] = [
        structlog.contextvars.merge_contextvars,
        structlog.stdlib.add_log_level,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
        structlog.processors.format_exc_info,
        redact_event,
    ]
    renderer: structlog.typing.Processor = (
        structlog.processors.JSONRenderer()
        if section.format == "json"
        else structlog.dev.ConsoleRenderer(colors=sys.stderr.isatty())
    )
    structlog.configure(
        processors=[*shared, structlog.stdlib.ProcessorFormatter.wrap_for_formatter],
        wrapper_class=structlog.make_filtering_bound_logger(level),
        logger_factory=structlog.stdlib.LoggerFactory(),
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
