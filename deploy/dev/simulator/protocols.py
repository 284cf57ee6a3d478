"""What a client asks and what it is told, whatever the protocol's spelling."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

MODEL = "simulator"
# Nothing is behind this digest; it changes when the simulator's answers do.
DIGEST = "51a7" * 14 + "00000001"
_PROBE_TOKENS = 64
_RETRY_BLOCK = "PREVIOUS ATTEMPT FAILED VALIDATION"


@dataclass(frozen=True, slots=True)
class Call:
    """One generation asked for. `answer`: a value of `schema`, any JSON object, or plain text."""

    model: str
    prompt: str
    answer: Literal["schema", "json", "text"]
    schema: Mapping[str, Any] | bool
    seed: int
    temperature: float
    max_tokens: int
    stream: bool

    @property
    def is_retry(self) -> bool:
        """Whether the prompt tells about a failed attempt (SPEC S5.2)."""
        return _RETRY_BLOCK in self.prompt

    @property
    def is_probe(self) -> bool:
        """Whether so short an answer is asked for that it can only be a test of the server."""
        return 0 < self.max_tokens <= _PROBE_TOKENS

    @property
    def task(self) -> str:
        """The prompt without that, so that a retry is the same task."""
        return self.prompt.partition(_RETRY_BLOCK)[0].rstrip()


@dataclass(frozen=True, slots=True)
class Reply:
    """What the model wrote. A refusal has a field of its own in one of the protocols."""

    text: str
    finish: Literal["stop", "length"] = "stop"
    refused: bool = False


class BadRequest(Exception):
    """The request cannot be understood; the message names the field."""


@dataclass(frozen=True, slots=True)
class Protocol:
    """How one endpoint reads a body, writes a reply (of `seconds`) and writes an error."""

    name: str
    read: Callable[[Mapping[str, Any]], Call]
    reply: Callable[[Call, Reply, float], dict[str, Any]]
    error: Callable[[int, str], dict[str, Any]]


def tokens(text: str) -> int:
    """About as many as a real tokenizer counts: one for four characters."""
    return (len(text) + 3) // 4


def text_of(body: Mapping[str, Any], key: str) -> str:
    """A required text field."""
    value = body.get(key)
    if not isinstance(value, str):
        raise BadRequest(f"{key}: a string is required")
    return value


def number_of(body: Mapping[str, Any], key: str, default: float) -> float:
    """An optional number field."""
    value = body.get(key)
    if value is None:
        return default
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise BadRequest(f"{key}: a number is required")
    return value


def flag_of(body: Mapping[str, Any], key: str, *, default: bool) -> bool:
    """An optional true or false."""
    value = body.get(key, default)
    if not isinstance(value, bool):
        raise BadRequest(f"{key}: true or false is required")
    return value


def joined_messages(body: Mapping[str, Any]) -> str:
    """The text of all messages of a chat, in their order."""
    messages = body.get("messages")
    if not isinstance(messages, list) or not messages:
        raise BadRequest("messages: a list of messages is required")
    return "\n".join(_content(message, number) for number, message in enumerate(messages))


def _content(message: Any, number: int) -> str:
    content = message.get("content") if isinstance(message, Mapping) else None
    if isinstance(content, str):
        return content
    if isinstance(content, list):
        parts = [part.get("text") for part in content if isinstance(part, Mapping)]
        if all(isinstance(part, str) for part in parts):
            return "\n".join(map(str, parts))
    raise BadRequest(f"messages[{number}].content: text is required")
