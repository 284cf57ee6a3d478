"""Two ingest replicas on one store: either answers for both, and one may die (issue 3 item 2)."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from deploy.dev.plan import EMBEDDED_PARTITIONS
from deploy.dev.signing_key import ensure_dev_key
from deploy.kafka.broker import Broker
from deploy.kafka.catalogue_topics import create_missing
from tests.e2e.outside import Reply, ScriptedAggregator, ScriptedModel, score_answer
from tests.e2e.processes import ServiceProcess
from tests.e2e.stacks import QUICK, eventually, new_address

pytestmark = pytest.mark.kafka


@pytest.fixture(params=["sqlite", pytest.param("postgres", marks=pytest.mark.postgres)])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """`ASSAY_INGEST__STORE` for both replicas."""
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path}/requests.sqlite"
    return str(request.getfixturevalue("postgres_url"))


@pytest.fixture
def replicas(
    store: str,
    disposable_broker: Broker,
    model: ScriptedModel,
    aggregator: ScriptedAggregator,
    tmp_path: Path,
) -> Iterator[tuple[list[ServiceProcess], list[str]]]:
    """Two replicas with the services behind them, and their addresses. (On Kafka: the embedded
    broker refuses a follower whose SyncGroup comes after the leader's, research point 24.)"""
    asyncio.run(create_missing(disposable_broker.bootstrap, EMBEDDED_PARTITIONS))
    ensure_dev_key(tmp_path / "signer.key")
    settings = {
        **QUICK,
        "ASSAY_KAFKA__BOOTSTRAP": disposable_broker.bootstrap,
        "ASSAY_INGEST__STORE": store,
        "ASSAY_INGEST__AGGREGATOR_URL": aggregator.template,
        "ASSAY_SCORER__URL": model.url,
        "ASSAY_SCORER__MODEL": model.name,
        "ASSAY_SIGNER__KEY": f"file:{tmp_path}/signer.key",
        "ASSAY_SIGNER__LEDGER": f"sqlite:///{tmp_path}/ledger.sqlite",
    }
    names = ("ingest", "ingest", "features", "scorer", "validator", "signer")
    running = [ServiceProcess(name, tmp_path, settings) for name in names]
    try:
        addresses = [service.ready() for service in running]
        yield running[:2], addresses[:2]
    finally:
        with contextlib.ExitStack() as ends:
            for service in running:
                ends.callback(service.end)


def _post(api: str, address: str, **headers: str) -> httpx.Response:
    body = json.dumps({"address": address}).encode()
    return httpx.post(api + "/score", content=body, headers=headers, timeout=60)


async def test_either_answers_and_one_may_die(
    replicas: tuple[list[ServiceProcess], list[str]], model: ScriptedModel
) -> None:
    """Either answers GET /scores/{id} for a request that the other took, waits for a score that
    the other projects, and honours its Idempotency-Keys; after kill -9 of one in the middle
    nothing that was taken is lost."""
    (first, _), (one, other) = replicas
    for taker, asked in ((one, other), (other, one)):
        address = new_address()
        score = await asyncio.to_thread(_post, taker, address, **{"Idempotency-Key": address})
        assert score.status_code == 200, score.text
        assert httpx.get(f"{asked}/scores/{score.json()['request_id']}").json() == score.json()
        again = await asyncio.to_thread(_post, asked, address, **{"Idempotency-Key": address})
        assert again.json() == score.json()
        assert len(model.calls(address)) == 1

    wallets = [new_address() for _ in range(24)]
    for wallet in wallets:
        model.script(wallet, Reply(score_answer(), delay_s=0.3))
    taken = await asyncio.gather(
        *(
            asyncio.to_thread(_post, (one, other)[number % 2], wallet, Prefer="wait=0")
            for number, wallet in enumerate(wallets)
        )
    )
    assert {answer.status_code for answer in taken} == {202}
    first.kill()
    urls = [answer.json()["url"] for answer in taken]

    async def look() -> list[dict[str, Any]]:
        answers = [httpx.get(other + url) for url in urls]
        return [answer.json() for answer in answers if answer.status_code == 200]

    scores = await eventually(look, lambda found: len(found) == len(urls), 60)
    assert sorted(score["wallet_address"] for score in scores) == sorted(wallets)
