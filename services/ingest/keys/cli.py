"""`assay keys`: make, list, revoke and rotate the API keys of the Intelligence API."""

from __future__ import annotations

import asyncio
import json
import re
import secrets
import sys
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Annotated, NoReturn, TypeVar

import structlog
import typer

from assay_runtime.failures import Pause, Stop
from assay_runtime.settings import SettingsError
from services.ingest.domain.api_keys import EVERY_PROCESS, ApiKey, Minted, parse_id
from services.ingest.keys.place import Place, PlaceError, find_place
from services.ingest.keys.shown import as_json, as_lines
from services.ingest.keys.store import KeyStore, open_key_store

T = TypeVar("T")

_DURATION = re.compile(r"(\d{1,6})([smhdw])")
_UNIT_MS = {"s": 1_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000, "w": 604_800_000}
# What still fits the dates that Python can show.
_LONGEST_MS = 36_525 * _UNIT_MS["d"]

app = typer.Typer(no_args_is_help=True, help="API keys of the Intelligence API.")


def duration_ms(text: str) -> int:
    """`90d` and its like in milliseconds; typer.BadParameter where it is none."""
    found = _DURATION.fullmatch(text.strip())
    if found is None or (length := int(found[1]) * _UNIT_MS[found[2]]) > _LONGEST_MS:
        raise typer.BadParameter(f"{text!r} is no time such as 30m, 24h, 90d or 4w")
    return length


Store = Annotated[str | None, typer.Option(help="Ingest's store: sqlite:///PATH or postgresql://…")]
Data = Annotated[
    Path | None,
    typer.Option(exists=True, file_okay=False, help="The folder of `assay up --data`."),
]
AsJson = Annotated[bool, typer.Option("--json", help="JSON on stdout.")]
Which = Annotated[str, typer.Argument(metavar="ID|PREFIX", help="The key, as `list` shows it.")]
Life = Annotated[
    int | None, typer.Option(parser=duration_ms, metavar="TIME", help="As 90d; default: never.")
]


@app.callback()
def keys() -> None:
    """API keys of the Intelligence API.

    The store is that of --store or --data, else of ASSAY_INGEST__STORE, else of the running
    `assay up`. The services may be running; they know of a change within seconds.

    Exit codes: 0 done; 1 there is no such key or no store, or it is away; 2 wrong usage.
    """
    # What the runtime logs is not what was asked for.
    structlog.configure(logger_factory=lambda *_: structlog.PrintLogger(sys.stderr))


@app.command()
def create(
    tenant: Annotated[str, typer.Option(help="Whose requests these will be.")],
    name: Annotated[str, typer.Option(help="What the key is for.")],
    process: Annotated[
        list[str] | None, typer.Option(help="A process the key covers; default: all.")
    ] = None,
    expires: Life = None,
    rate: Annotated[int | None, typer.Option(min=1, max=10**6, help="Requests a minute.")] = None,
    burst: Annotated[
        int | None, typer.Option(min=1, max=10**6, help="Requests at once after a quiet time.")
    ] = None,
    concurrency: Annotated[
        int | None, typer.Option(min=1, max=10**6, help="Requests running at once.")
    ] = None,
    store: Store = None,
    data: Data = None,
    json_: AsJson = False,
) -> None:
    """Make a key and print it, this once: only its hash is kept.

    Limits that are not given are the service's defaults.
    """
    place, now_ms = _find(store, data), _now_ms()
    minted = Minted.make(secrets.randbelow)
    try:
        key = ApiKey(
            *(minted.presented.id, minted.presented.digest, tenant, name),
            scopes=frozenset(process or [EVERY_PROCESS]),
            created_ms=now_ms,
            expires_ms=None if expires is None else now_ms + expires,
            per_minute=rate,
            burst=burst,
            concurrency=concurrency,
        )
    except ValueError as error:
        raise typer.BadParameter(str(error)) from None
    _run(place, lambda found: found.add(key), makes=True)
    _hand_over(minted, key, place, now_ms, json_=json_)


@app.command("list")
def list_(store: Store = None, data: Data = None, json_: AsJson = False) -> None:
    """Show all keys, the newest first. Last use is known to the minute."""
    place, now_ms = _find(store, data), _now_ms()
    found = _run(place, lambda keys: keys.keys())
    if json_:
        print(json.dumps([as_json(key, now_ms) for key in found], ensure_ascii=False))
    elif found:
        print(*as_lines(found, now_ms), sep="\n")
    else:
        print(f"no keys in {place.shown}", file=sys.stderr)


@app.command()
def revoke(key: Which, store: Store = None, data: Data = None, json_: AsJson = False) -> None:
    """Refuse a key from now on; a key that leaked may be given whole. There is no way back."""
    place, key_id, now_ms = _find(store, data), _id(key), _now_ms()

    async def work(found: KeyStore) -> ApiKey:
        await found.revoke(key_id, now_ms)
        return await _known(found, key_id, place)

    revoked = _run(place, work)
    if json_:
        print(json.dumps(as_json(revoked, now_ms), ensure_ascii=False))
    else:
        print(f"{key_id} is revoked", file=sys.stderr)


@app.command()
def rotate(
    key: Which,
    overlap: Annotated[
        int, typer.Option(parser=duration_ms, metavar="TIME", help="The old key counts so long.")
    ] = "24h",  # type: ignore[assignment]  # typer reads it with the parser
    expires: Annotated[
        int | None,
        typer.Option(
            parser=duration_ms,
            metavar="TIME",
            help="Life of the successor; default: that of the old key.",
        ),
    ] = None,
    store: Store = None,
    data: Data = None,
    json_: AsJson = False,
) -> None:
    """Make a key's successor, with its tenant, processes and limits, and print it, this once.

    Both count until the overlap has passed, each with its own limits.
    """
    place, key_id, now_ms = _find(store, data), _id(key), _now_ms()
    minted = Minted.make(secrets.randbelow)

    async def work(found: KeyStore) -> ApiKey:
        old = await _known(found, key_id, place)
        try:
            ending, successor = old.rotated(minted.presented, now_ms, overlap, expires)
        except ValueError as error:
            _fail(str(error))
        if not await found.rotate(ending, successor):
            _fail(f"{old.prefix} was changed meanwhile; try again")
        return successor

    _hand_over(minted, _run(place, work), place, now_ms, json_=json_)


def _hand_over(minted: Minted, key: ApiKey, place: Place, now_ms: int, *, json_: bool) -> None:
    if place.hint:
        print(f"assay keys: {place.hint}", file=sys.stderr)
    if json_:
        print(json.dumps({"key": minted.text, **as_json(key, now_ms)}, ensure_ascii=False))
        return
    print(f"{key.prefix} of tenant {key.tenant}, its hash kept in {place.shown};", file=sys.stderr)
    print("the key itself is not shown again:", file=sys.stderr, flush=True)
    print(minted.text)


def _find(store: str | None, data: Path | None) -> Place:
    try:
        return find_place(store, data)
    except PlaceError as error:
        print(f"assay keys: {error}", file=sys.stderr)
        raise typer.Exit(2) from None


def _run(place: Place, work: Callable[[KeyStore], Awaitable[T]], *, makes: bool = False) -> T:
    """What `work` returns of the open store. Opening makes a store where there is none, which only
    who `makes` keys wants."""
    if not makes and not place.is_made:
        _fail(f"there is no store {place.shown}; it is made by ingest and by `assay keys create`")

    async def opened() -> T:
        store = open_key_store(place.url)
        await store.open()
        try:
            return await work(store)
        finally:
            await store.close()

    try:
        return asyncio.run(opened())
    except (Pause, Stop, SettingsError) as error:
        _fail(str(error))


async def _known(keys: KeyStore, key_id: str, place: Place) -> ApiKey:
    found = next((key for key in await keys.keys() if key.id == key_id), None)
    if found is None:
        _fail(f"there is no key {key_id} in {place.shown}")
    return found


def _id(text: str) -> str:
    found = parse_id(text)
    if found is None:
        # Not repeated: it may be a whole key with a typing mistake.
        raise typer.BadParameter("no id and no prefix of a key", param_hint="ID|PREFIX")
    return found


def _now_ms() -> int:
    return time.time_ns() // 1_000_000


def _fail(message: str) -> NoReturn:
    print(f"assay keys: {message}", file=sys.stderr)
    raise typer.Exit(1)
