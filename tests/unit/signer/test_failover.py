"""A failover that loses the ledger's last commits gives no second signature (SPEC X.2)."""

from __future__ import annotations

import asyncio

import pytest
from aiokafka import AIOKafkaProducer
from coincurve import PrivateKey

from assay_runtime.failures import Pause, Stop
from assay_runtime.settings import KafkaSection
from deploy.dev.broker import EmbeddedBroker
from deploy.kafka.postgres_server import PostgresServer
from services.signer.adapters.key_file import FileKey
from services.signer.adapters.ledger_postgres import PostgresLedger
from services.signer.adapters.signed_topic import Reconciliation
from services.signer.domain.signed_event import ValidatedScore
from services.signer.domain.signing import Signed, Signer
from tests.unit.signer.claims import NETWORK, NOW, validated

TOPIC = "wallet.score.signed.v1"
KEY = FileKey(PrivateKey(b"\x07" * 32))


async def _patiently(signer: Signer, score: ValidatedScore) -> Signed:
    """As the runtime does, which asks again after a Pause."""
    while True:
        try:
            [outcome] = await signer.sign_batch([score])
        except Pause:
            await asyncio.sleep(0.1)
            continue
        assert isinstance(outcome, Signed)
        return outcome


async def test_what_the_new_primary_forgot_is_not_signed_anew(
    disposable_postgres: PostgresServer,
) -> None:
    """The signer that ran through the failover ends; its next start learns from the topic what was
    signed, and gives the same event again."""
    server = disposable_postgres
    url = server.create_database("failover")
    ledger = PostgresLedger(url)
    await ledger.open()
    await asyncio.to_thread(server.stop)
    await asyncio.to_thread(server.keep_copy)
    await asyncio.to_thread(server.start)
    mine = validated()
    signed = await _patiently(Signer(ledger, KEY, NETWORK, lambda: NOW), mine)
    await asyncio.to_thread(server.fail_over)
    await asyncio.to_thread(server.promote)
    signer = Signer(ledger, KEY, NETWORK, lambda: NOW + 5)
    with pytest.raises(Stop):
        await _patiently(signer, mine)
    await ledger.close()
    again = PostgresLedger(url)
    await again.open()
    with EmbeddedBroker([(TOPIC, 1)]) as broker:
        producer = AIOKafkaProducer(bootstrap_servers=broker.bootstrap)
        await producer.start()
        await producer.send_and_wait(
            TOPIC, signed.value, headers=[("ce_id", signed.event_id.encode())]
        )
        await producer.stop()
        kafka = KafkaSection(bootstrap=broker.bootstrap, fetch_wait_ms=10)
        await Reconciliation(again, kafka, NETWORK, KEY.public_key).open()
    [repeated] = await Signer(again, KEY, NETWORK, lambda: NOW + 5).sign_batch([mine])
    await again.close()
    assert repeated == Signed(signed.event_id, signed.value, repeat=True)
