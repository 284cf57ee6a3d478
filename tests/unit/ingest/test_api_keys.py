"""API keys as text and as record (SPEC S5.1, issue 5 item 3)."""

from __future__ import annotations

import hashlib
import re
import secrets
from dataclasses import replace

import pytest

from services.ingest.domain.api_keys import ApiKey, Minted, parse_id, parse_key
from services.ingest.domain.limits import Allowance

HOUR = 3_600_000
DEFAULT = Allowance(per_minute=60, burst=20, concurrency=8)


def _minted() -> Minted:
    return Minted.make(secrets.randbelow)


def _key(minted: Minted | None = None, **fields: object) -> ApiKey:
    presented = (minted or _minted()).presented
    given = {"tenant": "acme", "name": "ci", "scopes": frozenset({"*"}), "created_ms": 0, **fields}
    return ApiKey(presented.id, presented.digest, **given)  # type: ignore[arg-type]


def test_a_key_is_recognisable_and_has_256_random_bits() -> None:
    """Issue 5 item 3: a prefix for people and scanners, a public id, a secret."""
    asked: list[int] = []

    def below(limit: int) -> int:
        asked.append(limit)
        return secrets.randbelow(limit)

    text = Minted.make(below).text
    assert re.fullmatch(r"assay_key_[0-9a-z]{12}_[0-9A-Za-z]{49}", text)
    assert asked.count(62) == 43
    assert 62**43 >= 2**256


def test_a_known_key() -> None:
    """The format is a contract: a key that was handed out is read for ever, by scanners too."""
    text = Minted.make(lambda limit: limit - 1).text
    assert text == "assay_key_zzzzzzzzzzzz_" + "z" * 43 + "3vX4KI"
    presented = parse_key(text)
    assert presented is not None
    assert presented.id == "z" * 12
    assert presented.digest == hashlib.sha256(text.encode()).digest()


def test_two_keys_differ() -> None:
    assert len({_minted().text for _ in range(100)}) == 100


def test_what_was_minted_is_read_again() -> None:
    minted = _minted()
    assert parse_key(minted.text) == minted.presented
    assert _key(minted).matches(minted.presented)
    assert not _key(minted).matches(_minted().presented)
    assert not _key(minted).matches(replace(_minted().presented, id=minted.presented.id))


def test_a_typing_mistake_is_seen_without_a_store() -> None:
    """Issue 5: each changed character, left out, doubled or swapped with its neighbour."""
    text = _minted().text
    wrong = {text[:i] + ("b" if text[i] == "a" else "a") + text[i + 1 :] for i in range(len(text))}
    wrong |= {text[:i] + text[i + 1 :] for i in range(len(text))}
    wrong |= {text[:i] + text[i] + text[i:] for i in range(len(text))}
    wrong |= {text[:i] + text[i + 1] + text[i] + text[i + 2 :] for i in range(len(text) - 1)}
    wrong |= {f" {text}", f"{text}\n", text.upper(), "", "é" * 70, text[:-1] + "٣"}
    assert [other for other in wrong - {text} if parse_key(other)] == []


def test_nothing_shows_the_secret() -> None:
    """Issue 5: never logged, whatever is put into a message by mistake."""
    minted = _minted()
    key = _key(minted)
    shown = f"{minted!r} {key!r} {minted.presented!r} {minted} {key}"
    assert minted.text[-49:] not in shown
    assert repr(key.digest) not in shown
    assert key.id in shown


def test_an_id_is_found_in_whatever_shows_one() -> None:
    minted = _minted()
    key_id = minted.presented.id
    assert {parse_id(text) for text in (key_id, f"assay_key_{key_id}", minted.text)} == {key_id}
    assert [parse_id(text) for text in ("", "x", f"{key_id}0", minted.text + "0", "*" * 12)] == (
        [None] * 5
    )


def test_scopes() -> None:
    """Issue 5: scopes per process."""
    some = _key(scopes=frozenset({"a", "b"}))
    assert [some.covers(process) for process in ("a", "b", "c", "*", "")] == [True, True] + [
        False
    ] * 3
    assert _key(scopes=frozenset({"*"})).covers("anything")


def test_standing() -> None:
    """Issue 5: expiry and revocation; revoked is said first, it is a decision."""
    key = _key(expires_ms=1000)
    assert [key.standing(now) for now in (0, 999, 1000)] == ["active", "active", "expired"]
    assert replace(key, revoked_ms=5).standing(5_000) == "revoked"
    assert _key().standing(10**15) == "active"


@pytest.mark.parametrize(
    ("own", "expected"),
    [
        ({}, (60, 20, 8)),
        ({"per_minute": 6}, (6, 6, 8)),
        ({"per_minute": 600}, (600, 20, 8)),
        ({"per_minute": 6, "burst": 50}, (6, 50, 8)),
        ({"concurrency": 1}, (60, 20, 1)),
    ],
)
def test_a_keys_own_limits(own: dict[str, int], expected: tuple[int, int, int]) -> None:
    assert _key(**own).allowance(DEFAULT) == Allowance(*expected)


def test_rotation() -> None:
    """Issue 5: the successor is as the old key, which ends with the overlap."""
    old = _key(
        scopes=frozenset({"a"}), per_minute=5, burst=2, concurrency=1, expires_ms=100 * HOUR,
        last_used_ms=7,
    )  # fmt: skip
    successor = _minted().presented
    ending, fresh = old.rotated(successor, 10 * HOUR, 24 * HOUR)
    assert ending == replace(old, expires_ms=34 * HOUR)
    assert fresh == replace(
        old,
        id=successor.id,
        digest=successor.digest,
        created_ms=10 * HOUR,
        expires_ms=110 * HOUR,  # for as long as the old one was made for
        last_used_ms=None,
        replaces=old.id,
    )


def test_rotation_never_lengthens_the_old_keys_life() -> None:
    old = _key(expires_ms=10 * HOUR)
    ending, fresh = old.rotated(_minted().presented, 9 * HOUR, 24 * HOUR, 3 * HOUR)
    assert ending.expires_ms == 10 * HOUR
    assert fresh.expires_ms == 12 * HOUR
    assert _key().rotated(_minted().presented, 0, 0)[1].expires_ms is None


def test_a_dead_key_has_no_successor() -> None:
    """What was taken away must not come back by rotation."""
    for dead in (_key(revoked_ms=1), _key(expires_ms=2)):
        with pytest.raises(ValueError, match="make a new key"):
            dead.rotated(_minted().presented, 3, HOUR)


@pytest.mark.parametrize(
    "fields",
    [
        {"tenant": ""},
        {"tenant": "x" * 129},
        {"tenant": " x"},
        {"name": "a\nb"},
        {"scopes": frozenset()},
        {"scopes": frozenset({""})},
        {"per_minute": 0},
        {"burst": -1},
        {"concurrency": 0},
        {"created_ms": 5, "expires_ms": 4},
    ],
)
def test_impossible_keys_are_refused(fields: dict[str, object]) -> None:
    with pytest.raises(ValueError, match=r"."):
        _key(**fields)
