"""Questions about parsed JSON values: depth, sameness, lone surrogates, paths."""

from __future__ import annotations

from typing import Any


def deeper_than(value: Any, limit: int) -> bool:
    """Whether containers nest deeper than `limit`; walks without recursion."""
    level = [value] if isinstance(value, dict | list) else []
    depth = 0
    while level:
        depth += 1
        if depth > limit:
            return True
        level = [
            child
            for container in level
            for child in (container.values() if isinstance(container, dict) else container)
            if isinstance(child, dict | list)
        ]
    return False


def same(left: Any, right: Any) -> bool:
    """Whether two values are the same JSON: 1 equals 1.0, and neither equals true.

    The values are at most as deep as the gate reads, so the recursion is bounded.
    """
    if isinstance(left, dict):
        return (
            isinstance(right, dict)
            and left.keys() == right.keys()
            and all(same(value, right[key]) for key, value in left.items())
        )
    if isinstance(left, list):
        return (
            isinstance(right, list)
            and len(left) == len(right)
            and all(same(a, b) for a, b in zip(left, right, strict=True))
        )
    if isinstance(left, bool) or isinstance(right, bool):
        return left is right
    return type(right) not in (dict, list) and bool(left == right)


def encodable(text: str) -> bool:
    """Whether text can be written as UTF-8; a lone surrogate cannot."""
    if text.isascii():
        return True
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def child_path(path: str, key: str | int) -> str:
    """The JSON path of a member or item: `$.score`, `$.items[2]`, `$["odd key"]`."""
    if isinstance(key, int):
        return f"{path}[{key}]"
    if key.isidentifier():
        return f"{path}.{key[:80]}"
    return f'{path}["{key[:80]}"]'


def size(value: Any) -> int:
    """How many values a value holds."""
    count = 0
    stack = [value]
    while stack:
        part = stack.pop()
        if isinstance(part, dict):
            count += len(part)
            stack.extend(v for v in part.values() if isinstance(v, dict | list))
        elif isinstance(part, list):
            count += len(part)
            stack.extend(v for v in part if isinstance(v, dict | list))
    return count
