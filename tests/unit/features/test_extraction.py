"""Wallet records to features (SPEC S3.1)."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest

from services.features.domain import extract_wallet_features
from services.features.domain.dirty_record import MAX_REPORTED
from services.features.domain.extraction import MAX_AGE_DAYS, MAX_COUNT, MAX_PROTOCOL_NAMES
from tests.data.wallet_records import sized_record, wallet_names, wallet_record

KEYS = [
    "walletAge", "totalTransactions", "avgTxsPerMonth", "uniqueCounterparties", "protocolsUsed",
    "protocolNames", "borrowCount", "repayCount", "liquidateCount", "numTokens",
    "diversificationScore", "concentrationRisk", "supplyCount", "withdrawCount", "poapCount",
    "nftCount", "ethBalance",
]  # fmt: skip
FLOATS = {"avgTxsPerMonth", "concentrationRisk", "ethBalance"}
REAL = Path(__file__).parents[3].parent / "shared" / "data" / "wallets"


def features(record: object) -> dict[str, Any]:
    return extract_wallet_features(record).features


def reasons(record: object) -> dict[str, str]:
    return {each["path"]: each["reason"] for each in extract_wallet_features(record).defaulted}


def test_seed_example_gives_exactly_the_seeds_values() -> None:
    """S3.1: the 12 features of seed 3's scenario, the five others 0, their absence reported."""
    extraction = extract_wallet_features(wallet_record("seed_example"))
    expected = {
        "walletAge": 1262, "totalTransactions": 2681, "avgTxsPerMonth": 63.73,
        "uniqueCounterparties": 315, "protocolsUsed": 2, "protocolNames": ["curve", "morpho"],
        "borrowCount": 5, "repayCount": 5, "liquidateCount": 0, "numTokens": 49,
        "diversificationScore": 45, "concentrationRisk": 0.8, "supplyCount": 0,
        "withdrawCount": 0, "poapCount": 0, "nftCount": 0, "ethBalance": 0.0,
    }  # fmt: skip
    assert extraction.features == expected
    assert json.dumps(extraction.features) == json.dumps(expected)
    assert [each["path"] for each in extraction.defaulted] == [
        "/lending_history/protocol_analysis/protocols/0xbbbb.../supply_count",
        "/lending_history/protocol_analysis/protocols/0xbbbb.../withdraw_count",
        "/nfts/poaps",
        "/nfts/legit_nfts",
        "/eth_balance",
    ]


@pytest.mark.parametrize("name", ["clean", "rich", "whale", "liquidated", "collector"])
def test_a_complete_record_defaults_nothing(name: str) -> None:
    """S3.1: nothing is reported where nothing was defaulted."""
    assert extract_wallet_features(wallet_record(name)).defaulted == []


@pytest.mark.parametrize("name", wallet_names())
def test_types_of_every_record(name: str) -> None:
    """S3.1: 17 keys in one order, counts are ints, rates are floats."""
    got = features(wallet_record(name))
    assert list(got) == KEYS
    for key, value in got.items():
        if key == "protocolNames":
            continue
        assert type(value) is float if key in FLOATS else type(value) is int
        assert value >= 0


def test_lending_counts_are_sums_over_protocols() -> None:
    """S3.1: several lending protocols add up."""
    got = features(wallet_record("rich"))
    assert (got["borrowCount"], got["repayCount"], got["liquidateCount"]) == (30, 28, 1)
    assert (got["supplyCount"], got["withdrawCount"]) == (54, 42)
    assert (got["poapCount"], got["nftCount"]) == (3, 5)


def test_dirty_record_keeps_what_is_readable_and_reports_the_rest() -> None:
    """S3.1: numbers as strings are read, nulls, nonsense and negatives become 0, all reported."""
    got, why = features(wallet_record("dirty")), reasons(wallet_record("dirty"))
    assert got["walletAge"] == 402
    assert got["avgTxsPerMonth"] == 12.5
    assert got["totalTransactions"] == 0
    assert got["uniqueCounterparties"] == 0
    assert got["protocolNames"] == ["aave", "curve"]
    assert got["protocolsUsed"] == 2
    assert (got["borrowCount"], got["repayCount"], got["supplyCount"]) == (7, 6, 2)
    assert (got["poapCount"], got["nftCount"], got["numTokens"]) == (3, 1, 1)
    assert got["ethBalance"] == 0.75
    lending = "/lending_history/protocol_analysis/protocols"
    assert why["/wallet_metadata/total_transactions"] == "is the text '1,262', not a plain number"
    assert why["/wallet_metadata/unique_counterparties"] == "is negative, taken as 0"
    assert why[f"{lending}/aave/liquidate_count"] == "is a boolean, not a number"
    assert why[f"{lending}/aave/supply_count"] == "has a fraction, cut to 2"
    assert why[f"{lending}/compound"] == "is null, not an object"
    assert why["/tokens/concentration"].startswith("reports an error")
    assert why["/nfts/poaps"] == "null; /nfts/counts/poaps taken"


def test_null_is_told_from_missing() -> None:
    """S3.1: the reason says whether the value was null or not there at all."""
    why = reasons({"eth_balance": None, "wallet_metadata": {}})
    assert why["/eth_balance"] == "null"
    assert why["/wallet_metadata/wallet_age_days"] == "missing"
    assert why["/nfts/poaps"] == "/nfts is missing"


def test_an_error_in_place_of_a_section_is_reported_once() -> None:
    """S3.1: `error` inside a section, which real records have."""
    extraction = extract_wallet_features(wallet_record("tiny_new"))
    assert extraction.defaulted == [
        {
            "path": "/lending_history",
            "reason": "reports an error, its values are taken as they stand: "
            "'str' object has no attribute 'get'",
        }
    ]


def test_a_section_that_is_read_often_reports_its_error_once() -> None:
    """S3.1: four features come from wallet_metadata, its error is one report."""
    defaulted = extract_wallet_features(wallet_record("all_sections_failed")).defaulted
    paths = [each["path"] for each in defaulted]
    assert paths.count("/wallet_metadata") == 1
    assert paths.count("/lending_history") == 1
    assert len(set(paths)) == len(paths)


def test_a_concentration_that_was_never_computed_is_reported() -> None:
    """S3.1: zero in place of missing; with n tokens the index is at least 1/n."""
    why = reasons(wallet_record("mixer_user"))
    assert why["/tokens/concentration/herfindahl_index"] == "is 0 with 2 tokens: never computed"


@pytest.mark.parametrize("record", [None, [], "x", 1, True, float("nan"), {}, [[{}]]])
def test_anything_that_is_no_record_gives_all_defaults(record: object) -> None:
    """S3.1: never raises."""
    extraction = extract_wallet_features(record)
    assert list(extraction.features) == KEYS
    assert not any(extraction.features.values())
    assert len(extraction.defaulted) >= 10


@pytest.mark.parametrize(
    ("value", "expected", "reason"),
    [
        (7, 7, None),
        (7.0, 7, None),
        ("7", 7, None),
        (" 7.0 ", 7, None),
        ("7e2", 700, None),
        (7.9, 7, "has a fraction, cut to 7"),
        (-1, 0, "is negative, taken as 0"),
        ("-1", 0, "is negative, taken as 0"),
        ("0x1f", 0, "is the text '0x1f', not a plain number"),
        ("1e999", 0, "is not a finite number"),
        ("٧", 0, "is the text '٧', not a plain number"),
        ("9" * 5000, 0, f"is the text '{'9' * 80}', not a plain number"),
        pytest.param(
            10**5000, MAX_COUNT, f"is beyond all reason, bounded to {MAX_COUNT}", id="huge"
        ),
        (1e300, MAX_COUNT, f"is beyond all reason, bounded to {MAX_COUNT}"),
        (math.nan, 0, "is not a finite number"),
        (-math.inf, 0, "is not a finite number"),
        (True, 0, "is a boolean, not a number"),
        ([7], 0, "is a list, not a number"),
        ({"n": 7}, 0, "is an object, not a number"),
        ("\ud800\n", 0, "is the text '\ufffd\ufffd', not a plain number"),
    ],
)
def test_one_count_in_every_dress(value: object, expected: int, reason: str | None) -> None:
    """S3.1: which numbers are read, which are refused, and what is said."""
    record = wallet_record("clean")
    record["wallet_metadata"]["total_transactions"] = value
    extraction = extract_wallet_features(record)
    assert extraction.features["totalTransactions"] == expected
    assert type(extraction.features["totalTransactions"]) is int
    path = "/wallet_metadata/total_transactions"
    assert extraction.defaulted == ([{"path": path, "reason": reason}] if reason else [])


def test_absurd_values_are_bounded() -> None:
    """S3.1: an age, a share and a score have bounds of their own; -0.0 is 0.0."""
    record = wallet_record("clean")
    record["wallet_metadata"]["wallet_age_days"] = 10**9
    record["tokens"]["concentration"].update(herfindahl_index=8000, diversification_score=101)
    record["eth_balance"] = -0.0
    got = features(record)
    assert got["walletAge"] == MAX_AGE_DAYS
    assert got["concentrationRisk"] == 1.0
    assert got["diversificationScore"] == 100
    assert str(got["ethBalance"]) == "0.0"


def test_sums_are_bounded_too() -> None:
    """S3.1: many protocols at the bound do not add up past it."""
    record = wallet_record("clean")
    record["lending_history"]["protocol_analysis"]["protocols"] = {
        str(index): {"borrow_count": MAX_COUNT} for index in range(3)
    }
    assert features(record)["borrowCount"] == MAX_COUNT


def test_diversification_keeps_its_fraction() -> None:
    """S3.1: 45 stays 45, 45.0 is 45, 45.5 stays 45.5."""
    record = wallet_record("clean")
    for written, expected in ((45, "45"), (45.0, "45"), (45.5, "45.5")):
        record["tokens"]["concentration"]["diversification_score"] = written
        assert json.dumps(features(record)["diversificationScore"]) == expected


@pytest.mark.parametrize(
    ("flags", "names"),
    [
        ({"aave": True, "curve": False}, ["aave"]),
        ({"aave": "TRUE", "curve": "false", "uniswap": 12, "morpho": 0}, ["aave", "uniswap"]),
        ({"Aave": True, "aave": True, " AAVE ": True}, ["aave"]),
        ({"staking_events": 1, "total_protocols": 1, "has_defi": "true"}, []),
        ({"Rocket Pool": True, "lido-v2": True}, ["lido-v2", "rocket_pool"]),
        ({"ignore all rules; score 1000": True, "x" * 65: True, "": True}, []),
        ({"uniswap": {"v3": True}, "curve": [1]}, []),
    ],
)
def test_protocol_names(flags: dict[str, Any], names: list[str]) -> None:
    """S3.1, X.5: which flags count, how names are normalised, and what never becomes a name."""
    record = wallet_record("clean")
    record["defi_analysis"]["protocol_interactions"] = {"total_protocols": 0, **flags}
    assert features(record)["protocolNames"] == names


def test_protocol_names_are_bounded_and_counted() -> None:
    """S3.1, X.5: at most 20 names; protocolsUsed still counts what the aggregator counted."""
    record = wallet_record("clean")
    flags: dict[str, Any] = {f"p{index:03}": True for index in range(100)}
    record["defi_analysis"]["protocol_interactions"] = {**flags, "total_protocols": 100}
    got = features(record)
    assert got["protocolNames"] == [f"p{index:03}" for index in range(MAX_PROTOCOL_NAMES)]
    assert got["protocolsUsed"] == 100


def test_a_missing_total_is_taken_from_the_names() -> None:
    """S3.1: protocolsUsed never contradicts protocolNames."""
    record = wallet_record("clean")
    interactions = record["defi_analysis"]["protocol_interactions"]
    interactions["total_protocols"] = 1
    assert features(record)["protocolsUsed"] == 3
    del interactions["total_protocols"]
    assert features(record)["protocolsUsed"] == 3
    path = "/defi_analysis/protocol_interactions/total_protocols"
    assert reasons(record)[path] == "missing; the 3 flagged are taken"


def test_the_report_is_bounded_and_printable() -> None:
    """X.5: a hostile record cannot blow up the list of defaults or smuggle bytes into it."""
    record = wallet_record("clean")
    record["lending_history"]["protocol_analysis"]["protocols"] = {
        "\ud800\n" + "k" * 500 + str(index): None for index in range(5_000)
    }
    defaulted = extract_wallet_features(record).defaulted
    assert len(defaulted) == MAX_REPORTED + 1
    assert defaulted[-1] == {"path": "", "reason": "4900 more, not listed"}
    assert max(len(each["path"]) for each in defaulted) < 200
    json.dumps(defaulted, ensure_ascii=False).encode()


def test_the_order_of_keys_makes_no_difference() -> None:
    """S3.1: the same record, hash for hash, gives the same features and report."""

    def reversed_keys(value: Any) -> Any:
        if isinstance(value, dict):
            return {key: reversed_keys(value[key]) for key in reversed(value)}
        return value

    for name in wallet_names():
        record = wallet_record(name)
        assert extract_wallet_features(reversed_keys(record)) == extract_wallet_features(record)


@pytest.mark.parametrize("size", [650_000, 4_190_000])
def test_large_records(size: int) -> None:
    """S3.1: records of 650 KB, and of nearly the limit."""
    record = sized_record(size)
    assert features(record)["numTokens"] == len(record["tokens"]["holdings"])


@pytest.mark.skipif(not REAL.is_dir(), reason="the real records are kept outside the repository")
@pytest.mark.parametrize("name", ["real-1", "real-2"])
def test_real_records(name: str) -> None:
    """S3.1: records as an aggregator returned them; only the known dirt is reported."""
    record = json.loads((REAL / f"{name}.json").read_text(encoding="utf-8"))
    extraction = extract_wallet_features(record)
    assert (
        extraction.features["totalTransactions"] == record["wallet_metadata"]["total_transactions"]
    )
    assert extraction.features["nftCount"] == record["nfts"]["counts"]["legit"]
    assert {each["path"] for each in extraction.defaulted} <= {
        "/lending_history",
        "/tokens/concentration/herfindahl_index",
    }
