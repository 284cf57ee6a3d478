"""What goes wrong with keys, messages and signatures."""

from __future__ import annotations

from assay.errors import AssayError


class AttestationError(AssayError):
    """A signature, key or signed message is not acceptable; never carries key material."""


class EncodingError(AttestationError):
    """A value cannot stand in a signed message."""


class PublicKeyError(AttestationError):
    """Not a public key, or no place to find one."""


class SignatureError(AttestationError):
    """The signature must not be relied on; the message is the reason."""
