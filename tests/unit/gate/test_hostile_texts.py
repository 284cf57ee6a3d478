"""Texts made to take long (X.5, issue numbers): work grows with the length and no faster."""

from __future__ import annotations

import json
import random
import time
from collections.abc import Callable

import pytest

from assay_gate import Gate

SCHEMA = {
    "type": "object",
    "properties": {"a": {"type": "array", "items": {"type": "string"}}},
    "required": ["a"],
}
ANSWER = json.dumps({"a": ["x", "y"], "b": {"c": 1}})
NOISE = "{}[]\":, \n'a1\\/#"


def repeated(piece: str) -> Callable[[int], str]:
    return lambda length: piece * (length // len(piece))


def noise(length: int) -> str:
    return "".join(random.Random(7).choices(NOISE, k=length))


TEXTS: dict[str, Callable[[int], str]] = {
    **{
        piece: repeated(piece)
        for piece in (
            "{", "[", "{}", "[]", "{[", "{\n", '{"a":', '[{"a":', "}]", "```json\n", "```json\n{\n",
            "<think>", "<think></think>", "<think>{</think>", "<think></thinking>", "[think]",
            '"[', '{"', "{'", '["', '{"a"', "{a:", "{a ", "[a,", '{"a": "x, ', '{"a": 1 ', "{“",
            '{\\"', '{\\"a\\": ', '{\\"a\\": 1}', "{\\n", "{/*", "{/**/", "{//", "{#\n", "[1] and ",
            '{"a": <x>} ', '{"a": ...} ', '{"a": <x> ', "a{b:c}", "\\frac{a}{b}", "<p>{x}</p>",
            ANSWER, ANSWER[:-1], '{"response": ' + ANSWER + "}", "{\u200b", "{\xa0", "> {\n",
        )
    },
    "noise": noise,
    "backslashes": lambda n: '{"a": "' + "\\" * n,
    "escaped quotes": lambda n: '{"a": "' + '\\"' * (n // 2),
    "inner quotes": lambda n: '{"a": "' + '"x" ' * (n // 4) + '"}',
    "open keys": lambda n: '{"a": "x "' + 'b": "' * (n // 5),
    "quotes and comments": lambda n: '{"a": "' + 'x"y /* */' * (n // 9),
    "quotes and blanks": lambda n: '{"a": "' + ('x"' + " " * 50) * (n // 52),
    "long key": lambda n: "{" + "k" * n + ": 1}",
    "long word": lambda n: '{"a": ' + "k" * n + "}",
    "open comment": lambda n: '{"a": 1 /*' + "x" * n,
    "comments": lambda n: "{" + "/**/" * (n // 4) + '"a": 1}',
    "the same key": lambda n: "{" + '"a": 1, ' * (n // 8) + '"a": 1}',
    "the same object": lambda n: "{" + '"a": {"b": [1]}, ' * (n // 17) + "}",
    "many keys": lambda n: "{" + "".join(f'"k{i}": 1, ' for i in range(n // 11)) + "}",
    "no commas": lambda n: '{"a": [' + '"x" ' * (n // 4) + "]}",
    "quoted words": lambda n: '{"a": [' + '"x "y" z", ' * (n // 11) + "]}",
    "words": lambda n: '{"a": [' + "x, " * (n // 3) + "]}",
    "array in a string": lambda n: json.dumps({"a": "[" + '"x", ' * (n // 5) + "]"}),
    "open array in a string": lambda n: json.dumps({"a": "[" * n}),
    "wrapped noise": lambda n: json.dumps({"response": noise(n)}),
    "wrapped answers": lambda n: json.dumps({"response": ANSWER * (n // len(ANSWER))}),
    "strings in strings": lambda n: json.dumps(json.dumps(json.dumps("\\" * (n // 8)))),
}  # fmt: skip


def seconds(gate: Gate, text: str) -> float:
    """CPU time of the fastest of three judgements."""
    times = []
    for _ in range(3):
        begin = time.process_time()
        gate.judge(text)
        times.append(time.process_time() - begin)
    return min(times)


@pytest.mark.parametrize("name", TEXTS)
def test_time_grows_no_faster_than_the_text(name: str) -> None:
    """X.5: eight times the text takes far less than the 64 times of a quadratic reader."""
    gate = Gate(SCHEMA)
    short, long = TEXTS[name](4_000), TEXTS[name](32_000)
    gate.judge(short)
    assert seconds(gate, long) < 24 * seconds(gate, short) + 0.01
