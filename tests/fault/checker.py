"""The checker: were all requests answered exactly once, in order, verifiably and on the record?

It judges what Kafka and the stores hold and no service's own counters. Pure.
"""

from __future__ import annotations

from collections.abc import Collection

from tests.fault.findings import Findings
from tests.fault.lineage_rules import check_lineage
from tests.fault.signing_rules import (
    check_conflicts,
    check_endings,
    check_order,
    check_signatures,
)
from tests.fault.store_rules import check_evidence, check_ledger, check_requests
from tests.fault.stores import Stores
from tests.fault.topic_reader import TopicLog


def check(
    log: TopicLog,
    stores: Stores | None,
    asked: Collection[str],
    public_key: bytes,
    *,
    declared: Collection[str] = (),
) -> Findings:
    """What is wrong with a settled run.

    `asked` holds the request ids that were submitted, `public_key` the 33 bytes of the only key
    that may have signed. Without `stores` the topics are checked alone. `declared` are requests
    whose loss the run has brought about on purpose: they may have no ending.
    """
    findings = Findings()
    for partition, count in log.gone.items():
        findings.add("unread", f"{partition}: the first {count} records")
    check_endings(log, asked, findings, declared)
    check_signatures(log, public_key, findings)
    check_order(log, findings)
    check_lineage(log, findings)
    check_conflicts(log, findings)
    if stores is not None:
        check_ledger(log, stores.ledger, findings)
        check_evidence(log, stores.evidence, findings)
        check_requests(log, stores.requests, set(asked) - set(declared), findings)
    return findings
