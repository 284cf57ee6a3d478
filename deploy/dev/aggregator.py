"""A simulated aggregator: a wallet record for any address, made from the address alone.

For the embedded stack, so that `GET /score?address=` works without an account anywhere. The same
address always gets the same record; nothing in it is about a real wallet.
"""

from __future__ import annotations

import hashlib
import random
from typing import Any

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from assay.wallet import AddressError, parse_address

_PROTOCOLS = ("aave", "compound", "uniswap", "curve", "ethena", "morpho")


def simulated_record(address: str) -> dict[str, Any]:
    """A wallet record in the aggregator's shape (see the samples)."""
    seed = hashlib.sha256(address.lower().encode()).digest()
    draw = random.Random(seed)
    age = draw.randint(1, 2_500)
    transactions = draw.randint(1, 40) * max(1, age // 30)
    used = {name: draw.random() < 0.4 for name in _PROTOCOLS}
    borrowed = draw.randint(0, 12) if any(used.values()) else 0
    tokens = draw.randint(0, 60)
    return {
        "wallet": address,
        "wallet_metadata": {
            "wallet_age_days": age,
            "total_transactions": transactions,
            "unique_counterparties": draw.randint(1, transactions),
            "average_txs_per_month": round(transactions * 30 / age, 2),
        },
        "defi_analysis": {"protocol_interactions": {**used, "total_protocols": sum(used.values())}},
        "lending_history": {
            "protocol_analysis": {
                "protocols": {
                    f"0x{seed.hex()[:40]}": {
                        "borrow_count": borrowed,
                        "repay_count": draw.randint(0, borrowed),
                        "liquidate_count": draw.randint(0, 2) if borrowed else 0,
                        "supply_count": draw.randint(0, 9),
                        "withdraw_count": draw.randint(0, 5),
                    }
                }
            }
        },
        "tokens": {
            "holdings": [],
            "concentration": {
                "diversification_score": draw.randint(0, 100),
                "herfindahl_index": round(draw.random(), 3),
                "num_tokens": tokens,
            },
        },
        "nfts": {"poaps": [], "legit_nfts": []},
        "eth_balance": round(draw.random() * 10, 6),
    }


def app() -> Starlette:
    """`GET /wallets/{address}`: 200 with the record, 404 for what is no address."""

    async def wallet(request: Request) -> Response:
        try:
            address = parse_address(request.path_params["address"])
        except AddressError as error:
            return JSONResponse({"error": str(error)}, status_code=404)
        return JSONResponse(simulated_record(address.spelled))

    return Starlette(routes=[Route("/wallets/{address}", wallet)])
