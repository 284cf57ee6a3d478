"""The project's runtime as a service uses it: batch engine, real event model, metrics, trace."""

from __future__ import annotations

import os
from collections.abc import Sequence

from assay.envelope import Message, emit
from assay.events import WalletFeaturesExtracted
from assay_runtime.pipeline import Pipeline
from assay_runtime.records import Delivery, event_decoder
from assay_runtime.service import Service, main
from assay_runtime.settings import Settings
from assay_runtime.stage import per_record
from tests.bench.chain_events import SOURCE
from tests.bench.hops.hop_arguments import HopArguments, hop_arguments


def build(hop: HopArguments) -> Service:
    def pass_on(delivery: Delivery[WalletFeaturesExtracted]) -> Sequence[Message]:
        return (emit(delivery.event, topic=hop.sink, source=SOURCE, parent_id=delivery.id),)

    pipeline = Pipeline(
        name=hop.group.removeprefix("assay."),
        topics=(hop.source,),
        decode=event_decoder(WalletFeaturesExtracted),
        handler=per_record(pass_on),
    )
    return Service(name="bench", pipelines=[pipeline])


if __name__ == "__main__":
    arguments = hop_arguments()
    os.environ["ASSAY_KAFKA__BOOTSTRAP"] = arguments.bootstrap
    main("bench", Settings, lambda settings: build(arguments))
