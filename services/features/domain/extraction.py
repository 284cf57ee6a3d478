"""Wallet record -> the features the model is shown (SPEC S3.1)."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from assay.json_kinds import kind
from services.features.domain.dirty_record import DirtyRecord, Number, Path

MAX_COUNT = 1_000_000_000_000
MAX_AGE_DAYS = 36_500
MAX_ETH = 1_000_000_000
MAX_PROTOCOLS = 10_000
MAX_PROTOCOL_NAMES = 20

_METADATA = ("wallet_metadata",)
_INTERACTIONS = ("defi_analysis", "protocol_interactions")
_LENDING = ("lending_history", "protocol_analysis", "protocols")
_CONCENTRATION = ("tokens", "concentration")
_LENDING_COUNTERS = ("borrow", "repay", "liquidate", "supply", "withdraw")

_KNOWN_PROTOCOLS = frozenset({"aave", "compound", "curve", "ethena", "morpho", "uniswap"})
# Letters, digits and little else: a protocol name goes into the prompt.
_PROTOCOL_NAME = re.compile(r"[a-z0-9][a-z0-9._-]{0,31}", re.ASCII)


@dataclass(frozen=True, slots=True)
class Extraction:
    """Features of one wallet, and each source value that had to be defaulted or bounded.

    `features` has the 17 keys of SPEC S3.1. Counts are ints; avgTxsPerMonth (per month),
    concentrationRisk (0-1) and ethBalance (ETH) are floats; diversificationScore (0-100) is an
    int unless it has a fraction. `defaulted` holds {path, reason}: a JSON pointer into the record
    and why its value was not used as it stands. Equal records give equal extractions, whatever
    the order of their keys.
    """

    features: dict[str, Any]
    defaulted: list[dict[str, str]]


def extract_wallet_features(evm_data: object) -> Extraction:
    """Features of a wallet record as the aggregator returned it.

    Never raises on anything JSON can hold, and yields no NaN, infinity or negative number.
    Missing and unusable values become 0 or an empty list and are reported; numbers beyond any
    real wallet are bounded and reported.
    """
    record = DirtyRecord(evm_data)
    names = _protocol_names(record)
    lending = _lending_counts(record)
    tokens = _token_count(record)
    features = {
        "walletAge": record.count((*_METADATA, "wallet_age_days"), MAX_AGE_DAYS),
        "totalTransactions": record.count((*_METADATA, "total_transactions"), MAX_COUNT),
        "avgTxsPerMonth": _real(record.number((*_METADATA, "average_txs_per_month"), MAX_COUNT)),
        "uniqueCounterparties": record.count((*_METADATA, "unique_counterparties"), MAX_COUNT),
        "protocolsUsed": _protocols_used(record, names),
        "protocolNames": names,
        "borrowCount": lending["borrow"],
        "repayCount": lending["repay"],
        "liquidateCount": lending["liquidate"],
        "numTokens": tokens,
        "diversificationScore": _whole_if_it_is(
            record.number((*_CONCENTRATION, "diversification_score"), 100)
        ),
        "concentrationRisk": _concentration_risk(record, tokens),
        "supplyCount": lending["supply"],
        "withdrawCount": lending["withdraw"],
        "poapCount": _nft_count(record, "poaps", "poaps"),
        "nftCount": _nft_count(record, "legit_nfts", "legit"),
        "ethBalance": _real(record.number(("eth_balance",), MAX_ETH)),
    }
    return Extraction(features, record.defaulted)


def _real(value: Number) -> float:
    # + 0.0 turns -0.0, which JSON can hold, into 0.0.
    return float(value) + 0.0


def _whole_if_it_is(value: Number) -> Number:
    return int(value) if value == int(value) else value


def _protocol_names(record: DirtyRecord) -> list[str]:
    """Names of the protocols flagged as used, lower case, sorted, without repeats.

    The protocols of the seed count as used where the value is true, "true" or a positive number
    (some aggregators give the interaction count); any other key only where it is true, since
    totals and statistics stand beside the flags.
    """
    names = set()
    for key, value in sorted(record.section(_INTERACTIONS).items()):
        name = "_".join(key.lower().split()) if len(key) <= 64 else ""
        path = (*_INTERACTIONS, key)
        if value is True and not _PROTOCOL_NAME.fullmatch(name):
            record.report(path, "is no usable protocol name, left out")
        elif value is True or (name in _KNOWN_PROTOCOLS and _flagged(record, path, value)):
            names.add(name)
    ordered = sorted(names)
    if len(ordered) > MAX_PROTOCOL_NAMES:
        record.report(
            _INTERACTIONS, f"names {len(ordered)} protocols, the first {MAX_PROTOCOL_NAMES} kept"
        )
    return ordered[:MAX_PROTOCOL_NAMES]


def _flagged(record: DirtyRecord, path: Path, value: object) -> bool:
    if isinstance(value, bool):
        return value
    if isinstance(value, str) and value.strip().lower() in ("true", "false"):
        return value.strip().lower() == "true"
    if value is None:
        record.report(path, "null")
        return False
    return record.number(path, MAX_COUNT) > 0


def _protocols_used(record: DirtyRecord, names: list[str]) -> int:
    """`total_protocols`, but never fewer than are named; the names where there is no total."""
    path = (*_INTERACTIONS, "total_protocols")
    value, problem = record.find(path)
    if value is None:
        record.report(path, f"{problem}; the {len(names)} flagged are taken")
        return len(names)
    total = record.count(path, MAX_PROTOCOLS)
    if total < len(names):
        record.report(path, f"{len(names)} protocols are flagged, {len(names)} taken")
    return max(total, len(names))


def _lending_counts(record: DirtyRecord) -> dict[str, int]:
    """Lending events summed over all protocols."""
    totals = dict.fromkeys(_LENDING_COUNTERS, 0)
    for key, protocol in sorted(record.section(_LENDING).items()):
        if not isinstance(protocol, Mapping):
            record.report((*_LENDING, key), f"is {kind(protocol)}, not an object")
            continue
        for counter in _LENDING_COUNTERS:
            totals[counter] += record.count((*_LENDING, key, f"{counter}_count"), MAX_COUNT)
    for counter, total in totals.items():
        if total > MAX_COUNT:
            record.report(_LENDING, f"{counter} counts add up beyond all reason, bounded")
            totals[counter] = MAX_COUNT
    return totals


def _token_count(record: DirtyRecord) -> int:
    """`num_tokens`, or the number of holdings where it is not there."""
    path = (*_CONCENTRATION, "num_tokens")
    value, problem = record.find(path)
    holdings = record.items(("tokens", "holdings"))
    if value is None and holdings is not None:
        record.report(path, f"{problem}; counted from /tokens/holdings")
        return sum(holding is not None for holding in holdings)
    return record.count(path, MAX_COUNT)


def _concentration_risk(record: DirtyRecord, tokens: int) -> float:
    """The Herfindahl index. With n tokens it is at least 1/n, so a 0 was never computed."""
    path = (*_CONCENTRATION, "herfindahl_index")
    value, problem = record.find(path)
    risk = _real(record.number(path, 1))
    if not problem and value == 0 and tokens > 0:
        record.report(path, f"is 0 with {tokens} tokens: never computed")
    return risk


def _nft_count(record: DirtyRecord, items: str, counter: str) -> int:
    """Entries of the list, nulls left out; the aggregator's own count where there is no list."""
    entries = record.items(("nfts", items))
    if entries is not None:
        return sum(entry is not None for entry in entries)
    value, problem = record.find(("nfts", items))
    problem = problem or f"is {kind(value)}, not a list"
    if record.find(("nfts", "counts", counter))[0] is None:
        record.report(("nfts", items), problem)
        return 0
    record.report(("nfts", items), f"{problem}; /nfts/counts/{counter} taken")
    return record.count(("nfts", "counts", counter), MAX_COUNT)
