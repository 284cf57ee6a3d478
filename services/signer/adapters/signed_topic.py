"""Reads back what was signed, for a ledger that may be older than the topic (DESIGN §3)."""

from __future__ import annotations

from collections import Counter
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
from services.signer.adapters.key_positions import KeyPositions
from services.signer.domain.ports import Ledger
from services.signer.domain.reconciliation import AdoptedEvent, adopted_event
from services.signer.domain.reservation import LedgerMismatch

log = structlog.get_logger()

_TOPIC = WalletScoreSigned.type
_BATCH = 500
# Of keys that are not ours anybody can make as many as they like.
_KEYS_COUNTED = 100
_KEYS_TOLD = 5
_Offsets = dict[TopicPartition, int]


class Reconciliation:
    """Brings the ledger up to the end of the signed topic before the signer starts.

    Only events that verify under `key` or one of `previous` are taken in, on the given network;
    the topic's others, and copies of what the ledger has, are somebody else's and stop nothing.
    The ledger keeps how far it has come with each key, so a start reads only what is new to it,
    and a previous key that had been forgotten is read from the first record.
    """

    def __init__(
        self,
        ledger: Ledger,
        kafka: KafkaSection,
        network: str,
        key: bytes,
        previous: Collection[bytes] = (),
    ) -> None:
        self._kafka = kafka
        self._network = network
        self._keys = {trusted.hex(): trusted for trusted in (key, *previous)}
        name = f"{kafka.log}/{_TOPIC}" if kafka.log else _TOPIC
        former = [trusted.hex() for trusted in previous]
        self._positions = KeyPositions(ledger, name, key.hex(), former)
        self._outrun: set[TopicPartition] = set()
        self._unknown: Counter[str] = Counter()

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
        known = await self._positions.known()
        tps = sorted(consumer.assignment())
        if not tps:
            raise Pause("broker", f"there is no topic {_TOPIC} yet")
        lows = await consumer.beginning_offsets(tps)
        ends = await consumer.end_offsets(tps)
        positions = {tp: known.get(tp.partition, 0) for tp in tps}
        starts = {
            tp: at if lows[tp] <= at <= ends[tp] else lows[tp] for tp, at in positions.items()
        }
        self._outrun = {tp for tp, at in positions.items() if at < lows[tp]}
        self._unknown.clear()
        # A copy is made of what was published, so in its wallet's own partition it stands behind
        # the signer's record. In another it could be read first, and is read last therefore.
        adopted, strays = await self._take_in(consumer, starts, ends, own=True)
        if strays:
            adopted += (await self._take_in(consumer, strays, ends, own=False))[0]
        if adopted:
            log.warning("ledger_reconciled", adopted=adopted)
        if self._unknown:
            log.warning(
                "signed_under_unknown_keys",
                records=self._unknown.total(),
                public_keys=[key for key, _ in self._unknown.most_common(_KEYS_TOLD)],
                network=self._network,
            )

    async def _adopt(
        self,
        events: list[AdoptedEvent],
        positions: dict[int, int],
        first: dict[str, TopicPartition],
    ) -> int:
        """How many were new. `first` are the first requests left of partitions of which retention
        took what was never read back."""
        adoption = await self._positions.adopt(events, positions)
        for event, reason in adoption.passed_over:
            log.warning("signed_record_not_ours", request_id=event.request.request_id,
                        event_id=event.event_id, error=reason)  # fmt: skip
        for entry in adoption.new:
            if (tp := first.get(entry.request.request_id)) is not None:
                # It lacks the first that is left, so it may lack what was removed before that.
                log.error("signed_topic_outran_ledger", partition=tp.partition)
        return adoption.added

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
            first: dict[str, TopicPartition] = {}
            for tp, records in fetched.items():
                for record in records:
                    event = self._trusted(record.value or b"", record.headers, told=not own)
                    if event is None:
                        continue
                    place = partition_of(event.wallet_key.wallet.encode(), partitions)
                    if (place == tp.partition) is own:
                        events.append(event)
                        if tp in self._outrun:
                            self._outrun.discard(tp)
                            first[event.request.request_id] = tp
                    elif own:
                        strays.setdefault(tp, record.offset)
                positions[tp.partition] = strays.get(tp, records[-1].offset + 1)
            adopted += await self._adopt(events, positions, first)
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
            if attestation.network != self._network:
                return None
            if key is None:
                if not told and (
                    attestation.public_key in self._unknown or len(self._unknown) < _KEYS_COUNTED
                ):
                    self._unknown[attestation.public_key] += 1
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
