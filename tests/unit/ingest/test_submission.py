"""Bytes to submissions, and every way to refuse them (SPEC S3.8, X.4, X.5)."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from assay.submission import SubmissionError, submission_from_record
from services.ingest.domain.strict_json import JsonLimits
from services.ingest.domain.submission import (
    MAX_QUESTIONS,
    Submission,
    check_same_wallet,
    parse_submission,
    submission_for_address,
)
from tests.data.wallet_records import sized_record, wallet_names, wallet_record

ADDRESS = "0xC6635c942d2183D9415354B59c557EfbD8e3158C"
SAMPLES = Path(__file__).parents[3] / "deploy" / "dev" / "samples"


def body(**fields: Any) -> bytes:
    return json.dumps({"address": ADDRESS, **fields}).encode()


def with_evm(text: str) -> bytes:
    return f'{{"address": "{ADDRESS}", "evm_data": {text}}}'.encode()


def refusal(raw: bytes, limits: JsonLimits | None = None) -> SubmissionError:
    with pytest.raises(SubmissionError) as caught:
        parse_submission(raw, limits)
    caught.value.message.encode()
    caught.value.pointer.encode()
    assert "\n" not in caught.value.message
    assert len(caught.value.message) < 300
    return caught.value


def test_the_least_submission() -> None:
    """S3.8: an address alone; the aggregator will be asked."""
    got = parse_submission(body())
    assert got == Submission(ADDRESS, ADDRESS.lower(), [], None)
    assert got.evm_sha256 is None
    assert submission_for_address(ADDRESS) == got


def test_a_whole_submission() -> None:
    """S3.8: address as spelled, questionnaire, inline data; null means absent."""
    got = parse_submission(
        body(
            questionnaire=[
                {"question": "Who?", "answer": "me", "extra": 1},
                {"question": "Why?", "answer": None},
                {"question": "When?"},
            ],
            evm_data={"wallet": ADDRESS.lower(), "eth_balance": 1.5},
        )
    )
    assert got.address == ADDRESS
    assert got.questionnaire == [
        {"question": "Who?", "answer": "me"},
        {"question": "Why?", "answer": None},
        {"question": "When?", "answer": None},
    ]
    assert got.evm_data == {"wallet": ADDRESS.lower(), "eth_balance": 1.5}
    assert got.notes == ()
    assert parse_submission(body(questionnaire=None, evm_data=None)).evm_data is None


def test_a_byte_order_mark_is_no_mistake() -> None:
    """X.1: editors on Windows write one."""
    assert parse_submission(b"\xef\xbb\xbf" + body()).address == ADDRESS


@pytest.mark.parametrize(
    ("raw", "code", "pointer", "words"),
    [
        (b"", "empty", "", "empty"),
        (b" \n", "empty", "", "empty"),
        (b"{'address': 1}", "invalid_json", "", "line 1 column 2"),
        (b'{"address": "0x', "invalid_json", "", "not JSON"),
        (b'{"address": 1} {}', "invalid_json", "", "Extra data"),
        (b'{"a": "\xff"}', "invalid_utf8", "", "byte 0xff at 7"),
        ('{"a": 1}'.encode("utf-16"), "invalid_utf8", "", "not UTF-8"),
        (b"[]", "not_an_object", "", "a list"),
        (b"null", "not_an_object", "", "null"),
        (b"NaN", "not_an_object", "", "null"),
        (b'"0x"', "not_an_object", "", "a string"),
        (b"{}", "missing_field", "/address", "address is missing"),
        (b'{"wallet": "0x1", "nfts": {}}', "missing_field", "/address", "bare wallet record"),
        (b'{"address": null}', "wrong_type", "/address", "null"),
        (b'{"address": 12}', "wrong_type", "/address", "a number"),
        (b'{"address": ["0x"]}', "wrong_type", "/address", "a list"),
        (b'{"address": "0x12"}', "invalid_address", "/address", ""),
        (b'{"address": ""}', "invalid_address", "/address", ""),
        (b'{"address": "\\ud800"}', "invalid_address", "/address", ""),
        (body(address="0x" + "g" * 40), "invalid_address", "/address", ""),
        (body(address=ADDRESS + "0"), "invalid_address", "/address", ""),
        (body(address="x" * 100_000), "invalid_address", "/address", ""),
        (body(address=ADDRESS.replace("C", "c", 1)), "invalid_address", "/address", "checksum"),
        (b'{"address": 1, "address": 2}', "duplicate_key", "/address", "more than once"),
        (with_evm('{"a": [{"b": 1, "b": 1}]}'), "duplicate_key", "/evm_data/a/0/b", '"b"'),
        (with_evm("[]"), "wrong_type", "/evm_data", "a list"),
        (with_evm("true"), "wrong_type", "/evm_data", "a boolean"),
        (with_evm(f'{{"a": [{"9" * 5000}]}}'), "number_too_long", "/evm_data/a/0", "5,000"),
        (with_evm(f'{{"a": 0.{"1" * 5000}}}'), "number_too_long", "/evm_data/a", "digits"),
        (body(questionnaire={}), "wrong_type", "/questionnaire", "an object"),
        (body(questionnaire=["Who?"]), "wrong_type", "/questionnaire/0", "a string"),
        (body(questionnaire=[{"answer": "x"}]), "missing_field", "/questionnaire/0/question", ""),
        (
            body(questionnaire=[{"question": "Q"}, {"question": 3}]),
            "wrong_type",
            "/questionnaire/1/question",
            "a number",
        ),
        (
            body(questionnaire=[{"question": "Q", "answer": 3}]),
            "wrong_type",
            "/questionnaire/0/answer",
            "a string or null, not a number",
        ),
        (
            body(questionnaire=[{"question": "Q"}] * (MAX_QUESTIONS + 1)),
            "too_many_questions",
            "/questionnaire",
            "51",
        ),
    ],
    ids=lambda value: None if isinstance(value, str) and len(value) < 40 else "",
)
def test_refusals(raw: bytes, code: str, pointer: str, words: str) -> None:
    """X.4: the field, a code, and a sentence for people."""
    error = refusal(raw)
    assert (error.code, error.pointer) == (code, pointer)
    assert words in error.message


@pytest.mark.parametrize("field", ["wallet", "address", "wallet_address"])
def test_inline_data_of_another_wallet(field: str) -> None:
    """S3.8: data that names a wallet must name the same one, whatever the case."""
    other = "0x" + "1" * 40
    error = refusal(body(evm_data={field: other}))
    assert (error.code, error.pointer) == ("wallet_mismatch", f"/evm_data/{field}")
    assert other in error.message
    for same in (ADDRESS.upper(), ADDRESS.lower(), f" {ADDRESS} ", None, ""):
        assert parse_submission(body(evm_data={field: same})).evm_data == {field: same}


def test_a_second_name_is_not_hidden_by_an_empty_first() -> None:
    """S3.8: an empty `wallet` does not let a foreign `address` through."""
    with pytest.raises(SubmissionError):
        check_same_wallet({"wallet": None, "address": "0x" + "2" * 40}, ADDRESS.lower())


def test_two_names_must_both_be_the_wallet() -> None:
    """S3.8: neither of two names may be another wallet's."""
    record = {"wallet": ADDRESS, "address": "0x" + "2" * 40}
    assert refusal(body(evm_data=record)).pointer == "/evm_data/address"


def test_numbers_json_does_not_know_become_null() -> None:
    """S3.1, X.5: NaN, Infinity and 1e999 in the data are normalised and noted, the rest kept."""
    got = parse_submission(with_evm('{"a": NaN, "b": [1, -Infinity], "c": 1e999, "d": 1e-999}'))
    assert got.evm_data == {"a": None, "b": [1, None], "c": None, "d": 0.0}
    reason = "not a finite number, replaced with null"
    assert [(note.path, note.reason) for note in got.notes] == [
        ("/evm_data/a", reason),
        ("/evm_data/c", reason),
        ("/evm_data/b/1", reason),
    ]
    json.dumps(got.evm_data, allow_nan=False)


def test_integers_stay_exact() -> None:
    """S3.8: raw balances larger than a double can hold."""
    balance = 4366817049815635633631**3
    got = parse_submission(with_evm(f'{{"balance_raw": {balance}}}'))
    assert got.evm_data == {"balance_raw": balance}


def test_lone_surrogates_are_replaced_in_data() -> None:
    """X.5: in values and keys, noted; a pair is a character and stays."""
    got = parse_submission(with_evm(r'{"a": "x\ud800y", "\udfff": "\ud83d\ude00"}'))
    assert got.evm_data == {"a": "x\ufffdy", "\ufffd": "😀"}
    assert {note.path for note in got.notes} == {"/evm_data/a", "/evm_data/\ufffd"}
    assert refusal(with_evm(r'{"\ud800": 1, "\ud801": 2}')).code == "duplicate_key"


def test_unknown_fields_are_noted_with_a_guess() -> None:
    """X.4: a misspelled field is not silently a wallet without a questionnaire."""
    notes = parse_submission(body(questionaire=[], other=1)).notes
    assert [(note.path, note.reason) for note in notes] == [
        ("/questionaire", "no such field, ignored; did you mean questionnaire?"),
        ("/other", "no such field, ignored"),
    ]


def test_notes_are_bounded() -> None:
    """X.5: a thousand NaNs are not a thousand notes."""
    got = parse_submission(with_evm('{"a": [' + ",".join(["NaN"] * 1000) + "]}"))
    assert len(got.notes) == 101
    assert got.notes[-1].reason == "more of the kind, not listed"


def test_size_limit_is_exact() -> None:
    """S3.8: 4 MiB of value bytes pass, one more does not."""
    limits = JsonLimits()
    raw = body()
    full = raw + b" " * (4 * 1024 * 1024 - len(raw))
    assert parse_submission(full).address == ADDRESS
    assert refusal(full + b" ", limits).code == "too_large"


def test_data_that_swells_is_too_large() -> None:
    """S3.8: the limit holds for what is published as well."""
    swollen = with_evm('{"a": [' + ",".join(["1e15"] * 100) + "]}")
    limits = JsonLimits(max_bytes=len(swollen))
    error = refusal(swollen, limits)
    assert (error.code, error.pointer) == ("too_large", "")
    assert "when written out" in error.message
    unanswered = body(questionnaire=[{"question": ""}] * 50).replace(b" ", b"")
    assert refusal(unanswered, JsonLimits(max_bytes=len(unanswered))).code == "too_large"


def test_what_was_accepted_is_accepted_again() -> None:
    """S3.8: the HTTP API publishes what it read, and the consumer holds it to the same limit."""
    first = parse_submission(
        body(questionnaire=[{"question": "Q"}], evm_data={"a": 1e15, "b": "ü"}),
    )
    sent = json.dumps(
        {
            "address": first.address,
            "questionnaire": first.questionnaire,
            "evm_data": first.evm_data,
        },
        ensure_ascii=False,
        separators=(",", ":"),
    ).encode()
    assert parse_submission(sent, JsonLimits(max_bytes=len(sent))) == first
    assert refusal(sent, JsonLimits(max_bytes=len(sent) - 1)).code == "too_large"


def nested(depth: int, opening: str, closing: str) -> bytes:
    return with_evm(opening * depth + "1" + closing * depth)


@pytest.mark.parametrize(("opening", "closing"), [('{"a":', "}"), ('{"a":[', "]}")])
def test_depth_limit(opening: str, closing: str) -> None:
    """X.5: 64 containers deep passes, 65 does not, a million is no RecursionError."""
    step = len(opening.replace('"a":', ""))
    fits = (64 - 1) // step
    parse_submission(nested(fits, opening, closing))
    assert refusal(nested(fits + 1, opening, closing)).code == "too_deep"
    assert refusal(nested(400_000, opening, closing)).code == "too_deep"
    assert refusal(b"[" * 4_000_000).code in ("too_deep", "invalid_json")
    assert refusal(nested(fits + 1, opening, closing)).pointer.startswith("/evm_data/a")


def test_element_limit_is_exact() -> None:
    """X.5: members and items of the whole document, 200,000 of them."""
    other = 2 + 1
    fits = with_evm('{"a": [' + ",".join(["1"] * (200_000 - other)) + "]}")
    assert parse_submission(fits).evm_data is not None
    over = with_evm('{"a": [' + ",".join(["1"] * (200_001 - other)) + "]}")
    error = refusal(over)
    assert (error.code, error.pointer) == ("too_many_elements", "/evm_data/a")
    assert refusal(with_evm("[" + "[]," * 900_000 + "[]]")).code == "too_many_elements"


@pytest.mark.parametrize("name", wallet_names())
def test_hand_made_records_pass(name: str) -> None:
    """S3.8: records go in through `submission_from_record` as `assay publish` sends them."""
    record = wallet_record(name)
    got = parse_submission(json.dumps(submission_from_record(record)).encode())
    assert got.evm_data == record
    assert got.notes == ()


@pytest.mark.parametrize("size", [650_000, 4_193_000])
def test_large_records_pass(size: int) -> None:
    """S3.8: 650 KB, and a record just under the limit."""
    record = sized_record(size)
    raw = json.dumps(submission_from_record(record), separators=(",", ":")).encode()
    got = parse_submission(raw)
    assert got.evm_data == record


@pytest.mark.parametrize("file", sorted(SAMPLES.glob("*.json")), ids=lambda file: file.stem)
def test_samples_pass(file: Path) -> None:
    """X.7: every sample of the demo is a good submission."""
    record = json.loads(file.read_text(encoding="utf-8"))
    got = parse_submission(json.dumps(submission_from_record(record)).encode())
    assert got.evm_data is not None
    assert got.notes == ()


def test_there_are_samples() -> None:
    """X.7: the demo has something to score, in both shapes."""
    records = [json.loads(file.read_text(encoding="utf-8")) for file in SAMPLES.glob("*.json")]
    assert len(records) >= 6
    assert {"evm_data" in record for record in records} == {True, False}


@pytest.mark.parametrize(
    ("change", "same"),
    [
        (lambda d: dict(reversed(d.items())), True),
        (lambda d: {**d, "questionnaire": []}, True),
        (lambda d: {**d, "unknown": 1}, True),
        (lambda d: {**d, "evm_data": dict(reversed(d["evm_data"].items()))}, True),
        (lambda d: {**d, "evm_data": {**d["evm_data"], "eth_balance": 2}}, False),
        (lambda d: {**d, "questionnaire": [{"question": "Q", "answer": None}]}, False),
        (lambda d: {**d, "address": ADDRESS.lower()}, False),
        (lambda d: {**d, "evm_data": None}, False),
    ],
)
def test_content_hash(change: Callable[[dict[str, Any]], dict[str, Any]], same: bool) -> None:
    """X.2: a repeat is recognised whatever its whitespace and order; other content is not."""
    document = {"address": ADDRESS, "evm_data": {"eth_balance": 1, "nfts": {"a": 1, "b": 2}}}
    first = parse_submission(json.dumps(document).encode()).content_sha256
    changed = json.dumps(change(document), indent=3).encode()
    assert (parse_submission(changed).content_sha256 == first) is same
