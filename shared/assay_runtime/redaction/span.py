"""What a detector finds: a stretch of text and its kind."""

from __future__ import annotations

from typing import NamedTuple

EMAIL = "EMAIL"
PHONE = "PHONE"
CARD = "CARD"
SSN = "SSN"
IN_AADHAAR = "IN_AADHAAR"
IN_PAN = "IN_PAN"
UK_NINO = "UK_NINO"
IBAN = "IBAN"
IP = "IP"

TYPES = (EMAIL, PHONE, CARD, SSN, IN_AADHAAR, IN_PAN, UK_NINO, IBAN, IP)


class Span(NamedTuple):
    """`text[start:end]` in code points, and one of TYPES."""

    start: int
    end: int
    type: str
