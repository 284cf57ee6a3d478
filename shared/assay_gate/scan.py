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
from assay_gate.reader import TolerantReader
from assay_gate.strict import NotStrict, StrictReader
from assay_gate.strings import bare_key_end, member_starts
from assay_gate.tokens import OPENING_QUOTES, Unreadable, skip_blank, skip_space
from assay_gate.verdict import Repair, repair
from assay_gate.whole import Candidate, read_scalar

_THINKING = frozenset(
    ("think", "thinking", "thought", "thoughts", "reasoning", "reason", "reflection",
     "scratchpad", "analysis")
)  # fmt: skip
_LONGEST_TAG = 64
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


def without_quote_marks(text: str) -> str:
    """The text without Markdown's `>`, if each of its lines begins with one."""
    if not text.lstrip().startswith(">"):
        return text
    lines = [line.strip() for line in text.strip().split("\n")]
    if not all(line.startswith(">") for line in lines):
        return text
    return "\n".join(line[1:] for line in lines)


class _Scan:
    def __init__(self, text: str, config: GateConfig, strict: StrictReader) -> None:
        self.text = text
        self.strict = strict
        self.config = config
        self.reader = TolerantReader(text, config)
        self.found: list[Candidate] = []
        self.wasted = 0
        self.strict_tries = 0
        lowered = text.lower()
        thinks = any(name in lowered for name in _THINKING)
        self._next = dict.fromkeys("{[<" if thinks else "{[", -2)

    def run(self) -> list[Candidate]:
        position = 0
        while (start := self._opener(position)) >= 0:
            char = self.text[start]
            if char != "{":
                if self.text.startswith("[CDATA[", start):
                    position = start + 7
                    continue
                after = self._past_thinking(start)
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

    def _past_thinking(self, start: int) -> int | None:
        """The position after the thinking block that opens here; None if none does."""
        if self.found:
            return None
        text = self.text
        closer = ">" if text[start] == "<" else "]"
        name_end = bare_key_end(text, start + 1)
        name = text[start + 1 : name_end].lower()
        if name not in _THINKING or (closer == "]" and name != "think"):
            return None
        tag_end = text.find(closer, name_end, name_end + _LONGEST_TAG)
        if tag_end < 0:
            return None
        if text[tag_end - 1] == "/":
            return tag_end + 1
        opener = text[start] + "/"
        close = text.find(opener, tag_end)
        while close >= 0:
            end = close + 2 + len(name)
            if text[close + 2 : end].lower() == name and text.startswith(closer, end):
                return end + 1
            close = text.find(opener, close + 1)
        raise Unreadable("cut_off", "the text ends inside its thinking block", len(text))

    def _candidate(self, start: int) -> int:
        """Reads the value that opens at `start`; returns where the search goes on."""
        text = self.text
        if text[start] == "{" and not self._is_object(start):
            return start + 1
        if _is_escaped(text, start):
            return self._escaped(start)
        end = self._strict_candidate(start)
        if end is not None:
            return end
        try:
            value, end, repairs, bare = self.reader.read(start)
        except Unreadable as fault:
            if fault.empty and not fault.prose:
                return self._past_template(start, fault)
            if not fault.prose:
                raise
            self.wasted += fault.offset - start + _FAILED_TRY
            if self.wasted > 2 * len(text) + 10_000:
                raise Unreadable("too_long", "too many brackets that hold no JSON", start) from None
            return start + 1
        self._check_surroundings(start, end)
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
        self._check_surroundings(start, end)
        self._add(value, [], start, end, clean=clean)
        return end

    def _past_template(self, start: int, fault: Unreadable) -> int:
        """The end of `{"score": <number>, …}` in a sentence; raises the fault if it has none."""
        text = self.text
        depth = 0
        quoted = False
        for position in range(start, len(text)):
            char = text[position]
            if char == '"':
                quoted = not quoted
            elif not quoted and char in "{[":
                depth += 1
            elif not quoted and char in "}]":
                depth -= 1
                if not depth:
                    return position + 1
        raise fault

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
        if char in OPENING_QUOTES or char == "}" or _is_escaped(text, start):
            return True
        return member_starts(text, position)

    def _check_surroundings(self, start: int, end: int) -> None:
        """Refuses a value that is visibly a piece of a larger one that was not read."""
        text = self.text
        after = skip_space(text, end)
        comma = text.startswith(",", after)
        follows = skip_space(text, after + 1) if comma else after
        if text[follows : follows + 1] in ('"', "'") and member_starts(text, follows):
            raise Unreadable("not_json", "fields follow after the closing bracket", after)
        before = text[max(0, start - _LONGEST_TAG) : start].rstrip()
        named = before.endswith(":") and before[:-1].rstrip()[-1:] in ('"', "'")
        if named and text[after : after + 1] in ("}", "]"):
            raise Unreadable("not_json", "the opening bracket of the answer is missing", start)

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


def _is_escaped(text: str, start: int) -> bool:
    r"""Whether `\"` is the first thing inside the brackets that open here."""
    position = skip_space(text, start + 1)
    for _ in range(4):
        if text[position : position + 1] in ("{", "["):
            position = skip_space(text, position + 1)
        elif text.startswith(("\\n", "\\t", "\\r"), position):
            position = skip_space(text, position + 2)
        else:
            break
    return text.startswith('\\"', position)
