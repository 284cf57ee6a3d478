"""A commit that its pipeline has given up on ends without a word of asyncio's."""

from __future__ import annotations

import asyncio
import gc
from types import SimpleNamespace
from typing import Any

import pytest
from aiokafka.consumer.group_coordinator import GroupCoordinator
from aiokafka.errors import RequestTimedOutError

from assay_runtime.fenced_commits import install


async def test_a_commit_given_up_is_no_unhandled_error(monkeypatch: pytest.MonkeyPatch) -> None:
    answer = asyncio.Event()

    async def unanswered(self: Any, assignment: Any, offsets: Any) -> None:
        await answer.wait()
        raise RequestTimedOutError

    monkeypatch.setattr(GroupCoordinator, "_do_commit_offsets", unanswered)
    install()
    reported: list[dict[str, Any]] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: reported.append(context))
    member: Any = SimpleNamespace(generation=7)
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.01):
            await asyncio.shield(GroupCoordinator._do_commit_offsets(member, None, {}))
    answer.set()
    await asyncio.sleep(0.01)
    gc.collect()
    assert reported == []
