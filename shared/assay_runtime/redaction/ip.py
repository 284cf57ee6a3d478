"""IP addresses of single hosts; versions, networks, loopback and netmasks are none."""

from __future__ import annotations

import re
from collections.abc import Iterator
from ipaddress import AddressValueError, IPv4Address, IPv6Address, ip_network

from assay_runtime.redaction.cues import Context
from assay_runtime.redaction.span import IP, Span
from assay_runtime.redaction.vocabulary import IP_WORDS, VERSION_WORDS

_V4 = re.compile(r"(?<![^\W_])(?<![.])[0-9]{1,3}(?:\.[0-9]{1,3}){3}(?![^\W_])(?!\.[0-9])")
_V6 = re.compile(
    r"(?<![0-9A-Za-z.])[0-9A-Fa-f]{0,4}(?::[0-9A-Fa-f]{0,4}){2,8}"
    r"(?:(?<=:)[0-9]{1,3}(?:\.[0-9]{1,3}){3})?(?![0-9A-Za-z])"
)
_V4_MAPPED = re.compile(
    r"(?<![0-9A-Za-z.:])(?:::(?:ffff:)?|64:ff9b::)[0-9]{1,3}(?:\.[0-9]{1,3}){3}(?![^\W_])",
    re.IGNORECASE,
)
_PREFIX = re.compile(r"/([0-9]{1,3})(?![0-9.])")
_PORT = re.compile(r":[0-9]{2,5}(?![0-9])")
_SPECIFIER = re.compile(r"(?:[=~<>!^]=?|[^\W\d_]-|[@_])\s?$")
_RELEASE = re.compile(
    r"[-+](?:rc|alpha|beta|snapshot|release|final|ga|dev|[a-z][0-9])|\.[x*]", re.IGNORECASE
)
# Below it an address looks like a version and needs a word that says otherwise.
_SMALL_FIRST, _SMALL = 10, 30
_WHOLE_V6 = 27


def find_ips(text: str) -> Iterator[Span]:
    """Addresses without brackets, port, zone or prefix length."""
    if text.count(":") > 1:
        yield from _find_v6(text)
    for match in _V4.finditer(text):
        if _is_host_v4(match[0]) and _reads_as_v4(text, *match.span()):
            yield Span(*match.span(), IP)


def _find_v6(text: str) -> Iterator[Span]:
    for match in _V4_MAPPED.finditer(text):
        if _parsed_v6(match[0]) is not None:
            yield Span(*match.span(), IP)
    for match in _V6.finditer(text):
        written = match[0]
        if written.endswith(":") and not written.endswith("::"):
            written = written[:-1]
        address = _parsed_v6(written)
        end = match.start() + len(written)
        if address is None or not (_is_host_v6(address) or _is_whole(written)):
            continue
        if not _is_network(text, written, end):
            yield Span(match.start(), end, IP)


def _parsed_v6(written: str) -> IPv6Address | None:
    try:
        return IPv6Address(written)
    except AddressValueError:
        return None


def _is_host_v6(address: IPv6Address) -> bool:
    """Global unicast, unique local or link local."""
    first = int(address) >> 112
    return first >> 13 == 1 or first >> 9 == 0x7E or first >> 6 == 0x3FA


def _is_whole(written: str) -> bool:
    """Whether all eight groups are there and not just small numbers: a list is none."""
    return "::" not in written and len(written) >= _WHOLE_V6


def _is_host_v4(written: str) -> bool:
    try:
        address = IPv4Address(written)
    except AddressValueError:
        return False
    return 0 < int(address) >> 24 < 224 and not address.is_loopback


def _reads_as_v4(text: str, start: int, end: int) -> bool:
    written = text[start:end]
    if _is_network(text, written, end) or _RELEASE.match(text, end):
        return False
    if _PORT.match(text, end):
        return True
    ahead = text[max(0, start - 3) : start]
    if ahead.endswith("/") and ahead[-2:-1].isalpha():
        return False  # User-Agent products: Chrome/120.0.0.1
    context = Context(text, start, end)
    key_value = re.search(r"[\w\"']\s?=$", text[max(0, start - 4) : start]) is not None
    if _SPECIFIER.search(ahead) and not key_value and not context.names(IP_WORDS, VERSION_WORDS):
        return False
    if context.names(IP_WORDS, VERSION_WORDS):
        return True
    if not context.after.isdisjoint(VERSION_WORDS):
        return False
    parts = [int(part) for part in written.split(".")]
    small = parts[0] < _SMALL_FIRST and max(parts) < _SMALL
    return not small and not any(word in VERSION_WORDS for word in context.words[:3])


def _is_network(text: str, written: str, end: int) -> bool:
    """Whether a prefix length follows and no bit behind it is set: a range, and no one's."""
    prefix = _PREFIX.match(text, end)
    if prefix is None:
        return False
    try:
        network = ip_network(f"{written}/{prefix[1]}")
    except ValueError:
        return False
    return network.prefixlen < network.max_prefixlen
