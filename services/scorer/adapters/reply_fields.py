"""Reading a model server's reply field by field; what is not there is said, never guessed."""

from __future__ import annotations

from typing import Any

from services.scorer.domain.provider import EmptyAnswer, ModelProtocolError

UNKNOWN = "unknown"
_NAME_LENGTH = 200


def whole_text(content: Any, finish_reason: str | None) -> str:
    """The answer's text; EmptyAnswer for none, ModelProtocolError for what cannot be recorded."""
    if content is None or (isinstance(content, str) and not content.strip()):
        raise EmptyAnswer(f"the reply has no text (finish reason {finish_reason!r})")
    if not isinstance(content, str):
        raise ModelProtocolError("the reply's content is no text")
    try:
        content.encode()
    except UnicodeEncodeError:
        raise ModelProtocolError("the reply's text holds half a character") from None
    return content


def named(value: Any, default: str) -> str:
    """A short printable name that the server told, or the default."""
    if isinstance(value, str) and 0 < len(value) <= _NAME_LENGTH and value.isprintable():
        return value
    return default


def counts(**tokens: Any) -> dict[str, int]:
    """Those of the counts that are counts."""
    return {
        name: value
        for name, value in tokens.items()
        if isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 1 << 53
    }
