"""Spans of sampled traces, told in the log: whatever collects the logs can draw the trace."""

from __future__ import annotations

from collections.abc import Sequence

import structlog

from assay_runtime.records import Record
from assay_runtime.tracing import Span

log = structlog.get_logger()


def log_spans(
    pipeline: str, sampled: Sequence[tuple[Record, Span]], together: int, seconds: float
) -> None:
    """A line per sampled record: how long it took from receipt until its outputs were handed to
    the producer, and how many records shared that time."""
    for record, span in sampled:
        log.info(
            "span",
            pipeline=pipeline,
            trace_id=span.trace_id,
            span_id=span.span_id,
            parent_id=span.parent_id,
            topic=record.topic,
            partition=record.partition,
            offset=record.offset,
            request_id=record.header("ce_requestid"),
            records=together,
            duration_ms=round(seconds * 1000, 3),
        )
