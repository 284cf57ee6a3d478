"""A service of one forwarding pipeline, to be killed: `python -m tests.kafka.runner_process`.

Settings come from the environment as for any service; ASSAY_RIG__* say what to forward.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Sequence
from typing import Any

from assay_runtime.pipeline import Pipeline
from assay_runtime.records import raw_decoder
from assay_runtime.service import Service, main
from assay_runtime.settings import Section, Settings
from tests.kafka.delivery_rig import SERVICE, forwarding


class RigSection(Section):
    """What to forward, and how slowly; times in seconds."""

    pipeline: str = ""
    source: str = ""
    sink: str = ""
    engine: str = "batch"
    slots: int = 32
    delay_s: float = 0.0
    drain_s: float = 10.0


class RigSettings(Settings):
    rig: RigSection = RigSection()


def build(settings: RigSettings) -> Service:
    rig = settings.rig

    async def wait(deliveries: Sequence[Any]) -> None:
        await asyncio.sleep(random.uniform(0.5, 1) * rig.delay_s)

    return Service(
        name=SERVICE,
        pipelines=[
            Pipeline(
                name=rig.pipeline,
                topics=(rig.source,),
                decode=raw_decoder,
                handler=forwarding(rig.sink, wait),
                engine=rig.engine,  # type: ignore[arg-type]
                slots=rig.slots,
                max_records=50,
            )
        ],
        drain_s=rig.drain_s,
    )


if __name__ == "__main__":
    main(SERVICE, RigSettings, build)
