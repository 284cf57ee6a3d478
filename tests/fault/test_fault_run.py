"""The short fault runs, one on each broker (SPEC X.2, X.4, X.6).

The long ones are `make fault` and `make fault-20k`.
"""

from __future__ import annotations

from dataclasses import replace

import pytest

from deploy.kafka import jars
from deploy.kafka.java import ensure_java
from deploy.owned_process import MissingTool
from tests.conftest import REQUIRED
from tests.fault.fault_run import MISBEHAVING, RunPlan, run
from tests.fault.faults import each_service_once
from tests.fault.run_faults import parsed, planned, possible

EVENTS = 400
FAULTS_S = 3.0
# A killed process is in its groups until this has passed, and whoever follows it waits for that.
SOON_GONE = {"ASSAY_KAFKA__SESSION_TIMEOUT_MS": "2500"}


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
async def test_every_service_killed_once() -> None:
    """X.2, X.6: kill -9 of each service while wallets are scored by a misbehaving model; every
    request has exactly one signed score, in order, with its evidence."""
    plan = RunPlan(
        events=EVENTS,
        wallets=40,
        seed=11,
        broker="embedded",
        twice=0.05,
        deadline_s=1.0,
        patience_s=30.0,
        # Calls that take a while are in flight when the scorer is killed.
        simulator=(*MISBEHAVING, "--latency-ms=100", "--jitter-ms=200"),
        schedule=each_service_once(seed=11, within_s=FAULTS_S),
        environment=SOON_GONE,
    )
    result = await run(plan)
    found = result.findings
    assert found.violations == {}
    assert len(result.inflicted) == len(plan.schedule) == 6
    assert found.counts["signed"] == EVENTS
    assert found.counts["retried_requests"] > 0


@pytest.mark.fault
@pytest.mark.slow
@pytest.mark.kafka
async def test_faults_of_every_kind() -> None:
    """X.2, X.4, X.6: a real Kafka, the model, the aggregator and the stores go away and come back,
    services die, stop, join and leave, and submissions come twice and late: as `make fault`, in
    short. What this machine cannot take away is left out."""
    kafka_or_skip()
    short = ["--events=200", "--wallets=30", "--faults=7", "--spread=4", "--longest=2.5"]
    options = parsed(short)
    drawn = planned(options, 3, possible(options))
    plan = replace(drawn, deadline_s=1.0, environment={**drawn.environment, **SOON_GONE})
    result = await run(plan)
    assert result.findings.violations == {}
    assert len(result.inflicted) >= len(plan.schedule) - 1
    assert result.clean
