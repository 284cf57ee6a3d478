"""Request bodies: read up to a limit, within a time, and bounded all together."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager

from fastapi import Request

from assay.submission import SubmissionError

_READ_S = 30.0
# What is parsed takes several times the bytes it was sent in.
_ALL_BYTES = 134_217_728


class Bodies:
    """Room for the bodies of all requests; each has at most `limit` bytes."""

    def __init__(self, limit: int, all_bytes: int = _ALL_BYTES) -> None:
        self.limit = limit
        self.free = all_bytes

    @contextmanager
    def room(self) -> Iterator[Room]:
        """What is read into it takes room until the block ends."""
        room = Room(self)
        try:
            yield room
        finally:
            self.free += room.taken


class Room:
    """One request's share; SubmissionError codes too_large, too_slow, busy."""

    def __init__(self, bodies: Bodies) -> None:
        self._bodies = bodies
        self.taken = 0

    async def read(self, request: Request) -> bytes:
        """The body of the request."""
        try:
            async with asyncio.timeout(_READ_S):
                return await self._read(request)
        except TimeoutError as error:
            raise SubmissionError(
                "too_slow", "", f"the body did not arrive within {_READ_S:g} s"
            ) from error

    async def _read(self, request: Request) -> bytes:
        """A body over the limit is read on for a while and thrown away: a client that is still
        sending when the connection closes would see a reset instead of the answer."""
        limit = self._bodies.limit
        declared = request.headers.get("content-length", "")
        fits = not (declared.isdecimal() and int(declared[:20]) > limit)
        body = bytearray()
        size = 0
        async for chunk in request.stream():
            size += len(chunk)
            fits = fits and size <= limit
            if fits:
                self._take(len(chunk))
                body += chunk
            elif size > 4 * limit:
                break
        if not fits:
            raise SubmissionError("too_large", "", f"the body is larger than {limit:,} bytes")
        return bytes(body)

    def _take(self, size: int) -> None:
        if size > self._bodies.free:
            raise SubmissionError("busy", "", "too many large requests at once; try again")
        self._bodies.free -= size
        self.taken += size
