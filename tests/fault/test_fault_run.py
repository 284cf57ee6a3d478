"""The short fault run: every service killed once, on both brokers (SPEC X.2, X.4, X.6).

The long one is `python -m tests.fault.run_20k`.
"""

from __future__ import annotations

import pytest

from deploy.kafka import jars
from deploy.kafka.java import ensure_java
from deploy.owned_process import MissingTool
from tests.conftest import REQUIRED
from tests.fault.fault_run import MISBEHAVING, RunPlan, run
from tests.fault.faults import each_service_once

EVENTS = 400
FAULTS_S = 4.0


def kafka_or_skip() -> None:
    try:
        jars.fetch()
        ensure_java(jars.BUILD)
    except MissingTool as missing:
        if REQUIRED:
            pytest.fail(str(missing), pytrace=False)
        pytest.skip(str(missing))


@pytest.mark.fault
@pytest.mark.slow
@pytest.mark.parametrize("broker", ["embedded", pytest.param("kafka", marks=pytest.mark.kafka)])
async def test_every_service_killed_once(broker: str) -> None:
    """X.2, X.6: kill -9 of each service while wallets are scored by a misbehaving model; every
    request has exactly one signed score, in order, with its evidence."""
    if broker == "kafka":
        kafka_or_skip()
    plan = RunPlan(
        events=EVENTS,
        wallets=40,
        seed=11,
        broker=broker,
        twice=0.05,
        deadline_s=1.0,
        patience_s=30.0,
        # Calls that take a while are in flight when the scorer is killed.
        simulator=(*MISBEHAVING, "--latency-ms=100", "--jitter-ms=200"),
        schedule=each_service_once(seed=11, within_s=FAULTS_S),
        environment={"ASSAY_KAFKA__SESSION_TIMEOUT_MS": "6000"},
    )
    result = await run(plan)
    found = result.findings
    assert found.violations == {}
    assert len(result.inflicted) == len(plan.schedule) == 6
    assert found.counts["signed"] == EVENTS
    assert found.counts["retried_requests"] > 0
