"""Real servers for tests. What a machine lacks is skipped with one line, or fails if required.

REQUIRE_SERVERS=1 or CI=true requires them. Everything started here ends with the run, also
when the run is killed; a later run removes what a killed one left on the disk.
"""

from __future__ import annotations

import itertools
import json
import os
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TypeVar

import pytest

from deploy.dev.ollama.server import OllamaServer
from deploy.kafka.broker import Broker
from deploy.kafka.postgres_server import PostgresServer
from deploy.owned_process import MissingTool, OwnedProcess, start_mark

REQUIRED = os.environ.get("REQUIRE_SERVERS") == "1" or os.environ.get("CI") == "true"
SCRATCH = Path(tempfile.gettempdir()) / f"assay-tests-{os.getuid()}"
MODEL = "random"
TESTS = Path(__file__).parent

Server = TypeVar("Server", Broker, PostgresServer, OllamaServer)

_MARK_BY_FIXTURE = {
    "kafka_broker": "kafka",
    "disposable_broker": "kafka",
    "postgres_server": "postgres",
    "postgres_url": "postgres",
    "disposable_postgres": "postgres",
    "ollama_server": "ollama",
    "disposable_ollama": "ollama",
}
# Their servers stay up to the end of the run and take a third of a core from who comes after.
_WITH_SERVERS = ("bench", "kafka", "fault", "e2e")
_database_numbers = itertools.count(1)


@pytest.hookimpl(wrapper=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> Iterator[None]:
    """A test that asks for a server carries that server's mark; tests with servers run last."""
    for item in items:
        for name in getattr(item, "fixturenames", ()):
            if mark := _MARK_BY_FIXTURE.get(name):
                item.add_marker(mark)
    yield
    items.sort(key=_weight)


def _weight(item: pytest.Item) -> int:
    room = item.path.relative_to(TESTS).parts[0]
    return _WITH_SERVERS.index(room) + 1 if room in _WITH_SERVERS else 0


def sweep(scratch: Path = SCRATCH) -> None:
    """Remove what runs that no longer live have left: first their servers, then their files."""
    for folder in scratch.glob("*/"):
        try:
            owner = json.loads((folder / "owner.json").read_text(encoding="utf-8"))
            if start_mark(owner["pid"]) == owner["started"]:
                continue
        except (OSError, ValueError, KeyError):
            # Another run may be between making the folder and writing its name into it.
            if time.time() - folder.stat().st_mtime < 60:
                continue
        for record in folder.glob("*.pid"):
            OwnedProcess(record, record.with_suffix(".log")).kill()
        shutil.rmtree(folder, ignore_errors=True)


@contextmanager
def _folder(kind: str) -> Iterator[Path]:
    # Not pytest's tmp_path: the account that runs PostgreSQL cannot enter that.
    SCRATCH.mkdir(mode=0o755, exist_ok=True)
    sweep()
    folder = Path(tempfile.mkdtemp(prefix=f"{kind}-", dir=SCRATCH))
    folder.chmod(0o755)
    owner = {"pid": os.getpid(), "started": start_mark(os.getpid())}
    (folder / "owner.json").write_text(json.dumps(owner), encoding="utf-8")
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


@contextmanager
def _server(kind: str, make: Callable[[Path], Server]) -> Iterator[Server]:
    with _folder(kind) as folder:
        try:
            server = make(folder)
            server.start()
        except MissingTool as missing:
            if REQUIRED:
                pytest.fail(str(missing), pytrace=False)
            pytest.skip(str(missing))
        try:
            yield server
        finally:
            server.stop()


def _broker(folder: Path) -> Broker:
    return Broker(folder, dies_with_parent=True)


def _postgres(folder: Path) -> PostgresServer:
    return PostgresServer(folder, dies_with_parent=True)


def _ollama(folder: Path) -> OllamaServer:
    return OllamaServer(folder, dies_with_parent=True)


@pytest.fixture(scope="session")
def kafka_broker() -> Iterator[Broker]:
    """A running Apache Kafka for all tests; those that kill one take `disposable_broker`."""
    with _server("kafka", _broker) as broker:
        yield broker


@pytest.fixture
def disposable_broker() -> Iterator[Broker]:
    """A running Apache Kafka of the test's own (three seconds), to kill, pause and restart."""
    with _server("kafka", _broker) as broker:
        yield broker


@pytest.fixture(scope="session")
def postgres_server() -> Iterator[PostgresServer]:
    """A running PostgreSQL for all tests."""
    with _server("postgres", _postgres) as server:
        yield server


@pytest.fixture
def disposable_postgres() -> Iterator[PostgresServer]:
    """A running PostgreSQL of the test's own (one second), to kill and restart."""
    with _server("postgres", _postgres) as server:
        yield server


@pytest.fixture
def postgres_url(postgres_server: PostgresServer) -> Iterator[str]:
    """URL of an empty database of the test's own."""
    name = f"test_{next(_database_numbers)}"
    yield postgres_server.create_database(name)
    postgres_server.drop_database(name)


@pytest.fixture(scope="session")
def ollama_server() -> Iterator[OllamaServer]:
    """A running Ollama that serves the random-weight model under the name "random"."""
    with _server("ollama", _ollama) as server:
        server.create(MODEL)
        yield server


@pytest.fixture
def disposable_ollama() -> Iterator[OllamaServer]:
    """The same, of the test's own, to kill, pause and restart."""
    with _server("ollama", _ollama) as server:
        server.create(MODEL)
        yield server
