"""Quoted strings as models write them.

The hard question is which quote closes a string that holds unescaped quotes. A quote closes
where the grammar goes on behind it; quotes before that must read as pairs around words, or sit
inside a word. Where a second reading is possible, for example because the text behind the quote
looks like the next member, the string is refused.
"""

from __future__ import annotations

from assay_gate.inner_quotes import UNESCAPED, InnerQuotes
from assay_gate.members import comma_goes_on, member_starts
from assay_gate.tokens import OPENING_QUOTES, Unreadable, skip_blank
from assay_gate.values import encodable

_ESCAPES = {
    '"': '"', "\\": "\\", "/": "/", "b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t",
    "'": "'",
}  # fmt: skip
_PUNCTUATION = frozenset(",:]}")


class QuotedReader:
    """Reads one string after another from the same text.

    Positions of the next quote and backslash are remembered, so that a text full of strings is
    searched once and not once for each string.
    """

    def __init__(self, text: str) -> None:
        self.text = text
        self._next: dict[str, int] = {}

    def read(self, start: int, *, key: bool, in_object: bool) -> tuple[str, int, list[str]]:
        """The string that opens at `start`: (content, position after it, kinds of repair)."""
        text = self.text
        opening = text[start]
        if not key and opening in "\"'" and text.startswith(opening * 3, start):
            return self._triple(start)
        closing = OPENING_QUOTES[opening]
        kinds = [] if opening == '"' else ["quotes"]
        parts: list[str] = []
        inner: InnerQuotes | None = None
        escaped = False
        position = start + 1
        while True:
            stop = self._find(closing + "\\", position)
            parts.append(text[position:stop])
            if text[stop] == "\\":
                char, position, kind = self._escape(stop, key=key)
                parts.append(char)
                escaped = escaped or char == opening
                if kind and kind not in kinds:
                    kinds.append(kind)
            elif key or self._closes(stop, inner, in_object):
                break
            else:
                inner = inner or InnerQuotes(text, start + 1)
                inner.add(stop)
                parts.append(text[stop])
                position = stop + 1
        content = "".join(parts)
        if inner:
            if escaped:
                raise Unreadable("quotes", "some quotes in a string are escaped, some not", stop)
            inner.check_whole(stop)
            kinds.append("inner quotes")
        raw = text[start + 1 : stop]
        if not raw.isprintable() and any(char < " " for char in raw):
            kinds.append("raw line break")
        if not encodable(content):
            raise Unreadable("surrogate", "half of a surrogate pair is no character", start)
        return content, stop + 1, kinds

    def _find(self, chars: str, position: int) -> int:
        best = -1
        for char in chars:
            found = self._next.get(char, -2)
            if found == -2 or -1 < found < position:
                found = self._next[char] = self.text.find(char, position)
            if found >= 0 and (best < 0 or found < best):
                best = found
        if best < 0:
            raise Unreadable("cut_off", "the text ends inside a string", len(self.text))
        return best

    def _escape(self, position: int, *, key: bool = False) -> tuple[str, int, str | None]:
        text = self.text
        mark = text[position + 1 : position + 2]
        if mark in _ESCAPES and mark:
            return _ESCAPES[mark], position + 2, "escape" if mark == "'" else None
        if mark == "u":
            code = self._hex(position + 2, 4)
            if 0xD800 <= code < 0xDC00 and text.startswith("\\u", position + 6):
                low = self._hex(position + 8, 4)
                if 0xDC00 <= low < 0xE000:
                    code = 0x10000 + ((code - 0xD800) << 10) + low - 0xDC00
                    return chr(code), position + 12, None
            return chr(code), position + 6, None
        if mark == "_" and key:  # Markdown escapes the underscores of names
            return "_", position + 2, "escape"
        if mark == "x":
            return chr(self._hex(position + 2, 2)), position + 4, "escape"
        if not mark:
            raise Unreadable("cut_off", "the text ends inside a string", len(text))
        raise Unreadable(
            "escape", f"\\{mark} is no JSON escape; write \\\\{mark} or {mark}", position
        )

    def _hex(self, position: int, length: int) -> int:
        digits = self.text[position : position + length]
        if len(digits) < length:
            raise Unreadable("cut_off", "the text ends inside a string", len(self.text))
        if not all(digit in "0123456789abcdefABCDEF" for digit in digits):
            raise Unreadable("escape", f"{digits!r} are not {length} hexadecimal digits", position)
        return int(digits, 16)

    def _triple(self, start: int) -> tuple[str, int, list[str]]:
        """A Python string in three quotes: content as it stands, escapes read."""
        text = self.text
        mark = text[start] * 3
        stop = text.find(mark, start + 3)
        if stop < 0:
            raise Unreadable("cut_off", "the text ends inside a string", len(text))
        while text.startswith(mark[0], stop + 3):
            stop += 1
        parts: list[str] = []
        position = start + 3
        while (slash := text.find("\\", position, stop)) >= 0:
            char, after, _ = self._escape(slash)
            parts += (text[position:slash], char)
            position = after
        if position > stop:
            raise Unreadable("quotes", "an escape runs over the closing quotes", stop)
        content = "".join(parts) + text[position:stop]
        if not encodable(content):
            raise Unreadable("surrogate", "half of a surrogate pair is no character", start)
        return content, stop + 3, ["quotes"]

    def _closes(self, stop: int, inner: InnerQuotes | None, in_object: bool) -> bool:
        """Whether the quote at `stop` ends the string; raises Unreadable if that is open."""
        text = self.text
        position = stop + 1
        char = text[position : position + 1]
        if char not in _PUNCTUATION:
            position, _ = skip_blank(text, position)
            char = text[position : position + 1]
        if not char:
            raise Unreadable("cut_off", "the text ends before the JSON does", len(text))
        if char == ":":
            raise Unreadable("quotes", "a string seems to run into the next key", stop)
        if char in OPENING_QUOTES:
            goes_on = (
                member_starts(text, position) if in_object else not inner and position > stop + 1
            )
        elif char == ",":
            goes_on = comma_goes_on(text, skip_blank(text, position + 1)[0], in_object)
        else:
            goes_on = char == ("}" if in_object else "]")
            if goes_on and inner and inner.open:
                goes_on = False
        if goes_on and inner and inner.open:
            raise Unreadable("quotes", UNESCAPED, stop)
        if goes_on and inner and not in_object and char == "," and not inner.paired:
            raise Unreadable("quotes", UNESCAPED, stop)
        return goes_on
