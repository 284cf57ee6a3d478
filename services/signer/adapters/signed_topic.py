"""Reads back what was signed, for a ledger that may be older than the topic (DESIGN §3)."""

from __future__ import annotations

from collections.abc import Collection, Mapping

import structlog
from aiokafka import AIOKafkaConsumer, TopicPartition
from aiokafka.errors import KafkaError

from assay.attestation import AttestationError, verify_score
from assay.envelope import text_headers
from assay.events import WalletScoreSigned
from assay_runtime.failures import Pause, Stop
from assay_runtime.partitioning import partition_of
from assay_runtime.settings import KafkaSection
from services.signer.domain.ports import Ledger
from services.signer.domain.reconciliation import AdoptedEvent, adopted_event
from services.signer.domain.reservation import LedgerMismatch

log = structlog.get_logger()

_TOPIC = WalletScoreSigned.type
_BATCH = 500
_Offsets = dict[TopicPartition, int]


class Reconciliation:
    """Brings the ledger up to the end of the signed topic before the signer starts.

    Only events that verify under one of `keys` are taken in, on the given network; the topic's
    others, and copies of what the ledger has, are somebody else's and stop nothing. The ledger
    keeps how far it has come, so a start reads only what is new to it.
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
        starts = {}
        for tp in tps:
            at = known.get(tp.partition, lows[tp])
            if at < lows[tp]:
                # What retention removed, a restored ledger can no longer learn from the topic.
                log.error("signed_topic_outran_ledger", partition=tp.partition, position=at,
                          low_watermark=lows[tp])  # fmt: skip
            starts[tp] = at if lows[tp] <= at <= ends[tp] else lows[tp]
        # A copy is made of what was published, so in its wallet's own partition it stands behind
        # the signer's record. In another it could be read first, and is read last therefore.
        adopted, strays = await self._take_in(consumer, starts, ends, own=True)
        if strays:
            adopted += (await self._take_in(consumer, strays, ends, own=False))[0]
        if adopted:
            log.warning("ledger_reconciled", adopted=adopted)

    async def _take_in(
        self, consumer: AIOKafkaConsumer, starts: _Offsets, ends: _Offsets, *, own: bool
    ) -> tuple[int, _Offsets]:
        """Adopt events that stand in their wallet's own partition, or the others; how many were
        new, and where the first left out of each partition stands, beyond which no position is
        kept."""
        for tp, offset in starts.items():
            consumer.seek(tp, offset)
        behind = {tp for tp, offset in starts.items() if offset < ends[tp]}
        partitions = len(consumer.assignment())
        adopted = 0
        strays: _Offsets = {}
        while behind:
            fetched = await consumer.getmany(*behind, timeout_ms=500, max_records=_BATCH)
            events: list[AdoptedEvent] = []
            positions: dict[int, int] = {}
            for tp, records in fetched.items():
                for record in records:
                    event = self._trusted(record.value or b"", record.headers, told=not own)
                    if event is None:
                        continue
                    place = partition_of(event.wallet_key.wallet.encode(), partitions)
                    if (place == tp.partition) is own:
                        events.append(event)
                    elif own:
                        strays.setdefault(tp, record.offset)
                positions[tp.partition] = strays.get(tp, records[-1].offset + 1)
            adoption = await self._ledger.adopt(events, self._name, positions)
            for event, reason in adoption.passed_over:
                log.warning("signed_record_not_ours", request_id=event.request.request_id,
                            event_id=event.event_id, error=reason)  # fmt: skip
            adopted += adoption.added
            behind = {tp for tp in behind if await consumer.position(tp) < ends[tp]}
        return adopted, strays

    def _trusted(
        self,
        value: bytes,
        headers: Collection[tuple[str, bytes | None]] | Mapping[str, bytes],
        *,
        told: bool,
    ) -> AdoptedEvent | None:
        """The event, if one of our keys signed it for our network; `told` where it was logged
        already that none did."""
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
            if not told:
                log.warning("signed_record_not_ours", error=str(error)[:200])
            return None
