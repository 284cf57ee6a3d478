"""A request table restored from a backup is brought up to date again (DESIGN §3)."""

from __future__ import annotations

import asyncio
import json
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import httpx
import pytest

from assay.events import WalletScoreSigned
from deploy.dev.plan import EMBEDDED_PARTITIONS
from deploy.kafka.broker import Broker
from deploy.kafka.catalogue_topics import create_missing
from tests.e2e.outside import ScriptedAggregator
from tests.e2e.processes import ServiceProcess
from tests.e2e.stacks import QUICK, REPO, eventually, new_address
from tests.kafka import delivery_rig as rig

pytestmark = pytest.mark.kafka
SIGNED = WalletScoreSigned.type


async def test_an_end_that_a_backup_lacks_is_read_again(
    disposable_broker: Broker, aggregator: ScriptedAggregator, tmp_path: Path
) -> None:
    """What came after the backup, though the group has committed it; and nothing from before it."""
    bootstrap, data = disposable_broker.bootstrap, tmp_path / "data"
    await create_missing(bootstrap, EMBEDDED_PARTITIONS)
    data.mkdir()
    settings = {
        **QUICK,
        "ASSAY_KAFKA__BOOTSTRAP": bootstrap,
        "ASSAY_INGEST__STORE": f"sqlite:///{data}/requests.sqlite",
        "ASSAY_INGEST__AGGREGATOR_URL": aggregator.template,
    }
    for backup in ("first", "second"):
        async with _Ingest(tmp_path, settings) as ingest:
            url = await ingest.ask()
        shutil.copytree(data, tmp_path / backup)
        async with _Ingest(tmp_path, settings) as ingest:
            await _sign(bootstrap, url)
            await ingest.shows_signed(url)
        shutil.rmtree(data)
        shutil.copytree(tmp_path / backup, data)
        async with _Ingest(tmp_path, settings) as ingest:
            await ingest.shows_signed(url)
            assert await ingest.read(SIGNED) == 1


async def _sign(bootstrap: str, url: str) -> None:
    folder = REPO / "schemas" / "examples" / SIGNED / "valid"
    event: dict[str, Any] = json.loads(min(folder.glob("*.json")).read_text())
    event["meta"]["request_id"] = url.rpartition("/")[2]
    await rig.write(bootstrap, SIGNED, [(b"wallet", json.dumps(event).encode(), [])])


class _Ingest:
    """The service alone, until it ends by itself after SIGTERM."""

    def __init__(self, folder: Path, settings: Mapping[str, str]) -> None:
        self._folder = folder
        self._settings = settings

    async def __aenter__(self) -> _Ingest:
        self._process = ServiceProcess("ingest", self._folder, self._settings)
        try:
            self._api = await asyncio.to_thread(self._process.ready)
        except BaseException:
            self._process.end()
            raise
        return self

    async def __aexit__(self, *_: object) -> None:
        await asyncio.to_thread(self._process.end)

    async def ask(self) -> str:
        """The path of a request that is under way."""
        body, headers = {"address": new_address()}, {"Prefer": "wait=0"}
        async with httpx.AsyncClient(base_url=self._api, timeout=60) as client:
            answer = await client.post("/score", json=body, headers=headers)
        assert answer.status_code == 202, answer.text
        return str(answer.json()["url"])

    async def shows_signed(self, url: str) -> None:
        async with httpx.AsyncClient(base_url=self._api, timeout=60) as client:
            found = await eventually(lambda: client.get(url), lambda a: a.status_code == 200)
        assert found.status_code == 200, found.text

    async def read(self, topic: str) -> int:
        """Records of the topic since it started."""
        async with httpx.AsyncClient(base_url=self._api, timeout=60) as client:
            metrics = (await client.get("/metrics")).text
        name = f'assay_records_consumed_total{{pipeline="ingest.results",topic="{topic}"}} '
        [line] = [line for line in metrics.splitlines() if line.startswith(name)]
        return int(float(line.removeprefix(name)))
