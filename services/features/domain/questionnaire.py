"""The borrower's questionnaire as text for the model (SPEC S3.2, X.5)."""

from __future__ import annotations

import unicodedata

NO_QUESTIONNAIRE = "No questionnaire data provided."
NOT_ANSWERED = "(not answered)"
NO_QUESTION = "(no question)"
MAX_ANSWER = 500
MAX_QUESTION = 300
MAX_ENTRIES = 50

# Joiners that emoji and several scripts need; every other invisible character goes.
_JOINERS = "\u200c\u200d"
# Flattening only shortens, so this much text decides the first characters of a normal answer.
_READ_AHEAD = 16


def format_questionnaire(questionnaire: object) -> str:
    """The entries as `Q1: …` and `A1: …` lines, pairs separated by an empty line.

    Each text is one line: line breaks and control characters become spaces and runs of space one
    space, so no text can start a line of its own and pass for another question, answer or heading.
    Answers are cut at 500 characters and questions at 300, plainly: a mark would be text that a
    borrower can write as well. Entries past the 50th and entries that are no objects are left
    out (ingest refuses both). Anything but a list with entries gives NO_QUESTIONNAIRE. Never
    raises.
    """
    if not isinstance(questionnaire, list):
        return NO_QUESTIONNAIRE
    entries = [entry for entry in questionnaire if isinstance(entry, dict)][:MAX_ENTRIES]
    pairs = [
        f"Q{number}: {one_line(entry.get('question'), MAX_QUESTION) or NO_QUESTION}\n"
        f"A{number}: {one_line(entry.get('answer'), MAX_ANSWER) or NOT_ANSWERED}"
        for number, entry in enumerate(entries, start=1)
    ]
    return "\n\n".join(pairs) or NO_QUESTIONNAIRE


def one_line(text: object, most: int) -> str:
    """Untrusted text on one line of at most `most` characters; "" for anything but text."""
    if not isinstance(text, str):
        return ""
    visible = text[: most * _READ_AHEAD]
    # Printable text has none of the categories that `_visible` looks for.
    if not visible.isprintable():
        visible = "".join(_visible(char) for char in visible)
    return " ".join(visible.split())[:most]


def _visible(char: str) -> str:
    category = unicodedata.category(char)
    if category == "Cf":
        return char if char in _JOINERS else ""
    if category in ("Cc", "Zl", "Zp"):
        return " "
    return "\ufffd" if category == "Cs" else char
