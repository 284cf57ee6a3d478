"""Payment cards: a brand's prefix and length, usual grouping, Luhn."""

from __future__ import annotations

from assay_runtime.redaction.checksums import luhn
from assay_runtime.redaction.cues import Context
from assay_runtime.redaction.runs import Run
from assay_runtime.redaction.span import CARD, Span
from assay_runtime.redaction.vocabulary import CARD_WORDS, CHAIN_WORDS

# (lowest prefix, highest prefix, lengths), prefixes of equal length; from the issuers' published
# ranges (ISO/IEC 7812).
_BRANDS = (
    ("34", "34", (15,)), ("37", "37", (15,)),  # American Express
    ("4", "4", (13, 16, 19)),  # Visa
    ("51", "55", (16,)), ("2221", "2720", (16,)),  # Mastercard
    ("6011", "6011", (16, 19)), ("644", "649", (16, 19)), ("65", "65", (16, 19)),  # Discover
    ("300", "305", (14, 16)), ("3095", "3095", (14,)), ("36", "36", (14,)),
    ("38", "39", (14, 16)),  # Diners Club
    ("3528", "3589", (16, 19)), ("2131", "2131", (15,)), ("1800", "1800", (15,)),  # JCB
    ("62", "62", (16, 17, 18, 19)), ("81", "81", (16,)),  # UnionPay
    ("60", "60", (16,)), ("508", "508", (16,)), ("82", "82", (16,)),  # RuPay
    ("2200", "2204", (16,)), ("9792", "9792", (16,)),  # Mir, Troy
    ("5018", "5018", (12, 13, 14, 15, 16, 17, 18, 19)),  # Maestro
    ("5020", "5020", (12, 13, 14, 15, 16, 17, 18, 19)),
    ("5038", "5038", (12, 13, 14, 15, 16, 17, 18, 19)),
    ("5893", "5893", (12, 13, 14, 15, 16, 17, 18, 19)),
    ("6304", "6304", (12, 13, 14, 15, 16, 17, 18, 19)),
    ("6759", "6763", (12, 13, 14, 15, 16, 17, 18, 19)),
)  # fmt: skip

_GROUPINGS = frozenset(
    [(4, 4, 4, 4), (4, 6, 5), (4, 6, 4), (4, 4, 4, 4, 3), (6, 13), (4, 4, 4, 2), (4, 4, 5),
     (8, 8), (4, 4, 4, 3), (4, 4, 4, 1), (6, 10), (4, 5, 6)]
)  # fmt: skip
_PLAIN = (14, 15, 16)
_LEAST, _MOST = 12, 19
_MOST_GROUPS = 8
# Amounts in base units end like this; issued cards do not.
_ROUND = "0" * 8


def find_cards(run: Run, taken: list[bool]) -> list[Span]:
    """Cards in a run; their groups are marked in `taken`."""
    found = []
    for first in range(len(run.groups)):
        last = None if taken[first] else _card_at(run, first, taken)
        if last is not None:
            taken[first : last + 1] = [True] * (last + 1 - first)
            found.append(Span(run.groups[first][0], run.groups[last][1], CARD))
    return found


def is_card(digits: str) -> bool:
    """Whether a brand issues numbers of this prefix and length, and Luhn's digit is right."""
    return (
        any(
            len(digits) in lengths and low <= digits[: len(low)] <= high
            for low, high, lengths in _BRANDS
        )
        and not digits.endswith(_ROUND)
        and luhn(digits)
    )


def _card_at(run: Run, first: int, taken: list[bool]) -> int | None:
    """The last group of a card that starts here; the usual groupings go first."""
    fitting = []
    total = 0
    for last in range(first, min(first + _MOST_GROUPS, len(run.groups))):
        if taken[last]:
            break
        total += run.groups[last][1] - run.groups[last][0]
        if total > _MOST:
            break
        if total >= _LEAST:
            fitting.append(last)
    fitting.sort(key=lambda last: run.lengths(first, last) not in _GROUPINGS)
    for last in fitting:
        if is_card(run.digits(first, last)) and _reads_as_card(run, first, last):
            return last
    return None


def _reads_as_card(run: Run, first: int, last: int) -> bool:
    lengths = run.lengths(first, last)
    start, end = run.groups[first][0], run.groups[last][1]
    if run.tied_to_digits(first, last) or run.text[start - 1 : start].isalpha():
        return False
    context = Context(run.text, start, end)
    if context.is_amount:
        return False
    named = context.names(CARD_WORDS, CHAIN_WORDS)
    if first == last:
        return named or (lengths[0] in _PLAIN and not context.denies(CHAIN_WORDS))
    gaps = run.inner_gaps(first, last)
    if len(gaps) > 1 or not gaps <= {" ", "-", ".", "  "}:
        return named and gaps <= {" ", "-", "  ", " - "}
    if gaps == {"."}:
        return len(lengths) > 2 and (named or lengths in _GROUPINGS)
    return named or lengths in _GROUPINGS
