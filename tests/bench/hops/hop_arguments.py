"""What every hop process is told, and the client settings that all of them share.

The values are those of the runtime (assay_runtime/settings.py, publisher.py), so that a variant
is never slower for its settings.
"""

from __future__ import annotations

import argparse
from dataclasses import dataclass

LINGER_MS = 2
BATCH_BYTES = 262_144
MAX_RECORDS = 1_500
FETCH_WAIT_MS = 50
COMMIT_S = 0.1
COMPRESSION = "zstd"


@dataclass(frozen=True, slots=True)
class HopArguments:
    """One hop: reads `source` as `group`, writes `sink`."""

    bootstrap: str
    source: str
    sink: str
    group: str


def hop_arguments() -> HopArguments:
    """From the command line: bootstrap, source, sink, group."""
    parser = argparse.ArgumentParser()
    for name in ("bootstrap", "source", "sink", "group"):
        parser.add_argument(name)
    return HopArguments(**vars(parser.parse_args()))
