"""E-mail addresses, also in URLs (`%40`), spelt (`[at]`) and with letters of any script."""

from __future__ import annotations

import re
from collections.abc import Iterator

from assay_runtime.redaction.span import EMAIL, Span

_AT = re.compile(r"@|%40")
_MOST_LOCAL = 64
_LOCAL = re.compile(r"[\w.!#$*+'’%~^-]*$")
_QUOTED = re.compile(r"(?<![\w\\])\"[\w .+'-]{1,62}\"$")
_LABEL = r"[^\W_](?:[\w-]{0,61}[^\W_])?"
_DOMAIN = re.compile(rf"{_LABEL}(?:\.{_LABEL}){{1,8}}")
_TOP = re.compile(r"[^\W\d_]{2,24}|xn--[0-9a-z-]{1,59}", re.IGNORECASE)
_TIED = re.compile(r"[^\W\d_]{2,24}(?=[-_])")  # "a@b.com-old" ends before "-old"
_ENCODED = re.compile(r"(?:%[0-9A-Fa-f]{2})+")
_VERSION = re.compile(r"v?[0-9]+(?:\.[0-9]+)+", re.IGNORECASE)
_IMAGE = re.compile(r"[0-9]x\.(?:png|jpe?g|webp|gif|svg)", re.IGNORECASE)
_USERINFO = re.compile(r"[A-Za-z][A-Za-z0-9+.-]{1,15}://[^\s/?#\"']*$")
_SPELT = re.compile(
    rf"(?<![\w.+-])[\w.+-]{{1,64}}\s?[\[({{]\s?at\s?[\])}}]\s?{_LABEL}"
    rf"(?:(?:\.|\s?[\[({{]\s?dot\s?[\])}}]\s?){_LABEL}){{0,8}}"
    r"(?:\.|\s?[\[({]\s?dot\s?[\])}]\s?)[^\W\d_]{2,24}(?![^\W_])",
    re.IGNORECASE,
)
SPELT_AT = re.compile(r"[\[({]\s?at\s?[\])}]", re.IGNORECASE)


def find_emails(text: str) -> Iterator[Span]:
    """Addresses without what surrounds them: angle brackets, `mailto:`, full stops."""
    done = 0
    for at in _AT.finditer(text):
        if at.start() < done:
            continue
        start = _local_start(text, max(done, at.start() - _MOST_LOCAL), at.start())
        end = _domain_end(text, at.end())
        if start is None or end is None or _is_login(text, start, end):
            continue
        yield Span(start, end, EMAIL)
        done = end
    if SPELT_AT.search(text):
        yield from (Span(*match.span(), EMAIL) for match in _SPELT.finditer(text))


def _local_start(text: str, least: int, at: int) -> int | None:
    window = text[least:at]
    if quoted := _QUOTED.search(window):
        return least + quoted.start()
    if window.endswith("."):
        return None
    match = _LOCAL.search(window)
    start = least + match.start() if match else at
    # What is no letter or digit leads in rather than belongs to the name.
    while start < at:
        if encoded := _ENCODED.match(text, start, at):
            start = encoded.end()
        elif text[start].isalnum() or text[start] in "_+":
            break
        else:
            start += 1
    if start + 1 < at and start and text[start - 1] == "\\" and text[start] in "nrtbf":
        start += 1  # an escaped line break
    return start if start < at else None


def _domain_end(text: str, start: int) -> int | None:
    match = _DOMAIN.match(text, start)
    if match is None or _VERSION.match(match[0]) or _IMAGE.fullmatch(match[0]):
        return None
    labels = match[0].split(".")
    # The longest part that ends in a top-level domain: "a@b.example.2" ends before ".2".
    while len(labels) > 1 and not _TOP.fullmatch(labels[-1]):
        cut = _TIED.match(labels.pop())
        if cut:
            labels.append(cut[0])
    return start + len(".".join(labels)) if len(labels) > 1 else None


def _is_login(text: str, start: int, end: int) -> bool:
    """Whether it is the login of a URL (`https://name@host.example`) or `git@host:path`."""
    if text[start:end].startswith("git@") and text[end : end + 1] in (":", "/"):
        return True
    ahead = text[max(0, start - 96) : start]
    return "://" in ahead and _USERINFO.search(ahead) is not None
