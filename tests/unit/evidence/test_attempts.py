"""One record per model attempt, joined from what is kept (SPEC S5.5)."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import httpx
import pytest

from assay.envelope import emit
from assay.events import (
    FieldError,
    GenerationAccepted,
    GenerationAnswered,
    GenerationRejected,
    WalletScoreValidated,
)
from assay.events.meta import InternalEvent, Meta
from services.evidence.access import Access
from services.evidence.domain import entry_of
from services.evidence.domain.attempts import DURATION_HEADER
from services.evidence.pages import build_pages
from services.evidence.store import EvidenceStore
from tests.unit.evidence.entries import erasure

REQUEST = "6f1c8d5e-9a4b-4c3d-8e2f-1a2b3c4d5e6f"
OTHER = "7f1c8d5e-9a4b-4c3d-8e2f-1a2b3c4d5e6f"
MAIL = "jane.doe@shop.example"
META = Meta(
    request_id=REQUEST, tenant_id="acme", wallet="0x" + "5a" * 20, process_id="rating",
    process_version="2", process_hash="ab" * 32, step="rate", unit_id="u1",
)  # fmt: skip

Keep = Callable[..., Any]


@pytest.fixture
def keep(store: EvidenceStore) -> Keep:
    """Keeps an event as it comes over the bus; returns its id."""
    offset = 0

    async def kept(event: InternalEvent, **headers: str) -> str:
        nonlocal offset
        message = emit(event, topic=event.type, source="/test", parent_id="p")
        more = tuple((name, text.encode()) for name, text in headers.items())
        entry = entry_of(
            event.type, 0, offset, 1_790_000_000_000 + offset, (*message.headers, *more),
            message.value, tenant="acme",
        )  # fmt: skip
        offset += 1
        await store.append([entry], {})
        return entry.event_id

    return kept


def _answered(attempt: int = 1, raw: str | None = '{"score": 7}', **changes: Any) -> Any:
    meta = META.model_copy(update={"attempt": attempt, **changes.pop("meta", {})})
    fields: dict[str, Any] = {
        "meta": meta, "input": {"who": MAIL}, "outcome": "answered", "raw": raw,
        "provider": "ollama", "model": "llama3", "model_digest": "cd" * 32,
        "finish_reason": "stop", "temperature": 0.2, "seed": 4155550132,
        "prompt": f"Rate {MAIL}.", "prompt_sha256": "12" * 32, "schema_sha256": "34" * 32,
        "usage": {"prompt_tokens": 11, "completion_tokens": 5}, **changes,
    }  # fmt: skip
    return GenerationAnswered.model_validate(fields)


def _rejected(answer: Any, cause: str, stage: str, *, terminal: bool = False) -> Any:
    return GenerationRejected(
        meta=answer.meta.model_copy(update={"causation_id": cause}),
        terminal=terminal, unit_id="u1", failure_stage=stage, input={}, raw_response=answer.raw,
        errors=[FieldError(path="/score", rule="maximum", message=f"7 of {MAIL} is above 5")],
        retry_count=answer.meta.attempt - 1,
    )  # fmt: skip


def _accepted(answer: Any, cause: str, **changes: Any) -> Any:
    meta = answer.meta.model_copy(update={"causation_id": cause})
    return GenerationAccepted(
        meta=meta, input={}, output={"score": 7}, attempts=1, model="llama3", **changes
    )


async def _get(store: EvidenceStore, query: str = "", token: str = "open") -> Any:
    transport = httpx.ASGITransport(
        build_pages(store, Access(full_text="open")), raise_app_exceptions=False
    )
    headers = {"authorization": f"Bearer {token}"} if token else {}
    async with httpx.AsyncClient(transport=transport, base_url="http://e") as client:
        answer = await client.get(f"/attempts?request_id={REQUEST}&{query}", headers=headers)
    assert answer.status_code == 200, answer.text
    return answer.json()


async def test_every_field_of_an_attempt(store: EvidenceStore, keep: Keep) -> None:
    """S5.5: attempt, prompt, raw answer, parse and validation success, errors, duration, with
    request_id, process_id and tenant_id; beside them what the answer was made with."""
    answer = _answered()
    event_id = await keep(answer, **{DURATION_HEADER: "1234"})
    verdict_id = await keep(_rejected(answer, event_id, "validation"))
    page = await _get(store, "full=true")
    [record] = page["items"]
    leaf = record.pop("leaf_hash")
    assert len(leaf) == 64
    assert record == {
        "cursor": 1, "event_id": event_id, "verdict_event_id": verdict_id,
        "answered_at_ms": 1_790_000_000_000, "request_id": REQUEST, "tenant_id": "acme",
        "wallet": "0x" + "5a" * 20, "unit_id": "u1", "process_id": "rating",
        "process_version": "2", "process_hash": "ab" * 32, "step": "rate", "attempt": 1,
        "shadow": False, "unsealed": False, "outcome": "answered", "finish_reason": "stop",
        "error": None,
        "provider": "ollama", "model": "llama3", "model_digest": "cd" * 32, "temperature": 0.2,
        "seed": 4155550132, "served_from": None, "prompt_sha256": "12" * 32,
        "schema_sha256": "34" * 32, "prompt": f"Rate {MAIL}.", "raw_answer": '{"score": 7}',
        "parse_success": True, "validation_success": False, "failure_stage": "validation",
        "errors": [
            {"path": "/score", "rule": "maximum", "message": f"7 of {MAIL} is above 5"}
        ],
        "terminal": False, "tokens": {"prompt_tokens": 11, "completion_tokens": 5},
        "duration_ms": 1234.0,
    }  # fmt: skip
    assert (page["redacted"], page["next"]) == (False, None)


async def test_attempts_are_redacted(store: EvidenceStore, keep: Keep) -> None:
    """S5.5: personal data is redacted; hashes, ids, the seed and the wallet are not."""
    answer = _answered(raw=json.dumps({"by": MAIL}))
    event_id = await keep(answer)
    await keep(_rejected(answer, event_id, "validation"))
    page = await _get(store, token="")
    assert page["redacted"] is True
    assert MAIL not in json.dumps(page)
    [record] = page["items"]
    assert record["prompt"] == "Rate [EMAIL]."
    assert record["raw_answer"] == '{"by": "[EMAIL]"}'
    assert record["errors"][0]["message"] == "7 of [EMAIL] is above 5"
    full = (await _get(store, "full=true"))["items"][0]
    texts = ("prompt", "raw_answer", "errors")
    assert {n: v for n, v in record.items() if n not in texts} == {
        n: v for n, v in full.items() if n not in texts
    }


async def test_what_became_of_each_attempt(store: EvidenceStore, keep: Keep) -> None:
    """S4.2, S5.5: nothing readable is no parse; a hang is no answer; a fallback is no verdict; a
    verdict that is still to come is unknown, and so is a duration nobody wrote."""
    said: dict[str, tuple[Any, ...]] = {}

    async def attempt(
        number: int, stage: str | None, wanted: tuple[Any, ...], **changes: Any
    ) -> None:
        answer = _answered(number, **changes)
        event_id = await keep(answer)
        said[event_id] = wanted
        if stage == "accepted":
            await keep(_accepted(answer, event_id))
        elif stage:
            await keep(_rejected(answer, event_id, stage, terminal=number == 6))

    failed = {"outcome": "failed", "raw": None, "error": {"code": "timeout", "message": "hang"}}
    await attempt(1, "pipeline_internal", (False, False, "pipeline_internal"), raw="no answer")
    await attempt(2, "schema_validation", (True, False, "schema_validation"))
    await attempt(3, "pipeline_internal", (False, False, "pipeline_internal"), **failed)
    await attempt(4, "accepted", (True, True, None))
    await attempt(5, None, (None, None, None))
    await attempt(6, "validation", (True, False, "validation"))
    last = _answered(7)
    event_id = await keep(last)
    said[event_id] = (True, False, "validation")
    await keep(_accepted(last, event_id, fallback="answers_rejected"))
    await keep(_rejected(last, event_id, "validation", terminal=True))
    await keep(_answered(1, meta={"request_id": OTHER}))
    early = _answered(8)
    event_id = await keep(early)
    said[event_id] = (None, None, None)
    await keep(_accepted(early, event_id, fallback="answers_rejected"))
    items = (await _get(store))["items"]
    assert {
        item["event_id"]: (item["parse_success"], item["validation_success"], item["failure_stage"])
        for item in items
    } == said
    assert [item["attempt"] for item in items] == [1, 2, 3, 4, 5, 6, 7, 8]
    assert {item["duration_ms"] for item in items} == {None}
    assert items[2]["error"] == {"code": "timeout", "message": "hang"}


async def test_shadows_steps_and_cached_answers(store: EvidenceStore, keep: Keep) -> None:
    """S5.5: which process answered, whether as a shadow, at which step, or from the cache. A
    verdict on one step is none on another."""
    main = _answered(meta={"step": "one"}, served_from="earlier")
    shadow = _answered(meta={"shadow": True, "process_version": "3"})
    first = await keep(main, **{DURATION_HEADER: "soon"})
    await keep(shadow, **{DURATION_HEADER: "inf"})
    await keep(_rejected(_answered(meta={"step": "two"}), first, "pipeline_internal"))
    await keep(_accepted(main, first))
    items = (await _get(store))["items"]
    assert [(i["process_version"], i["shadow"], i["step"], i["served_from"]) for i in items] == [
        ("2", False, "one", "earlier"),
        ("3", True, "rate", None),
    ]
    assert [i["validation_success"] for i in items] == [True, None]
    assert [i["duration_ms"] for i in items] == [None, None]


async def test_a_validated_score_is_a_verdict(store: EvidenceStore, keep: Keep) -> None:
    """S5.5: the score process has a topic of its own for what was accepted."""
    answer = _answered()
    event_id = await keep(answer)
    score = WalletScoreValidated.model_validate(
        {"meta": META.model_copy(update={"causation_id": event_id}), "address": "0x" + "5a" * 20,
         "score": 7, "scoreBreakdown": dict.fromkeys(
             ("activity", "maturity", "diversity", "riskBehavior", "surveyMatch"), 1),
         "reasoning": "r", "risk_factors": [], "strengths": [], "attempts": 1, "model": "llama3",
         "evm_source": "inline", "evm_sha256": "12" * 32}
    )  # fmt: skip
    verdict = await keep(score)
    [record] = (await _get(store))["items"]
    assert (record["validation_success"], record["verdict_event_id"]) == (True, verdict)


async def test_erased_and_unreadable_answers(store: EvidenceStore, keep: Keep) -> None:
    """DESIGN §7: that there was an attempt is still shown, and why nothing else is."""
    event_id = await keep(_answered())
    await store.erase(erasure(request_id=REQUEST))
    [record] = (await _get(store))["items"]
    assert record["event_id"] == event_id
    assert record["erased"]["reason"] == "asked by its owner"
    assert "prompt" not in record
    headers = (("ce_requestid", REQUEST.encode()),)
    place = (GenerationAnswered.type, 0, 99, 5)
    for value in (b"no json", b"[]", b'{"meta": 7}', b'{"meta": {"attempt": "x"}, "usage": 1}'):
        await store.append([entry_of(*place, headers, value, tenant="t")], {})
        place = (place[0], 0, place[2] + 1, 5)
    odd = (await _get(store))["items"][1:]
    assert [item.get("unreadable", False) for item in odd] == [True, True, True, False]
    assert odd[-1]["tokens"] == {}


async def test_pages_of_attempts(store: EvidenceStore, keep: Keep) -> None:
    """Bounded pages; a verdict is found whichever page its answer is on."""
    for number in range(1, 6):
        answer = _answered(number)
        await keep(_rejected(answer, await keep(answer), "validation"))
    seen: list[Any] = []
    after: int | None = 0
    while after is not None:
        page = await _get(store, f"limit=2&after={after}")
        assert len(page["items"]) <= 2
        seen += page["items"]
        after = page["next"]
    assert [item["attempt"] for item in seen] == [1, 2, 3, 4, 5]
    assert all(item["validation_success"] is False for item in seen)
