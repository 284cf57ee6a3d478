"""What every hop process is told, and the client settings that all of them share.

The values are those of the runtime (assay_runtime/settings.py, publisher.py). What the runtime
tunes beyond the public settings of client and Python, zstd's level (compression.py) and how seldom
garbage is looked for (garbage.py), every variant has but the floor, of which there are both, so
that a rival is never slower for its settings. What still differs is each one's own: the runtime
makes whole record batches where the others hand over single messages that linger, and takes 256 KB
of a partition in one fetch where they keep their client's default of 1 MB; quixstreams has
librdkafka, which fetches ahead in threads of its own, and the pydantic that it pins; FastStream as
documented confirms every message before the next, so that lingering would only be a delay and it
has the default of none.
"""

from __future__ import annotations

import argparse
from dataclasses import dataclass
from typing import Literal

LINGER_MS = 2
BATCH_BYTES = 262_144
MAX_RECORDS = 1_500
FETCH_WAIT_MS = 50
COMMIT_S = 0.1
COMPRESSION: Literal["zstd"] = "zstd"
# What compression.install() sets for aiokafka; librdkafka is told it.
COMPRESSION_LEVEL = 1


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
