"""Health pages, the listening socket, logs, and waiting for resources."""

from __future__ import annotations

import asyncio
import io
import json
import logging as stdlib_logging
import os
import socket
from typing import Any

import httpx
import pytest
import structlog
from starlette.applications import Starlette

from assay_runtime import health as health_module
from assay_runtime import http, logging, opening
from assay_runtime.failures import Pause
from assay_runtime.health import Health
from assay_runtime.opening import opened
from assay_runtime.problem import problem
from assay_runtime.settings import HttpSection, LogSection, SettingsError


async def get(health: Health, path: str) -> httpx.Response:
    transport = httpx.ASGITransport(Starlette(routes=health.routes()))
    async with httpx.AsyncClient(transport=transport, base_url="http://test") as client:
        return await client.get(path)


async def test_readiness_says_what_is_missing() -> None:
    """Issue item 4: /livez without dependencies, /readyz with every problem named."""
    health = Health()

    async def broken() -> str | None:
        raise RuntimeError("no store")

    health.add_checks({"store": broken})
    assert (await get(health, "/livez")).status_code == 200
    answer = await get(health, "/readyz")
    assert answer.status_code == 503
    assert answer.json()["problems"] == {
        "service": "starting", "store": "RuntimeError('no store')"
    }  # fmt: skip


async def test_ready_when_nothing_is_missing() -> None:
    health = Health()
    health.note("service", None)
    health.note("p", "ledger: away")
    assert (await get(health, "/readyz")).json()["problems"] == {"p": "ledger: away"}
    health.note("p", None)
    health.note("p", None)
    assert (await get(health, "/readyz")).status_code == 200
    assert b"assay_records_consumed_total" in (await get(health, "/metrics")).content


async def test_a_check_that_hangs_is_a_problem(monkeypatch: pytest.MonkeyPatch) -> None:
    """A probe must be answered before its own deadline."""
    monkeypatch.setattr(health_module, "_CHECK_S", 0.01)
    health = Health()
    health.note("service", None)
    health.add_checks({"store": asyncio.Event().wait})  # type: ignore[dict-item]
    assert "no answer" in (await get(health, "/readyz")).json()["problems"]["store"]


def test_a_taken_port_is_named_and_another_chosen() -> None:
    """Issue, Bad input: port taken, say which and choose another."""
    with (
        socket.create_server(("127.0.0.1", 0)) as other,
        structlog.testing.capture_logs() as logs,
    ):
        taken = other.getsockname()[1]
        with http.bind(HttpSection(port=taken)) as sock:
            using = sock.getsockname()[1]
    assert using != taken
    assert logs[0]["event"] == "port_taken"
    assert (logs[0]["taken"], logs[0]["using"]) == (taken, using)


def test_an_address_that_is_not_ours_is_a_setting_to_mend() -> None:
    with pytest.raises(SettingsError, match=r"ASSAY_HTTP__HOST.*192\.0\.2\.1:0"):
        http.bind(HttpSection(host="192.0.2.1"))


def test_a_socket_that_is_passed_on_is_taken() -> None:
    """As systemd and others do; what is none is a setting to mend."""
    with socket.create_server(("127.0.0.1", 0)) as held:
        with http.bind(HttpSection(port=9, fd=os.dup(held.fileno()))) as sock:
            assert sock.getsockname() == held.getsockname()
        held.settimeout(30)
        with socket.create_connection(held.getsockname()):
            held.accept()[0].close()
    with socket.socket() as deaf, pytest.raises(SettingsError, match="ASSAY_HTTP__FD"):
        http.bind(HttpSection(fd=os.dup(deaf.fileno())))
    with open(os.devnull) as file, pytest.raises(SettingsError, match="ASSAY_HTTP__FD"):
        http.bind(HttpSection(fd=os.dup(file.fileno())))
    with pytest.raises(SettingsError, match="ASSAY_HTTP__FD"):
        http.bind(HttpSection(fd=1_000_000))


def test_logs_are_json_with_request_and_trace(monkeypatch: pytest.MonkeyPatch) -> None:
    """One JSON object a line, also for the libraries' logging, exceptions included."""
    stream = io.StringIO()
    root = stdlib_logging.getLogger()
    before, level = list(root.handlers), root.level
    monkeypatch.setattr("sys.stderr", stream)
    try:
        logging.configure(LogSection(level="info"), "svc")
        with structlog.contextvars.bound_contextvars(request_id="r1", trace_id="t1"):
            structlog.get_logger("test").info("did", count=1)
        try:
            raise ValueError("inner")
        except ValueError:
            stdlib_logging.getLogger("library").exception("it broke")
        stdlib_logging.getLogger("library").debug("not shown")
    finally:
        root.handlers[:] = before
        root.setLevel(level)
        structlog.reset_defaults()
        structlog.contextvars.clear_contextvars()
    first, second = [json.loads(line) for line in stream.getvalue().splitlines()]
    assert (first["event"], first["count"], first["service"]) == ("did", 1, "svc")
    assert (first["request_id"], first["trace_id"]) == ("r1", "t1")
    assert first["level"] == "info"
    assert "ValueError: inner" in second["exception"]


class Resource:
    def __init__(self, failures: list[BaseException]) -> None:
        self.failures = failures
        self.open_now = False

    async def open(self) -> None:
        if self.failures:
            raise self.failures.pop(0)
        self.open_now = True

    async def close(self) -> None:
        self.open_now = False


async def test_opened_waits_for_what_is_away(monkeypatch: pytest.MonkeyPatch) -> None:
    """Said each time, and closed at the end."""
    monkeypatch.setattr(opening.asyncio, "sleep", _no_sleep)
    resource = Resource([Pause("store", "away"), Pause("store", "still away")])
    with structlog.testing.capture_logs() as logs:
        async with opened(resource, "store") as got:
            assert got.open_now
    assert not resource.open_now
    assert [entry["reason"] for entry in logs] == ["store: away", "store: still away"]


async def _no_sleep(seconds: float) -> None:
    return None


async def test_opened_does_not_hide_a_mistake() -> None:
    with pytest.raises(SettingsError):
        async with opened(Resource([SettingsError("bad")]), "store"):
            pass


def test_problem_names_code_and_field() -> None:
    """RFC 9457, SPEC S3.8: the field at fault."""
    answer = problem(422, "bad", "it is bad", pointer="/address", request_id="r")
    body: dict[str, Any] = json.loads(bytes(answer.body))
    assert answer.media_type == "application/problem+json"
    assert body == {
        "type": "urn:assay:problem:bad",
        "title": "Unprocessable Content" if "Content" in body["title"] else "Unprocessable Entity",
        "status": 422,
        "code": "bad",
        "detail": "it is bad",
        "request_id": "r",
        "errors": [{"pointer": "/address", "detail": "it is bad"}],
    }
