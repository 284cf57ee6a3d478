"""A ledger restored from a backup is brought up to the signed topic (DESIGN §3)."""

from __future__ import annotations

import json
import uuid
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
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
from services.signer.app import build
from services.signer.domain.ports import Ledger
from services.signer.domain.reservation import RequestKey
from services.signer.domain.signed_event import claim_of, signed_event_id
from services.signer.domain.signing import Signed, Signer
from services.signer.settings import SignerSection, SignerSettings
from tests.unit.signer.claims import NETWORK, NOW, OTHER_WALLET, WALLET, validated

TOPIC = "wallet.score.signed.v1"
KEY = FileKey(PrivateKey(b"\x07" * 32))
STRANGER = FileKey(PrivateKey(b"\x09" * 32))
SUCCESSOR = STRANGER


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


def _reconciliation(
    ledger: Ledger,
    bootstrap: str,
    log: str = "",
    key: FileKey = KEY,
    previous: Sequence[FileKey] = (),
) -> Reconciliation:
    kafka = KafkaSection(bootstrap=bootstrap, log=log, fetch_wait_ms=10)
    former = [known.public_key for known in previous]
    return Reconciliation(ledger, kafka, NETWORK, key.public_key, former)


def _place(key: FileKey = KEY, log: str = "") -> str:
    """Under which name the ledger keeps how far it has come with a key."""
    return f"{log}{TOPIC} {key.public_key.hex()}"


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
    assert await restored.positions(_place()) == {0: 3, 1: 2}
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
    assert await restored.positions(_place()) == {0: 1, 1: 1}


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
    assert await restored.positions(_place()) == {own: 13, 1 - own: 2}


async def test_positions_of_another_log_mean_nothing(old: Ledger, restored: Ledger) -> None:
    """DESIGN §8: an embedded log starts anew; what it holds is read from its beginning."""
    for log in ("one", "two"):
        event = await _signed(old)
        with EmbeddedBroker([(TOPIC, 2)]) as broker:
            await _publish(broker.bootstrap, (event.value, event.event_id))
            await _reconciliation(restored, broker.bootstrap, log).open()
        assert await restored.get(_request(event)) is not None
    assert await restored.positions(_place(log="two/")) == {0: 1}


async def test_a_forgotten_previous_key_is_told_and_made_good(
    bootstrap: str, old: Ledger, restored: Ledger
) -> None:
    """X.2: what the key before signed is unknown to an empty ledger that trusts the new key alone;
    that is said, and added later it is read from the first record, so nothing is signed twice."""
    before, after = await _signed(old), await _signed(old, SUCCESSOR)
    await _publish(bootstrap, (before.value, before.event_id), (after.value, after.event_id))
    with capture_logs() as logs:
        await _reconciliation(restored, bootstrap, key=SUCCESSOR).open()
    told = [entry for entry in logs if entry["event"] == "signed_under_unknown_keys"]
    assert [(entry["records"], entry["public_keys"]) for entry in told] == [
        (1, [KEY.public_key.hex()])
    ]
    assert await restored.get(_request(before)) is None
    with capture_logs() as logs:
        await _reconciliation(restored, bootstrap, key=SUCCESSOR, previous=[KEY]).open()
    assert [entry["event"] for entry in logs] == ["ledger_reconciled"]
    for event in (before, after):
        entry = await restored.get(_request(event))
        assert entry is not None
        assert entry.event == event.value


async def test_a_rotation_reads_nothing_anew(
    bootstrap: str, old: Ledger, restored: Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A new key goes on where the key before stands, in ledgers with one position for all too."""
    event = await _signed(old)
    await _publish(bootstrap, (event.value, event.event_id), partition=0)
    await _reconciliation(restored, bootstrap).open()
    read: list[bytes] = []
    trusted = Reconciliation._trusted

    def seen(self: Reconciliation, value: bytes, *rest: Any, **more: Any) -> Any:
        read.append(value)
        return trusted(self, value, *rest, **more)

    monkeypatch.setattr(Reconciliation, "_trusted", seen)
    await old.adopt([], TOPIC, {0: 1})
    for ledger in (restored, old):
        await _reconciliation(ledger, bootstrap, key=SUCCESSOR, previous=[KEY]).open()
    assert read == []
    late = await _signed(old, SUCCESSOR)
    await _publish(bootstrap, (late.value, late.event_id), partition=0)
    for _ in range(2):
        await _reconciliation(restored, bootstrap, key=SUCCESSOR, previous=[KEY]).open()
    assert read == [late.value]
    assert await restored.positions(_place(SUCCESSOR)) == {0: 2}
    assert await restored.positions(_place()) == {0: 2}


async def test_the_service_trusts_the_previous_keys(
    bootstrap: str, old: Ledger, tmp_path: Path
) -> None:
    """S3.9: what they signed stays signed, under the setting that names them."""
    event = await _signed(old)
    await _publish(bootstrap, (event.value, event.event_id))
    key = tmp_path / "signer.key"
    key.write_bytes(b"\x09" * 32)
    key.chmod(0o600)
    address = tmp_path / "ledger.sqlite"
    settings = SignerSettings(
        kafka=KafkaSection(bootstrap=bootstrap, fetch_wait_ms=10),
        signer=SignerSection(
            key=f"file:{key}",
            network=NETWORK,
            ledger=f"sqlite:///{address}",
            previous_keys=(KEY.public_key.hex(),),
        ),
    )
    async with AsyncExitStack() as stack:
        for resource in build(settings).resources:
            await stack.enter_async_context(resource)
    kept = SqliteLedger(address)
    await kept.open()
    assert await kept.get(_request(event)) is not None
    await kept.close()


async def test_a_ledger_that_retention_has_outrun(
    old: Ledger, restored: Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    """X.4: told where the first event left is unknown to the ledger, an empty one included; not of
    one that has it, however long ago it looked."""
    events = [await _signed(old) for _ in range(2)]
    with EmbeddedBroker([(TOPIC, 1)]) as broker:
        await _publish(broker.bootstrap, *((e.value, e.event_id) for e in events), partition=0)
        await _reconciliation(old, broker.bootstrap).open()
        low = AIOKafkaConsumer.beginning_offsets

        async def cut(self: AIOKafkaConsumer, tps: Any) -> Any:
            return {tp: offset + 1 for tp, offset in (await low(self, tps)).items()}

        monkeypatch.setattr(AIOKafkaConsumer, "beginning_offsets", cut)
        with capture_logs() as logs:
            await _reconciliation(restored, broker.bootstrap).open()
            await _reconciliation(restored, broker.bootstrap).open()
        assert [entry["event"] for entry in logs if entry["log_level"] == "error"] == [
            "signed_topic_outran_ledger"
        ]
        with capture_logs() as logs:
            await _reconciliation(old, broker.bootstrap, previous=[STRANGER]).open()
        assert not [entry for entry in logs if entry["log_level"] == "error"]


async def test_an_absent_broker_is_a_pause(restored: Ledger) -> None:
    """Issue 3: broker down at start is waited for."""
    with pytest.raises(Pause, match="broker"):
        await _reconciliation(restored, f"127.0.0.1:{free_port()}").open()
