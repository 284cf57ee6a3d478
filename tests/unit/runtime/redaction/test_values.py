"""Redaction of JSON values and of log events (SPEC S5.5, DESIGN section 7)."""

from __future__ import annotations

import io
import json
import logging
from typing import Any

import structlog

from assay_runtime.redaction import redact_event, redact_json

WALLET = "0x52908400098527886E0F7030069857D2E4169EE7"


def test_json_is_walked_and_the_rest_stays() -> None:
    """S5.5: texts at any depth; numbers, null and booleans stay; the input is not changed."""
    value = {
        "wallet": WALLET,
        "score": 712,
        "ts": 1763651389123,
        "ratio": 0.4155550132,
        "none": None,
        "yes": True,
        "list": ["a@b.example", {"phone": "4155550132", "offset": "4155550132"}],
    }
    before = json.dumps(value)
    assert redact_json(value) == {
        "wallet": WALLET,
        "score": 712,
        "ts": 1763651389123,
        "ratio": 0.4155550132,
        "none": None,
        "yes": True,
        "list": ["[EMAIL]", {"phone": "[PHONE]", "offset": "4155550132"}],
    }
    assert json.dumps(value) == before


def test_whole_numbers_are_judged_by_digits_and_key() -> None:
    """S5.5: a card or a named number as a JSON number; offsets and times stay."""
    value = {"card": 4242424242424242, "ssn": 536228764, "offset": 4155550132, "n": 21034567}
    assert redact_json(value) == {
        "card": "[CARD]",
        "ssn": "[SSN]",
        "offset": 4155550132,
        "n": 21034567,
    }


def test_keys_with_personal_data_are_redacted_and_stay_apart() -> None:
    """S5.5: two addresses as keys keep both their values."""
    value = {"[EMAIL]": 0, "a@b.example": 1, "c@d.example": 2, "plain": 3}
    assert redact_json(value) == {"[EMAIL]": 0, "[EMAIL] 2": 1, "[EMAIL] 3": 2, "plain": 3}


def test_depth_is_no_limit() -> None:
    """S5.5: a value nested 50,000 deep is walked."""
    value: Any = "a@b.example"
    for _ in range(50_000):
        value = [value]
    made = redact_json(value)
    for _ in range(50_000):
        (made,) = made
    assert made == "[EMAIL]"


def test_log_events_are_redacted() -> None:
    """DESIGN 7: message, fields, nested fields, errors and tracebacks; known ids stay."""
    out = io.StringIO()
    logger = structlog.wrap_logger(
        structlog.PrintLogger(out),
        processors=[
            structlog.processors.format_exc_info,
            redact_event,
            structlog.processors.JSONRenderer(),
        ],
    )
    try:
        raise ValueError("no mailbox a@b.example")
    except ValueError as error:
        logger.error(
            "refused c@d.example",
            wallet=WALLET,
            offset=4155550132,
            phone="4155550132",
            fields={"who": ["e@f.example"]},
            cause=error,
            exc_info=True,
        )
    shown = json.loads(out.getvalue())
    assert shown["event"] == "refused [EMAIL]"
    assert (shown["wallet"], shown["offset"]) == (WALLET, 4155550132)
    assert shown["phone"] == "[PHONE]"
    assert shown["fields"] == {"who": ["[EMAIL]"]}
    assert "example" not in out.getvalue()
    assert "no mailbox [EMAIL]" in shown["exception"]


def test_objects_without_personal_data_stay_objects() -> None:
    """DESIGN 7: the renderer still sees what it knows how to render."""
    level = logging.getLogger("x")
    event = redact_event(None, "info", {"event": "ready", "object": level, "rate": 0.5})
    assert event["object"] is level
    assert event["rate"] == 0.5
