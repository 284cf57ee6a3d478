"""The configured place of the aggregator: a URL with `{address}` in it."""

from __future__ import annotations

from urllib.parse import urlsplit

PLACEHOLDER = "{address}"


def checked_template(template: str) -> str:
    """The template as it is; ValueError says why it cannot be used."""
    parts = urlsplit(template)
    if parts.scheme not in ("http", "https"):
        raise ValueError(f"the aggregator URL must be http or https, not {parts.scheme!r}")
    if not parts.hostname:
        raise ValueError("the aggregator URL has no host")
    if PLACEHOLDER not in parts.path + parts.query:
        raise ValueError(f"the aggregator URL has no {PLACEHOLDER} in its path or query")
    return template


def url_for(template: str, address: str) -> str:
    """The URL of one wallet; `address` has been checked to be 0x and 40 hex digits."""
    return template.replace(PLACEHOLDER, address)
