"""What is offered again at the next start of an embedded broker (issue 6, item 4)."""

from __future__ import annotations

import json
import uuid
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from assay.envelope import Message, emit
from assay.events import (
    GenerationAccepted,
    GenerationRejected,
    GenerationRequested,
    WalletEventAccepted,
    WalletScoreSigned,
    WalletScoreValidated,
)
from assay.identity import identify
from assay.ids import request_id
from assay_runtime.seals import Seals
from deploy.dev import kept_requests
from deploy.dev.kept_records import Kept, prepare_stores
from deploy.dev.kept_requests import KeptRequests
from services.evidence.adapters.store_sqlite import SqliteEvidence
from services.evidence.domain import entry_of
from services.evidence.domain.erasure import Erasure
from services.ingest.adapters.requests_sqlite import SqliteRequests
from services.ingest.store import Ending, Owner
from services.signer.adapters.ledger_sqlite import SqliteLedger
from services.signer.domain.ports import Signature
from services.signer.domain.reservation import Claim

EXAMPLES = Path(__file__).resolve().parents[3] / "schemas" / "examples"
SUBMITTED = "wallet.event.submitted.v1"
TENANT = "default"
NOW_MS = 1_000
WEEK_MS = 7 * 86_400_000
IDS = (("ce_id", b"order 1"), ("ce_source", b"/shop"))


def example(model: Any, request: str, **changes: Any) -> Any:
    document = json.loads(min((EXAMPLES / model.type / "valid").glob("*.json")).read_text())
    document["meta"] |= {"request_id": request, "shadow": False, "unsealed": False}
    return model.model_validate_json(json.dumps({**document, **changes}))


def message(model: Any, request: str, source: str = "/assay/x", **changes: Any) -> Message:
    event = example(model, request, **changes)
    parent = event.meta.causation_id or request
    return emit(event, topic=event.type, source=source, parent_id=parent)


class Stores:
    """The stores of a stack, filled as its services fill them."""

    def __init__(self, folder: Path) -> None:
        self.requests = SqliteRequests(folder / "requests.sqlite")
        self.evidence = SqliteEvidence(folder / "evidence.sqlite")
        self.ledger = SqliteLedger(folder / "ledger.sqlite")
        self.kept = KeptRequests(folder, TENANT)
        self._offset = 0

    async def keep(
        self,
        topic: str,
        value: bytes,
        headers: Any,
        key: bytes | None = None,
        partition: int = 1,
    ) -> str:
        """A record of evidence; its request."""
        self._offset += 1
        entry = entry_of(topic, partition, self._offset, 1, tuple(headers), value, tenant=TENANT,
                         key=key, log="embedded-1")  # fmt: skip
        assert len(await self.evidence.append([entry], {})) == 1
        return entry.request_id or ""

    async def keep_message(self, made: Message) -> Message:
        await self.keep(made.topic, made.value, made.headers, made.key)
        return made

    def offered(self) -> list[Kept]:
        return list(self.kept.records(self.kept.open_requests(NOW_MS).found))


@pytest.fixture
async def stores(tmp_path: Path) -> AsyncIterator[Stores]:
    await prepare_stores(tmp_path)
    made = Stores(tmp_path)
    for store in (made.requests, made.evidence, made.ledger):
        await store.open()
    yield made
    for store in (made.requests, made.evidence, made.ledger):
        await store.close()


@pytest.fixture
def request_of() -> str:
    return str(uuid.uuid4())


async def accept(stores: Stores, request: str) -> Message:
    made = message(WalletEventAccepted, request, "/assay/ingest")
    await stores.requests.accept(request, "a" * 64, made.value, 1)
    return made


def same(record: Kept, made: Message) -> bool:
    return (record.topic, record.key, record.value, tuple(record.headers)) == made


async def test_an_accepted_request_is_offered_as_it_was(stores: Stores, request_of: str) -> None:
    """From the request table alone, the same event to the byte; an ended one is not."""
    made = await accept(stores, request_of)
    [record] = stores.offered()
    assert same(record, made)
    await stores.requests.conclude([Ending(request_of, "signed", b"{}")], 2)
    assert stores.offered() == []


@pytest.mark.parametrize(
    ("model", "changes"),
    [
        (WalletScoreValidated, {}),
        (WalletScoreSigned, {}),
        (GenerationRejected, {"terminal": True, "ends_as": "withheld", "empty_result": False}),
    ],
)
async def test_no_model_is_asked_again_behind_the_gate(
    stores: Stores, request_of: str, model: Any, changes: dict[str, Any]
) -> None:
    """X.2: a second validated score would be a conflict with what the ledger holds; of several
    events the last in the flow counts."""
    await stores.keep_message(await accept(stores, request_of))
    if model is WalletScoreSigned:
        await stores.keep_message(message(WalletScoreValidated, request_of))
    made = await stores.keep_message(message(model, request_of, **changes))
    [record] = stores.offered()
    assert same(record, made)


async def test_a_rejected_attempt_is_no_end(stores: Stores, request_of: str) -> None:
    made = await accept(stores, request_of)
    await stores.keep_message(message(GenerationRejected, request_of, terminal=False, ends_as=None))
    [record] = stores.offered()
    assert same(record, made)


async def test_what_the_ledger_holds_signed_is_offered(stores: Stores) -> None:
    """X.2: signed, and killed before the bus or evidence had it; not asked for again."""
    request = await stores.keep(SUBMITTED, b"{}", IDS)
    await stores.requests.announce(request, "a" * 64, 1)
    made = message(WalletScoreSigned, request, "/assay/signer")
    event = WalletScoreSigned.model_validate_json(made.value)
    claim = Claim("dev", request, event.wallet_address, event.score, "v", b"\0" * 32, b"{}")
    await stores.ledger.reserve([claim], 1)
    assert [record.topic for record in stores.offered()] == [SUBMITTED]
    await stores.ledger.finish([Signature(claim.request, made.id, made.value)])
    [record] = stores.offered()
    assert same(record, made)
    await accept(stores, request)
    [record] = stores.offered()
    assert same(record, made)


async def test_submissions_that_ingest_has_not_read(stores: Stores) -> None:
    """With the ids that their publishers gave them, once each, first come first."""
    request = await stores.keep(SUBMITTED, b'{"address":1}', IDS, b"0x" + b"ab" * 20, 3)
    await stores.keep(SUBMITTED, b'{"address":2}', IDS)
    [record] = stores.offered()
    assert record == (SUBMITTED, b"0x" + b"ab" * 20, b'{"address":1}', list(IDS), 3)
    await stores.requests.announce(request, "a" * 64, 1)
    assert stores.offered() == [record]
    # What the table has forgotten after its week was accepted once.
    await stores.requests.forget(9)
    await stores.keep_message(message(WalletEventAccepted, request))
    assert stores.offered() == []


async def test_a_submission_without_an_id_keeps_the_one_it_gets(stores: Stores) -> None:
    """The same request however many starts it takes, and no second row of evidence."""
    place = await stores.keep(SUBMITTED, b"{}", ())
    [record] = stores.offered()
    assert record.headers == [("ce_id", place.encode()), ("ce_source", b"/anonymous")]
    own = identify(SUBMITTED, 1, 99, record.headers, b"{}", tenant=TENANT, log="embedded-2")
    assert own.request_id == request_id(TENANT, "/anonymous", place)
    again = entry_of(SUBMITTED, 1, 99, 1, tuple(record.headers), b"{}", tenant=TENANT)
    assert await stores.evidence.append([again], {}) == []
    assert stores.offered() == [record]
    await stores.requests.accept(own.request_id, "a" * 64, b"x", 1)
    await stores.requests.conclude([Ending(own.request_id, "signed", b"{}")], 2)
    assert stores.offered() == []


async def test_requests_of_the_intelligence_api(stores: Stores, request_of: str) -> None:
    """S5.1: what ingest asked and sealed, not what a client wrote under the same id; nothing of
    one that was never published."""
    await stores.requests.announce(request_of, "a" * 64, 1, Owner("acme", "notes"))
    assert stores.kept.open_requests(NOW_MS).unrecorded == 0
    await stores.requests.published(request_of)
    assert stores.kept.open_requests(NOW_MS).unrecorded == 1
    made = message(GenerationRequested, request_of)
    forged = message(GenerationRequested, request_of, input={"forged": True})
    await stores.keep_message(forged)
    sealed = await stores.keep_message(Seals([b"k" * 32]).put(made))
    [record] = stores.offered()
    assert same(record, sealed)
    meta = example(GenerationAccepted, request_of).meta.model_dump(mode="json")
    answered: dict[str, Any] = {"final": True, "meta": {**meta, "unsealed": True}}
    await stores.keep_message(message(GenerationAccepted, request_of, **answered))
    [record] = stores.offered()
    assert same(record, sealed)
    done = await stores.keep_message(message(GenerationAccepted, request_of, final=True))
    [record] = stores.offered()
    assert same(record, done)


async def test_requests_of_clients_on_the_bus(stores: Stores, request_of: str) -> None:
    """README, "over Kafka": no table knows them. Retried is not ended; answered is."""
    made = await stores.keep_message(message(GenerationRequested, request_of))
    await stores.keep_message(message(GenerationRejected, request_of, terminal=False, ends_as=None))
    [record] = stores.offered()
    assert same(record, made)
    ended = str(uuid.uuid4())
    await stores.keep_message(message(GenerationRequested, ended))
    await stores.keep_message(
        message(GenerationRejected, ended, terminal=True, ends_as="withheld", empty_result=False)
    )
    assert len(stores.offered()) == 1
    await stores.keep_message(message(GenerationAccepted, request_of, final=True))
    assert stores.offered() == []


async def test_what_no_table_knows_is_not_kept_for_ever(stores: Stores, request_of: str) -> None:
    """As long as the topic's retention, as on any broker: nobody waits for it any more."""
    await stores.keep_message(message(GenerationRequested, request_of))
    await stores.keep(SUBMITTED, b"{}", IDS)
    assert len(stores.kept.open_requests(WEEK_MS).found) == 2
    assert stores.kept.open_requests(WEEK_MS + 1).found == []


async def test_what_cannot_be_offered_is_counted(stores: Stores, request_of: str) -> None:
    """Issue 6, item 4: or said."""
    await stores.requests.announce(request_of, "a" * 64, 1)
    found = stores.kept.open_requests(NOW_MS)
    assert (found.found, found.unrecorded) == ([], 1)


async def test_what_is_erased_stays_so(stores: Stores, request_of: str) -> None:
    """DESIGN §7: neither open requests nor the history bring it back."""
    await stores.keep_message(await accept(stores, request_of))
    await stores.keep_message(message(WalletScoreSigned, request_of))
    assert len(stores.kept.history()) == 1
    await stores.evidence.erase(Erasure(request_of, None, "asked", "me", 1))
    assert stores.kept.open_requests(NOW_MS).found == []
    assert stores.kept.history() == []


async def test_a_record_with_anothers_type_is_not_promoted(stores: Stores, request_of: str) -> None:
    """Decision 20: a client may write any type on its own topic; only the signer's counts."""
    made = await accept(stores, request_of)
    forged = message(WalletScoreSigned, request_of)
    await stores.keep(GenerationRequested.type, forged.value, forged.headers, forged.key)
    [record] = stores.offered()
    assert same(record, made)
    assert stores.kept.history() == []


async def test_the_newest_endings_are_history(
    stores: Stores, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Byte for byte, oldest first, within what a partition of the embedded broker can keep."""
    made = [
        await stores.keep_message(message(WalletScoreSigned, str(uuid.uuid4()))) for _ in range(4)
    ]
    await stores.keep_message(
        message(GenerationRejected, str(uuid.uuid4()), terminal=False, ends_as=None)
    )
    every = stores.kept.history()
    assert all(same(record, one) for record, one in zip(every, made, strict=True))
    size = len(made[0].value) + sum(len(n) + len(v) + 8 for n, v in made[0].headers)
    monkeypatch.setattr(kept_requests, "HISTORY_BYTES", 2 * size + size // 2)
    assert stores.kept.history() == every[2:]
    monkeypatch.setattr(kept_requests, "HISTORY_RECORDS", 1)
    assert stores.kept.history() == every[3:]
