"""Finds personal data in text and replaces it (SPEC S5.5, DESIGN section 7).

Covered: e-mail addresses, telephone numbers, payment cards, United States SSNs, India's Aadhaar
and PAN, the United Kingdom's National Insurance numbers, IBANs, IP addresses of hosts.
NOT covered: names, street addresses, dates of birth, passports and other documents, account
numbers that are no IBAN, and numbers in digits other than 0-9.

Wallets, hashes, UUIDs, times, amounts, versions and register numbers are left as they are.
"""

from assay_runtime.redaction.finder import find, redact
from assay_runtime.redaction.span import TYPES, Span
from assay_runtime.redaction.values import redact_event, redact_json

__all__ = ["TYPES", "Span", "find", "redact", "redact_event", "redact_json"]
