"""Check digits against published numbers."""

from __future__ import annotations

import pytest

from assay_runtime.redaction.checksums import luhn, mod97, verhoeff

CHECKS = [
    (luhn, "79927398713"),
    (luhn, "378282246310005"),
    (verhoeff, "2363"),
    (verhoeff, "1234567890120"),
]


@pytest.mark.parametrize(("check", "number"), CHECKS)
def test_every_single_wrong_digit_is_noticed(check: object, number: str) -> None:
    """S5.5: the published number checks, and no number that differs in one digit does."""
    assert callable(check)
    assert check(number)
    for place, digit in enumerate(number):
        for other in "0123456789":
            if other != digit:
                assert not check(number[:place] + other + number[place + 1 :])


def test_swapped_neighbours_are_noticed() -> None:
    """S5.5: Verhoeff notices every swap of two neighbours."""
    assert not verhoeff("2336")
    assert not verhoeff("2134567890120")


def test_mod97() -> None:
    """S5.5: the example of the United Kingdom in ISO 13616."""
    assert mod97("GB82WEST12345698765432")
    assert not mod97("GB28WEST12345698765432")
