"""What is found in text, against our own cases and the shared corpus (SPEC S5.5)."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

from assay_runtime.redaction import TYPES, find, redact

CASES = Path(__file__).with_name("cases.jsonl")
CORPUS = Path(__file__).resolve().parents[5] / "shared" / "corpora" / "pii.jsonl"
WALLET = "0x52908400098527886E0F7030069857D2E4169EE7"


def _read(file: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in file.read_text("utf-8").splitlines()]


def _wrong(cases: Iterable[dict[str, Any]]) -> list[tuple[str, list[Any], list[Any]]]:
    judged = ((case, [list(span) for span in find(case["text"])]) for case in cases)
    return [
        (case["text"], found, case["spans"]) for case, found in judged if found != case["spans"]
    ]


def test_every_own_case_is_found_exactly() -> None:
    """S5.5: kinds and boundaries of 325 lines with personal data, nothing in 400 without."""
    cases = _read(CASES)
    assert sum(bool(case["spans"]) for case in cases) >= 300
    assert sum(not case["spans"] for case in cases) >= 300
    assert {span[2] for case in cases for span in case["spans"]} == set(TYPES)
    assert _wrong(cases) == []


@pytest.mark.skipif(not CORPUS.exists(), reason="the shared corpus is not here")
def test_corpus_goals() -> None:
    """S5.5: recall at least .98, precision at least .95, no wallet or hash touched."""
    cases = _read(CORPUS)
    wanted = {(case["id"], *span) for case in cases for span in case["spans"]}
    found = {(case["id"], *span) for case in cases for span in find(case["text"])}
    assert len(wanted & found) >= 0.98 * len(wanted)
    assert len(wanted & found) >= 0.95 * len(found)
    for case in cases:
        for word in case["text"].split():
            if word.startswith("0x"):
                assert word in redact(case["text"])


@pytest.mark.parametrize(
    ("key", "value", "kind"),
    [
        ("phone", "4155550132", "PHONE"),
        ("contactMobile", "9876543210", "PHONE"),
        ("ssn", "536228764", "SSN"),
        ("offset", "4155550132", None),
        ("tokenId", "9876543210", None),
        ("", "4155550132", None),
    ],
)
def test_key_is_context(key: str, value: str, kind: str | None) -> None:
    """S5.5: the same digits are personal under one key and an offset under another."""
    assert redact(value, under=key) == (f"[{kind}]" if kind else value)


def test_places_count_code_points() -> None:
    """S5.5: a letter beyond the basic plane is one place."""
    text = "\U0001f600\U0001f600 a@b.example"
    (span,) = find(text)
    assert text[span.start : span.end] == "a@b.example"
    assert span.start == 3


def test_known_marks_stay() -> None:
    """S5.5: what was redacted before is neither found nor takes part in what is beside it."""
    assert redact("[PHONE], [EMAIL] 4155550132") == "[PHONE], [EMAIL] 4155550132"


def test_wallet_made_of_card_digits_survives() -> None:
    """S5.5: digits inside an address are no card."""
    text = f"0x{'4111111111111111' * 2}41111111 {WALLET}"
    assert redact(text) == text
