"""`assay verify`, as a person or a script runs it."""

from __future__ import annotations

import io
import json
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, ClassVar

import pytest
import typer
from coincurve import PrivateKey
from typer.testing import CliRunner, Result

from assay.attestation import PublicKey, message_digest, score_message, sign_digest, to_jwks
from assay.attestation.sui import ORDER
from assay.cli.verify import _lines, verify

WALLET = "0x5aAeb6053F3E94C9b9A09f33669435E7Ef1BeAed"
SECRET = PrivateKey(b"\x07" * 32)
KEY = PublicKey(SECRET.public_key.format(compressed=True))
ATTACKER = PrivateKey(b"\x66" * 32)
ATTACKER_KEY = PublicKey(ATTACKER.public_key.format(compressed=True))
VECTORS = Path(__file__).parents[2] / "vectors"


def _signature(fields: dict[str, Any], secret: PrivateKey = SECRET) -> str:
    message = score_message(
        score=fields["score"],
        wallet_address=fields["wallet_address"],
        timestamp_ms=fields["timestamp_ms"],
    )
    return sign_digest(secret, message_digest(message)).hex()


def _flat(secret: PrivateKey = SECRET, **changes: Any) -> dict[str, Any]:
    """A signed score as `assay tail --json` prints it; `changes` come after the signature."""
    fields: dict[str, Any] = {
        "request_id": "r-1",
        "score": 640,
        "wallet_address": WALLET,
        "timestamp_ms": 1_790_000_000_000,
    }
    fields["signature"] = _signature(fields, secret)
    key = PublicKey(secret.public_key.format(compressed=True))
    return {**fields, "public_key": key.hex, "metadata": {"reasoning": "–"}, **changes}


def _event(*attestations: dict[str, Any], **changes: Any) -> dict[str, Any]:
    """A signed event with its attestations."""
    flat = _flat()
    return {
        "meta": {"request_id": "r-2"},
        "score": flat["score"],
        "wallet_address": flat["wallet_address"],
        "timestamp_ms": flat["timestamp_ms"],
        "attestations": list(attestations) or [_attestation()],
        "metadata": {},
        **changes,
    }


def _attestation(secret: PrivateKey = SECRET, **changes: Any) -> dict[str, Any]:
    flat = _flat(secret)
    return {
        "scheme": "sui-secp256k1",
        "network": "sui:testnet",
        "kid": "k",
        "public_key": flat["public_key"],
        "signature": flat["signature"],
        **changes,
    }


def _run(*arguments: str, text: str | bytes = "") -> Result:
    app = typer.Typer()
    app.command()(verify)
    return CliRunner().invoke(app, list(arguments), input=text)


def _judge(line: Any, key: str = KEY.hex) -> tuple[dict[str, Any], int]:
    """The judgement of one line through the command, and the exit code."""
    text = line if isinstance(line, (str, bytes)) else json.dumps(line)
    result = _run("--public-key", key, "--json", text=text)
    assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
    [judgement] = [json.loads(row) for row in result.stdout.splitlines()]
    assert set(judgement) == {"request_id", "valid", "reason"}
    return judgement, result.exit_code


@pytest.mark.parametrize(
    "line",
    [
        _flat(),
        _flat(signature="0x" + _flat()["signature"]),
        _flat(signature=_flat()["signature"].upper()),
        _flat(public_key=KEY.hex.upper()),
        _flat(public_key="0x" + KEY.hex),
        {k: v for k, v in _flat().items() if k not in ("public_key", "metadata")},
        _flat(extra={"deep": [1, {"a": None}]}),
        _event(),
        _event(_attestation(scheme="eip712", signature="no hex"), _attestation()),
        _event(_attestation(ATTACKER), _attestation()),
        {**_event(), **_flat()},
    ],
    ids=[
        "flat", "0x", "upper", "key-upper", "key-0x", "http", "extra", "event", "other-scheme",
        "beside-another-key", "both-forms",
    ],
)  # fmt: skip
def test_what_is_signed_is_valid(line: dict[str, Any]) -> None:
    """X.3: the flat form, the HTTP answer and the signed event."""
    judgement, code = _judge(line)
    assert judgement == {
        "request_id": line.get("request_id") or line["meta"]["request_id"],
        "valid": True,
        "reason": None,
    }
    assert code == 0


_HIGH_S = _flat()["signature"][:64] + f"{ORDER - int(_flat()['signature'][64:], 16):064x}"


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        (_flat(score=641), "does not fit"),
        (_flat(timestamp_ms=1_790_000_000_001), "does not fit"),
        (_flat(wallet_address=WALLET.lower()), "does not fit"),
        (_flat(score=True), "not bool"),
        (_flat(score=640.0), "not float"),
        (_flat(score="640"), "not str"),
        (_flat(score=None), "not NoneType"),
        (_flat(score=-1), "outside"),
        (_flat(score=2**64), "outside"),
        (_flat(timestamp_ms="1790000000000"), "not str"),
        (_flat(wallet_address=None), "not NoneType"),
        (_flat(wallet_address="\ud800"), "surrogate"),
        (_flat(signature=_HIGH_S), "high s"),
        (_flat(signature=""), "not 0"),
        (_flat(signature=_flat()["signature"] + "1b"), "not 65"),
        (_flat(signature=_flat()["signature"][:-1]), "no hex text"),
        (_flat(signature="zz" * 64), "no hex text"),
        (_flat(signature=None), "no hex text"),
        (_flat(signature=5), "no hex text"),
        (_flat(public_key=5), "no hex text"),
        (_flat(public_key=ATTACKER_KEY.hex), "by the given key"),
        (_flat(ATTACKER), "by the given key"),
        (_flat(ATTACKER, public_key=KEY.hex), "does not fit"),
        (_flat(ATTACKER, public_key=None), "does not fit"),
        ({k: v for k, v in _flat().items() if k != "signature"}, "no signature"),
        ({k: v for k, v in _flat().items() if k != "score"}, "score is missing"),
        (_event(score=641), "does not fit"),
        (_event(attestations=[]), "no list of at least one"),
        (_event(attestations={}), "no list"),
        (_event(attestations=[5]), "an object, not a number"),
        (_event(_attestation(scheme="eip712")), "scheme sui-secp256k1"),
        (_event(_attestation(ATTACKER)), "by the given key"),
        (_event(_attestation(), _attestation(ATTACKER, public_key=KEY.hex)), "does not fit"),
        (_event(_attestation(ATTACKER, public_key=None)), "does not fit"),
        ({**_event(), **_flat(ATTACKER, public_key=None)}, "does not fit"),
    ],
)
def test_what_is_not_signed_is_invalid(line: dict[str, Any], reason: str) -> None:
    """X.3: every change to what is signed, and a key that the line itself brings, is found."""
    judgement, code = _judge(line)
    assert judgement["request_id"] in ("r-1", "r-2")
    assert not judgement["valid"]
    assert reason in judgement["reason"]
    assert code == 1


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("rubbish", "line 1: no JSON"),
        ("{", "line 1: no JSON"),
        ("null", "a JSON object is expected, not null"),
        ("[1]", "a JSON object is expected, not a list"),
        ("true", "not a boolean"),
        ("17", "not a number"),
        ('"text"', "not a string"),
        ("1" * 5_000, "too many digits"),
        ('{"score": ' + "1" * 5_000 + "}", "too many digits"),
        ("[" * 100_000, "nested too deep"),
        ('{"a":' * 100_000, "nested too deep"),
        (b"\xff\xfe{}", "no UTF-8"),
        ('{"score": 1, "score": 1}', "'score' stands twice"),
        ('{"metadata": {"a": {"b": 1, "b": 2}}}', "'b' stands twice"),
        ("{}", "score is missing"),
        ('{"request_id": 5, "meta": 7}', "score is missing"),
        ("\x00", "no JSON"),
        ('{"metadata": {"x": NaN}}', "NaN is no JSON"),
    ],
)
def test_rubbish_is_reported_and_crashes_nothing(text: str | bytes, reason: str) -> None:
    """X.4: a line that is no signed score is invalid, with its number and the reason."""
    judgement, code = _judge(text)
    assert judgement["request_id"] is None
    assert not judgement["valid"]
    assert reason in judgement["reason"]
    assert judgement["reason"].startswith("line 1: ")
    assert code == 1


def test_duplicate_keys_are_invalid_even_when_signed() -> None:
    """X.3: two readers could take two different scores from such a line."""
    text = json.dumps(_flat())
    judgement, code = _judge(text[:-1] + ', "score": 640}')
    assert not judgement["valid"]
    assert code == 1


def test_one_bad_line_among_good_ones(tmp_path: Path) -> None:
    """X.4: the others are still judged, in order, and the exit code tells."""
    rows = [json.dumps(_flat(request_id=f"r-{n}")) for n in range(3)]
    rows[1] = "rubbish"
    file = tmp_path / "scores.jsonl"
    file.write_text("\ufeff" + "\n\n".join(rows) + "\n   \n", encoding="utf-8")
    result = _run("--public-key", KEY.hex, str(file), "--json")
    judgements = [json.loads(row) for row in result.stdout.splitlines()]
    assert [j["valid"] for j in judgements] == [True, False, True]
    assert [j["request_id"] for j in judgements] == ["r-0", None, "r-2"]
    assert judgements[1]["reason"].startswith("line 3: ")
    assert result.exit_code == 1


def test_a_readable_report() -> None:
    """X.3: without --json a line each for a person, and a sum."""
    result = _run("--public-key", KEY.hex, text="\n".join(
        [json.dumps(_flat()), json.dumps(_flat(score=1, request_id="bad\x1b[31m\nvalid"))]
    ))  # fmt: skip
    good, bad = result.stdout.splitlines()
    assert good.startswith("valid ")
    assert WALLET in good
    assert " 640" in good
    assert bad.startswith("INVALID ")
    assert "\x1b" not in bad
    assert "2 checked: 1 valid, 1 invalid" in result.stderr
    assert result.exit_code == 1


@pytest.mark.parametrize("text", ["", "\n", "  \n\n"])
def test_nothing_to_verify_is_no_success(text: str) -> None:
    """X.3: an empty input must not look like a verified one."""
    result = _run("--public-key", KEY.hex, "-", "--json", text=text)
    assert result.exit_code == 1
    assert "nothing to verify" in result.stderr
    assert result.stdout == ""


def test_a_line_too_long(monkeypatch: pytest.MonkeyPatch) -> None:
    """X.5: memory is bounded; the line behind it is judged again."""
    monkeypatch.setattr("assay.cli.verify._MAX_LINE_BYTES", 1_000)
    rows = [json.dumps(_flat()), "x" * 10_000, json.dumps(_flat())]
    result = _run("--public-key", KEY.hex, "--json", text="\n".join(rows))
    judgements = [json.loads(row) for row in result.stdout.splitlines()]
    assert [j["valid"] for j in judgements] == [True, False, True]
    assert "line 2: longer than" in judgements[1]["reason"]


def test_golden_and_negative_vectors_through_the_command() -> None:
    """S3.9: 60 valid, 38 invalid, by the same command a stranger uses."""
    golden = json.loads((VECTORS / "sui_golden.json").read_text(encoding="utf-8"))["vectors"]
    negative = json.loads((VECTORS / "sui_negative.json").read_text(encoding="utf-8"))["vectors"]
    for vector in golden + negative:
        line = {
            "request_id": str(vector["id"]),
            "score": int(vector["score"]),
            "wallet_address": vector["wallet_address"],
            "timestamp_ms": int(vector["timestamp_ms"]),
            "signature": vector["signature_hex"],
        }
        if len(vector["public_key_hex"]) != 66:
            result = _run("--public-key", vector["public_key_hex"], text=json.dumps(line))
            assert result.exit_code == 2
            continue
        judgement, _ = _judge(line, vector["public_key_hex"])
        assert judgement["valid"] is (vector.get("expect") != "reject"), vector


class _Page(BaseHTTPRequestHandler):
    """Answers each path with what the test put there."""

    pages: ClassVar[dict[str, tuple[int, bytes]]] = {}

    def do_GET(self) -> None:
        if self.path == "/slow":
            time.sleep(2)
        if self.path == "/no-http":
            self.wfile.write(b"what?\r\n\r\n")
            return
        status, body = self.pages.get(self.path, (404, b""))
        self.send_response(status)
        if status == 302:
            self.send_header("location", "/public-key")
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        return


@pytest.fixture
def site(monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """A web site with keys on it."""
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    _Page.pages = {
        "/public-key": (200, json.dumps({"public_key": KEY.hex}).encode()),
        "/.well-known/jwks.json": (200, json.dumps(to_jwks([ATTACKER_KEY, KEY])).encode()),
        "/rubbish": (200, b"<html>"),
        "/binary": (200, b"\xff\xff"),
        "/huge": (200, b" " * 1_100_000),
        "/moved": (302, b""),
    }
    server = ThreadingHTTPServer(("127.0.0.1", 0), _Page)
    server.handle_error = lambda *_: None  # type: ignore[method-assign]
    thread = threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    server.server_close()


@pytest.mark.parametrize("path", ["/public-key", "/.well-known/jwks.json"])
def test_a_key_from_a_url(site: str, path: str) -> None:
    """X.3: what the oracle publishes can be named directly; one key of a JWKS is enough."""
    judgement, code = _judge(_flat(), site + path)
    assert judgement["valid"]
    assert code == 0


@pytest.mark.parametrize(
    ("path", "reason"),
    [
        ("/absent", "Not Found"),
        ("/rubbish", "66 hex digits"),
        ("/binary", "no text"),
        ("/huge", "too large"),
        ("/moved", "Found"),
        ("/no-http", "what?"),
        ("/slow", "timed out"),
    ],
)
def test_a_url_without_a_key(
    site: str, path: str, reason: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """X.4: no key, no verdict; a redirect is not followed."""
    monkeypatch.setattr("assay.cli.verify._TIMEOUT_S", 0.5)
    result = _run("--public-key", site + path, "--json", text=json.dumps(_flat()))
    assert result.exit_code == 2
    assert reason in " ".join(result.stderr.replace("│", " ").split())
    assert result.stdout == ""


@pytest.mark.parametrize(
    "content",
    [
        KEY.hex,
        KEY.hex + "\n",
        json.dumps({"public_key": KEY.hex}),
        json.dumps(KEY.to_jwk()),
        json.dumps(to_jwks([KEY]), indent=2),
    ],
    ids=["hex", "newline", "public-key", "jwk", "jwks"],
)
def test_a_key_from_a_file(tmp_path: Path, content: str) -> None:
    """X.3: a key that was kept verifies offline."""
    file = tmp_path / "key"
    file.write_text(content, encoding="utf-8")
    judgement, code = _judge(_flat(), str(file))
    assert judgement["valid"]
    assert code == 0


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (["--public-key", "nowhere"], "neither 66 hex digits, nor a file"),
        (["--public-key", ""], "--public-key"),
        (["--public-key", KEY.hex[:-2]], "66 hex digits"),
        (["--public-key", "05" + KEY.hex[2:]], "no point"),
        (["--public-key", "http://127.0.0.1:1/"], "refused"),
        (["--public-key", "http://[/"], "--public-key"),
        (["--public-key", "/"], "directory"),
        (["--public-key", KEY.hex, "absent.jsonl"], "No such file"),
        (["--public-key", KEY.hex, "/"], "directory"),
        ([], "--public-key"),
    ],
)
def test_wrong_usage(arguments: list[str], reason: str) -> None:
    """X.4: exit code 2 and what is wrong."""
    result = _run(*arguments, text=json.dumps(_flat()))
    assert result.exit_code == 2
    assert reason in " ".join(result.stderr.replace("│", " ").split())


def test_lines_are_judged_as_they_come() -> None:
    """X.3: `assay tail --json | assay verify` reports without waiting for the end."""

    class Slow(io.BytesIO):
        lines = 0

        def readline(self, size: int | None = -1, /) -> bytes:
            self.lines += 1
            return super().readline(size)

    source = Slow(b"{}\n{}\n{}\n")
    stream = _lines(source, lambda _: None)
    next(stream)
    assert source.lines == 1
