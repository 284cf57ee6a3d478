"""Reads back what was signed, for a ledger that may be older than the topic (DESIGN §3)."""

from __future__ import annotations

from collections.abc import Collection, Mapping

import structlog
from aiokafka import AIOKafkaConsumer
from aiokafka.errors import KafkaError

from assay.attestation import AttestationError, verify_score
from assay.envelope import text_headers
from assay.events import WalletScoreSigned
from assay_runtime.failures import Pause, Stop
from assay_runtime.settings import KafkaSection
from services.signer.domain.ports import Ledger
from services.signer.domain.reconciliation import AdoptedEvent, adopted_event
from services.signer.domain.reservation import LedgerMismatch

log = structlog.get_logger()

_TOPIC = WalletScoreSigned.type
_BATCH = 500


class Reconciliation:
    """Brings the ledger up to the end of the signed topic before the signer starts.

    Only events that verify under one of `keys` are taken in, on the given network; the topic's
    others are somebody else's. The ledger keeps how far it has come, so a start reads only what
    is new to it.
    """

    def __init__(
        self, ledger: Ledger, kafka: KafkaSection, network: str, keys: Collection[bytes]
    ) -> None:
        self._ledger = ledger
        self._kafka = kafka
        self._network = network
        self._keys = {key.hex(): key for key in keys}
        self._name = f"{kafka.log}/{_TOPIC}" if kafka.log else _TOPIC

    async def open(self) -> None:
        """Pause while the broker is away; Stop where ledger and topic contradict each other."""
        consumer = AIOKafkaConsumer(
            _TOPIC,
            bootstrap_servers=self._kafka.bootstrap,
            group_id=None,
            enable_auto_commit=False,
            auto_offset_reset="earliest",
            fetch_max_wait_ms=self._kafka.fetch_wait_ms,
        )
        try:
            await consumer.start()
            await self._read(consumer)
        except (KafkaError, OSError) as error:
            raise Pause("broker", f"{self._kafka.bootstrap}: {error}") from error
        except LedgerMismatch as error:
            raise Stop(f"the ledger contradicts the signed topic: {error}") from error
        finally:
            await consumer.stop()

    async def close(self) -> None:
        """Nothing stays open."""

    async def _read(self, consumer: AIOKafkaConsumer) -> None:
        known = await self._ledger.positions(self._name)
        tps = sorted(consumer.assignment())
        if not tps:
            raise Pause("broker", f"there is no topic {_TOPIC} yet")
        lows = await consumer.beginning_offsets(tps)
        ends = await consumer.end_offsets(tps)
        for tp in tps:
            at = known.get(tp.partition, lows[tp])
            if at < lows[tp]:
                # What retention removed, a restored ledger can no longer learn from the topic.
                log.error("signed_topic_outran_ledger", partition=tp.partition, position=at,
                          low_watermark=lows[tp])  # fmt: skip
            consumer.seek(tp, at if lows[tp] <= at <= ends[tp] else lows[tp])
        behind = {tp for tp in tps if await consumer.position(tp) < ends[tp]}
        adopted = 0
        while behind:
            fetched = await consumer.getmany(*behind, timeout_ms=500, max_records=_BATCH)
            events = [
                event
                for records in fetched.values()
                for record in records
                if (event := self._trusted(record.value or b"", record.headers)) is not None
            ]
            positions = {tp.partition: records[-1].offset + 1 for tp, records in fetched.items()}
            adopted += await self._ledger.adopt(events, self._name, positions)
            behind = {tp for tp in behind if await consumer.position(tp) < ends[tp]}
        if adopted:
            log.warning("ledger_reconciled", adopted=adopted)

    def _trusted(
        self, value: bytes, headers: Collection[tuple[str, bytes | None]] | Mapping[str, bytes]
    ) -> AdoptedEvent | None:
        """The event, if one of our keys signed it for our network."""
        pairs = headers.items() if isinstance(headers, Mapping) else headers
        try:
            event = WalletScoreSigned.model_validate_json(value)
            attestation = event.attestations[0]
            key = self._keys.get(attestation.public_key)
            if key is None or attestation.network != self._network:
                return None
            verify_score(
                key,
                bytes.fromhex(attestation.signature),
                score=event.score,
                wallet_address=event.wallet_address,
                timestamp_ms=event.timestamp_ms,
            )
            return adopted_event(text_headers(pairs).get("ce_id", ""), value)
        except (ValueError, AttestationError) as error:
            log.warning("signed_record_not_ours", error=str(error)[:200])
            return None
