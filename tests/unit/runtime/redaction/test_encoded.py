"""Personal data behind an encoding (SPEC S5.5, DESIGN §7)."""

from __future__ import annotations

import base64
import json

import pytest

from assay_runtime.redaction import redact_json
from assay_runtime.redaction.encoded import redact_encoded

MAIL = "jane.doe@shop.example"
ESCAPED = "jane.doe\\u0040shop.example"


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        (f'{{"to": "{ESCAPED}"}}', '{"to": "[EMAIL]"}'),
        (json.dumps(f'{{"to": "{ESCAPED}"}}'), json.dumps('{"to": "[EMAIL]"}')),
        (json.dumps(json.dumps(ESCAPED)), json.dumps(json.dumps("[EMAIL]"))),
        ("jane.doe&#64;shop.example or jane&#x40;shop.example", "[EMAIL] or [EMAIL]"),
        ("call &#43;442079460018", "call [PHONE]"),
        ('{"a": "\\u0022\\u005c\\u000a"}', '{"a": "\\u0022\\u005c\\u000a"}'),
        ("caf\\u00e9 &amp; bar", "caf\\u00e9 &amp; bar"),
    ],
)
def test_escapes_are_spelt_out(text: str, shown: str) -> None:
    """A model's raw answer is JSON inside JSON; what would break that JSON stays escaped."""
    assert redact_encoded(text) == shown
    assert redact_encoded(shown) == shown


@pytest.mark.parametrize("encode", [base64.b64encode, base64.urlsafe_b64encode])
@pytest.mark.parametrize("padded", [True, False])
@pytest.mark.parametrize("content", [f"my mail: {MAIL}", f'{{"m":"{MAIL}"}}\n', f"ÿ {MAIL} ÿÿ¿¿"])
def test_base64_is_looked_into(encode: object, padded: bool, content: str) -> None:
    """The rest of the content stays, under its own base64."""
    packed = encode(content.encode()).decode()  # type: ignore[operator]
    packed = packed if padded else packed.rstrip("=")
    shown = redact_json({"data": f"see {packed}, please"})["data"]
    inside = shown.removeprefix("see ").removesuffix(", please")
    inside += "=" * (-len(inside) % 4)
    assert base64.b64decode(inside, b"-_" if {"-", "_"} & set(inside) else None).decode() == (
        content.replace(MAIL, "[EMAIL]")
    )
    assert redact_encoded(shown) == shown


@pytest.mark.parametrize(
    "text",
    [
        "0x52908400098527886E0F7030069857D2E4169EE7",
        "9f" * 32,
        "4111111111111111" * 2,
        "6f1c8d5e-9a4b-4c3d-8e2f-1a2b3c4d5e6f",
        "7EcDhSYGxXyscszYEp35KHN8vvw3svAuLKTzXwCFLtV",
        "internationalization/of-words",
        base64.b64encode(b"nothing of anybody in here").decode(),
        base64.b64encode(bytes(range(256))).decode(),
        "=" * 40,
        "A" * 41,
    ],
)
def test_what_is_no_hidden_text_stays(text: str) -> None:
    """Wallets, hashes, ids and clean base64 come out as they were."""
    assert redact_encoded(text) == text
