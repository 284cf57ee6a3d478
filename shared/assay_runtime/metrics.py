"""Every metric of the runtime, declared once; names end in their unit (Prometheus practice).

No label ever holds a wallet, request id or other unbounded value.
"""

from __future__ import annotations

from prometheus_client import Counter, Gauge, Histogram

# Records handed to a handler.
CONSUMED = Counter("assay_records_consumed_total", "Records received", ["pipeline", "topic"])
# Records confirmed by the broker.
PUBLISHED = Counter("assay_records_published_total", "Records confirmed", ["pipeline", "topic"])
# Records kept in a dead-letter topic, by reason code.
DEAD_LETTERED = Counter(
    "assay_records_dead_lettered_total", "Records dead-lettered", ["pipeline", "topic", "code"]
)
# Records postponed to a retry topic, by reason code.
POSTPONED = Counter(
    "assay_records_postponed_total", "Records to be tried later", ["pipeline", "topic", "code"]
)
# From receiving a batch (or one record of a lane) to the confirmation of its outputs.
HANDLE_SECONDS = Histogram(
    "assay_handle_seconds",
    "Receipt to confirmed outputs",
    ["pipeline"],
    buckets=(0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120),
)
# Records admitted and not done.
IN_FLIGHT = Gauge("assay_records_in_flight", "Records admitted and not done", ["pipeline"])
# Records behind the end of the log, over the assigned partitions.
LAG = Gauge("assay_consumer_lag_records", "Records behind the end of the log", ["pipeline"])
# 1 while an outage is waited out in place.
PAUSED = Gauge("assay_paused", "1 while waiting for something that is away", ["pipeline", "what"])
# Offset commits, by outcome.
COMMITS = Counter("assay_offset_commits_total", "Offset commits", ["pipeline", "outcome"])
# Records that retention removed before they were read: every one is a lost event.
OVERRUN = Counter(
    "assay_retention_overrun_records_total", "Records removed before they were read", ["pipeline"]
)
