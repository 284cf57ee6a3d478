"""A schema document: its references made absolute, its parts resolved and compiled."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any
from urllib.parse import unquote, urljoin

import jsonschema_rs

from deploy.dev.simulator.instances.failures import Unsatisfiable

_BASE = "https://simulator.invalid/schema"
_REFERENCES = ("$ref", "$dynamicRef", "$recursiveRef")
_MAPS = frozenset(
    ("properties", "patternProperties", "$defs", "definitions", "dependentSchemas", "dependencies")
)
_DATA = frozenset(("enum", "const", "default", "examples", "required"))
_MAX_COMPILED = 256


class BadSchema(ValueError):
    """The document is no valid JSON Schema, or refers to something outside of it."""


class Document:
    """One schema with everything it can refer to. `root` has absolute references."""

    def __init__(self, schema: Mapping[str, Any] | bool) -> None:
        self._resources: dict[str, Any] = {}
        self._anchors: dict[str, Any] = {}
        self._base = _BASE
        if isinstance(schema, Mapping) and isinstance(name := schema.get("$id"), str):
            self._base = _joined(_BASE, name).rstrip("#")
        self.root = self._absolute(schema, self._base)
        self._draft: dict[str, Any] = {}
        if isinstance(schema, Mapping) and isinstance(schema.get("$schema"), str):
            self._draft = {"$schema": schema["$schema"]}
        self._compiled: dict[str, jsonschema_rs.Validator] = {}
        try:
            self._registry = jsonschema_rs.Registry(
                [(self._base, self.root), *self._resources.items()]
            )
            self.validator = self._compile(self.root)
        except (ValueError, jsonschema_rs.ReferencingError) as error:
            raise BadSchema(str(error).partition("\n")[0]) from None

    def fits(self, schema: Any, value: Any) -> bool:
        """Whether a value is valid under a part of the document, or under a merge of parts."""
        return schema if isinstance(schema, bool) else self._validator(schema).is_valid(value)

    def broken_keyword(self, schema: Any, value: Any) -> str:
        """The keyword that a value which does not fit breaks first."""
        if isinstance(schema, bool):
            return "false"
        return next(iter(self._validator(schema).iter_errors(value))).kind.name

    def resolve(self, reference: str) -> Any:
        """The part an absolute reference names."""
        base, _, fragment = reference.partition("#")
        if fragment and not fragment.startswith("/"):
            if reference not in self._anchors:
                raise Unsatisfiable("$ref")
            return self._anchors[reference]
        node: Any = self._resources.get(base)
        for step in unquote(fragment).split("/")[1:]:
            step = step.replace("~1", "/").replace("~0", "~")
            try:
                node = node[int(step)] if isinstance(node, list) else node[step]
            except (KeyError, IndexError, TypeError, ValueError):
                raise Unsatisfiable("$ref") from None
        if not isinstance(node, Mapping | bool):
            raise Unsatisfiable("$ref")
        return node

    def _validator(self, schema: Mapping[str, Any]) -> jsonschema_rs.Validator:
        key = json.dumps(schema)
        validator = self._compiled.get(key)
        if validator is None:
            if len(self._compiled) >= _MAX_COMPILED:
                self._compiled.clear()
            validator = self._compiled[key] = self._compile(schema)
        return validator

    def _compile(self, schema: Any) -> jsonschema_rs.Validator:
        if isinstance(schema, Mapping):
            schema = {**self._draft, **schema}
        return jsonschema_rs.validator_for(
            schema, registry=self._registry, validate_formats=True, offline=True
        )

    def _absolute(self, node: Any, base: str) -> Any:
        if isinstance(node, list):
            return [self._absolute(item, base) for item in node]
        if not isinstance(node, Mapping):
            return node
        identity = node.get("$id")
        if isinstance(identity, str) and not identity.startswith("#"):
            base = _joined(base, identity).rstrip("#")
        found: dict[str, Any] = {}
        # The outermost part is a resource by itself, and any with a name of its own.
        self._resources.setdefault(base, found)
        found |= {k: self._member(k, v, base) for k, v in node.items() if k != "$id"}
        for keyword in ("$anchor", "$dynamicAnchor"):
            if isinstance(name := node.get(keyword), str):
                self._anchors[f"{base}#{name}"] = found
        return found

    def _member(self, key: str, value: Any, base: str) -> Any:
        if key in _DATA:
            return value
        if key in _REFERENCES and isinstance(value, str):
            return _joined(base, value)
        if key in _MAPS and isinstance(value, Mapping):
            return {name: self._absolute(part, base) for name, part in value.items()}
        return self._absolute(value, base)


def _joined(base: str, reference: str) -> str:
    # urljoin knows no urn:, and a fragment stays within the document whatever its scheme.
    return base + reference if reference.startswith("#") else urljoin(base, reference)
