"""A ledger restored from a backup is brought up to the signed topic (DESIGN §3)."""

from __future__ import annotations

import json
import uuid
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest
from aiokafka import AIOKafkaProducer
from coincurve import PrivateKey
from structlog.testing import capture_logs

from assay_runtime.failures import Pause, Stop
from assay_runtime.partitioning import partition_of
from assay_runtime.settings import KafkaSection
from deploy.dev.broker import EmbeddedBroker
from deploy.loopback_ports import free_port
from services.signer.adapters.key_file import FileKey
from services.signer.adapters.ledger_sqlite import SqliteLedger
from services.signer.adapters.signed_topic import Reconciliation
from services.signer.domain.ports import Ledger
from services.signer.domain.reservation import RequestKey
from services.signer.domain.signed_event import claim_of, signed_event_id
from services.signer.domain.signing import Signed, Signer
from tests.unit.signer.claims import NETWORK, NOW, OTHER_WALLET, WALLET, validated

TOPIC = "wallet.score.signed.v1"
KEY = FileKey(PrivateKey(b"\x07" * 32))
STRANGER = FileKey(PrivateKey(b"\x09" * 32))


@pytest.fixture
def bootstrap() -> Iterator[str]:
    with EmbeddedBroker([(TOPIC, 2)]) as broker:
        yield broker.bootstrap


@pytest.fixture
async def old(tmp_path: Path) -> AsyncIterator[Ledger]:
    """The ledger that signed, and was lost."""
    opened = SqliteLedger(tmp_path / "old.sqlite")
    await opened.open()
    yield opened
    await opened.close()


@pytest.fixture
async def restored(tmp_path: Path) -> AsyncIterator[Ledger]:
    """An empty ledger, as an old backup is."""
    opened = SqliteLedger(tmp_path / "restored.sqlite")
    await opened.open()
    yield opened
    await opened.close()


def _reconciliation(ledger: Ledger, bootstrap: str, log: str = "") -> Reconciliation:
    kafka = KafkaSection(bootstrap=bootstrap, log=log, fetch_wait_ms=10)
    return Reconciliation(ledger, kafka, NETWORK, [KEY.public_key])


async def _signed(ledger: Ledger, key: FileKey = KEY, **changes: Any) -> Signed:
    signer = Signer(ledger, key, changes.pop("network", NETWORK), lambda: NOW)
    [outcome] = await signer.sign_batch([validated(**changes)])
    assert isinstance(outcome, Signed)
    return outcome


async def _publish(
    bootstrap: str, *records: tuple[bytes, str], partition: int | None = None
) -> None:
    """Values with their ids, into one partition or into both in turn."""
    producer = AIOKafkaProducer(bootstrap_servers=bootstrap)
    await producer.start()
    for number, (value, event_id) in enumerate(records):
        headers = [("ce_id", event_id.encode())]
        place = number % 2 if partition is None else partition
        await producer.send_and_wait(TOPIC, value, headers=headers, partition=place)
    await producer.stop()


def _request(event: Signed) -> RequestKey:
    return RequestKey(NETWORK, json.loads(event.value)["meta"]["request_id"])


def _copy(event: Signed, *, reasoning: str | None = None, **meta: Any) -> Signed:
    """What anybody can make of a signed event: the signature holds, the id follows the rule."""
    content = json.loads(event.value)
    content["meta"] |= meta
    if reasoning is not None:
        content["metadata"]["reasoning"] = reasoning
    value = json.dumps(content).encode()
    return Signed(signed_event_id(content["meta"]["causation_id"], value), value, repeat=False)


async def test_what_was_signed_is_taken_in(bootstrap: str, old: Ledger, restored: Ledger) -> None:
    """X.2: from every partition, so that nothing is ever signed a second time; a second start
    reads only what is new."""
    events = [await _signed(old) for _ in range(5)]
    await _publish(bootstrap, *((event.value, event.event_id) for event in events))
    reconciliation = _reconciliation(restored, bootstrap)
    await reconciliation.open()
    for event in events:
        entry = await restored.get(_request(event))
        assert entry is not None
        assert (entry.event_id, entry.event) == (event.event_id, event.value)
    assert await restored.positions(TOPIC) == {0: 3, 1: 2}
    await reconciliation.open()
    late = await _signed(old)
    await _publish(bootstrap, (late.value, late.event_id))
    await reconciliation.open()
    assert await restored.get(_request(late)) is not None
    await reconciliation.close()


async def test_strangers_records_are_passed_over(
    bootstrap: str, old: Ledger, restored: Ledger
) -> None:
    """X.4: rubbish, another's key, another network, a changed score: none is taken in and none
    stops the start."""
    other_key = await _signed(old, STRANGER)
    other_network = await _signed(old, network="sui:mainnet")
    forged = await _signed(old)
    changed = json.loads(forged.value)
    changed["score"] += 1
    await _publish(
        bootstrap,
        (b"rubbish", "x"),
        (b"", ""),
        (other_key.value, other_key.event_id),
        (other_network.value, other_network.event_id),
        (json.dumps(changed).encode(), forged.event_id),
    )
    await _reconciliation(restored, bootstrap).open()
    for event in (other_key, other_network, forged):
        assert await restored.get(_request(event)) is None


async def test_a_contradiction_stops_the_signer(
    bootstrap: str, old: Ledger, restored: Ledger
) -> None:
    """DESIGN §3: two different signed events for one request are for a person to look at."""
    mine = validated()
    first = await _signed(old, request_id=mine.event.meta.request_id, score=640)
    await _signed(restored, request_id=mine.event.meta.request_id, score=990)
    await _publish(bootstrap, (first.value, first.event_id))
    with pytest.raises(Stop, match="contradicts"):
        await _reconciliation(restored, bootstrap).open()


async def test_copies_of_a_signed_event_stop_nothing(bootstrap: str, old: Ledger) -> None:
    """X.4: under another id, with other metadata, another ancestor or another request's id, the
    ledger keeps what it has; each is told once, and no start is stopped by it."""
    mine, other = await _signed(old), await _signed(old)
    edited = [
        _copy(mine, reasoning="Forged."),
        _copy(mine, causation_id=str(uuid.uuid4())),
        _copy(mine, request_id=str(uuid.uuid4())),
        _copy(mine, request_id=_request(other).request_id),
    ]
    copies = [(mine.value, str(uuid.uuid4())), *((copy.value, copy.event_id) for copy in edited)]
    genuine = [(event.value, event.event_id) for event in (mine, other)]
    await _publish(bootstrap, *copies, *genuine, *copies)
    with capture_logs() as logs:
        await _reconciliation(old, bootstrap).open()
        await _reconciliation(old, bootstrap).open()
    assert [entry["log_level"] for entry in logs] == ["warning"] * 2 * len(copies)
    for event in (mine, other):
        entry = await old.get(_request(event))
        assert entry is not None
        assert (entry.event_id, entry.event) == (event.event_id, event.value)
    assert await old.get(_request(edited[2])) is None


async def test_a_copy_over_an_open_reservation(
    bootstrap: str, old: Ledger, restored: Ledger
) -> None:
    """X.2: reserved in the backup and signed since, a copy that names another ancestor does not
    become the request's event."""
    mine = validated()
    await restored.reserve([claim_of(mine, NETWORK)], NOW)
    [signed] = await Signer(old, KEY, NETWORK, lambda: NOW).sign_batch([mine])
    assert isinstance(signed, Signed)
    copy = _copy(signed, causation_id=str(uuid.uuid4()))
    other_request = _copy(signed, request_id=str(uuid.uuid4()))
    await _publish(bootstrap, *((c.value, c.event_id) for c in (copy, other_request, signed)))
    await _reconciliation(restored, bootstrap).open()
    entry = await restored.get(_request(signed))
    assert entry is not None
    assert (entry.event_id, entry.event) == (signed.event_id, signed.value)


async def test_a_copy_under_another_id_is_not_taken_in(
    bootstrap: str, old: Ledger, restored: Ledger
) -> None:
    """X.2: an id that does not follow from the bytes is no signer's; what stands under it would
    stop the signer at the request's next repeat."""
    mine = await _signed(old)
    await _publish(bootstrap, (mine.value, str(uuid.uuid4())), (mine.value, ""))
    await _reconciliation(restored, bootstrap).open()
    assert await restored.get(_request(mine)) is None
    assert await restored.positions(TOPIC) == {0: 1, 1: 1}


@pytest.mark.parametrize("wallet", [WALLET, OTHER_WALLET])
async def test_a_copy_out_of_its_partition_comes_second(
    bootstrap: str, old: Ledger, restored: Ledger, wallet: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """X.2: a ledger that lacks both takes in the signer's own record, which stands in its wallet's
    partition, whichever is read first; a copy there can only stand behind it."""
    monkeypatch.setattr("services.signer.adapters.signed_topic._BATCH", 3)
    own = partition_of(wallet.lower().encode(), 2)
    mine = await _signed(old, address=wallet)
    fillers = [await _signed(old, address=wallet) for _ in range(10)]
    copies = [_copy(mine, request_id=str(uuid.uuid4())), _copy(mine, reasoning="Forged.")]
    records = [(copy.value, copy.event_id) for copy in copies]
    await _publish(bootstrap, *records, partition=1 - own)
    await _publish(bootstrap, *((f.value, f.event_id) for f in fillers), partition=own)
    await _publish(bootstrap, (mine.value, mine.event_id), *records, partition=own)
    await _reconciliation(restored, bootstrap).open()
    entry = await restored.get(_request(mine))
    assert entry is not None
    assert (entry.event_id, entry.event) == (mine.event_id, mine.value)
    assert await restored.get(_request(copies[0])) is None
    assert await restored.positions(TOPIC) == {own: 13, 1 - own: 2}


async def test_positions_of_another_log_mean_nothing(old: Ledger, restored: Ledger) -> None:
    """DESIGN §8: an embedded log starts anew; what it holds is read from its beginning."""
    for log in ("one", "two"):
        event = await _signed(old)
        with EmbeddedBroker([(TOPIC, 2)]) as broker:
            await _publish(broker.bootstrap, (event.value, event.event_id))
            await _reconciliation(restored, broker.bootstrap, log).open()
        assert await restored.get(_request(event)) is not None
    assert await restored.positions(f"two/{TOPIC}") == {0: 1}


async def test_an_absent_broker_is_a_pause(restored: Ledger) -> None:
    """Issue 3: broker down at start is waited for."""
    with pytest.raises(Pause, match="broker"):
        await _reconciliation(restored, f"127.0.0.1:{free_port()}").open()
