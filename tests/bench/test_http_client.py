"""The HTTP benchmark measures what it says (issue 6)."""

from __future__ import annotations

import asyncio
import os
import sys

import pytest

from services.scorer.adapters.assembly import build_provider
from services.scorer.settings import ScorerSection
from tests.bench import http_client as bench


def test_requests_and_replies_have_the_stated_size() -> None:
    """Issue 6: 3.6 KB there and 0.7 KB back, within a tenth, whichever protocol is spoken."""
    sizes: dict[str, int] = {}

    class Measuring(bench.Answering):
        def data_received(self, data: bytes) -> None:
            if data.startswith((b"POST /api/chat", b"POST /v1/")):
                [length] = [
                    x for x in data.lower().split(b"\r\n") if x.startswith(b"content-length")
                ]
                sizes[data.split(b" ", 2)[1].decode()] = int(length.split(b":")[1])
            super().data_received(data)

    async def ask() -> None:
        server = await asyncio.get_running_loop().create_server(Measuring, "127.0.0.1", 0)
        url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        for kind in bench.ADAPTERS:
            section = {"provider": kind, "url": url, "model": "bench"}
            provider = build_provider(ScorerSection.model_validate(section))
            reply = await provider.generate(bench.model_call(7))
            assert '"score": 778' in reply.raw
            await provider.aclose()
        server.close()

    asyncio.run(ask())
    assert len(sizes) == 2
    for size in sizes.values():
        assert size == pytest.approx(bench.REQUEST_BYTES, rel=0.1)
    for path in ("/api/chat", "/v1/chat/completions"):
        size = len(bench.replies()[path.encode()])
        assert size == pytest.approx(bench.REPLY_BYTES, rel=0.1)


@pytest.mark.slow
@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="pins processes to cores")
def test_each_client_is_measured() -> None:
    """A small run: every client answers and costs something, and only the rate follows from it."""
    cores = os.sched_getaffinity(0)
    found = bench.compare(1, 300, ["aiohttp", "httpx-aiohttp", "ollama", "openai"])
    assert os.sched_getaffinity(0) == cores
    for figures in found.values():
        assert 0 < figures["cpu_us_per_call"] < 1e6
        rate = 1e6 / figures["cpu_us_per_call"]
        assert figures["calls_per_core_s"] == pytest.approx(rate, rel=0.02, abs=1)
