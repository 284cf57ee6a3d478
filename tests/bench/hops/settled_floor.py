"""The floor with the garbage collector tuned as the runtime tunes it: what the chain costs above
this is validation, ids, metrics and trace context, less what whole record batches save."""

from __future__ import annotations

import asyncio

from assay_runtime import garbage
from tests.bench.hops import hop_arguments as shared
from tests.bench.hops.floor import run

if __name__ == "__main__":
    asyncio.run(run(shared.hop_arguments(), started=garbage.settle))
