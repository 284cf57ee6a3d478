"""What `/evidence` shows: redacted by default, whole for its token (issue 5 point 4, DESIGN §7)."""

from __future__ import annotations

import base64
import hashlib
import json
from typing import Any

import httpx
import pytest

from services.evidence.access import Access
from services.evidence.domain.clipping import MOST_IN_ALL, MOST_TEXT
from services.evidence.pages import build_pages
from services.evidence.store import EvidenceStore
from tests.unit.evidence.entries import WALLET, entry

MAIL = "jane.doe@shop.example"
PHONE = "+44 20 7946 0958"
CARD = "4111 1111 1111 1111"
HASH = "0x" + "9f" * 32


@pytest.fixture
def store_url(tmp_path: Any) -> str:
    """What is shown does not depend on the database."""
    return f"sqlite:///{tmp_path}/evidence.sqlite"


async def _shown(store: EvidenceStore, value: bytes | Any, query: str = "", **changes: Any) -> Any:
    """A kept value as the page shows it."""
    data = value if isinstance(value, bytes) else json.dumps(value).encode()
    kept = entry(value=data, **changes)
    [row] = await store.append([kept], {})
    access = Access(full_text="open")
    transport = httpx.ASGITransport(build_pages(store, access), raise_app_exceptions=False)
    headers = {"authorization": "Bearer open"}
    async with httpx.AsyncClient(transport=transport, base_url="http://e") as client:
        answer = await client.get(f"/evidence?after={row.seq}&{query}", headers=headers)
    assert answer.status_code == 200, answer.text
    page = answer.json()
    assert page["redacted"] is ("full=true" not in query)
    return page["items"][0]


@pytest.mark.parametrize(
    "value",
    [
        {"answer": f"write to {MAIL} or {PHONE}"},
        {"raw": json.dumps({"contact": MAIL, "phone": PHONE})},
        {"raw": json.dumps(json.dumps({"contact": MAIL, "phone": PHONE}))},
        {"raw": '{"contact": "jane.doe\\u0040shop.example"}'},
        {"raw": json.dumps('{"contact": "jane.doe\\u0040shop.example"}')},
        {"raw": "jane.doe&#64;shop.example"},
        {"deep": [[{"list": ["x", {"y": MAIL}]}]]},
        {MAIL: 1},
        {"card": CARD},
        {"packed": base64.b64encode(f"my mail: {MAIL}, card {CARD}".encode()).decode()},
        {"packed": base64.urlsafe_b64encode(f"{MAIL} ÿÿÿ".encode()).decode().rstrip("=")},
        f"no JSON, but the text of {MAIL}".encode(),
        b'{"a": NaN, "mail": "' + MAIL.encode() + b'"}',
        b"\xff\xfe " + MAIL.encode(),
        json.dumps({"mail": MAIL}).encode("utf-16"),
        f"text of {MAIL}".encode("utf-16-le"),
        b"[" * 100_000 + MAIL.encode(),
    ],
)
async def test_personal_data_is_not_shown(store: EvidenceStore, value: Any) -> None:
    """S5.5, DESIGN §7: also in JSON inside JSON, behind escapes, in base64, in what is no JSON."""
    item = await _shown(store, value)
    # Random hex digits spell the end of a telephone number now and then.
    for name in ("event_id", "request_id", "leaf_hash", "value_sha256"):
        del item[name]
    text = json.dumps(item).replace("\\u0000", "")
    for secret in (MAIL, "jane.doe", PHONE, CARD, "0958"):
        assert secret not in text
        assert base64.b64encode(secret.encode()).decode()[:9] not in text
    full = await _shown(store, value, "full=true")
    if "payload_base64" in full:
        assert base64.b64decode(full["payload_base64"]) == value
    else:
        assert full["payload"] == (json.loads(value) if isinstance(value, bytes) else value)


async def test_what_a_stranger_sees_of_the_hash(store: EvidenceStore) -> None:
    """Issue 5: the SHA-256 is of the stored bytes, whatever is shown of them."""
    value = b'{ "mail":  "' + MAIL.encode() + b'" }'
    item = await _shown(store, value)
    assert item["payload"] == {"mail": "[EMAIL]"}
    assert item["value_sha256"] == hashlib.sha256(value).hexdigest()
    assert item["value_bytes"] == len(value)
    full = await _shown(store, value, "full=true")
    assert (full["payload"], full["value_sha256"]) == ({"mail": MAIL}, item["value_sha256"])


async def test_wallets_hashes_ids_and_numbers_survive(store: EvidenceStore) -> None:
    """Issue 5: what identifies a request and its score is shown as it is."""
    value = {
        "meta": {"request_id": "6f1c8d5e-9a4b-4c3d-8e2f-1a2b3c4d5e6f", "wallet": WALLET},
        "tx": HASH, "balance": "123456789012345678901234", "score": 712, "seed": 4155550132,
        "at": 1763651389123, "ratio": 0.4155550132, "offset": 4155550132,
        "when": "2026-11-20T10:15:00Z", "sha256": "9f" * 32,
    }  # fmt: skip
    item = await _shown(store, value, wallet=WALLET)
    assert item["payload"] == value
    assert item["wallet"] == WALLET


async def test_headers_and_names_are_redacted_too(store: EvidenceStore) -> None:
    """S5.5: a publisher's headers and ids may hold an address as well."""
    headers = (("ce_id", MAIL.encode()), ("error", f"bad: {MAIL}".encode()),
               ("traceparent", b"00-" + b"4" * 32 + b"-" + b"5" * 16 + b"-01"))  # fmt: skip
    item = await _shown(store, {}, headers=headers, event_id=MAIL, request_id=MAIL, type=MAIL)
    assert MAIL not in json.dumps(item)
    assert item["headers"]["traceparent"] == "00-" + "4" * 32 + "-" + "5" * 16 + "-01"
    full = await _shown(store, {}, "full=true", headers=headers)
    assert full["headers"]["ce_id"] == MAIL


async def test_large_values_are_bounded(store: EvidenceStore) -> None:
    """DESIGN §7: of a record of 4 MB the beginning is shown, with what is missing said; nothing
    that a cut goes through shows."""
    text = f"{MAIL} " * 190_000
    item = await _shown(store, {"meta": {"step": "s"}, "text": text, "tail": [1, 2]})
    assert item["clipped"] is True
    assert item["payload"]["meta"] == {"step": "s"}
    assert "jane" not in json.dumps(item)
    assert len(item["payload"]["text"]) < MOST_TEXT
    assert f"of {len(text):,} characters" in item["payload"]["text"]
    assert item["payload"]["tail"] == [1, 2]
    for shift in range(0, 24, 3):
        item = await _shown(store, {"text": "x" * (MOST_TEXT - 330 + shift) + f" {MAIL} " * 60})
        assert "jane" not in json.dumps(item)
    many = await _shown(store, {"a": list(range(600_000)), "z": 1})
    assert len(json.dumps(many)) < 2 * MOST_IN_ALL
    assert "more items are not shown" in many["payload"]["a"][-1]
    wide = await _shown(store, {f"k{n}": "v" for n in range(300_000)})
    assert len(json.dumps(wide)) < 2 * MOST_IN_ALL
    assert "more members are not shown" in wide["payload"]["…"]
    full = await _shown(store, {"text": text}, "full=true")
    assert full["payload"] == {"text": text}


async def test_only_some_members(store: EvidenceStore) -> None:
    """Issue 5 point 7: `fields` brings what a comparison needs and nothing else, redacted."""
    value = {
        "meta": {"process_id": "p", "step": "s"},
        "output": {"score": 3, "by": MAIL},
        "x": MAIL,
    }
    item = await _shown(store, value, "fields=meta.process_id,output,output.score,none.at.all,x.y")
    assert item["payload"] == {
        "meta": {"process_id": "p"}, "output": {"score": 3, "by": "[EMAIL]"}
    }  # fmt: skip
    assert "headers" not in item
    assert (await _shown(store, [1], "fields=a"))["payload"] == {}
    full = await _shown(store, value, "full=true&fields=output.by")
    assert full["payload"] == {"output": {"by": MAIL}}
