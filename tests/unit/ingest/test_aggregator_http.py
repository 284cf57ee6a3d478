"""The aggregator adapter against a real HTTP server with every failure (SPEC S3.8, X.6)."""

from __future__ import annotations

import asyncio
import gzip
import json
import socket
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from typing import Any

import pytest
from aiohttp import web

from services.ingest.adapters.aggregator_http import (
    AggregatorClient,
    AggregatorError,
    AggregatorRefused,
    AggregatorRubbish,
    AggregatorTimeout,
    AggregatorUnavailable,
    WalletUnknown,
)
from services.ingest.domain.strict_json import JsonLimits
from tests.data.wallet_records import sized_record

WALLET = "0xC6635c942d2183D9415354B59c557EfbD8e3158C"
Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


class Aggregator:
    """A server whose answers are set by the test; it remembers what it was asked."""

    def __init__(self, port: int) -> None:
        self.url = f"http://127.0.0.1:{port}/wallets/{{address}}?key=secret"
        self.asked: list[web.Request] = []
        self.handler: Handler | None = None

    def answer(self, *bodies: bytes | str, status: int = 200, **headers: str) -> None:
        """These answers one after the other, the last again and again."""
        queue = list(bodies)

        async def handler(_: web.Request) -> web.Response:
            body = queue.pop(0) if len(queue) > 1 else queue[0]
            raw = body.encode() if isinstance(body, str) else body
            return web.Response(status=status, body=raw, headers=headers)

        self.handler = handler

    def statuses(self, *statuses: int, **headers: str) -> None:
        """These statuses one after the other, then a good record."""
        queue = list(statuses)

        async def handler(_: web.Request) -> web.Response:
            if queue:
                return web.Response(status=queue.pop(0), headers=headers)
            return web.json_response({"wallet": WALLET})

        self.handler = handler


@pytest.fixture
async def aggregator() -> AsyncIterator[Aggregator]:
    async def dispatch(request: web.Request) -> web.StreamResponse:
        server.asked.append(request)
        assert server.handler is not None
        return await server.handler(request)

    app = web.Application()
    app.router.add_route("*", "/{tail:.*}", dispatch)
    runner = web.AppRunner(app, shutdown_timeout=0.1)
    await runner.setup()
    listening = socket.create_server(("127.0.0.1", 0))
    server = Aggregator(listening.getsockname()[1])
    await web.SockSite(runner, listening).start()
    yield server
    await runner.cleanup()


def client(url: str, **settings: Any) -> AggregatorClient:
    return AggregatorClient(url, **{"deadline_s": 5, "first_wait_s": 0.01, **settings})


async def fetch(server: Aggregator, **settings: Any) -> dict[str, Any]:
    async with client(server.url, **settings) as opened:
        return await opened.fetch(WALLET)


async def failure(server: Aggregator, **settings: Any) -> AggregatorError:
    with pytest.raises(AggregatorError) as caught:
        await fetch(server, **settings)
    assert "secret" not in str(caught.value)
    return caught.value


@asynccontextmanager
async def raw_server(answer: bytes) -> AsyncIterator[str]:
    """A server that writes exactly these bytes and hangs up."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(answer)
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    async with server:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/{{address}}"


async def test_a_record_is_fetched(aggregator: Aggregator) -> None:
    """S3.8: the URL is made from the template, the record comes back as it is."""
    record = {"wallet": WALLET.lower(), "tokens": {"balance_raw": 2**200}}
    aggregator.answer(json.dumps(record))
    assert await fetch(aggregator) == record
    [asked] = aggregator.asked
    assert asked.path_qs == f"/wallets/{WALLET}?key=secret"
    assert asked.headers["accept-encoding"] == "identity"


async def test_a_large_record_is_fetched(aggregator: Aggregator) -> None:
    """S3.8: 650 KB, as real ones are."""
    record = sized_record(650_000) | {"wallet": WALLET}
    aggregator.answer(json.dumps(record))
    assert await fetch(aggregator) == record


async def test_dirty_numbers_are_normalised(aggregator: Aggregator) -> None:
    """S3.1: an aggregator written in Python sends NaN."""
    aggregator.answer('{"eth_balance": NaN, "x": Infinity}')
    assert await fetch(aggregator) == {"eth_balance": None, "x": None}


@pytest.mark.parametrize("statuses", [(503,), (502, 429), (503, 503)])
async def test_passing_outages_are_waited_out(
    aggregator: Aggregator, statuses: tuple[int, ...]
) -> None:
    """X.6: 429, 502 and 503 are tried again."""
    aggregator.statuses(*statuses)
    assert await fetch(aggregator) == {"wallet": WALLET}
    assert len(aggregator.asked) == len(statuses) + 1


@pytest.mark.parametrize("status", [429, 502, 503])
async def test_an_outage_that_lasts(aggregator: Aggregator, status: int) -> None:
    """S3.8: unavailable after as many attempts as configured."""
    aggregator.statuses(*[status] * 10)
    error = await failure(aggregator, attempts=3)
    assert isinstance(error, AggregatorUnavailable)
    assert str(status) in str(error)
    assert len(aggregator.asked) == 3


@pytest.mark.parametrize(
    ("status", "kind"),
    [
        (500, AggregatorUnavailable),
        (504, AggregatorUnavailable),
        (404, WalletUnknown),
        (400, AggregatorRefused),
        (401, AggregatorRefused),
        (302, AggregatorRefused),
        (204, AggregatorRubbish),
    ],
)
async def test_final_statuses_are_not_repeated(
    aggregator: Aggregator, status: int, kind: type[AggregatorError]
) -> None:
    """S3.8: the errors are told apart; a redirect is not followed."""
    aggregator.statuses(status, location="/elsewhere")
    error = await failure(aggregator)
    assert type(error) is kind
    assert len(aggregator.asked) == 1


@pytest.mark.parametrize("form", ["seconds", "date"])
async def test_retry_after_is_honoured(aggregator: Aggregator, form: str) -> None:
    """DESIGN §5: the aggregator knows best when to come back."""
    aggregator.statuses(
        429,
        **{
            "retry-after": "1"
            if form == "seconds"
            else format_datetime(datetime.now(UTC) + timedelta(seconds=2), usegmt=True)
        },
    )
    loop = asyncio.get_running_loop()
    begun = loop.time()
    await fetch(aggregator)
    assert loop.time() - begun >= 0.9


async def test_retry_after_beyond_the_deadline_ends_at_once(aggregator: Aggregator) -> None:
    """X.6: no waiting for what cannot come in time."""
    aggregator.statuses(503, 503, **{"retry-after": "3600"})
    error = await asyncio.wait_for(failure(aggregator, deadline_s=30), 10)
    assert isinstance(error, AggregatorUnavailable)
    assert len(aggregator.asked) == 1


@pytest.mark.parametrize(
    "header",
    ["0", "soon", "-5", "²", "Thu, 99 Foo 2026", f"1 Jan {'9' * 25} 00:00:00 GMT", "9" * 400],
)
async def test_a_strange_retry_after_does_no_harm(aggregator: Aggregator, header: str) -> None:
    """X.5: the header is untrusted as well."""
    aggregator.statuses(503, **{"retry-after": header})
    if header.startswith("9"):
        assert isinstance(await failure(aggregator), AggregatorUnavailable)
    else:
        assert await fetch(aggregator) == {"wallet": WALLET}


async def test_nobody_listens() -> None:
    """S3.8: no connection is unavailable."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        port = listening.getsockname()[1]
    async with client(f"http://127.0.0.1:{port}/{{address}}?key=secret") as opened:
        with pytest.raises(AggregatorUnavailable, match="no connection") as caught:
            await opened.fetch(WALLET)
    assert "secret" not in str(caught.value)


async def test_silence_before_the_answer(aggregator: Aggregator) -> None:
    """S3.8, X.6: the read timeout; not repeated, a slow aggregator is not asked twice."""

    async def hang(_: web.Request) -> web.Response:
        await asyncio.sleep(30)
        return web.Response()

    aggregator.handler = hang
    assert isinstance(await failure(aggregator, read_s=0.1), AggregatorTimeout)
    assert len(aggregator.asked) == 1


async def trickle(request: web.Request) -> web.StreamResponse:
    response = web.StreamResponse()
    await response.prepare(request)
    for _ in range(1_000):
        await response.write(b" ")
        await asyncio.sleep(0.02)
    return response


async def test_a_trickling_answer_meets_the_deadline(aggregator: Aggregator) -> None:
    """X.6: bytes that keep coming reset the read timeout, never the deadline."""
    aggregator.handler = trickle
    error = await failure(aggregator, read_s=1, deadline_s=0.3)
    assert isinstance(error, AggregatorTimeout)
    assert "0.3 s" in str(error)


async def test_the_deadline_during_an_outage_is_an_outage(aggregator: Aggregator) -> None:
    """S3.8: what was last seen is reported, not only that time ran out."""
    aggregator.statuses(*[503] * 100)
    error = await failure(aggregator, attempts=10, first_wait_s=0.5, deadline_s=0.2)
    assert isinstance(error, AggregatorUnavailable)
    assert "503" in str(error)


@pytest.mark.parametrize(
    ("body", "words"),
    [
        ("<html>busy</html>", "not JSON"),
        ("", "empty"),
        ("[{}]", "no object"),
        ("null", "no object"),
        (b'{"a": "\xff"}', "UTF-8"),
        ('{"wallet": "0x1111111111111111111111111111111111111111"}', "at /wallet"),
        ('{"a": 1, "a": 2}', "at /a"),
        ('{"a":' * 65 + "1" + "}" * 65, "deeper"),
        ("[" * 100_000, "deeper"),
        ('{"a": ' + "9" * 5000 + "}", "digits"),
    ],
    ids=lambda value: value[:10] if isinstance(value, str) else "",
)
async def test_rubbish(aggregator: Aggregator, body: bytes | str, words: str) -> None:
    """S3.8, X.5: an answer that is no record of this wallet, and what is wrong with it."""
    aggregator.answer(body)
    error = await failure(aggregator)
    assert isinstance(error, AggregatorRubbish)
    assert words in str(error)
    assert len(aggregator.asked) == 1


async def test_a_declared_size_over_the_limit(aggregator: Aggregator) -> None:
    """X.5: refused before it is read."""
    aggregator.answer(b" " * 2_000)
    error = await failure(aggregator, limits=JsonLimits(max_bytes=1_000))
    assert isinstance(error, AggregatorRubbish)
    assert "2,000" in str(error)


async def test_an_endless_answer_is_cut_off(aggregator: Aggregator) -> None:
    """X.5: without a declared size, reading stops at the limit."""
    sent = 0

    async def flood(request: web.Request) -> web.StreamResponse:
        nonlocal sent
        response = web.StreamResponse()
        await response.prepare(request)
        while True:
            await response.write(b" " * 65_536)
            sent += 65_536

    aggregator.handler = flood
    error = await failure(aggregator, limits=JsonLimits(max_bytes=100_000), deadline_s=30)
    assert isinstance(error, AggregatorRubbish)
    assert sent < 64 * 1024 * 1024


async def test_a_record_that_swells_is_refused(aggregator: Aggregator) -> None:
    """X.5: the limit holds for what is published, as for inline data."""
    body = json.dumps({"a": [1] * 100}).replace("1", "1e15")
    aggregator.answer(body)
    error = await failure(aggregator, limits=JsonLimits(max_bytes=len(body)))
    assert isinstance(error, AggregatorRubbish)
    assert "written out" in str(error)


async def test_a_compressed_answer_is_refused(aggregator: Aggregator) -> None:
    """X.5: a small answer cannot swell to a large one."""
    bomb = gzip.compress(b" " * 1_000_000)
    aggregator.answer(bomb, **{"content-encoding": "gzip"})
    error = await failure(aggregator)
    assert isinstance(error, AggregatorRubbish)
    assert "compressed" in str(error)


async def test_an_answer_that_breaks_off() -> None:
    """S3.8: half a record is an outage, not rubbish."""
    head = b"HTTP/1.1 200 OK\r\ncontent-length: 100\r\n\r\n"
    async with raw_server(head + b'{"wallet"') as url, client(url) as opened:
        with pytest.raises(AggregatorUnavailable, match="broke"):
            await opened.fetch(WALLET)


async def test_an_answer_that_is_no_http() -> None:
    """S3.8: something else listens on that port."""
    async with raw_server(b"SSH-2.0-OpenSSH_9.9\r\n\r\n") as url, client(url) as opened:
        with pytest.raises(AggregatorRubbish, match="no HTTP"):
            await opened.fetch(WALLET)


async def test_a_connection_closed_without_a_word() -> None:
    """S3.8: an outage."""
    async with raw_server(b"") as url, client(url) as opened:
        with pytest.raises(AggregatorUnavailable):
            await opened.fetch(WALLET)


async def test_many_fetches_share_one_client(aggregator: Aggregator) -> None:
    """S3.8: concurrent fetches do not mix up wallets."""

    async def echo(request: web.Request) -> web.Response:
        return web.json_response({"wallet": request.path.rsplit("/", 1)[1]})

    aggregator.handler = echo
    wallets = [f"0x{number:040x}" for number in range(50)]
    async with client(aggregator.url) as opened:
        records = await asyncio.gather(*map(opened.fetch, wallets))
    assert [record["wallet"] for record in records] == wallets


@pytest.mark.parametrize(
    ("template", "words"),
    [
        ("ftp://host/{address}", "http or https"),
        ("file:///etc/{address}", "http or https"),
        ("host/{address}", "http or https"),
        ("http:///{address}", "no host"),
        ("http://host/wallet", "no {address}"),
        ("http://{address}/", "no {address}"),
    ],
)
def test_unusable_templates(template: str, words: str) -> None:
    """Issue 3, "Bad input": a bad setting is refused at start, with the reason."""
    with pytest.raises(ValueError, match=words):
        AggregatorClient(template)
