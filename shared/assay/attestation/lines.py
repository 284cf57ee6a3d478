"""Offline judgement of signed scores written one JSON object a line (SPEC X.3).

Three forms are read: the flat score of `assay tail --json`, the HTTP answer (the same, perhaps
without `public_key`), and the signed event with its `attestations`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from assay.attestation.errors import AttestationError, SignatureError
from assay.attestation.keys import PublicKey
from assay.attestation.sui import SCHEME, verify_score
from assay.json_kinds import kind

_HEX = re.compile(r"(?:0x)?((?:[0-9a-fA-F]{2})*)", re.ASCII)
_SHOWN = 80


@dataclass(frozen=True, slots=True)
class Judgement:
    """Whether a line's score is signed by a trusted key; `reason` says why not."""

    request_id: str | None
    valid: bool
    reason: str | None
    score: object = None
    wallet_address: object = None


class _Unreadable(Exception):
    """The line is no signed score; the message says why."""


class _Claim(NamedTuple):
    """One signature of a line and the key it says it is by."""

    public_key: str | None
    signature: bytes


def judge_line(text: str, trusted: Sequence[PublicKey]) -> Judgement:
    """Judge one line against the keys the reader trusts; never raises.

    A key that the line names is never trusted: naming another than a trusted one makes the line
    invalid, except for an attestation beside one that a trusted key made.
    """
    try:
        line = _parse(text)
    except _Unreadable as error:
        return Judgement(None, False, str(error))
    request_id = _request_id(line)
    try:
        _verify(line, trusted)
    except (_Unreadable, AttestationError) as error:
        return Judgement(
            request_id, False, str(error), line.get("score"), line.get("wallet_address")
        )
    return Judgement(request_id, True, None, line["score"], line["wallet_address"])


def _parse(text: str) -> dict[str, Any]:
    try:
        document = json.loads(
            text, object_pairs_hook=_unique_pairs, parse_constant=_refuse_constant
        )
    except RecursionError as error:
        raise _Unreadable("the JSON is nested too deep") from error
    except json.JSONDecodeError as error:
        raise _Unreadable(f"no JSON: {error.msg} at column {error.colno}") from error
    except ValueError as error:
        raise _Unreadable("no JSON: a number has too many digits") from error
    if not isinstance(document, dict):
        raise _Unreadable(f"a JSON object is expected, not {kind(document)}")
    return document


def _unique_pairs(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for name in names if names.count(name) > 1)
        raise _Unreadable(f"the key {twice[:_SHOWN]!r} stands twice in one object")
    return found


def _refuse_constant(name: str) -> None:
    raise _Unreadable(f"{name} is no JSON")


def _request_id(line: Mapping[str, Any]) -> str | None:
    meta = line.get("meta")
    request_id = line.get("request_id", meta.get("request_id") if isinstance(meta, dict) else None)
    return request_id if isinstance(request_id, str) else None


def _verify(line: Mapping[str, Any], trusted: Sequence[PublicKey]) -> None:
    for field in ("score", "wallet_address", "timestamp_ms"):
        if field not in line:
            raise _Unreadable(f"{field} is missing")
    claims = [claim for claim in _claims(line) if _may_be_by(claim, trusted)]
    if not claims:
        raise SignatureError("no attestation of it is by the given key")
    for claim in claims:
        _verify_claim(line, claim, trusted)


def _claims(line: Mapping[str, Any]) -> list[_Claim]:
    """The line's signatures; a flat one must be right, whatever stands beside it."""
    claims = []
    if "signature" in line or "attestations" not in line:
        claims.append(_claim(line, "the line"))
    if "attestations" in line:
        attestations = line["attestations"]
        if not isinstance(attestations, list) or not attestations:
            raise _Unreadable("attestations is no list of at least one")
        for attestation in attestations:
            if not isinstance(attestation, dict):
                raise _Unreadable(f"an attestation is an object, not {kind(attestation)}")
            if attestation.get("scheme") == SCHEME:
                claims.append(_claim(attestation, "an attestation"))
    if not claims:
        raise _Unreadable(f"none of the attestations has the scheme {SCHEME}")
    return claims


def _claim(holder: Mapping[str, Any], where: str) -> _Claim:
    signature = holder.get("signature")
    if "signature" not in holder:
        raise _Unreadable(f"{where} has no signature")
    if not isinstance(signature, str) or not (match := _HEX.fullmatch(signature)):
        raise _Unreadable(f"the signature of {where} is no hex text")
    named = holder.get("public_key")
    if named is not None:
        key = _HEX.fullmatch(named) if isinstance(named, str) else None
        if key is None:
            raise _Unreadable(f"the public_key of {where} is no hex text")
        named = key[1].lower()
    return _Claim(named, bytes.fromhex(match[1]))


def _may_be_by(claim: _Claim, trusted: Sequence[PublicKey]) -> bool:
    return claim.public_key is None or any(claim.public_key == key.hex for key in trusted)


def _verify_claim(line: Mapping[str, Any], claim: _Claim, trusted: Sequence[PublicKey]) -> None:
    """Raise the reason unless a trusted key, the one it names if it names one, made it."""
    reason: AttestationError = SignatureError("no key is trusted")
    for key in trusted:
        if claim.public_key not in (None, key.hex):
            continue
        try:
            return verify_score(
                key.data,
                claim.signature,
                score=line["score"],
                wallet_address=line["wallet_address"],
                timestamp_ms=line["timestamp_ms"],
            )
        except AttestationError as error:
            reason = error
    raise reason
