"""A compiled JSON Schema: one validator for the whole, one for each branch that is asked for."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any
from urllib.parse import unquote

import jsonschema_rs

from assay_gate import messages
from assay_gate.paths import array_index
from assay_gate.verdict import GateError, Problem

_ROOT = "urn:assay:schema"
_DRAFT = "https://json-schema.org/draft/2020-12/schema"

Located = tuple[str, Any]
"""A JSON pointer into the schema and the subschema there."""


class Schema:
    """Draft 2020-12 unless `$schema` says otherwise; every `$ref` must be local."""

    def __init__(self, document: Any, *, assert_formats: bool = False) -> None:
        """Raises GateError for a document that is no schema or needs another document."""
        self.document = document
        self._assert_formats = assert_formats
        try:
            validator = jsonschema_rs.validator_for(
                document, validate_formats=assert_formats, offline=True
            )
        except (jsonschema_rs.ValidationError, jsonschema_rs.ReferencingError, ValueError) as error:
            text = str(error).splitlines()[0]
            raise GateError(f"not a usable JSON Schema: {text}") from None
        self.is_valid: Callable[[Any], bool] = validator.is_valid
        self._iter_errors = validator.iter_errors
        self.has_integers = '"integer"' in json.dumps(document)
        self._branches: dict[str, Callable[[Any], bool]] = {}
        self._patterns: dict[str, Callable[[Any], bool]] = {}
        self._anchors = dict(_anchors(document, ""))

    def problems(self, value: Any) -> list[Problem]:
        """Why a value does not validate, as messages for the model."""
        return messages.problems(self._iter_errors(value))

    def branch(self, pointer: str) -> Callable[[Any], bool]:
        """Whether a value fits the subschema at a pointer, its references resolved at the root."""
        known = self._branches.get(pointer)
        if known is None:
            root = self.document
            if "$schema" not in root:
                root = {"$schema": _DRAFT, **root}
            registry = jsonschema_rs.Registry([(_ROOT, root)])
            known = jsonschema_rs.validator_for(
                {"$schema": root["$schema"], "$ref": f"{_ROOT}#{pointer}"},
                registry=registry,
                validate_formats=self._assert_formats,
                offline=True,
            ).is_valid
            self._branches[pointer] = known
        return known

    def matches(self, pattern: str, name: str) -> bool:
        """Whether a key matches a key of `patternProperties`, by the validator's own rules."""
        known = self._patterns.get(pattern)
        if known is None:
            known = jsonschema_rs.validator_for({"pattern": pattern}, offline=True).is_valid
            self._patterns[pattern] = known
        return known(name)

    def resolve(self, reference: str) -> Located | None:
        """The subschema a local `$ref` names; None for what only the validator understands."""
        if reference in self._anchors:
            return self._anchors[reference]
        if not reference.startswith("#") or (len(reference) > 1 and reference[1] != "/"):
            return None
        node: Any = self.document
        pointer = unquote(reference[1:])
        for token in pointer.split("/")[1:]:
            token = token.replace("~1", "/").replace("~0", "~")
            index = array_index(token)
            if isinstance(node, list) and index is not None and index < len(node):
                node = node[index]
            elif isinstance(node, dict) and token in node:
                node = node[token]
            else:
                return None
        return escape_pointer(pointer), node


def escape_pointer(pointer: str) -> str:
    """A pointer as it stands in a URI fragment."""
    return pointer.replace("%", "%25").replace(" ", "%20").replace('"', "%22")


def below(pointer: str, *tokens: str | int) -> str:
    """The pointer to something inside the subschema at `pointer`."""
    for token in tokens:
        part = str(token).replace("~", "~0").replace("/", "~1")
        pointer = f"{pointer}/{escape_pointer(part)}"
    return pointer


def _anchors(node: Any, pointer: str) -> Iterator[tuple[str, Located]]:
    stack: list[Located] = [(pointer, node)]
    while stack:
        place, part = stack.pop()
        if isinstance(part, list):
            stack += [(below(place, index), item) for index, item in enumerate(part)]
        elif isinstance(part, dict):
            anchor = part.get("$anchor")
            if isinstance(anchor, str):
                yield f"#{anchor}", (place, part)
            if place and isinstance(part.get("$id"), str):
                yield part["$id"], (place, part)
            stack += [(below(place, key), item) for key, item in part.items()]
