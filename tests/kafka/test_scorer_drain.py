"""SIGTERM to a scorer whose slots are full and that has a backlog (DESIGN §3, issue 6)."""

from __future__ import annotations

import asyncio
import json
import signal
import time
import uuid
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from aiohttp import web

from assay.envelope import emit
from assay.events import GenerationAnswered, GenerationRequested, Meta
from assay.topics import catalogue
from deploy.dev.broker import EmbeddedBroker
from deploy.kafka.catalogue_topics import create_missing
from tests.e2e.processes import ServiceProcess
from tests.kafka import delivery_rig as rig
from tests.unit.scorer.model_server import ollama_reply

pytestmark = pytest.mark.fault
SLOTS = 64
BACKLOG = 200
DEADLINE_S = 4


class SlowModel:
    """Ollama that takes `seconds` for each call; `asked` counts the calls by request."""

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds
        self.asked: Counter[str] = Counter()

    @asynccontextmanager
    async def serving(self) -> AsyncIterator[str]:
        app = web.Application()
        app.router.add_get("/api/tags", self._identity)
        app.router.add_post("/api/show", self._identity)
        app.router.add_post("/api/chat", self._chat)
        runner = web.AppRunner(app, shutdown_timeout=0.1)
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        host, port = runner.addresses[0][:2]
        try:
            yield f"http://{host}:{port}"
        finally:
            await runner.cleanup()

    async def _identity(self, request: web.Request) -> web.StreamResponse:
        return web.json_response({"models": [{"name": "tiny:latest", "digest": "d"}]})

    async def _chat(self, request: web.Request) -> web.StreamResponse:
        prompt = (await request.json())["messages"][0]["content"]
        found = [word for word in prompt.split() if word.startswith("request-")]
        self.asked.update(found[:1])
        await asyncio.sleep(self.seconds)
        return web.json_response(ollama_reply('{"title": "Errands"}'))


@pytest.fixture(params=["embedded", pytest.param("kafka", marks=pytest.mark.kafka)])
def bootstrap(request: pytest.FixtureRequest) -> Iterator[str]:
    """A broker with the catalogue's topics and nothing on them."""
    if request.param == "embedded":
        topics = [(topic.name, rig.PARTITIONS) for topic in catalogue().on_broker()]
        with EmbeddedBroker(topics) as broker:
            yield broker.bootstrap
    else:
        address = request.getfixturevalue("disposable_broker").bootstrap
        asyncio.run(create_missing(address, rig.PARTITIONS))
        yield address


async def _ask(bootstrap: str) -> None:
    """BACKLOG requests, each of a key of its own."""
    messages = []
    for number in range(BACKLOG):
        request_id = str(uuid.uuid5(uuid.NAMESPACE_URL, str(number)))
        event = GenerationRequested(
            meta=Meta(request_id=request_id, tenant_id="t", process_id="open_notes"),
            input={"text": f"request-{number} says: buy milk"},
        )
        message = emit(event, topic=event.type, source="/test", parent_id=request_id)
        messages.append((message.key, message.value, message.headers))
    await rig.write(bootstrap, GenerationRequested.type, messages)


def _scorer(bootstrap: str, url: str, folder: Path) -> ServiceProcess:
    settings = {
        "ASSAY_KAFKA__BOOTSTRAP": bootstrap,
        "ASSAY_KAFKA__FETCH_WAIT_MS": "20",
        "ASSAY_SCORER__URL": url,
        "ASSAY_SCORER__MODEL": "tiny",
        "ASSAY_SCORER__CANARY": "off",
        "ASSAY_SCORER__SLOTS": str(SLOTS),
        "ASSAY_SCORER__DEADLINE_S": str(DEADLINE_S),
    }
    return ServiceProcess("scorer", folder, settings)


async def _until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(40):
        while not condition():
            await asyncio.sleep(0.01)


async def _ended(scorer: ServiceProcess) -> tuple[int, float]:
    """SIGTERM: the exit code, and the seconds it took."""
    begun = time.monotonic()
    scorer.process.send_signal(signal.SIGTERM)
    code = await asyncio.to_thread(scorer.exit_code, 60)
    return code, time.monotonic() - begun


async def _answers(bootstrap: str) -> Counter[str]:
    """Outcomes on the answered topic; no request may have two."""
    records = await rig.read(bootstrap, GenerationAnswered.type)
    events = [json.loads(record.value) for record in records]
    requests = Counter(event["meta"]["request_id"] for event in events)
    assert max(requests.values(), default=0) <= 1
    return Counter(event["outcome"] for event in events)


async def test_a_hanging_model_does_not_hold_up_the_end(bootstrap: str, tmp_path: Path) -> None:
    """Issue 6: SIGTERM to exit within the model's deadline and 3 s; of the backlog nothing is
    begun meanwhile, and nothing is lost."""
    model = SlowModel(3600)
    async with model.serving() as url:
        scorer = _scorer(bootstrap, url, tmp_path)
        try:
            await _ask(bootstrap)
            await _until(lambda: len(model.asked) == SLOTS)
            code, seconds = await _ended(scorer)
            assert code == 0, scorer.text
            # The bound is 3 s more than the deadline; what begins queued calls takes 10 s
            # more, and a busy machine gets the room between.
            assert seconds <= DEADLINE_S + 8
            assert sum(model.asked.values()) == SLOTS
        finally:
            scorer.end()
    assert (await _answers(bootstrap)).keys() <= {"failed"}
    await _all_are_answered(bootstrap, tmp_path)


async def test_running_calls_are_finished_and_paid_once(bootstrap: str, tmp_path: Path) -> None:
    """X.2: what runs at SIGTERM is answered, what waits is left to the next one, and no call is
    made twice."""
    model = SlowModel(1.5)
    async with model.serving() as url:
        scorer = _scorer(bootstrap, url, tmp_path)
        try:
            await _ask(bootstrap)
            await _until(lambda: len(model.asked) == SLOTS)
            code, _ = await _ended(scorer)
            assert code == 0, scorer.text
            assert sum(model.asked.values()) == SLOTS
            assert await _answers(bootstrap) == {"answered": SLOTS}
            model.seconds = 0
            scorer = _scorer(bootstrap, url, tmp_path)
            await _until(lambda: len(model.asked) == BACKLOG)
            assert (await _ended(scorer))[0] == 0
        finally:
            scorer.end()
    assert await _answers(bootstrap) == {"answered": BACKLOG}
    assert set(model.asked.values()) == {1}


async def _all_are_answered(bootstrap: str, folder: Path) -> None:
    """A second scorer, with a model that answers, ends every request that the first one left."""
    model = SlowModel(0)
    async with model.serving() as url:
        scorer = _scorer(bootstrap, url, folder)
        try:
            async with asyncio.timeout(40):
                while (await _answers(bootstrap)).total() < BACKLOG:
                    await asyncio.sleep(0.2)
        finally:
            scorer.end()
