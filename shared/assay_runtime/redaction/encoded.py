"""Personal data behind an encoding: JSON's `\\u0040`, HTML's `&#64;`, base64 (SPEC S5.5).

A model's raw answer is JSON inside a JSON text, and what a publisher sends may hold base64. Only
these are looked through, one layer of base64 deep; compressed or encrypted text is not.
"""

from __future__ import annotations

import base64
import binascii
import re

from assay_runtime.redaction.finder import may_hold, redact

# Backslashes are doubled by each layer of JSON around it; a quote or a backslash stays escaped.
_ESCAPE = re.compile(r"\\{1,8}u00(2[013-9a-f]|[3-46][0-9a-f]|5[0-9abd-f]|7[0-9a-e])", re.IGNORECASE)
_AT = re.compile(r"&(?:#0{0,4}64|#[xX]0{0,4}40|commat);")
_PLUS = re.compile(r"&(?:#0{0,4}43|#[xX]0{0,4}2[bB]|plus);")
# Not inside a longer token, and no hash: hex digits alone are no text.
_PACKED = re.compile(
    r"(?<![A-Za-z0-9+/_=-])(?![0-9A-Fa-f]+(?![A-Za-z0-9+/_-]))(?!0[xX])[A-Za-z0-9+/_-]{8,}={0,2}"
    r"(?![A-Za-z0-9+/_=-])"
)
_LONG_TOKEN = re.compile(r"[A-Za-z0-9+/_-]{8}")
_WHITE = frozenset("\t\n\r")


def redact_encoded(text: str, *, under: str = "") -> str:
    """The text redacted, with escapes of visible ASCII characters spelt out where there are any
    and personal data inside base64 replaced there."""
    if "\\u00" in text:
        text = _ESCAPE.sub(lambda match: chr(int(match[1], 16)), text)
    if "&" in text:
        text = _PLUS.sub("+", _AT.sub("@", text))
    if _LONG_TOKEN.search(text):
        text = _PACKED.sub(lambda match: _repacked(match[0], under), text)
    return redact(text, under=under) if may_hold(text) else text


def _repacked(token: str, under: str) -> str:
    """The token with its content redacted; the token itself where that is no text or clean."""
    bare = token.rstrip("=")
    if len(bare) % 4 == 1:
        return token
    special = b"-_" if "-" in bare or "_" in bare else b"+/"
    try:
        unpacked = base64.b64decode(bare + "=" * (-len(bare) % 4), special, validate=True).decode()
    except (binascii.Error, UnicodeDecodeError, ValueError):
        return token
    if not all(character.isprintable() or character in _WHITE for character in unpacked):
        return token
    clean = redact(unpacked, under=under)
    if clean == unpacked:
        return token
    packed = base64.b64encode(clean.encode(), special).decode()
    return packed if token.endswith("=") or len(bare) % 4 == 0 else packed.rstrip("=")
