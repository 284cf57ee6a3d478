"""`GET /evidence` without a bus (issue 3)."""

from __future__ import annotations

import socket
from typing import Any

import httpx
import pytest

from assay_runtime.failures import HandlerInstruction, Pause, Stop
from assay_runtime.records import Position, Record
from assay_runtime.settings import HttpSection, SettingsError
from services.evidence.access import Access
from services.evidence.app import build
from services.evidence.handler import EvidenceHandler, entry_decoder
from services.evidence.pages import build_pages
from services.evidence.settings import EvidenceSection, EvidenceSettings
from services.evidence.store import EvidenceStore, Page, Query
from tests.unit.evidence.entries import WALLET


class _Store:
    """Says what it was asked; away where that says so."""

    def __init__(self, *, away: HandlerInstruction | None = None) -> None:
        self.asked: list[tuple[Any, ...]] = []
        self._away = away

    async def query(self, query: Query, after: int, limit: int, max_bytes: int) -> Page:
        if self._away is not None:
            raise self._away
        self.asked.append((query, after, limit))
        return Page([], None)


def _client(store: Any, access: Access | None = None, token: str = "") -> httpx.AsyncClient:
    pages = build_pages(store, access or Access())
    transport = httpx.ASGITransport(pages, raise_app_exceptions=False)
    headers = {"authorization": f"Bearer {token}"} if token else {}
    return httpx.AsyncClient(transport=transport, base_url="http://evidence", headers=headers)


@pytest.mark.parametrize(
    ("parameters", "query", "after", "limit"),
    [
        ("", Query(), 0, 100),
        ("limit=0", Query(), 0, 1),
        ("limit=5000&after=7", Query(), 7, 1_000),
        ("wallet=" + WALLET.upper(), Query(wallet=WALLET), 0, 100),
        ("since=1790000000000", Query(since_ms=1_790_000_000_000), 0, 100),
        ("since=2026-01-01T00:00:00%2B01:00", Query(since_ms=1_767_222_000_000), 0, 100),
        ("since=2026-01-01T00:00:00Z", Query(since_ms=1_767_225_600_000), 0, 100),
        ("since=2026-01-01", Query(since_ms=1_767_225_600_000), 0, 100),
        ("since=" + "9" * 40, Query(since_ms=2**63 - 1), 0, 100),
        ("request_id=r&type=t", Query(request_id="r", type="t"), 0, 100),
    ],
)
async def test_what_is_asked(parameters: str, query: Query, after: int, limit: int) -> None:
    """Issue 3: filters and paging; a time without a zone is UTC."""
    store = _Store()
    answer = await _client(store).get("/evidence?" + parameters)
    wanted = {"items": [], "next": None, "redacted": True}
    assert (answer.status_code, answer.json()) == (200, wanted)
    assert store.asked == [(query, after, limit)]


@pytest.mark.parametrize(
    ("path", "status", "code"),
    [
        ("/evidence?since=1e9", 400, "bad_parameter"),
        ("/evidence?limit=%C2%B2", 400, "bad_parameter"),
        ("/evidence?after=1&after=2", 400, "bad_parameter"),
        ("/evidence?since=0000-00-00", 400, "bad_parameter"),
        ("/evidence?full=maybe", 400, "bad_parameter"),
        ("/evidence?fields=a..b", 400, "bad_parameter"),
        ("/evidence?fields=", 400, "bad_parameter"),
        ("/attempts", 400, "bad_parameter"),
        ("/attempts?request_id=r&wallet=w", 400, "bad_parameter"),
        ("/evidence?full=true", 403, "not_available"),
        ("/attempts?request_id=r&full=true", 403, "not_available"),
        ("/nothing", 404, "not_found"),
    ],
)
async def test_what_cannot_be_asked(path: str, status: int, code: str) -> None:
    """X.4: never a 500."""
    answer = await _client(_Store()).get(path)
    assert (answer.status_code, answer.json()["code"]) == (status, code)
    assert answer.headers["content-type"] == "application/problem+json"


@pytest.mark.parametrize("away", [Pause("evidence", "away"), Stop("another server")])
async def test_an_absent_store_is_503(away: HandlerInstruction) -> None:
    """X.4."""
    answer = await _client(_Store(away=away)).get("/evidence")
    assert (answer.status_code, answer.json()["code"]) == (503, "store_unavailable")
    assert answer.headers["retry-after"]


async def test_a_write_method_is_405() -> None:
    """Evidence is read only."""
    answer = await _client(_Store()).post("/evidence")
    assert (answer.status_code, answer.json()["code"]) == (405, "method_not_allowed")


async def test_the_token_is_needed() -> None:
    """DESIGN §7."""
    client = _client(_Store(), Access(read="secret", full_text="open"))
    refused = await client.get("/evidence", headers={"authorization": "Bearer secre"})
    assert (refused.status_code, refused.headers["www-authenticate"]) == (401, "Bearer")
    assert (await client.get("/evidence")).status_code == 401
    for token in ("bearer secret", "Bearer open"):
        shown = await client.get("/evidence", headers={"authorization": token})
        assert shown.status_code == 200


@pytest.mark.parametrize("page", ["/evidence?full=true", "/attempts?request_id=r&full=true"])
@pytest.mark.parametrize(
    ("token", "status"), [("", 401), ("wrong", 401), ("reader", 403), ("eraser", 403), ("é", 401)]
)
async def test_full_text_needs_its_own_token(page: str, token: str, status: int) -> None:
    """DESIGN §7: neither none nor another one of the service's own will do."""
    access = Access(read="reader", full_text="open", erasure="eraser")
    headers = {"authorization": f"Bearer {token}".encode()} if token else {}
    refused = await _client(_Store(), access).get(page, headers=headers)
    assert refused.status_code == status
    assert refused.headers["content-type"] == "application/problem+json"
    shown = await _client(_Store(), access, "open").get(page)
    assert (shown.status_code, shown.json()["redacted"]) == (200, False)


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "10.1.2.3", "example.org"])
def test_beyond_loopback_only_with_a_token(host: str) -> None:
    """DESIGN §7."""
    settings = EvidenceSettings(http=HttpSection(host=host))
    with pytest.raises(SettingsError, match="ASSAY_EVIDENCE__TOKEN"):
        build(settings)
    build(settings.model_copy(update={"evidence": EvidenceSection(token="t")}))


def test_nor_on_a_socket_from_elsewhere() -> None:
    """DESIGN §7: what counts is where it listens, not what the settings would have been."""
    with socket.create_server(("0.0.0.0", 0)) as held:
        settings = EvidenceSettings(http=HttpSection(fd=held.fileno()))
        with pytest.raises(SettingsError, match=r"FD, is 0\.0\.0\.0.*ASSAY_EVIDENCE__TOKEN"):
            build(settings)
        build(settings.model_copy(update={"evidence": EvidenceSection(token="t")}))
    with socket.create_server(("127.0.0.1", 0)) as held:
        build(EvidenceSettings(http=HttpSection(fd=held.fileno())))
        assert held.getsockname()[0] == "127.0.0.1", "the socket itself stays open"
    with pytest.raises(SettingsError, match="ASSAY_HTTP__FD"):
        build(EvidenceSettings(http=HttpSection(fd=1_000_000)))


def test_nothing_is_passed_over() -> None:
    """DESIGN §3: a record that cannot be kept ends the process; reading goes on from the store."""
    [pipeline] = build(EvidenceSettings()).pipelines
    assert pipeline.loses_nothing
    assert pipeline.stored_positions is not None


async def test_hostile_records_are_kept(store: EvidenceStore) -> None:
    """X.4, X.5: through the handler, with what a database would choke on."""
    headers = (("ce_id", b"\x00"), ("ce_type", b"y" * 9_000), ("ce_subject", b"\x00"), ("", b""))
    records = [
        Record("llm.generation.requested.v1", 0, offset, -1, key, value, headers[:offset])
        for offset, (key, value) in enumerate(
            [(None, None), (b"\x00", b"\x00"), (b"k", b"v"), (b"k", b"w"), (b"k", b"x")]
        )
    ]
    handler = EvidenceHandler(store, "log-1")
    decode = entry_decoder("default", "log-1")
    deliveries = [decode(record) for record in records]
    assert await handler(deliveries) == [()] * 5
    assert await handler(deliveries) == [()] * 5
    page = await store.query(Query(), 0, 10, 10**9)
    assert [row.entry.offset for _, row in page.rows] == [0, 1, 2, 3, 4]
    here = Position(records[0].topic, 0)
    assert await handler.offsets.positions([here]) == {here: 5}
    other_log = EvidenceHandler(store, "log-2")
    assert await other_log.offsets.positions([here]) == {}
    await handler.offsets.pass_over({here: 9})
    await handler.offsets.pass_over({here: 7})
    assert await handler.offsets.positions([here]) == {here: 9}
    assert await other_log.offsets.positions([here]) == {}
