"""Hostile records and questionnaires (SPEC S3.1, S3.2, X.5)."""

from __future__ import annotations

import json
import math
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from assay.events.wallet import Defaulted, WalletFeatures
from services.features.domain import (
    NO_QUESTIONNAIRE,
    extract_wallet_features,
    format_questionnaire,
)
from tests.data.wallet_records import wallet_names, wallet_record

TEXT = st.text(st.characters(), max_size=30)
SCALARS = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.integers(min_value=10**300)
    | st.integers(max_value=-(10**300))
    | st.floats()
    | TEXT
    | st.sampled_from(["1,262", "0x1f", "NaN", "1e999", "-7", "7.5", "true", "TRUE", "null", ""])
)
HOSTILE = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(TEXT, inner, max_size=4),
    max_leaves=12,
)


def paths_of(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    found = [path] if path else []
    if isinstance(value, (dict, list)):
        items = value.items() if isinstance(value, dict) else enumerate(value)
        for key, inner in items:
            found += paths_of(inner, (*path, key))
    return found


@st.composite
def spoiled_records(draw: st.DrawFn) -> Any:
    """A good record in which some places, sections or leaves, hold something else or nothing."""
    record = wallet_record(draw(st.sampled_from(wallet_names())))
    for _ in range(draw(st.integers(1, 6))):
        *parents, last = draw(st.sampled_from(paths_of(record)))
        place = record
        for key in parents:
            place = place[key]
        if isinstance(place, dict) and draw(st.booleans()):
            place[draw(TEXT | st.just("error"))] = draw(HOSTILE)
        place[last] = draw(HOSTILE)
        if not paths_of(record):
            break
    return record


@given(spoiled_records() | HOSTILE)
def test_extraction_is_total_and_sound(record: Any) -> None:
    """S3.1: never raises; counts are ints, nothing is NaN, infinite or negative; what comes out
    is writable JSON and fits the event; the same record gives the same result."""
    extraction = extract_wallet_features(record)
    features = extraction.features
    assert len(features) == 17
    for key, value in features.items():
        if key == "protocolNames":
            assert value == sorted(set(value))
            assert len(value) <= 20
            assert all(name.isascii() and 0 < len(name) <= 32 for name in value)
            continue
        assert type(value) in (int, float)
        assert math.isfinite(value)
        assert 0 <= value <= 1e12
        if key.endswith("Count") or key in ("walletAge", "totalTransactions", "numTokens"):
            assert type(value) is int
    assert features["protocolsUsed"] >= len(features["protocolNames"])
    assert len(extraction.defaulted) <= 101
    json.dumps([features, extraction.defaulted], allow_nan=False, ensure_ascii=False).encode()
    WalletFeatures.model_validate(features)
    for each in extraction.defaulted:
        Defaulted.model_validate(each)
        assert len(each["reason"]) < 400
    assert extract_wallet_features(record) == extraction


@given(st.sampled_from(["total_transactions", "wallet_age_days"]), SCALARS)
def test_a_count_is_the_records_own_or_reported(field: str, value: Any) -> None:
    """S3.1: every value that is not the record's own is in the report, and no other."""
    record = wallet_record("clean")
    record["wallet_metadata"][field] = value
    extraction = extract_wallet_features(record)
    key = {"total_transactions": "totalTransactions", "wallet_age_days": "walletAge"}[field]
    try:
        own = not isinstance(value, bool) and float(value) == extraction.features[key]
    except (TypeError, ValueError, OverflowError):
        own = False
    reported = [each["path"] for each in extraction.defaulted]
    assert reported == ([] if own else [f"/wallet_metadata/{field}"])


ENTRIES = st.lists(
    st.dictionaries(st.sampled_from(["question", "answer", "x"]), HOSTILE, max_size=3) | HOSTILE,
    max_size=60,
)
LINES = st.lists(
    st.sampled_from(["\n", "\r", "\u2028", "\x85", "\x1c", "Q2: ", "A1: ", "x", " ", "\u202e"]),
    max_size=40,
).map("".join)


@given(
    ENTRIES
    | HOSTILE
    | st.lists(st.fixed_dictionaries({"question": LINES, "answer": LINES}), max_size=5)
)
def test_the_format_cannot_be_broken(questionnaire: Any) -> None:
    """S3.2, X.5: never raises, and the lines are Q1, A1, empty, Q2, A2, … whatever the texts."""
    text = format_questionnaire(questionnaire)
    text.encode()
    if text == NO_QUESTIONNAIRE:
        return
    lines = text.splitlines()
    assert len(lines) <= 50 * 3
    for index, line in enumerate(lines):
        number, kind = index // 3 + 1, index % 3
        if kind == 2:
            assert line == ""
            continue
        prefix = f"{'QA'[kind]}{number}: "
        assert line.startswith(prefix)
        assert 0 < len(line) - len(prefix) <= (300, 500)[kind]
    assert len(lines) % 3 == 2
