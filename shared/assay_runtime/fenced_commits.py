"""A member that its group has thrown out commits nothing until it has joined again.

aiokafka then forgets its member id and generation and commits without them, as a program may that
assigns itself its partitions. The broker takes that of anybody while the group has no members: a
process cut off from the network would set back what another has committed since.
"""

from __future__ import annotations

import asyncio
from typing import Any

from aiokafka.consumer.group_coordinator import GroupCoordinator
from aiokafka.errors import UnknownMemberIdError
from aiokafka.protocol.commit import OffsetCommitRequest

_NOBODY = OffsetCommitRequest.DEFAULT_GENERATION_ID


def install() -> None:
    """For every consumer of this process that subscribes; safe to call again."""
    original = GroupCoordinator._do_commit_offsets
    if getattr(original, "fenced", False):
        return

    async def fenced(self: Any, assignment: Any, offsets: Any) -> None:
        if task := asyncio.current_task():
            task.add_done_callback(_retrieve)
        # The request is made from these without an await in between.
        if self.generation == _NOBODY and self._subscription.partitions_auto_assigned():
            raise UnknownMemberIdError(self.group_id)
        await original(self, assignment, offsets)

    fenced.fenced = True  # type: ignore[attr-defined]
    GroupCoordinator._do_commit_offsets = fenced


def _retrieve(task: asyncio.Task[Any]) -> None:
    """aiokafka shields a commit from whoever gives up on it. Nobody asks then how it ended, and
    asyncio would report that as a bug, in the last line of a log too."""
    if not task.cancelled():
        task.exception()
