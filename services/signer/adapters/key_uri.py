"""Signing keys by URI: the scheme names the back end (DESIGN §6)."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from urllib.parse import unquote

from assay_runtime.settings import SettingsError
from services.signer.adapters.key_file import FileKey
from services.signer.domain.ports import SigningKey


def _open_file(rest: str) -> SigningKey:
    if rest.startswith("//"):
        host, slash, path = rest[2:].partition("/")
        if host not in ("", "localhost") or not slash:
            raise SettingsError("a file: key URI is file:/absolute/path or file:relative/path")
        rest = slash + path
    if not rest:
        raise SettingsError("the file: key URI names no file")
    return FileKey.open(Path(unquote(rest)))


_BACKENDS: dict[str, Callable[[str], SigningKey]] = {"file": _open_file}


def open_key(uri: str) -> SigningKey:
    """The key that a URI names, `file:/path`; SettingsError with the reason where there is none.

    The rest of an unknown URI is not repeated: it may hold a secret.
    """
    scheme, colon, rest = uri.partition(":")
    backend = _BACKENDS.get(scheme.lower()) if colon else None
    if backend is None:
        known = ", ".join(f"{name}:" for name in sorted(_BACKENDS))
        named = f"{scheme[:20]!r} is no known key scheme" if colon else "the key URI has no scheme"
        raise SettingsError(f"{named}; known: {known}")
    return backend(rest)
