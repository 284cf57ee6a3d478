"""The unescaped quotes of one string: do they read as pairs around words?"""

from __future__ import annotations

from assay_gate.tokens import Unreadable

_MOST_INNER_QUOTES = 200
UNESCAPED = 'a string holds quotes that are not escaped; write \\" inside strings'


class InnerQuotes:
    """The unescaped quotes of one string so far, and whether they read as pairs around words."""

    def __init__(self, text: str, start: int) -> None:
        self.text = text
        self.start = start
        self.count = 0
        self.open = False
        self.paired = True
        self._first = self._last = -1

    def add(self, position: int) -> None:
        before = self.text[position - 1] if position > self.start else " "
        after = self.text[position + 1 : position + 2]
        tight = before.isalnum() and after.isalnum()
        if self.open:
            if before.isspace() and after.isalnum():
                raise Unreadable("quotes", "unescaped quotes do not pair up", position)
            self.open = False
        elif tight:
            self.paired = False
        elif not before.isalnum() and after and not after.isspace():
            self.open = True
        else:
            raise Unreadable("quotes", UNESCAPED, position)
        self.count += 1
        if self.count > _MOST_INNER_QUOTES:
            raise Unreadable("quotes", "too many unescaped quotes in a string", position)
        if self._first < 0:
            self._first = position
        self._last = position

    def check_whole(self, stop: int) -> None:
        """Refuses a string that is quoted twice, as CSV doubles quotes."""
        if self._first == self.start and self._last == stop - 1:
            raise Unreadable("quotes", "doubled quotes; write the string once quoted", stop)
