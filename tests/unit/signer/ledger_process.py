"""A signer's process, as far as its ledger sees it: run as a module by the tests.

race ADDRESS WORKER REQUESTS   claims the same requests as every other worker, each with a score
                               and a source event of its own; prints what it won as one JSON line
hold ADDRESS                   reserves one request, says so, and sits there
stream ADDRESS WORKER          reserves and finishes without end, a JSON line after each answer
"""

from __future__ import annotations

import asyncio
import itertools
import json
import sys
import time

from services.signer.domain.reservation import Finished, Reserved
from tests.unit.signer.claims import claim, open_ledger, signature

_WALLETS = [f"0x{number:040x}" for number in range(3)]


def _now_ms() -> int:
    return time.time_ns() // 1_000_000


async def _race(address: str, worker: int, requests: int) -> None:
    ledger = open_ledger(address)
    await ledger.open()
    print("open", flush=True)
    await asyncio.to_thread(sys.stdin.readline)
    won: dict[str, int] = {}
    refused = 0
    for number in range(requests):
        mine = claim(
            f"request-{number}",
            wallet=_WALLETS[number % len(_WALLETS)],
            score=worker,
            source=f"source-{worker}-{number}",
        )
        [answer] = await ledger.reserve([mine], _now_ms())
        if isinstance(answer, Reserved):
            event = f"{worker}:{number}:{answer.timestamp_ms}".encode()
            [stored] = await ledger.finish([signature(mine, event)])
            assert stored.event == event
            won[mine.request_id] = answer.timestamp_ms
        else:
            refused += 1
    await ledger.close()
    print(json.dumps({"won": won, "refused": refused}), flush=True)


async def _hold(address: str) -> None:
    ledger = open_ledger(address)
    await ledger.open()
    [answer] = await ledger.reserve([claim("held", source="source", body=b"held")], _now_ms())
    assert isinstance(answer, Reserved)
    print(answer.timestamp_ms, flush=True)
    await asyncio.to_thread(sys.stdin.readline)


async def _stream(address: str, worker: int) -> None:
    ledger = open_ledger(address)
    await ledger.open()
    for number in itertools.count():
        mine = claim(f"request-{number}", source=f"source-{number}", body=b"body-%d" % worker)
        [answer] = await ledger.reserve([mine], _now_ms())
        if isinstance(answer, Reserved):
            print(json.dumps({"n": number, "reserved": answer.timestamp_ms}), flush=True)
            event = f"{number}:{answer.timestamp_ms}:{answer.body.decode()}".encode()
            [stored] = await ledger.finish([signature(mine, event)])
            print(json.dumps({"n": number, "signed": stored.event.decode()}), flush=True)
        else:
            assert isinstance(answer, Finished), answer
            print(json.dumps({"n": number, "signed": answer.event.decode()}), flush=True)


if __name__ == "__main__":
    if sys.argv[1] == "race":
        asyncio.run(_race(sys.argv[2], int(sys.argv[3]), int(sys.argv[4])))
    elif sys.argv[1] == "hold":
        asyncio.run(_hold(sys.argv[2]))
    else:
        asyncio.run(_stream(sys.argv[2], int(sys.argv[3])))
