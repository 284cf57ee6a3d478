"""The words that say what a number is, in lower case."""

from __future__ import annotations


def words(text: str) -> frozenset[str]:
    """The words of a text."""
    return frozenset(text.split())


PHONE_NOUNS = words(
    """phone phones telephone telephones telefono teléfono telefone telefon téléphone tel tél tlf
    tfn ph mobile mobiles mob mobil móvil movil mobiel cell cellphone cellular celular cellulare
    handy portable gsm fax whatsapp whats wa landline hotline helpline handset sms msisdn
    telegram viber natel rufnummer telefonnummer handynummer telefonnr mobilnummer puhelin
    telefoon fon telefax fono telf
    电话 电话号码 手机 手机号 手机号码 電話 電話番号 携帯 携帯番号 전화 전화번호 휴대폰
    телефон тел моб мобильный"""
)
PHONE_VERBS = words(
    """call calls called calling caller ring rang rung dial dialed dialled text texted reach
    reached message msg contact contacts contacted callback ping phoned llama llamar appelez
    appeler anrufen chiama ligue"""
)
PHONE_LINES = words("line hotline helpline desk switchboard")
SSN_WORDS = words("ssn ssns social socials taxpayer")
AADHAAR_WORDS = words("aadhaar aadhar adhaar adhar aadhaarcard uidai uid")
PAN_WORDS = words("pan pancard permanent")
NINO_WORDS = words("nino ni nin insurance")
CARD_WORDS = words(
    """card cards visa mastercard maestro amex discover diners jcb unionpay rupay mir debit
    credit pan cc"""
)
IBAN_WORDS = words("iban")
IP_WORDS = words(
    """ip ips ipv addr address addresses host hosts hostname client remote peer server login
    logins logged src dst source destination forwarded origin proxy gateway nameserver dns
    resolver ping curl ssh connect connected connection request requests user visitor session
    device node broker listener bootstrap blocked banned whitelist allowlist denylist endpoint
    subnet network traceroute vpn bind listen listening"""
)

# What a number may be called that is none of a person's: on a chain or in Kafka …
CHAIN_WORDS = words(
    """offset offsets partition seq sequence nonce gas wei gwei block blocks height slot epoch
    token tokenid nft timestamp ts chain balance supply liquidity reserve"""
)
# … and in any record.
RECORD_WORDS = CHAIN_WORDS | words(
    """order orders invoice invoices ref refs reference txn tx transaction hash serial sku part
    model case docket parcel apn mls rera ein account accounts acct loan policy claim ticket
    tracking awb shipment consignment isbn issn ean upc gtin barcode imei iccid version build
    batch lot survey plot khasra folio ledger receipt voucher coupon index ratio price amount
    total sum usd inr eur gbp rs ms lat lon lng latitude longitude sqft pin pincode zip zipcode
    postcode postal sort page doi pmid arxiv flight pnr id ids uuid checksum crc bytes port pid
    commit sha rev row rowid registration license licence permit gst gstin cin tin vat passport
    routing swift bic product asset catalog catalogue article quantity qty score revision code
    schema duns ssid cik cusip isin"""
)
VERSION_WORDS = words(
    """version versions ver v vers build builds release releases released firmware fw semver
    schema patch patched upgrade upgraded upgrading downgrade downgraded section sec clause rule
    article para paragraph chapter rev revision driver package pkg sdk lib library dependency
    oid asn figure table heading appendix kafka python chrome chromium postgres postgresql
    android ios firefox safari edge windows ollama java linux kernel assembly nuget plugin tag
    compiler solc geth download image item requirement numbering step"""
)
