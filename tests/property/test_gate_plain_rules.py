"""Plain rules evaluated in this process give what asteval gives (issue item 4)."""

from __future__ import annotations

import io
import json
from typing import Any

from asteval import Interpreter
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from assay_gate.rules.plain import NotPlain, compile_plain

NAMES = ["score", "parts", "name", "flag", "items", "nothing"]
records = st.fixed_dictionaries(
    {
        "score": st.one_of(st.integers(-(2**70), 2**70), st.floats(-1e6, 1e6), st.just(0)),
        "parts": st.dictionaries(st.sampled_from(["a", "b"]), st.integers(-5, 5)),
        "name": st.text(max_size=4),
        "flag": st.booleans(),
        "items": st.lists(st.one_of(st.integers(-3, 3), st.text(max_size=2)), max_size=3),
        "nothing": st.none(),
    }
)
leaves = st.one_of(
    st.sampled_from([*NAMES, "missing", "pi", "True", "None"]),
    st.integers(-9, 99).map(str),
    st.floats(-10, 10).map(repr),
    st.sampled_from(
        ["'a'", "''", "parts['a']", "items[0]", "parts['zz']", "dir()", "[]", "(1, 2)"]
    ),
)


def branches(inner: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    binary = [
        "+",
        "-",
        "*",
        "/",
        "//",
        "%",
        "<",
        "<=",
        ">",
        ">=",
        "==",
        "!=",
        "in",
        "not in",
        "and",
        "or",
    ]
    return st.one_of(
        st.tuples(inner, st.sampled_from(binary), inner).map(lambda t: f"({t[0]} {t[1]} {t[2]})"),
        st.tuples(inner, inner, inner).map(lambda t: f"({t[0]} < {t[1]} <= {t[2]})"),
        st.tuples(inner, inner, inner).map(lambda t: f"({t[0]} if {t[1]} else {t[2]})"),
        st.tuples(st.sampled_from(["-", "+", "not "]), inner).map(lambda t: f"({t[0]}{t[1]})"),
        st.tuples(st.sampled_from(["abs", "len", "sum", "round"]), inner).map(
            lambda t: f"{t[0]}({t[1]})"
        ),
        st.tuples(st.sampled_from(["min", "max"]), inner, inner).map(
            lambda t: f"{t[0]}({t[1]}, {t[2]})"
        ),
        st.tuples(inner, inner).map(lambda t: f"{t[0]}[{t[1]}]"),
        st.tuples(inner, inner).map(lambda t: f"[{t[0]}, {t[1]}]"),
    )


expressions = st.recursive(leaves, branches, max_leaves=8)


def by_asteval(expression: str, record: dict[str, Any]) -> tuple[str, Any]:
    interpreter = Interpreter(use_numpy=False, writer=io.StringIO(), err_writer=io.StringIO())
    interpreter.symtable["dir"] = lambda: sorted(record)
    interpreter.symtable.update(json.loads(json.dumps(record)))
    try:
        return "value", interpreter.eval(expression, show_errors=False, raise_errors=True)
    except Exception as error:
        return "error", type(error).__name__


@given(expressions, records)
@settings(max_examples=1500, deadline=None)
def test_plain_expressions_equal_asteval(expression: str, record: dict[str, Any]) -> None:
    """Issue item 4: the same value of the same type, or the same kind of error."""
    try:
        evaluate = compile_plain(expression)
    except NotPlain:
        assume(False)
        return
    try:
        ours: tuple[str, Any] = ("value", evaluate(record))
    except NotPlain:
        assume(False)
        return
    except Exception as error:
        ours = ("error", type(error).__name__)
    theirs = by_asteval(expression, record)
    assert (ours[0], type(ours[1]), repr(ours[1])) == (theirs[0], type(theirs[1]), repr(theirs[1]))
