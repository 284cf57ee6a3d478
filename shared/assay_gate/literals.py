"""Coercion of single values: the scalar rows of the seed's table (SPEC S4.3).

Accepted: a number or boolean written as a string, a whole float for an integer, an enum value in
other case or between spaces. Refused, since more than one reading is possible or something would
be lost: rounding, percent, units, fractions of something, thousands separators, yes and no, a
number or boolean for a string, null for anything.
"""

from __future__ import annotations

import math
from typing import Any

from assay_gate.config import GateConfig
from assay_gate.tokens import Bare, parse_number
from assay_gate.values import same

_EXACT_FLOAT = 1 << 53
_LIST_MARKS = frozenset(",;|•\n\r\t")
_NOTHING_WORDS = frozenset(("none", "null", "nil", "n/a", "na", "-", "nothing", "empty"))


class Nothing:
    """The sentinel for "no such reading"."""


NOTHING = Nothing()


def whole(number: float) -> int | Nothing:
    """The integer a float stands for; NOTHING with a fraction or beyond exact floats."""
    if number.is_integer() and abs(number) < _EXACT_FLOAT:
        return int(number)
    return NOTHING


def integer_from_text(text: str) -> int | Nothing:
    number = number_from_text(text)
    return whole(number) if isinstance(number, float) else number


def number_from_text(text: str) -> int | float | Nothing:
    number = parse_number(text.strip())
    if number is None or (isinstance(number, float) and not math.isfinite(number)):
        return NOTHING
    return number


def boolean_from_text(text: str) -> bool | Nothing:
    return {"true": True, "false": False}.get(text.strip().lower(), NOTHING)


def match_listed(value: Any, options: list[Any], config: GateConfig) -> Any:
    """The one listed value (enum or const) that `value` means; NOTHING if none or several do."""
    if any(same(value, option) for option in options):
        return value
    if isinstance(value, Bare):
        return _only([option for option in options if _folds_to(value.word, option)])
    if not isinstance(value, str):
        return NOTHING
    exact = [option for option in options if isinstance(option, str) and option == value.strip()]
    if exact:
        return exact[0]
    matches = [option for option in options if _folds_to(value, option)]
    if not matches and len(value) <= 4096:
        matches = _by_convention(value, options, config)
    return _only(matches)


def _only(matches: list[Any]) -> Any:
    distinct: list[Any] = []
    for match in matches:
        if not any(same(match, known) for known in distinct):
            distinct.append(match)
    return distinct[0] if len(distinct) == 1 else NOTHING


def _folds_to(text: str, option: Any) -> bool:
    if isinstance(option, str):
        return text.strip().casefold() == option.strip().casefold()
    if isinstance(option, bool):
        return boolean_from_text(text) is option
    if isinstance(option, int | float):
        number = number_from_text(text)
        return not isinstance(number, Nothing) and number == option
    return False


def _by_convention(value: str, options: list[Any], config: GateConfig) -> list[Any]:
    """Matches after the configured prefix and delimiter; refused if the rest names another."""
    text = value.strip().casefold()
    for prefix in config.enum_prefixes:
        text = text.removeprefix(prefix.casefold()).strip()
    head, delimiter, tail = text, "", ""
    if config.enum_delimiter:
        head, delimiter, tail = text.partition(config.enum_delimiter)
    matches = [option for option in options if _folds_to(head, option)]
    others = [o for o in options if not any(same(o, match) for match in matches)]
    if delimiter and any(str(option).strip().casefold() in tail for option in others):
        return []
    return matches


def wrapped(text: str) -> Any:
    """The text as the only item of an array, unless it may be a list or say "none"."""
    word = text.strip()
    if not word or word.lower() in _NOTHING_WORDS or word[0] in "[{\"'`" or word[0] in "(-*":
        return NOTHING
    return NOTHING if any(char in _LIST_MARKS for char in word) else [text]
