"""Words beside a number that say what it is: `phone`, `SSN`, but also `order`, `block`, `wei`."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cached_property

from assay_runtime.redaction.shields import MARKS

_REACH = 56
_MOST_WORDS = 6
_NEGATIVE_REACH = 3

_WORD = re.compile(r"[^\W\d_]+")
_CAMEL = re.compile(r"(?<=[a-z]{2})(?=[A-Z])")
_MARK = re.compile(f"[{MARKS}]")
# A JSON key, a URL parameter or a logfmt key: what stands before it belongs to another value.
_KEY = re.compile(
    r"""(?:\\*["']([^"'\n]{1,64}?)\\*["']\s*:|(?<![^\W_])([\w.-]{1,48})=)\s*\\*["']?[+(]*$"""
)
_AFTER = re.compile(
    r"\s{0,2}[(\[\-–—,]?\s?(?:is\s)?(?:(?:my|his|her|their|our|the|a)\s)?([^\W\d_]{1,24})"
    r"(?:\s(?:phone|number|no|line|cell))?(?![^\W_])(?!\.?\s{0,2}(?:no\.?|number)?\s?[:=#+(\d])"
)
_UNIT = re.compile(
    r"\s?(?:%|°|(?:wei|gwei|eth|btc|sats?|usd[ct]?|inr|eur|gbp|tokens?|units?|points?|bps|bytes"
    r"|[kmg]i?b|[mnuµ]?s|secs?|seconds|gas|sqft|sqm|km|rows|events|records|blocks)(?![^\W_]))",
    re.IGNORECASE,
)
_MONEY = re.compile(r"(?:[$€£₹¥]|(?<![^\W_])(?:usd|eur|gbp|inr|rs))\.?\s?$", re.IGNORECASE)

PHONE_NOUNS = frozenset(
    """phone phones telephone telephones telefono teléfono telefone telefon téléphone tel tél tlf
    tfn ph mobile mobiles mob mobil móvil movil mobiel cell cellphone cellular celular cellulare
    handy portable gsm gsm fax whatsapp whats wa landline hotline helpline handset sms msisdn
    telegram viber natel rufnummer telefonnummer handynummer telefonnr mobilnummer puhelin
    telefoon 电话 电话号码 手机 手机号 手机号码 電話 電話番号 携帯 携帯番号 전화 전화번호 휴대폰
    телефон тел моб мобильный""".split()
)
PHONE_VERBS = frozenset(
    """call calls called calling caller ring rang rung dial dialed dialled text texted reach
    reached message msg contact contacts contacted callback ping phoned llama llamar appelez
    appeler anrufen chiama ligue""".split()
)
PHONE_LINES = frozenset("line hotline helpline desk switchboard".split())
SSN_WORDS = frozenset("ssn ssns social socials itin taxpayer".split())
AADHAAR_WORDS = frozenset("aadhaar aadhar adhaar adhar aadhaarcard uidai uid आधार".split())
PAN_WORDS = frozenset("pan pancard permanent".split())
NINO_WORDS = frozenset("nino ni nin insurance".split())
CARD_WORDS = frozenset(
    """card cards visa mastercard maestro amex discover diners jcb unionpay rupay mir debit
    credit pan cc""".split()
)
IBAN_WORDS = frozenset(["iban"])
IP_WORDS = frozenset(
    """ip ips ipv addr address addresses host hosts hostname client remote peer server login
    logins logged src dst source destination forwarded origin proxy gateway nameserver dns
    resolver ping curl ssh connect connected connection request requests user visitor session
    device node broker listener bootstrap blocked banned whitelist allowlist denylist endpoint
    subnet network traceroute vpn bind listen listening""".split()
)

CHAIN_WORDS = frozenset(
    """offset offsets partition seq sequence nonce gas wei gwei block blocks height slot epoch
    token tokenid nft timestamp ts lag chain balance supply liquidity reserve""".split()
)
RECORD_WORDS = CHAIN_WORDS | frozenset(
    """order orders invoice invoices ref refs reference txn tx transaction hash serial sku part
    model case docket parcel apn mls rera ein account accounts acct loan policy claim ticket
    tracking awb shipment consignment isbn issn ean upc gtin barcode imei iccid version build
    batch lot survey plot khasra folio ledger receipt voucher coupon index ratio price amount
    total sum usd inr eur gbp rs time date ms lat lon lng latitude longitude area sqft pin
    pincode zip zipcode postcode postal sort page doi pmid arxiv flight pnr id ids uuid key
    checksum crc size bytes count limit port pid commit sha rev row rowid registration license
    licence permit gst gstin cin tin vat passport routing swift bic file item product asset
    catalog catalogue article quantity qty score volume cap market value values step revision
    code schema job run task trace span error duns ssid cik cusip isin""".split()
)
VERSION_WORDS = frozenset(
    """version versions ver v vers build builds release releases released firmware fw semver
    schema patch patched upgrade upgraded upgrading downgrade downgraded section sec clause rule
    article para paragraph chapter rev revision driver package pkg sdk lib library dependency
    oid asn figure table heading appendix kafka python node chrome chromium postgres postgresql
    android ios firefox safari edge windows ollama java linux kernel assembly nuget plugin tag
    compiler solc geth app download image item requirement numbering step""".split()
) - {"node", "app"}


@dataclass(frozen=True)
class Context:
    """What stands around `text[start:end]`, up to the line's end or the next known span."""

    text: str
    start: int
    end: int

    @cached_property
    def before(self) -> str:
        """Up to 56 characters before: of the line, or the key alone where there is one."""
        window = self.text[max(0, self.start - _REACH) : self.start]
        marks = list(_MARK.finditer(window))
        if marks:
            window = window[marks[-1].end() :]
        head, newline, tail = window.rpartition("\n")
        if newline and (tail.strip() or not head.rstrip().endswith((":", "="))):
            window = tail
        key = _KEY.search(window)
        return (key[1] or key[2]) + ":" if key else window

    @cached_property
    def words(self) -> list[str]:
        """The nearest six words before, lower case, nearest first; camelCase counts as two."""
        words = [part for word in _WORD.findall(self.before) for part in _CAMEL.split(word)]
        return [word.lower() for word in words[: -_MOST_WORDS - 1 : -1]]

    @cached_property
    def after(self) -> str:
        """The word that follows and belongs to the number, lower case; empty where none does."""
        window = _MARK.split(self.text[self.end : self.end + _REACH], maxsplit=1)[0]
        match = _AFTER.match(window)
        return match[1].lower() if match else ""

    @cached_property
    def is_amount(self) -> bool:
        """Whether a currency stands before or a unit behind."""
        window = self.text[self.end : self.end + 12]
        if unit := _UNIT.match(window):
            # "1 ms" is an amount; "m" of "moved" was excluded by the pattern.
            return bool(unit)
        return _MONEY.search(self.text[max(0, self.start - 6) : self.start]) is not None

    def names(self, words: frozenset[str], against: frozenset[str] = RECORD_WORDS) -> bool:
        """Whether the nearest word that says anything is one of `words`, before or behind."""
        for word in self.words:
            if word in words:
                return True
            if word in against:
                return False
        return self.after in words

    def denies(self, against: frozenset[str] = RECORD_WORDS) -> bool:
        """Whether it is an amount, or one of the three nearest words says something else."""
        return self.is_amount or any(word in against for word in self.words[:_NEGATIVE_REACH])
