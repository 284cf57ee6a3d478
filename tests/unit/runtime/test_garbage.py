"""Python looks for cycles rarely, and still finds them (research §4: CPU per message)."""

from __future__ import annotations

import gc
import subprocess
import sys
from pathlib import Path

import pytest

from assay_runtime import garbage
from assay_runtime import service as module
from assay_runtime.service import Service, run
from assay_runtime.settings import Settings

SHARED = Path(__file__).resolve().parents[3] / "shared"

# In a process of its own: what is frozen stays frozen for the rest of the test run.
_CHILD = """
import gc, weakref
from assay_runtime import garbage

class Node:
    def __init__(self):
        self.itself = self

gc.disable()
made_before = weakref.ref(Node())
assert made_before() is not None, "a cycle that nobody has looked for"
gc.enable()
searched = len(gc.get_objects())
garbage.settle()
assert made_before() is None, "frozen, it would never be found"
assert gc.get_freeze_count() > 0.9 * searched
assert len(gc.get_objects()) < 0.1 * searched, "what exists is searched again"

looks = []
gc.callbacks.append(lambda phase, info: looks.append(info["generation"]) if phase == "start" else 0)
batch = [[] for _ in range(12_000)]
assert looks == [], "a batch of events is searched while it is made"
del batch
made_after = weakref.ref(Node())
kept = [[] for _ in range(60_000)]
assert made_after() is None, "cycles pile up"
assert looks
"""


def test_what_exists_is_left_alone_and_new_cycles_are_found() -> None:
    done = subprocess.run(
        [sys.executable, "-c", _CHILD],
        env={"PYTHONPATH": str(SHARED)}, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr


async def test_a_service_settles_once_it_is_put_together(monkeypatch: pytest.MonkeyPatch) -> None:
    """Before it says that it is ready, after everything was started."""
    order: list[str] = []
    monkeypatch.setattr(garbage, "settle", lambda: order.append("settled"))
    monkeypatch.setattr(module, "_announce", lambda *what: order.append("ready"))

    async def work() -> None:
        order.append("works")

    before = gc.get_threshold()
    with pytest.raises(Exception, match="ended by itself"):
        await run(Service("s", [], background=[work]), Settings())
    assert order == ["settled", "ready", "works"]
    assert gc.get_threshold() == before
