"""The floor with client and Python tuned as the runtime tunes them: zstd at level 1, which aiokafka
has no setting for, and fewer searches for garbage.

What the chain costs above this is validation, ids, metrics and trace context, less what whole
record batches save.
"""

from __future__ import annotations

import asyncio

from assay_runtime import compression, garbage
from tests.bench.hops import hop_arguments as shared
from tests.bench.hops.floor import run

compression.install()

if __name__ == "__main__":
    asyncio.run(run(shared.hop_arguments(), started=garbage.settle))
