"""The tolerant reader: one object or array, with the faults models make, without recursion.

Read and logged: trailing and missing commas, other quotes, unquoted keys, Python literals,
comments, raw line breaks, unescaped quotes of one reading, a key twice with the same value.
Refused: the end of the text before the end of the value, a missing value, an elision (`...`), a
key twice with different values, words that are no value, a closer of the wrong kind.
"""

from __future__ import annotations

from typing import Any

from assay_gate.comments import leaves_out
from assay_gate.config import GateConfig
from assay_gate.members import bare_key_end, member_starts
from assay_gate.strings import QuotedReader
from assay_gate.tokens import OPENING_QUOTES, Unreadable, read_atom, skip_blank
from assay_gate.values import child_path, same
from assay_gate.verdict import Repair, repair

_MOST_REPAIRS = 200
_CLOSERS = frozenset("}])")
_TOKENS = frozenset("{}[],:\"'0123456789-tfn")
"""Characters no blank or comment begins with, so that nothing has to be skipped."""
_LITERAL_KEYS = frozenset(("true", "false", "null", "none"))


class TolerantReader:
    """Reads containers from one text; `steps` counts the work of all of them together."""

    def __init__(self, text: str, config: GateConfig) -> None:
        self.text = text
        self.steps = 0
        self._quoted = QuotedReader(text)
        self._max_steps = config.max_work
        self._max_depth = config.max_depth

    def read(self, start: int) -> tuple[Any, int, list[Repair], bool]:
        """The container that opens at `start`: (value, end, repairs, whether it holds Bare words).

        Raises Unreadable.
        """
        return _Container(self, start).read()

    def step(self, position: int) -> None:
        self.steps += 1
        if self.steps > self._max_steps:
            raise Unreadable("too_long", "the answer is too long to be repaired", position)


class _Frame:
    __slots__ = ("closer", "container", "is_object", "key")

    def __init__(self, opener: str) -> None:
        self.is_object = opener == "{"
        self.container: Any = {} if self.is_object else []
        self.closer = "}" if self.is_object else "]"
        self.key = ""


class _Container:
    """The state of reading one container."""

    def __init__(self, owner: TolerantReader, start: int) -> None:
        self.owner = owner
        self.text = owner.text
        self.position = start
        self.frames: list[_Frame] = []
        self.repairs: list[Repair] = []
        self.repeated: list[tuple[str, Any, Any]] = []
        self.bare = False
        self.committed = False
        self.values = 0

    def read(self) -> tuple[Any, int, list[Repair], bool]:
        try:
            value = self._run()
        except Unreadable as fault:
            fault.prose = fault.prose and not self.committed
            fault.empty = not self.values and fault.rule in ("not_json", "elision")
            raise
        for path, first, second in self.repeated:
            if not same(first, second):
                raise Unreadable(
                    "duplicate_key", f"{path} stands there twice with different values",
                    self.position,
                )  # fmt: skip
            self._repair("duplicate key", first, second, path)
        return value, self.position, self.repairs, self.bare

    def _run(self) -> Any:
        self._open()
        after_comma = False
        while True:
            char = self._peek()
            frame = self.frames[-1]
            if char == frame.closer:
                if after_comma:
                    self._repair("trailing comma", "," + char, char)
                self.position += 1
                self.frames.pop()
                if not self.frames:
                    return frame.container
                self.committed = True
                after_comma = self._separator(atom=False)
                continue
            if char in _CLOSERS:
                raise self._unexpected(f"{char!r} closes what {frame.closer!r} should close")
            if char == ",":
                raise Unreadable("missing_value", "a value is missing before ','", self.position)
            if frame.is_object:
                char = self._key(frame)
            if char in ("{", "["):
                self._open()
                after_comma = False
                continue
            after_comma = self._separator(atom=self._scalar(frame, char))

    def _open(self) -> None:
        self.owner.step(self.position)
        if len(self.frames) >= self.owner._max_depth:
            raise Unreadable("too_deep", "the answer nests too deeply", self.position)
        frame = _Frame(self.text[self.position])
        if self.frames:
            self._store(self.frames[-1], frame.container)
        self.frames.append(frame)
        self.position += 1

    def _key(self, frame: _Frame) -> str:
        """Reads `key :` and returns the first character of the value."""
        text = self.text
        start = self.position
        char = text[start]
        if char in OPENING_QUOTES:
            frame.key, self.position, kinds = self.owner._quoted.read(
                start, key=True, in_object=True
            )
            for kind in kinds:
                self._repair(kind, text[start : self.position], frame.key)
        else:
            end = bare_key_end(text, start)
            word = text[start:end]
            if text.startswith(("...", "…"), start):
                raise Unreadable("elision", "something was left out (…); write every field", start)
            if end == start or word.lower() in _LITERAL_KEYS:
                raise self._unexpected("a key in double quotes was expected")
            frame.key, self.position = word, end
        if self._peek() != ":":
            raise self._unexpected(f"':' was expected after the key {frame.key[:40]!r}")
        if char not in OPENING_QUOTES:
            self._repair_here("unquoted key", frame.key, frame.key)
        self.committed = True
        self.position += 1
        value_char = self._peek()
        if value_char in _CLOSERS or value_char == ",":
            raise Unreadable(
                "missing_value", f"the value of {self._path()} is missing", self.position
            )
        return value_char

    def _scalar(self, frame: _Frame, char: str) -> bool:
        """Reads and stores a string or an atom; whether it was an atom."""
        self.owner.step(self.position)
        text = self.text
        start = self.position
        if char in OPENING_QUOTES:
            value, self.position, kinds = self.owner._quoted.read(
                start, key=False, in_object=frame.is_object
            )
            self.committed = True
            self.values += 1
            for kind in kinds:
                self._repair_here(kind, text[start : self.position], value)
            self._store(frame, value)
            return False
        atom, self.position, kind_or_none = read_atom(text, start)
        if kind_or_none == "unquoted":
            self.bare = True
        else:
            self.values += 1
        if kind_or_none and kind_or_none != "unquoted":
            self._repair_here(kind_or_none, text[start : self.position], atom)
        self._store(frame, atom)
        return True

    def _store(self, frame: _Frame, value: Any) -> None:
        if not frame.is_object:
            frame.container.append(value)
            return
        if frame.key in frame.container:
            self.repeated.append((self._path(), frame.container[frame.key], value))
        frame.container[frame.key] = value

    def _separator(self, *, atom: bool) -> bool:
        """Moves past what follows a value; whether that was a comma."""
        text = self.text
        before = self.position
        frame = self.frames[-1]
        char = self._peek()
        if char == ",":
            self.position += 1
            return True
        if char == frame.closer:
            return False
        if char in _CLOSERS:
            raise self._unexpected(f"{char!r} closes what {frame.closer!r} should close")
        if frame.is_object:
            missing = member_starts(text, self.position)
        else:
            apart = "\n" in text[before : self.position]
            missing = (not atom and (char in OPENING_QUOTES or char in "{[")) or (
                apart and char != ":"
            )
        if not missing:
            raise self._unexpected(f"',' or {frame.closer!r} was expected")
        self._repair("missing comma", text[before : self.position][:8], ",")
        return False

    def _peek(self) -> str:
        text, position = self.text, self.position
        if text[position : position + 1] == " ":
            position += 1
        char = text[position : position + 1]
        if char in _TOKENS:
            self.position = position
            return char
        position, commented = skip_blank(text, position)
        if commented:
            comment = text[self.position : position].strip()
            if leaves_out(comment):
                self.values += 1  # a remark, so this is no template of placeholders
                raise Unreadable("elision", f"{comment[:40]!r}: write everything", self.position)
            self._repair("comment", comment, "")
        self.position = position
        if position >= len(text):
            raise Unreadable("cut_off", "the answer ends before its JSON is complete", len(text))
        return text[position]

    def _unexpected(self, wanted: str) -> Unreadable:
        found = self.text[self.position : self.position + 20]
        message = f"{wanted}, but {found!r} stands there"
        return Unreadable("not_json", message, self.position, prose=True)

    def _path(self) -> str:
        path = "$"
        for frame in self.frames:
            index = len(frame.container) - (frame is not self.frames[-1])
            path = child_path(path, frame.key if frame.is_object else index)
        return path

    def _repair_here(self, kind: str, before: Any, after: Any) -> None:
        if len(self.repairs) < _MOST_REPAIRS:
            self.repairs.append(repair(self._path(), kind, before, after))

    def _repair(self, kind: str, before: Any, after: Any, path: str | None = None) -> None:
        if len(self.repairs) < _MOST_REPAIRS:
            self.repairs.append(repair(path or "$", kind, before, after))
