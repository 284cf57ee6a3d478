"""Fuzzing the gate with texts and schemas it has never seen (X.5, issue item 7).

`python -m tests.fuzz.gate_fuzz [--inputs N | --seconds S] [--seed N]` runs for as long as asked
and prints what broke, with the seed that shows it again. Every input is made from a random schema
and a value that fits it, then either

- decorated harmlessly: the gate must accept exactly the value;
- broken on purpose (cut off, elided, contradicted, doubled): the gate must reject;
- mutated at random: the gate must not raise, and what it accepts must fit the schema, be
  writable as UTF-8, hold no number or word that the text does not hold, and be the same value
  that a strict reader finds, wherever the text is strict JSON that fits.
"""

from __future__ import annotations

import argparse
import json
import random
import sys
import time
from collections.abc import Callable
from typing import Any

from assay_gate import Gate

WORDS = [
    "wallet", "low", "risk", "naïve", "日本", "it's", "a {b}", "x, y", "[1]", "50%", "true", "7",
    "c:\\d", 'e"f', "<p>", "🚀", "null", "```", "// no", "# no", "…", "A: b", "1,5", "é",
]  # fmt: skip
KEYS = ["score", "name", "tags", "parts", "note", "level", "größe", "a b", "x1", "is_ok"]
NOISE = [
    *"{}[]\",:'\\/ \n#0159eE+-.…tfn`<>“”’", "null", "true", "NaN", "...", "```", "<think>",
    "</think>", '"score"', "\\u", "\\ud800", "//", "/*", "*/", "\u200b", "None",
]  # fmt: skip

Json = Any


class Fault(AssertionError):
    """Something the gate must never do."""


def exact(value: Json) -> str:
    return json.dumps(value, sort_keys=True)


class Maker:
    """Random schemas, values that fit them, and texts that hold those values."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)

    def text(self) -> str:
        return " ".join(self.random.choices(WORDS, k=self.random.randint(0, 4)))

    def pair(self, depth: int = 3) -> tuple[Json, Json]:
        """A schema and a value that fits it as it stands."""
        r = self.random
        kind = r.randint(0, 9 if depth else 5)
        if kind == 0:
            return {"type": "integer"}, r.choice([0, -3, 42, 10**6, 2**70])
        if kind == 1:
            return {"type": "number"}, r.choice([0.5, -2.25, 7, 1e-3])
        if kind == 2:
            return {"type": "boolean"}, r.random() < 0.5
        if kind == 3:
            options = r.sample(["low", "medium", "high", "very high", "none"], 3)
            return {"enum": options}, r.choice(options)
        if kind == 4:
            return {"type": ["string", "null"]}, r.choice([None, self.text()])
        if kind == 5:
            return {"type": "string"}, self.text()
        if kind == 6:
            schema, _ = self.pair(depth - 1)
            items = [self.fit(schema) for _ in range(r.randint(0, 3))]
            return {"type": "array", "items": schema}, items
        return self.object(depth)

    def object(self, depth: int) -> tuple[Json, Json]:
        names = self.random.sample(KEYS, self.random.randint(1, 4))
        members = {name: self.pair(depth - 1) for name in names}
        schema: dict[str, Any] = {
            "type": "object",
            "properties": {name: pair[0] for name, pair in members.items()},
            "required": names,
        }
        if self.random.random() < 0.4:
            schema["additionalProperties"] = False
        return schema, {name: pair[1] for name, pair in members.items()}

    def fit(self, schema: Json) -> Json:
        """Another value of a schema made by `pair`."""
        if "enum" in schema:
            return self.random.choice(schema["enum"])
        kind = schema["type"]
        if kind == "object":
            return {name: self.fit(part) for name, part in schema["properties"].items()}
        if kind == "array":
            return [self.fit(schema["items"]) for _ in range(self.random.randint(0, 2))]
        made: dict[str, Callable[[], Json]] = {
            "integer": lambda: self.random.randint(-9, 99),
            "number": lambda: self.random.randint(-99, 99) / 4,
            "boolean": lambda: self.random.random() < 0.5,
        }
        return made[kind]() if isinstance(kind, str) and kind in made else self.text()

    def written(self, value: Json) -> str:
        r = self.random
        return json.dumps(value, indent=r.choice([None, None, 1, 2]), ensure_ascii=r.random() < 0.5)

    def decorated(self, value: Json) -> str:
        """A text in which `value` is the only answer."""
        r = self.random
        text = self.written(value)
        for _ in range(r.randint(1, 3)):
            text = r.choice(DECORATIONS)(text, value, r)
        return text

    def broken(self, value: dict[str, Json], schema: Json) -> str:
        """A text that must be rejected."""
        r = self.random
        text = self.written(value)
        name = r.choice(list(value))
        member = f"{json.dumps(name)}: "
        other = json.dumps({**value, name: self.other(value[name])})
        plain = json.dumps(value)
        choice = r.randint(0, 5)
        if choice == 0:
            return text[: r.randint(0, len(text) - 1)]
        if choice == 1:
            return "```json\n" + text[: r.randint(0, len(text) - 1)] + r.choice(["", "\n```"])
        if choice == 2:
            return plain[:-1] + r.choice([", ...}", ", …}", f", {member}}}", f", {member}, }}"])
        if choice == 3:
            return "{" + member + json.dumps(self.other(value[name])) + ", " + plain[1:]
        if choice == 4:
            wrong = r.choice(["NaN, ", "undefined, ", ", ", "1 + "])
            return plain.replace(member, member + wrong, 1)
        if not Gate(schema).judge(other).accepted:
            return text[:-1]
        pieces = [text, other] if r.random() < 0.5 else [other, text]
        return r.choice(["\n", "\nor: ", " vs ", "\n```json\n"]).join(pieces)

    def other(self, value: Json) -> Json:
        """A different value of the same type."""
        if isinstance(value, bool):
            return not value
        if isinstance(value, int | float):
            return value + 1
        if isinstance(value, str):
            return value + "x"
        if isinstance(value, list):
            return [*value, *value] or ["x"]
        return {"other": value}

    def mutated(self, text: str) -> str:
        r = self.random
        for _ in range(r.randint(1, 4)):
            at = r.randint(0, len(text))
            kind = r.randint(0, 4)
            if kind == 0:
                text = text[:at] + text[at + r.randint(1, 4) :]
            elif kind == 1:
                text = text[:at] + r.choice(NOISE) + text[at:]
            elif kind == 2:
                text = text[:at] + r.choice(NOISE) + text[at + 1 :]
            elif kind == 3:
                end = min(len(text), at + r.randint(1, 12))
                text = text[:end] + text[at:end] + text[end:]
            else:
                text = text[:at]
        return text


def _trailing(text: str, value: Json, r: random.Random) -> str:
    if value in ({}, []) or not text.endswith(("}", "]")) or text[:-1].rstrip().endswith(","):
        return text
    return text[:-1] + "," + text[-1]


DECORATIONS: list[Callable[[str, Json, random.Random], str]] = [
    lambda text, value, r: f"```{r.choice(['', 'json', 'JSON', 'js'])}\n{text}\n```",
    lambda text, value, r: f"{r.choice(['Sure!', 'Voilà :', '答案：', 'Result ->'])}\n{text}",
    lambda text, value, r: f"{text}\n{r.choice(['Done.', 'I hope this helps (a lot)!', '---'])}",
    lambda text, value, r: f'<think>\nmaybe {{"score": 1}}\n</think>\n{text}',
    lambda text, value, r: f"<answer>{text}</answer>",
    lambda text, value, r: f"\ufeff \n{text}\r\n",
    lambda text, value, r: text + "\n" + json.dumps(value),
    _trailing,
]


def check_decorated(maker: Maker) -> None:
    schema, value = maker.object(3)
    text = maker.decorated(value)
    verdict = Gate(schema).judge(text)
    if not verdict.accepted:
        raise Fault(f"lost: {text!r} with {exact(schema)}: {verdict.errors}")
    if exact(verdict.value) != exact(value):
        raise Fault(f"wrong value {exact(verdict.value)} from {text!r} with {exact(schema)}")


def check_broken(maker: Maker) -> None:
    schema, value = maker.object(3)
    text = maker.broken(value, schema)
    verdict = Gate(schema).judge(text)
    if verdict.accepted:
        raise Fault(f"false accept {exact(verdict.value)} from {text!r} with {exact(schema)}")


def check_mutated(maker: Maker) -> None:
    schema, value = maker.object(3) if maker.random.random() < 0.8 else maker.pair(3)
    text = maker.mutated(
        maker.decorated(value) if maker.random.random() < 0.4 else maker.written(value)
    )
    gate = Gate(schema)
    begin = time.perf_counter()
    verdict = gate.judge(text)
    seconds = time.perf_counter() - begin
    if seconds > 1:
        raise Fault(f"{seconds:.2f} s for {text!r} with {exact(schema)}")
    strict = _strict(text)
    inexact = any(error["rule"] == "integer" for error in verdict.errors)
    if strict is not None and gate.validates(strict[0]) and not inexact:
        if not verdict.accepted or not _equal(verdict.value, strict[0]):
            raise Fault(f"valid JSON changed or refused: {text!r} with {exact(schema)}")
        return
    if not verdict.accepted:
        if not verdict.errors or verdict.stage is None:
            raise Fault(f"no reason for {text!r}")
        return
    if not gate.validates(verdict.value):
        raise Fault(f"accepted against the schema: {text!r} with {exact(schema)}")
    json.dumps(verdict.value, ensure_ascii=False, allow_nan=False).encode()
    if "\\" not in text:
        _nothing_invented(verdict.value, text, schema)


def _strict(text: str) -> tuple[Json] | None:
    def unique(pairs: list[tuple[str, Json]]) -> dict[str, Json]:
        if len(dict(pairs)) != len(pairs):
            raise ValueError
        return dict(pairs)

    def constant(name: str) -> Json:
        raise ValueError

    try:
        value = json.loads(text, object_pairs_hook=unique, parse_constant=constant)
        json.dumps(value, ensure_ascii=False, allow_nan=False).encode()
    except (ValueError, RecursionError):
        return None
    return (value,)


def _equal(left: Json, right: Json) -> bool:
    return bool(left == right) and exact(left).replace(".0", "") == exact(right).replace(".0", "")


def _nothing_invented(value: Json, text: str, schema: Json) -> None:
    folded = text.casefold()
    stack = [value]
    while stack:
        part = stack.pop()
        if isinstance(part, dict):
            stack += [*part, *part.values()]
        elif isinstance(part, list):
            stack += part
        elif isinstance(part, str):
            if any(word.casefold() not in folded for word in part.split()):
                raise Fault(f"invented {part!r}: {text!r} with {exact(schema)}")
        elif part is None and not any(word in folded for word in ("null", "none")):
            raise Fault(f"invented null: {text!r} with {exact(schema)}")


CHECKS = (check_decorated, check_broken, check_mutated, check_mutated)


def fuzz(inputs: int, seed: int, seconds: float = float("inf")) -> tuple[int, list[str]]:
    """Runs until the inputs or the seconds are used up: (inputs tried, what broke)."""
    end = time.monotonic() + seconds
    faults: list[str] = []
    tried = 0
    while tried < inputs and time.monotonic() < end and len(faults) < 20:
        maker = Maker(seed + tried)
        try:
            CHECKS[tried % len(CHECKS)](maker)
        except Exception as error:
            faults.append(f"seed {seed + tried}: {type(error).__name__}: {error}")
        tried += 1
    return tried, faults


def main() -> int:
    parser = argparse.ArgumentParser(description="Fuzz the gate.")
    parser.add_argument("--inputs", type=int, default=10**12)
    parser.add_argument("--seconds", type=float, default=float("inf"))
    parser.add_argument("--seed", type=int, default=int(time.time()) << 20)
    settings = parser.parse_args()
    begin = time.monotonic()
    tried, faults = fuzz(settings.inputs, settings.seed, settings.seconds)
    for fault in faults:
        print(fault[:2000])
    seconds = time.monotonic() - begin
    print(f"{tried} inputs, {len(faults)} faults, {seconds:.0f} s, seed {settings.seed}")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
