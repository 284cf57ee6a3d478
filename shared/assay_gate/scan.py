"""Finds the JSON in a raw answer: one pass from left to right (SPEC S4.1).

Prose, fences and tags need no rules of their own: whatever is not inside a JSON value is passed
over. Only what a closed thinking block holds is cut out, and only before the first value, so that
text echoed behind an answer can never hide it.
"""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

from assay_gate.config import GateConfig
from assay_gate.members import member_starts
from assay_gate.reader import TolerantReader
from assay_gate.strict import NotStrict, StrictReader
from assay_gate.surroundings import (
    check_surroundings,
    is_escaped,
    past_template,
    without_quote_marks,
)
from assay_gate.thinking import may_think, past_thinking
from assay_gate.tokens import OPENING_QUOTES, Unreadable, skip_blank, skip_space
from assay_gate.verdict import Repair, repair
from assay_gate.whole import Candidate, read_scalar

_MOST_STRICT_TRIES = 32
_FAILED_TRY = 40
"""What a bracket that opens no JSON costs, in characters read."""


def find_candidates(text: str, config: GateConfig, strict: StrictReader) -> list[Candidate]:
    """Every JSON value of the text, or, where there is no container, the whole text as a scalar.

    Raises Unreadable if the text holds JSON that is broken or cut off, whatever else it holds.
    """
    if len(text) > config.max_repair_characters:
        raise Unreadable("too_long", "the answer is too long to be repaired", 0)
    quoted = without_quote_marks(text)
    found = _Scan(quoted, config, strict).run()
    if quoted is not text:
        mark = repair("$", "quote marks", text, quoted)
        found = [replace(candidate, repairs=[mark, *candidate.repairs]) for candidate in found]
    return found or [read_scalar(text, strict)]


class _Scan:
    def __init__(self, text: str, config: GateConfig, strict: StrictReader) -> None:
        self.text = text
        self.strict = strict
        self.config = config
        self.reader = TolerantReader(text, config)
        self.found: list[Candidate] = []
        self.wasted = 0
        self.strict_tries = 0
        self._next = dict.fromkeys("{[<" if may_think(text) else "{[", -2)

    def run(self) -> list[Candidate]:
        position = 0
        while (start := self._opener(position)) >= 0:
            char = self.text[start]
            if char != "{":
                if self.text.startswith("[CDATA[", start):
                    position = start + 7
                    continue
                after = None if self.found else past_thinking(self.text, start)
                if after is not None or char == "<":
                    position = after or start + 1
                    continue
            position = self._candidate(start)
        return self.found

    def _opener(self, position: int) -> int:
        best = -1
        for char, known in self._next.items():
            if known == -2 or -1 < known < position:
                known = self.text.find(char, position)
                self._next[char] = known
            if known >= 0 and (best < 0 or known < best):
                best = known
        return best

    def _candidate(self, start: int) -> int:
        """Reads the value that opens at `start`; returns where the search goes on."""
        text = self.text
        if text[start] == "{" and not self._is_object(start):
            return start + 1
        if is_escaped(text, start):
            return self._escaped(start)
        end = self._strict_candidate(start)
        if end is not None:
            return end
        try:
            value, end, repairs, bare = self.reader.read(start)
        except Unreadable as fault:
            if fault.empty and not fault.prose:
                return past_template(text, start, fault)
            if not fault.prose:
                raise
            self.wasted += fault.offset - start + _FAILED_TRY
            if self.wasted > 2 * len(text) + 10_000:
                raise Unreadable("too_long", "too many brackets that hold no JSON", start) from None
            return start + 1
        check_surroundings(text, start, end)
        self._add(value, repairs, start, end, bare=bare)
        return end

    def _strict_candidate(self, start: int) -> int | None:
        """The end of the value here if it is strict JSON: the usual case in fences and prose."""
        # A refusal costs time in proportion to its offset, so only the first brackets are tried.
        if self.strict_tries >= _MOST_STRICT_TRIES:
            return None
        self.strict_tries += 1
        try:
            value, end = self.strict.read_at(self.text, start)
        except NotStrict:
            return None
        clean = not self.strict.whole_float
        check_surroundings(self.text, start, end)
        self._add(value, [], start, end, clean=clean)
        return end

    def _is_object(self, start: int) -> bool:
        """Whether `{` opens an object rather than a placeholder in a sentence."""
        text = self.text
        position = skip_space(text, start + 1)
        char = text[position : position + 1]
        if char == "\\":
            position, _ = skip_blank(text, position)
            char = text[position : position + 1]
        if char == "{":
            return False
        if not char:
            raise Unreadable("cut_off", "the answer ends before its JSON is complete", len(text))
        if char in "/#":
            position, _ = skip_blank(text, position)
            self.wasted += position - start
            char = text[position : position + 1]
        if char in OPENING_QUOTES or char == "}" or is_escaped(text, start):
            return True
        return member_starts(text, position)

    def _escaped(self, start: int) -> int:
        r"""Reads an object whose text is escaped as a whole: `{\"key\": \"value\"}`."""
        text = self.text
        end = max(text.rfind("}"), text.rfind("]")) + 1
        if end <= start:
            raise Unreadable("cut_off", "the answer ends before its JSON is complete", len(text))
        try:
            inner = json.loads(f'"{text[start:end]}"')
        except ValueError:
            raise Unreadable("escape", "backslashes before the quotes of keys", start) from None
        value, length, repairs, bare = TolerantReader(inner, self.config).read(0)
        if length != len(inner):
            raise Unreadable("not_json", "text follows after the escaped JSON", start)
        repairs.insert(0, repair("$", "unescaped", text[start:end], inner))
        self._add(value, repairs, start, end, bare=bare)
        return end

    def _add(
        self,
        value: Any,
        repairs: list[Repair],
        start: int,
        end: int,
        *,
        bare: bool = False,
        clean: bool = False,
    ) -> None:
        if len(self.found) >= self.config.max_candidates:
            raise Unreadable("too_long", "too many JSON values in one answer", start)
        text = self.text
        if text[:start].strip() or text[end:].strip():
            repairs = [repair("$", "extracted", text.strip(), text[start:end]), *repairs]
        self.found.append(Candidate(value, repairs, bare, clean))
