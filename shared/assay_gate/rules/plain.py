"""Comparisons and arithmetic, evaluated in this process: the part of asteval that cannot hang.

An expression is compiled to nested functions of the record. Whatever lies outside (calls other
than a few, attributes, loops, string arithmetic, unknown names) raises NotPlain, when compiling
or when evaluating, and goes to asteval in its own process. Where a result is given, it is the
one asteval gives.
"""

from __future__ import annotations

import ast
import operator
from collections.abc import Callable, Mapping
from typing import Any

Record = Mapping[str, Any]
Evaluate = Callable[[Record], Any]

_ARITHMETIC: dict[type[ast.operator], Callable[[Any, Any], Any]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
}
_COMPARISONS: dict[type[ast.cmpop], Callable[[Any, Any], Any]] = {
    ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
    ast.In: lambda item, container: item in container,
    ast.NotIn: lambda item, container: item not in container,
}
_FUNCTIONS: dict[str, Callable[..., Any]] = {
    "abs": abs, "len": len, "max": max, "min": min, "round": round, "sum": sum,
}  # fmt: skip
_MOST_DIGITS = 1 << 4096


class NotPlain(Exception):
    """The expression is not plain, or not for this record."""


def compile_plain(expression: str) -> Evaluate:
    """A function of the record; raises NotPlain, or SyntaxError for text that is no expression."""
    try:
        return _node(ast.parse(expression.strip(), mode="eval").body)
    except SyntaxError:
        ast.parse(expression.strip())
        raise NotPlain from None
    except RecursionError:
        raise NotPlain from None


def _node(node: ast.expr) -> Evaluate:
    build = _BUILDERS.get(type(node))
    if build is None:
        raise NotPlain
    return build(node)


def _constant(node: ast.Constant) -> Evaluate:
    value = node.value
    if value is not None and not isinstance(value, bool | int | float | str):
        raise NotPlain
    return lambda record: value


def _name(node: ast.Name) -> Evaluate:
    name = node.id

    def evaluate(record: Record) -> Any:
        if name not in record:
            raise NotPlain
        return record[name]

    return evaluate


def _binary(node: ast.BinOp) -> Evaluate:
    apply = _ARITHMETIC.get(type(node.op))
    if apply is None:
        raise NotPlain
    left, right = _node(node.left), _node(node.right)

    def evaluate(record: Record) -> Any:
        a, b = left(record), right(record)
        if not (_is_small(a) and _is_small(b)):
            raise NotPlain
        return apply(a, b)

    return evaluate


def _is_small(value: Any) -> bool:
    """Whether arithmetic on it is cheap: a number of ordinary length."""
    return isinstance(value, float) or (
        isinstance(value, int) and -_MOST_DIGITS < value < _MOST_DIGITS
    )


def _unary(node: ast.UnaryOp) -> Evaluate:
    operand = _node(node.operand)
    if isinstance(node.op, ast.Not):
        return lambda record: not operand(record)
    if isinstance(node.op, ast.USub):
        return lambda record: -operand(record)
    if isinstance(node.op, ast.UAdd):
        return lambda record: +operand(record)
    raise NotPlain


def _boolean(node: ast.BoolOp) -> Evaluate:
    parts = [_node(value) for value in node.values]
    stops_on = isinstance(node.op, ast.Or)

    def evaluate(record: Record) -> Any:
        value: Any = None
        for part in parts:
            value = part(record)
            if bool(value) is stops_on:
                break
        return value

    return evaluate


def _compare(node: ast.Compare) -> Evaluate:
    left = _node(node.left)
    links = [(_comparison(op), _node(right)) for op, right in zip(
        node.ops, node.comparators, strict=True)]  # fmt: skip

    def evaluate(record: Record) -> Any:
        a = left(record)
        result: Any = True
        for apply, right in links:
            b = right(record)
            result = apply(a, b)
            if not result:
                return False
            a = b
        return result

    return evaluate


def _comparison(op: ast.cmpop) -> Callable[[Any, Any], Any]:
    apply = _COMPARISONS.get(type(op))
    if apply is None:
        raise NotPlain
    return apply


def _conditional(node: ast.IfExp) -> Evaluate:
    test, body, orelse = _node(node.test), _node(node.body), _node(node.orelse)
    return lambda record: body(record) if test(record) else orelse(record)


def _subscript(node: ast.Subscript) -> Evaluate:
    value, index = _node(node.value), _node(node.slice)
    return lambda record: value(record)[index(record)]


def _list(node: ast.List) -> Evaluate:
    items = [_node(item) for item in node.elts]
    return lambda record: [item(record) for item in items]


def _tuple(node: ast.Tuple) -> Evaluate:
    items = [_node(item) for item in node.elts]
    return lambda record: tuple(item(record) for item in items)


def _call(node: ast.Call) -> Evaluate:
    if not isinstance(node.func, ast.Name) or node.keywords:
        raise NotPlain
    name = node.func.id
    arguments = [_node(argument) for argument in node.args]
    if name == "dir" and not arguments:
        listing: Evaluate = sorted
    elif name in _FUNCTIONS:
        function = _FUNCTIONS[name]
        listing = lambda record: function(*[argument(record) for argument in arguments])  # noqa: E731
    else:
        raise NotPlain

    def evaluate(record: Record) -> Any:
        if name in record:
            raise NotPlain
        return listing(record)

    return evaluate


_BUILDERS: dict[type[ast.expr], Callable[[Any], Evaluate]] = {
    ast.Constant: _constant,
    ast.Name: _name,
    ast.BinOp: _binary,
    ast.UnaryOp: _unary,
    ast.BoolOp: _boolean,
    ast.Compare: _compare,
    ast.IfExp: _conditional,
    ast.Subscript: _subscript,
    ast.List: _list,
    ast.Tuple: _tuple,
    ast.Call: _call,
}
