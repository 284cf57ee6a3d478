"""Check digits: Luhn (ISO/IEC 7812-1), Verhoeff (Aadhaar), mod 97 (ISO 13616)."""

from __future__ import annotations

_DOUBLED = (0, 2, 4, 6, 8, 1, 3, 5, 7, 9)

# The dihedral group of order 10, and its permutation by position.
_PRODUCT = (
    "0123456789", "1234067895", "2340178956", "3401289567", "4012395678",
    "5987604321", "6598710432", "7659821043", "8765932104", "9876543210",
)  # fmt: skip
_PERMUTED = (
    "0123456789", "1576283094", "5803796142", "8916043527",
    "9453126870", "4286573901", "2793806415", "7046913258",
)  # fmt: skip


def luhn(digits: str) -> bool:
    """Whether the last digit checks the others."""
    total = 0
    for place, digit in enumerate(reversed(digits)):
        total += _DOUBLED[int(digit)] if place % 2 else int(digit)
    return total % 10 == 0


def verhoeff(digits: str) -> bool:
    """Whether the last digit checks the others."""
    state = 0
    for place, digit in enumerate(reversed(digits)):
        state = int(_PRODUCT[state][int(_PERMUTED[place % 8][int(digit)])])
    return state == 0


def mod97(account: str) -> bool:
    """Whether an upper-case IBAN without separators checks."""
    turned = account[4:] + account[:4]
    return int("".join(str(int(character, 36)) for character in turned)) % 97 == 1
