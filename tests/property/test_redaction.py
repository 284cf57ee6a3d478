"""Laws of redaction over generated text (SPEC S5.5)."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from assay_runtime.redaction import TYPES, find, redact, redact_json

CASES = Path(__file__).parents[1] / "unit" / "runtime" / "redaction" / "cases.jsonl"
LINES = [json.loads(line)["text"] for line in CASES.read_text("utf-8").splitlines()]

WORDS = """phone tel: call SSN ssn= card aadhaar PAN IBAN ip version order offset id my number @ %40
    %2B + ( ) [ ] :: . - / , = " ' [PHONE] [EMAIL] [CARD] 0x wei ext. (mobile)"""
PIECES = st.one_of(
    st.sampled_from(LINES),
    st.sampled_from(WORDS.split()),
    st.text(alphabet="0123456789 .-/()+", max_size=24),
    st.text(alphabet="ABCDEabcdef0123456789@.:-", max_size=24),
    st.text(max_size=6),
)
TEXTS = st.lists(PIECES, max_size=8).flatmap(
    lambda parts: st.sampled_from(["", " ", ", ", "\n"]).map(lambda joint: joint.join(parts))
)
HEX = st.text(alphabet="0123456789abcdefABCDEF", min_size=40, max_size=40)


@settings(max_examples=1500, deadline=None)
@given(TEXTS)
@example("phones: 4155550132, 4155550133, 4155550134, 4155550135, 4155550136, 4155550137")
@example("4111 1111 1111 1111 4155550132 phone 4155550132")
def test_second_redaction_changes_nothing(text: str) -> None:
    """S5.5: redaction of redacted text is the same text."""
    once = redact(text)
    assert redact(once) == once


@settings(max_examples=500, deadline=None)
@given(TEXTS)
def test_spans_are_in_order_and_inside(text: str) -> None:
    """S5.5: sorted, no overlap, not empty, of a known kind, over what is in the text."""
    done = 0
    for span in find(text):
        assert done <= span.start < span.end <= len(text)
        assert span.type in TYPES
        done = span.end


@settings(max_examples=500, deadline=None)
@given(
    st.lists(
        st.one_of(
            HEX.map(lambda digits: "0x" + digits),
            st.tuples(HEX, HEX).map(lambda two: "".join(two)[:64]),
            st.tuples(HEX, HEX).map(lambda two: "0x" + "".join(two)[:64]),
            st.uuids().map(str),
            st.text(alphabet="0123456789", min_size=40, max_size=40).map(lambda d: "0x" + d),
            st.text(alphabet="0123456789", min_size=64, max_size=64),
            st.datetimes().map(lambda at: at.isoformat() + "Z").filter(lambda t: t[0] in "12"),
        ),
        min_size=1,
        max_size=4,
    ),
    st.sampled_from(["phone ", "card: ", "SSN ", "call me at ", "aadhaar=", "", "from "]),
    st.sampled_from([" ", ", ", '","', "\n"]),
)
def test_wallets_hashes_and_ids_survive(ids: list[str], lead: str, joint: str) -> None:
    """S5.5: no wallet, hash, UUID or time is touched, whatever word stands before it."""
    text = lead + joint.join(ids)
    ids = [one for one in ids if one[:2] in ("0x", "19", "20") or len(one) in (36, 64)]
    assert all(one in redact(text) for one in ids)


JSON = st.recursive(
    st.one_of(TEXTS, st.integers(), st.floats(allow_nan=False), st.booleans(), st.none()),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXTS, inner, max_size=3),
    max_leaves=6,
)


@settings(max_examples=200, deadline=None)
@given(JSON)
def test_values_keep_their_shape(value: Any) -> None:
    """S5.5: the same containers of the same size, and a second time changes nothing."""
    once = redact_json(value)
    assert _shape(once) == _shape(value)
    assert redact_json(once) == once


def _shape(value: Any) -> Any:
    if isinstance(value, dict):
        return [_shape(item) for item in value.values()]
    return [_shape(item) for item in value] if isinstance(value, list) else 0


HOSTILE = {
    "digits": "1",
    "spaced digits": "1 ",
    "dashed": "4111-",
    "card groups": "4111 1111 ",
    "ats": "@",
    "locals": "a@",
    "domains": "a@b.",
    "dots": "1.",
    "colons": ":",
    "hex groups": "2001:",
    "letters": "a",
    "brackets": "(",
    "plus": "+1",
    "phones": "call 4155550132, ",
    "escapes": "%40%2B",
    "ibans": "DE89 ",
    "nino": "AB 12 34 56 ",
    "quotes": '"',
    "spelt": "a [at] b [dot] ",
    "hash": "abcdef0123456789",
    "marks": "[PHONE], ",
    "commas": "1,234,",
    "short groups": "12 34 56 ",
    "url": "https://a",
}


@pytest.mark.parametrize("name", HOSTILE)
def test_time_is_linear(name: str) -> None:
    """S5.5: eight times the text takes about eight times as long, not sixty-four."""
    unit = HOSTILE[name]

    def seconds(size: int) -> float:
        text = unit * (size // len(unit))
        taken = []
        for _ in range(3):
            start = time.process_time()
            find(text)
            taken.append(time.process_time() - start)
        return min(taken)

    small, large = seconds(4_000), seconds(32_000)
    assert large < 24 * small + 0.02
