"""From a validated score to the signed event."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest
from coincurve import PrivateKey

from assay.attestation import PublicKey, parse_hex_key, verify_score
from assay.attestation.sui import ORDER
from assay.events import WalletScoreSigned
from assay.ids import event_id
from services.signer.adapters.key_file import FileKey
from services.signer.domain.ports import Ledger
from services.signer.domain.reservation import ClockRefused, Conflict, Reserved
from services.signer.domain.signed_event import claim_of
from services.signer.domain.signing import KeyFault, Refused, Signed, Signer
from tests.unit.signer.claims import NETWORK, NOW, OTHER_WALLET, WALLET, validated

KEY = FileKey(PrivateKey(b"\x07" * 32))


def _signer(ledger: Ledger, key: object = KEY, now: int = NOW, network: str = NETWORK) -> Signer:
    return Signer(ledger, key, network, lambda: now)  # type: ignore[arg-type]


def _event(outcome: object) -> WalletScoreSigned:
    assert isinstance(outcome, Signed), outcome
    return WalletScoreSigned.model_validate_json(outcome.value)


async def test_a_signed_score_verifies_and_names_its_ancestor(ledger: Ledger) -> None:
    """S3.9, X.3: exactly three fields are signed; the rest tells where the score comes from."""
    mine = validated()
    [outcome] = await _signer(ledger).sign_batch([mine])
    event = _event(outcome)
    assert (event.score, event.wallet_address, event.timestamp_ms) == (640, WALLET, NOW)
    [attestation] = event.attestations
    assert (attestation.scheme, attestation.network) == ("sui-secp256k1", NETWORK)
    assert attestation.kid == PublicKey(KEY.public_key).kid
    verify_score(
        parse_hex_key(attestation.public_key).data,
        bytes.fromhex(attestation.signature),
        score=event.score,
        wallet_address=event.wallet_address,
        timestamp_ms=event.timestamp_ms,
    )
    assert event.meta.causation_id == mine.event_id
    assert event.meta.request_id == mine.event.meta.request_id
    assert event.meta.wallet == WALLET.lower()
    assert event.metadata == {
        "scoreBreakdown": dict.fromkeys(
            ("activity", "maturity", "diversity", "riskBehavior", "surveyMatch"), 64
        ),
        "reasoning": "Steady activity over three years – no liquidations.",
        "risk_factors": ["thin diversification"],
        "strengths": ["repaid all loans"],
        "fallback": None,
        "model": "simulator",
        "attempts": 2,
        "evm_source": "inline",
        "evm_sha256": "cd" * 32,
        "process_id": "wallet_score",
        "process_version": "1.0.0",
        "process_hash": "ab" * 32,
    }
    assert isinstance(outcome, Signed)
    assert outcome.event_id == event_id(mine.event_id, "wallet.score.signed.v1", outcome.value)


async def test_a_fallback_is_marked(ledger: Ledger) -> None:
    """S3.6: a fallback score is signed and says in its metadata that it is one."""
    mine = validated(fallback="provider_unavailable", model=None, attempts=0)
    [outcome] = await _signer(ledger).sign_batch([mine])
    assert _event(outcome).metadata["fallback"] == "provider_unavailable"


async def test_a_repeat_is_byte_identical(ledger: Ledger) -> None:
    """X.2: later, and with another key even, a repeat is the same event under the same id."""
    mine = validated()
    [first] = await _signer(ledger).sign_batch([mine])
    other = FileKey(PrivateKey(b"\x08" * 32))
    [again] = await _signer(ledger, other, NOW + 60_000).sign_batch([mine])
    assert isinstance(first, Signed)
    assert again == Signed(first.event_id, first.value, repeat=True)
    assert not first.repeat


async def test_a_crash_before_the_signature_was_stored(ledger: Ledger) -> None:
    """X.2: reserved by a signer that died, signed by the next with the reserved payload."""
    mine = validated()
    [reserved] = await ledger.reserve([claim_of(mine, NETWORK)], NOW)
    assert isinstance(reserved, Reserved)
    [outcome] = await _signer(ledger, now=NOW + 9_000).sign_batch([mine])
    assert _event(outcome).timestamp_ms == NOW


async def test_key_rotation_allows_no_second_score(ledger: Ledger) -> None:
    """X.2: the scope is the network, not the key."""
    mine = validated()
    rival = validated(score=999, request_id=mine.event.meta.request_id)
    await _signer(ledger).sign_batch([mine])
    rotated = FileKey(PrivateKey(b"\x08" * 32))
    [outcome] = await _signer(ledger, rotated).sign_batch([rival])
    assert isinstance(outcome, Conflict)
    assert (outcome.score, outcome.source_event_id) == (640, mine.event_id)


async def test_a_mixed_batch_keeps_its_order(ledger: Ledger) -> None:
    """X.2, X.4: each validated score gets its own outcome, in its place."""
    first = validated()
    rival = validated(score=1, request_id=first.event.meta.request_id)
    batch = [
        validated(address="0x" + "aB" * 20),
        first,
        rival,
        validated(wallet="0x" + "00" * 20),
        validated(address=OTHER_WALLET, score=0),
        first,
        validated(score=1000),
    ]
    outcomes = await _signer(ledger).sign_batch(batch)
    assert [type(outcome) for outcome in outcomes] == [
        Refused, Signed, Conflict, Refused, Signed, Signed, Signed
    ]  # fmt: skip
    assert outcomes[0] == Refused("/address", outcomes[0].reason)  # type: ignore[union-attr]
    assert "EIP-55" in outcomes[0].reason  # type: ignore[union-attr]
    assert outcomes[3].pointer == "/meta/wallet"  # type: ignore[union-attr]
    assert [_event(outcomes[n]).timestamp_ms for n in (1, 4, 5, 6)] == [NOW, NOW, NOW, NOW + 1]
    assert _event(outcomes[1]) == _event(outcomes[5])


async def test_a_shadow_run_is_never_signed(ledger: Ledger) -> None:
    """X.2: a shadow's score must not reach the topic that counts."""
    [outcome] = await _signer(ledger).sign_batch([validated(shadow=True)])
    assert isinstance(outcome, Refused)
    assert outcome.pointer == "/meta/shadow"


async def test_a_clock_that_went_back(ledger: Ledger) -> None:
    """S3.9: more than 60 s ahead of now is refused, and signed when the clock has caught up."""
    await _signer(ledger).sign_batch([validated()])
    late = validated()
    [refused] = await _signer(ledger, now=NOW - 100_000).sign_batch([late])
    assert isinstance(refused, ClockRefused)
    assert "100.0 s ahead" in refused.reason
    [signed] = await _signer(ledger, now=NOW + 1_000).sign_batch([late])
    assert _event(signed).timestamp_ms == NOW + 1_000


async def test_an_empty_batch(ledger: Ledger) -> None:
    """X.2: nothing in, nothing out."""
    assert await _signer(ledger).sign_batch([]) == []


class _Key:
    """A key whose answers are changed on their way."""

    def __init__(self, change: Callable[[bytes], bytes], published: bytes = KEY.public_key) -> None:
        self.public_key = published
        self.kid = "test"
        self._change = change

    def sign(self, message: bytes) -> bytes:
        return self._change(KEY.sign(message))


def _high_s(signature: bytes) -> bytes:
    s = int.from_bytes(signature[32:], "big")
    return signature[:32] + (ORDER - s).to_bytes(32, "big")


async def test_high_s_of_a_back_end_is_mended(ledger: Ledger) -> None:
    """S3.9: about half of what an HSM gives has high s; what goes out never has."""
    [outcome] = await _signer(ledger, _Key(_high_s)).sign_batch([validated()])
    signature = bytes.fromhex(_event(outcome).attestations[0].signature)
    assert int.from_bytes(signature[32:], "big") <= ORDER // 2


@pytest.mark.parametrize(
    "key",
    [
        _Key(lambda signature: signature[:-1] + bytes([signature[-1] ^ 1])),
        _Key(lambda signature: signature[:63]),
        _Key(lambda signature: signature + b"\x1b"),
        _Key(lambda signature: b"\x00" * 64),
        _Key(lambda signature: signature, FileKey(PrivateKey(b"\x08" * 32)).public_key),
    ],
    ids=["bit", "short", "recoverable", "zero", "wrong-key"],
)
async def test_a_key_that_lies_gives_nothing_out(ledger: Ledger, key: _Key) -> None:
    """S3.9: every signature is verified under the published key before it leaves."""
    mine = validated()
    with pytest.raises(KeyFault):
        await _signer(ledger, key).sign_batch([mine])
    entry = await ledger.get(claim_of(mine, NETWORK).request)
    assert entry is not None
    assert entry.event is None
    [outcome] = await _signer(ledger, now=NOW + 5_000).sign_batch([mine])
    assert _event(outcome).timestamp_ms == NOW


async def test_the_caller_s_spelling_is_signed(ledger: Ledger) -> None:
    """DESIGN §6: the contract compares the address byte for byte."""
    spellings = [WALLET, WALLET.lower(), "0x" + WALLET[2:].upper()]
    outcomes = await _signer(ledger).sign_batch([validated(address=a) for a in spellings])
    assert [_event(outcome).wallet_address for outcome in outcomes] == spellings
    assert {_event(outcome).meta.wallet for outcome in outcomes} == {WALLET.lower()}
    assert [_event(outcome).timestamp_ms for outcome in outcomes] == [NOW, NOW + 1, NOW + 2]


def test_unknown_fields_do_not_reach_the_signed_event() -> None:
    """S3.9: what the signer does not know it does not publish under its name."""
    body = json.loads(claim_of(validated(surprise="x"), NETWORK).body)
    assert set(body) == {"meta", "score", "wallet_address", "metadata"}
    assert "surprise" not in body["metadata"]
