"""Wallet addresses."""

from __future__ import annotations

import pytest

from assay.wallet import AddressError, checksum_address, parse_address

# The examples of EIP-55 itself.
EIP55 = [
    "0x52908400098527886E0F7030069857D2E4169EE7",
    "0x8617E340B3D01FA5F11F306F4090FD50E238070D",
    "0xde709f2102306220921060314715629080e2fb77",
    "0x27b1fdb04752bbc536007a920d24acb045561c26",
    "0x5aAeb6053F3E94C9b9A09f33669435E7Ef1BeAed",
    "0xfB6916095ca1df60bB79Ce92cE3Ea74c37c5d359",
    "0xdbF03B407c01E7cD3CBea99509d93f8DDDC8C6FB",
    "0xD1220A0cf47c7B9Be7A2E6BA89F429762e7b9aDb",
]


@pytest.mark.parametrize("address", EIP55)
def test_eip55_examples(address: str) -> None:
    """S3.8: a valid checksum is taken, its spelling kept, its key lower case."""
    parsed = parse_address(address)
    assert parsed.spelled == address
    assert parsed.key == address.lower()
    assert checksum_address(address.lower()) == address


@pytest.mark.parametrize("digits", [EIP55[4][2:].lower(), EIP55[4][2:].upper(), "1" * 40])
def test_one_case_carries_no_checksum(digits: str) -> None:
    """S3.8: all lower and all upper case are accepted as they are."""
    assert parse_address("0x" + digits).spelled == "0x" + digits


def test_every_wrong_case_of_one_letter_is_refused() -> None:
    """S3.8: mixed case must be a valid checksum."""
    address = EIP55[4]
    for place, char in enumerate(address[2:], 2):
        if char.isalpha():
            broken = address[:place] + char.swapcase() + address[place + 1 :]
            with pytest.raises(AddressError, match="EIP-55"):
                parse_address(broken)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (None, "a string, not NoneType"),
        (12, "a string, not int"),
        ("", "begins with 0x"),
        ("0X" + "a" * 40, "begins with 0x"),
        ("a" * 40, "begins with 0x"),
        (" 0x" + "a" * 40, "begins with 0x"),
        ("0x" + "a" * 39, "has 39"),
        ("0x" + "a" * 41, "has 41"),
        ("0x" + "a" * 40 + "\n", "has 41"),
        ("0x" + "a" * 39 + "\n", "character 42"),
        ("0x" + "a" * 39 + "g", "character 42"),
        ("0xg" + "a" * 39, "character 3"),
        ("0x" + "a" * 39 + "１", "character 42"),
        ("0x" + "a" * 39 + "ａ", "character 42"),
        ("0x" + "a" * 1_000_000, "has 1000000"),
    ],
)
def test_refusals_name_the_reason(text: object, reason: str) -> None:
    """X.4: what is wrong with an address is said, briefly."""
    with pytest.raises(AddressError, match=reason) as caught:
        parse_address(text)
    assert len(str(caught.value)) < 200
