"""`assay verify`: check signed scores offline."""

from __future__ import annotations

import json
import os
import re
import sys
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from http.client import HTTPException
from pathlib import Path
from typing import Annotated, Any, BinaryIO

import typer
from rich.console import Console
from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn

from assay.attestation import AttestationError, PublicKey, parse_hex_key, parse_published_keys
from assay.attestation.lines import Judgement, judge_line

_MAX_KEY_BYTES = 1_048_576
_MAX_LINE_BYTES = 16_777_216
_TIMEOUT_S = 10
_HEX_DIGITS = re.compile(r"(0x)?[0-9a-fA-F]{40,}", re.ASCII)


def verify(
    public_key: Annotated[
        str,
        typer.Option(
            "--public-key",
            metavar="HEX_OR_FILE_OR_URL",
            help="66 hex digits, a file, or a URL such as …/public-key or …/jwks.json.",
        ),
    ],
    file: Annotated[
        str, typer.Argument(metavar="FILE|-", help="Signed scores, one JSON object a line.")
    ] = "-",
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object a line.")] = False,
) -> None:
    """Check that each line's score, address and timestamp were signed by the given key.

    The key that a line names is never trusted; a line that names another is invalid. Nothing is
    asked of the network, unless --public-key is a URL.

    Exit codes: 0 all lines valid; 1 a line is invalid, or there is none; 2 wrong usage, which
    includes a key or file that cannot be read.
    """
    trusted = read_trusted_keys(public_key)
    valid = invalid = 0
    with _opened(file) as (source, size), _progress(size) as advance:
        for number, raw in _lines(source, advance):
            judgement = _judge(number, raw, trusted)
            valid += judgement.valid
            invalid += not judgement.valid
            print(_json_line(judgement) if as_json else _readable_line(judgement), flush=True)
    if not valid + invalid:
        print("assay verify: nothing to verify: the input has no line", file=sys.stderr)
        raise typer.Exit(1)
    if not as_json:
        print(f"{valid + invalid} checked: {valid} valid, {invalid} invalid", file=sys.stderr)
    if invalid:
        raise typer.Exit(1)


def read_trusted_keys(source: str) -> list[PublicKey]:
    """The keys that --public-key names; typer.BadParameter with the reason where it names none."""
    try:
        if source.startswith(("http://", "https://")):
            return parse_published_keys(_fetched(source))
        if _HEX_DIGITS.fullmatch(source):
            return [parse_hex_key(source)]
        return parse_published_keys(_read_key_file(Path(source)))
    except FileNotFoundError:
        reason: object = "neither 66 hex digits, nor a file, nor an http(s) URL"
    except (AttestationError, HTTPException) as error:
        reason = error
    except (OSError, ValueError) as error:
        reason = getattr(error, "reason", None) or getattr(error, "strerror", None) or error
    raise typer.BadParameter(f"{_printable(source)}: {reason}", param_hint="--public-key")


def _read_key_file(path: Path) -> str:
    with path.open("rb") as file:
        return _decoded_key(file.read(_MAX_KEY_BYTES + 1))


def _fetched(url: str) -> str:
    # No redirects: the key must come from where the reader said, not from where that points.
    opener = urllib.request.build_opener(_NoRedirect)
    request = urllib.request.Request(url, headers={"accept": "application/json"})  # noqa: S310
    with opener.open(request, timeout=_TIMEOUT_S) as response:
        return _decoded_key(response.read(_MAX_KEY_BYTES + 1))


def _decoded_key(data: bytes) -> str:
    if len(data) > _MAX_KEY_BYTES:
        raise ValueError("too large for a key")
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError:
        raise ValueError("no text, so no key in hex, JWK or JWKS") from None


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    def redirect_request(self, *_: Any, **__: Any) -> None:
        return None


@contextmanager
def _opened(file: str) -> Iterator[tuple[BinaryIO, int | None]]:
    """The input and its size in bytes, where it has one."""
    if file == "-":
        yield sys.stdin.buffer, None
        return
    try:
        source = Path(file).open("rb")  # noqa: SIM115 - closed below
    except OSError as error:
        raise typer.BadParameter(f"{file}: {error.strerror}", param_hint="FILE") from None
    with source:
        yield source, os.fstat(source.fileno()).st_size


@contextmanager
def _progress(size: int | None) -> Iterator[Any]:
    """Progress in bytes, only where it cannot mix with the results."""
    progress = Progress(
        TextColumn("verified"),
        BarColumn(),
        DownloadColumn(),
        TimeRemainingColumn(),
        console=Console(stderr=True),
        disable=not sys.stderr.isatty() or sys.stdout.isatty(),
        transient=True,
    )
    with progress:
        task = progress.add_task("", total=size)
        yield lambda read: progress.advance(task, read)


def _lines(source: BinaryIO, advance: Any) -> Iterator[tuple[int, bytes]]:
    """Numbered lines that are not blank; of an overlong one only its beginning."""
    number = 0
    while piece := source.readline(_MAX_LINE_BYTES + 1):
        number += 1
        advance(len(piece))
        rest = piece
        while not rest.endswith(b"\n") and len(rest) > _MAX_LINE_BYTES:
            rest = source.readline(_MAX_LINE_BYTES + 1)
            advance(len(rest))
        if piece.strip():
            yield number, piece


def _judge(number: int, raw: bytes, trusted: list[PublicKey]) -> Judgement:
    if len(raw) > _MAX_LINE_BYTES:
        return Judgement(None, False, f"line {number}: longer than {_MAX_LINE_BYTES:,} bytes")
    try:
        text = raw.decode("utf-8-sig" if number == 1 else "utf-8")
    except UnicodeDecodeError:
        return Judgement(None, False, f"line {number}: no UTF-8 text")
    judgement = judge_line(text, trusted)
    if judgement.request_id is None and not judgement.valid:
        return Judgement(None, False, f"line {number}: {judgement.reason}")
    return judgement


def _json_line(judgement: Judgement) -> str:
    shown = {
        "request_id": judgement.request_id,
        "valid": judgement.valid,
        "reason": judgement.reason,
    }
    return json.dumps(shown)


def _readable_line(judgement: Judgement) -> str:
    request = _printable(judgement.request_id or "-")
    if judgement.valid:
        address, score = _printable(judgement.wallet_address), judgement.score
        return f"valid    {request:<36}  {address}  {score:>4}"
    return f"INVALID  {request:<36}  {_printable(judgement.reason)}"


def _printable(value: object) -> str:
    """Text of a stranger's, escaped so that it cannot steer a terminal."""
    return str(value)[:200].encode("unicode_escape").decode("ascii")
