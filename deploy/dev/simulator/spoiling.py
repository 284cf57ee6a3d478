"""Answers as models spoil them; each function makes one fault out of a good answer."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable, Iterator
from random import Random
from typing import Any

from deploy.dev.simulator.answers import Answer, written
from deploy.dev.simulator.protocols import Reply
from deploy.dev.simulator.settings import REPAIRABLE

_APOLOGY = "I'm sorry, but I could not work out an answer from the data I was given."
_REFUSAL = "I can't help with assessing this person."
_NOTE = "simulated_note"


class _NotApplicable(Exception):
    """This answer has nothing that could be spoiled in this way."""


def spoiled(fault: str, answer: Answer, rng: Random) -> tuple[str, Reply]:
    """The name of the fault that was made, and the spoiled reply.

    Where a fault does not apply (a trailing comma in a number), a fence takes the place of one
    that can be repaired and an apology that of any other.
    """
    try:
        return fault, _SPOILERS[fault](answer, rng)
    except _NotApplicable:
        other = "fences" if fault in REPAIRABLE else "not_json"
        return other, _SPOILERS[other](answer, rng)


def _fences(answer: Answer, rng: Random) -> Reply:
    language = rng.choice(("json", "JSON", ""))
    return Reply(f"```{language}\n{answer.text}\n```")


def _prose(answer: Answer, rng: Random) -> Reply:
    before = rng.choice(("Here is the assessment you asked for:\n\n", "Sure! ", ""))
    after = "\n\nLet me know if you need anything else." if not before or rng.random() < 0.5 else ""
    return Reply(f"{before}{answer.text}{after}")


def _trailing_comma(answer: Answer, rng: Random) -> Reply:
    text = json.dumps(answer.value, indent=2, ensure_ascii=False)
    if text[-2:] not in ("\n}", "\n]"):
        raise _NotApplicable
    return Reply(f"{text[:-2]},{text[-2:]}")


def _string_numbers(answer: Answer, rng: Random) -> Reply:
    changed = _mapped(answer.value, lambda leaf: written(leaf) if _is_number(leaf) else leaf)
    if changed == answer.value:
        raise _NotApplicable
    return Reply(written(changed))


def _single_quotes(answer: Answer, rng: Random) -> Reply:
    text = _single_quoted(answer.value)
    if answer.is_text or text == answer.text:
        raise _NotApplicable
    return Reply(text)


def _think_draft(answer: Answer, rng: Random) -> Reply:
    draft = answer.other()
    return Reply(f"<think>\nA first draft: {written(draft)}\nNo, better:\n</think>\n{answer.text}")


def _wrong_total(answer: Answer, rng: Random) -> Reply:
    if not answer.is_score:
        raise _NotApplicable
    score = answer.value["score"]
    return Reply(written({**answer.value, "score": score + (137 if score < 500 else -137)}))


def _out_of_range(answer: Answer, rng: Random) -> Reply:
    def beyond(holder: Any, key: Any) -> None:
        holder[key] = rng.choice((-20, 10_000_000))

    return _broken(answer, rng, beyond, _is_number)


def _missing_field(answer: Answer, rng: Random) -> Reply:
    def remove(holder: Any, key: Any) -> None:
        del holder[key]

    return _broken(answer, rng, remove, lambda leaf: True)


def _extra_field(answer: Answer, rng: Random) -> Reply:
    if not isinstance(answer.value, dict):
        raise _NotApplicable
    value = {**answer.value, _NOTE: "not asked for"}
    if answer.accepts(value):
        raise _NotApplicable
    return Reply(written(value))


def _nan(answer: Answer, rng: Random) -> Reply:
    def undefine(holder: Any, key: Any) -> None:
        holder[key] = float("nan")

    return _broken(answer, rng, undefine, _is_number)


def _cut_off(answer: Answer, rng: Random) -> Reply:
    kept = int(len(answer.text) * rng.uniform(0.2, 0.9))
    return Reply(answer.text[:kept], finish="length")


def _two_answers(answer: Answer, rng: Random) -> Reply:
    other = answer.other()
    if other == answer.value:
        raise _NotApplicable
    return Reply(f"{answer.text}\n\nOn reflection, this is the better answer:\n{written(other)}")


def _ignored_schema(answer: Answer, rng: Random) -> Reply:
    value = {"response": "The wallet looks fine.", "confidence": "high"}
    if answer.accepts(value):
        raise _NotApplicable
    return Reply(written(value))


_SPOILERS: dict[str, Callable[[Answer, Random], Reply]] = {
    "fences": _fences,
    "prose": _prose,
    "trailing_comma": _trailing_comma,
    "string_numbers": _string_numbers,
    "single_quotes": _single_quotes,
    "think_draft": _think_draft,
    "wrong_total": _wrong_total,
    "out_of_range": _out_of_range,
    "missing_field": _missing_field,
    "extra_field": _extra_field,
    "nan": _nan,
    "cut_off": _cut_off,
    "two_answers": _two_answers,
    "empty": lambda answer, rng: Reply(""),
    "not_json": lambda answer, rng: Reply(_APOLOGY),
    "refusal": lambda answer, rng: Reply(_REFUSAL, refused=True),
    "ignored_schema": _ignored_schema,
}


def _broken(
    answer: Answer,
    rng: Random,
    change: Callable[[Any, Any], None],
    wanted: Callable[[Any], bool],
) -> Reply:
    """The answer with one place changed such that it no longer fits."""
    places = [path for path, leaf in _members(answer.value) if wanted(leaf)]
    for path in rng.sample(places, len(places)):
        value = copy.deepcopy(answer.value)
        holder = value
        for step in path[:-1]:
            holder = holder[step]
        change(holder, path[-1])
        if not answer.accepts(value):
            return Reply(written(value))
    raise _NotApplicable


def _members(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[tuple[Any, ...], Any]]:
    pairs = enumerate(value) if isinstance(value, list) else ()
    for key, item in value.items() if isinstance(value, dict) else pairs:
        yield (*path, key), item
        yield from _members(item, (*path, key))


def _mapped(value: Any, change: Callable[[Any], Any]) -> Any:
    if isinstance(value, dict):
        return {key: _mapped(item, change) for key, item in value.items()}
    if isinstance(value, list):
        return [_mapped(item, change) for item in value]
    return change(value)


def _single_quoted(value: Any) -> str:
    if isinstance(value, dict):
        return "{" + ", ".join(f"{_quoted(k)}: {_single_quoted(v)}" for k, v in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(map(_single_quoted, value)) + "]"
    return _quoted(value) if isinstance(value, str) else written(value)


def _quoted(text: str) -> str:
    """In single quotes, unless the text holds something that would have to be escaped there."""
    plain = written(text)
    return plain if "'" in text or "\\" in plain else f"'{text}'"


def _is_number(leaf: Any) -> bool:
    return isinstance(leaf, int | float) and not isinstance(leaf, bool)
