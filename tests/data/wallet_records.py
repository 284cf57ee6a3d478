"""Hand-made wallet records for tests, and records of any size in the same shape."""

from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import Any

WALLETS = Path(__file__).with_name("wallets")


def wallet_record(name: str) -> dict[str, Any]:
    """One of `tests/data/wallets/`, by its name without ending."""
    return json.loads((WALLETS / f"{name}.json").read_text(encoding="utf-8"))


def wallet_names() -> list[str]:
    """Names of all hand-made records."""
    return sorted(file.stem for file in WALLETS.glob("*.json"))


def sized_record(size: int, name: str = "rich") -> dict[str, Any]:
    """The record `name` with as many token holdings as make it `size` bytes of compact JSON,
    short of it by less than one holding."""
    record = wallet_record(name)
    holdings = record["tokens"]["holdings"]
    model = holdings[0]

    def written(value: Any) -> int:
        return len(json.dumps(value, separators=(",", ":"), ensure_ascii=False).encode())

    left = size - written(record) - 16
    while True:
        holding = copy.deepcopy(model)
        holding["contract_address"] = f"0x{len(holdings):040x}"
        holding["balance_raw"] = 2**64 + len(holdings)
        left -= written(holding) + 1
        if left < 0:
            break
        holdings.append(holding)
    record["tokens"]["concentration"]["num_tokens"] = len(holdings)
    return record
