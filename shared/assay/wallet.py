"""Wallet addresses: `0x` and 40 hex digits, mixed case only as a valid EIP-55 checksum."""

from __future__ import annotations

import re
from dataclasses import dataclass

from Crypto.Hash import keccak

from assay.errors import AssayError

_HEX_DIGITS = re.compile(r"[0-9a-fA-F]{40}", re.ASCII)


class AddressError(AssayError):
    """Not a wallet address; the message says why and never repeats more than a few characters."""


@dataclass(frozen=True, slots=True)
class WalletAddress:
    """An address in the two forms that matter.

    `spelled` is as the caller wrote it, and is what is signed (DESIGN §6); `key` is lower case,
    and is what the wallet is known by.
    """

    spelled: str

    @property
    def key(self) -> str:
        return self.spelled.lower()

    def __str__(self) -> str:
        return self.spelled


def parse_address(text: object) -> WalletAddress:
    """The address in `text`; AddressError with the reason where it is none.

    Digits all lower or all upper case carry no checksum and are taken as they are; mixed case is
    a checksum (EIP-55) and must be right. Nothing is trimmed or completed.
    """
    if not isinstance(text, str):
        raise AddressError(f"an address is a string, not {type(text).__name__}")
    if not text.startswith("0x"):
        raise AddressError("an address begins with 0x (lower-case x)")
    digits = text[2:]
    if len(digits) != 40:
        raise AddressError(f"an address has 40 hex digits after 0x, this one has {len(digits)}")
    if not _HEX_DIGITS.fullmatch(digits):
        place = next(i for i, c in enumerate(digits) if not _HEX_DIGITS.fullmatch(c * 40))
        raise AddressError(f"character {place + 3} of the address is no hex digit")
    if digits not in (digits.lower(), digits.upper()) and text != checksum_address(text):
        raise AddressError(
            "the address mixes upper and lower case but is no valid EIP-55 checksum; check it for "
            "a typing error, or write it in lower case"
        )
    return WalletAddress(text)


def checksum_address(address: str) -> str:
    """The EIP-55 spelling of an address that has the right form, in whatever case."""
    lower = address[2:].lower()
    digest = keccak.new(digest_bits=256, data=lower.encode("ascii")).hexdigest()
    return "0x" + "".join(
        char.upper() if int(nibble, 16) >= 8 else char
        for char, nibble in zip(lower, digest, strict=False)
    )
