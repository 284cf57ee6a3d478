"""Which branches of anyOf and oneOf an object can take at all."""

from __future__ import annotations

from typing import Any

from assay_gate.config import GateConfig
from assay_gate.literals import Nothing, match_listed
from assay_gate.schema import Schema


def possible(value: Any, node: Any, schema: Schema, config: GateConfig) -> bool:
    """Whether an object can take this branch: its required fields and listed values agree."""
    hops = 0
    while isinstance(node, dict) and isinstance(node.get("$ref"), str) and hops < 8:
        target = schema.resolve(node["$ref"])
        if target is None:
            return True
        node, hops = target[1], hops + 1
    if not isinstance(node, dict) or not isinstance(value, dict):
        return True
    if any(name not in value for name in node.get("required") or ()):
        return False
    for name, part in (node.get("properties") or {}).items():
        if name not in value or not isinstance(part, dict):
            continue
        listed = part.get("enum") or ([part["const"]] if "const" in part else None)
        if listed and isinstance(match_listed(value[name], listed, config), Nothing):
            return False
    return True
