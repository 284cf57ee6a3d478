"""YAML of a folder that nobody vouches for: a few bytes must not become gigabytes, or hours."""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any

import yaml

MAX_YAML_BYTES = 256 * 1024
# Aliases are counted, not refused: seed 4's users may write them, and a file of the permitted size
# reaches this number only through them.
MAX_NODES = 400_000
MAX_DEPTH = 100
_MAX_NUMBER = 100
_TEXT = "tag:yaml.org,2002:str"
_MERGE = "tag:yaml.org,2002:merge"


class YamlError(ValueError):
    """Not YAML, or not meant so; the message is one line."""


class YamlLimitError(YamlError):
    """More than the limits."""


def load_yaml(text: str) -> Any:
    """The document; YamlError also for a key given twice, which is no choice (SPEC S4.9)."""
    size = len(text.encode(errors="replace"))
    if size > MAX_YAML_BYTES:
        raise YamlLimitError(f"has {size} bytes, and YAML is read up to {MAX_YAML_BYTES}")
    try:
        return yaml.load(text, _Bounded)  # noqa: S506 - derived from SafeLoader
    except YamlLimitError:
        raise
    except yaml.YAMLError as error:
        raise YamlError(" ".join(str(error).split())) from None
    except (ValueError, ArithmeticError, LookupError, AttributeError, TypeError) as error:
        # PyYAML's constructors raise all of these, for a date in month 13 or a wrong `!!bool`.
        raise YamlError(f"a value is not of its kind: {error}") from None


class _Bounded(yaml.SafeLoader):
    """SafeLoader that refuses a mapping with the same key twice, and what grows when it is used."""

    def __init__(self, text: str) -> None:
        super().__init__(text)
        self._nodes = 0
        self._depth = 0
        self._deepest = 0
        self._sizes: dict[yaml.Node | None, tuple[int, int]] = {}  # nodes and levels, expanded

    def compose_node(self, parent: yaml.Node | None, index: Any) -> yaml.Node | None:
        event: yaml.Event = self.peek_event()  # type: ignore[no-untyped-call]
        nodes_before, deepest_before = self._nodes, self._deepest
        self._depth += 1
        self._deepest = self._depth
        self._check(event)
        node = super().compose_node(parent, index)
        nodes, levels = 1, 1
        if isinstance(event, yaml.AliasEvent):
            if node not in self._sizes:
                raise _limit(f"*{event.anchor} contains itself", event)
            nodes, levels = self._sizes[node]
        elif isinstance(node, yaml.ScalarNode) and len(node.value) > _longest(node):
            raise _limit(f"a number of more than {_MAX_NUMBER} characters", event)
        self._nodes += nodes
        self._deepest = max(self._deepest, self._depth + levels - 1)
        self._check(event)
        self._sizes[node] = (self._nodes - nodes_before, self._deepest - self._depth + 1)
        self._deepest = max(self._deepest, deepest_before)
        self._depth -= 1
        return node

    def _check(self, event: yaml.Event) -> None:
        if self._deepest > MAX_DEPTH:
            raise _limit(f"nested deeper than {MAX_DEPTH}", event)
        if self._nodes > MAX_NODES:
            raise _limit(f"its aliases expand to more than {MAX_NODES} values", event)

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Hashable, Any]:
        seen = set()
        for key_node, _ in node.value:
            if key_node.tag == _MERGE:
                continue
            key = self.construct_object(key_node, deep=True)
            if isinstance(key, str | int | float | bool | None) and key in seen:
                raise yaml.constructor.ConstructorError(
                    None, None, f"the key {key!r} is given twice", key_node.start_mark
                )
            seen.add(key if isinstance(key, str | int | float | bool | None) else str(key))
        return super().construct_mapping(node, deep)


def _longest(node: yaml.ScalarNode) -> int:
    return MAX_YAML_BYTES if node.tag == _TEXT else _MAX_NUMBER


def _limit(reason: str, event: yaml.Event) -> YamlLimitError:
    mark = event.start_mark
    return YamlLimitError(f"line {mark.line + 1}: {reason}" if mark else reason)
