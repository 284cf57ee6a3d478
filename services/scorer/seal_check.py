"""Which requests a service of ours vouches for (ARCHITECTURE, decision 20)."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection

import structlog
from prometheus_client import Counter

from assay.events import GenerationRequested
from assay_runtime.failures import DeadLetter
from assay_runtime.records import Delivery
from assay_runtime.seals import TRUSTING, Seals

log = structlog.get_logger()

# `missing` is what clients ask on the bus; `wrong` means services with different keys, or a forger.
UNSEALED = Counter("assay_unsealed_requests_total", "Requests of no service of ours", ["seal"])

_QUIET_S = 60.0


class SealCheck:
    """`scoring` are the processes whose answers may become scores; `clock` is monotonic, in
    seconds."""

    def __init__(
        self,
        seals: Seals = TRUSTING,
        scoring: Collection[str] = (),
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._seals = seals
        self._scoring = frozenset(scoring)
        self._clock = clock
        self._quiet_until = 0.0
        self._unsaid = 0

    def announce(self) -> None:
        """Says so where every request is trusted."""
        if not self._seals:
            log.warning(
                "seals_off",
                reason="ASSAY_SEALS__KEYS is unset: whoever may write "
                f"{GenerationRequested.type} can have scores of invented features signed",
            )

    def unsealed(self, delivery: Delivery[GenerationRequested]) -> bool:
        """Whether no score may be signed of what is answered; counted, and said where scores that
        should be signed may be concerned. DeadLetter for a wrong seal: most likely a service has
        other keys, and a replay mends that once they are right."""
        doubt = self._seals.doubt(delivery.id, delivery.record.headers, delivery.value)
        if doubt is None:
            return False
        UNSEALED.labels(doubt).inc()
        meta = delivery.event.meta
        if doubt == "wrong" or meta.process_id in self._scoring:
            self._unsaid += 1
            if self._clock() >= self._quiet_until:
                log.warning("request_unsealed", seal=doubt, request_id=meta.request_id,
                            process=meta.process_id, requests=self._unsaid)  # fmt: skip
                self._quiet_until = self._clock() + _QUIET_S
                self._unsaid = 0
        if doubt == "wrong":
            raise DeadLetter(
                "the seal is of none of this scorer's keys",
                code="seal_invalid",
                pointer="/headers/assay_seal",
                request_id=meta.request_id,
            )
        return True
