"""A service of one forwarding pipeline, to be killed: `python -m tests.kafka.runner_process`.

Settings come from the environment as for any service; ASSAY_RIG__* say what to forward.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal

from assay_runtime.pipeline import Pipeline
from assay_runtime.records import raw_decoder
from assay_runtime.service import Service, main
from assay_runtime.settings import Section, Settings
from tests.kafka.delivery_rig import SERVICE, forwarding


class RigSection(Section):
    """What to forward, and how slowly; times in seconds.

    `calls` is a file that gets a line when the handler begins with a record. Records whose value
    is in `slow` take `slow_s` instead; `hangs` says how they take it: `deaf` ignores that it is
    cancelled, `thread` blocks a thread.
    """

    pipeline: str = ""
    source: str = ""
    sink: str = ""
    engine: str = "batch"
    slots: int = 32
    delay_s: float = 0.0
    drain_s: float = 10.0
    calls: str = ""
    slow: tuple[str, ...] = ()
    slow_s: float = 0.0
    hangs: Literal["", "deaf", "thread"] = ""


class RigSettings(Settings):
    rig: RigSection = RigSection()


def build(settings: RigSettings) -> Service:
    rig = settings.rig

    async def wait(deliveries: Sequence[Any]) -> None:
        if rig.calls:
            with Path(rig.calls).open("ab") as calls:
                calls.write(b"".join(delivery.value + b"\n" for delivery in deliveries))
        if deliveries[0].value.decode() not in rig.slow:
            await asyncio.sleep(random.uniform(0.5, 1) * rig.delay_s)
        elif rig.hangs == "thread":
            await asyncio.to_thread(time.sleep, rig.slow_s)
        else:
            await _hang(rig.slow_s, deaf=rig.hangs == "deaf")

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


async def _hang(seconds: float, deaf: bool) -> None:
    end = time.monotonic() + seconds
    while (left := end - time.monotonic()) > 0:
        try:
            await asyncio.sleep(left)
        except asyncio.CancelledError:
            if not deaf:
                raise


if __name__ == "__main__":
    main(SERVICE, RigSettings, build)
