"""How often Python looks for reference cycles.

A batch of validated events is some ten thousand live containers. With the default thresholds
they are searched again after every 700 new ones, and every module and model of the process with
them now and then: a fifth to a third of a light hop's time, and almost nothing of ours is a cycle.
"""

from __future__ import annotations

import gc

# New containers between two looks: more than a batch makes, so that it is searched once. Cycles
# that wait to be found hold a few megabytes at most.
_YOUNG = 25_000
# Looks at the young between looks at the older ones: CPython's own 10, and 20 for the oldest.
_MIDDLE, _OLD = 10, 20


def settle() -> None:
    """Call once the process is put together: what exists by now is never searched again."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(_YOUNG, _MIDDLE, _OLD)
