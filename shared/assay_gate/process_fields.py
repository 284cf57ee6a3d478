"""The fields a step can see, each with a sample value, known before anything runs (SPEC S4.9).

A sample is `given` (it stands in the folder's items file), `typed` (made from a JSON Schema that
leaves no doubt about its type) or `guessed`. Where fields can come that nothing names, the record
is open, and a name that is not known is no mistake.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from assay_gate.bounded_yaml import MAX_YAML_BYTES, YamlError, YamlLimitError, load_yaml
from assay_gate.config_reading import CONFIG
from assay_gate.process_config import ProcessConfig
from assay_gate.process_findings import Findings
from assay_gate.process_folder import Folder
from assay_gate.process_steps import StepConfig
from assay_gate.schema_refs import SchemaRefError, resolve

Certainty = Literal["given", "typed", "guessed"]
_DEPTH = 6
_BY_TYPE: dict[str, Any] = {"number": 5.0, "string": "sample", "boolean": True, "null": None}
_RULES_TYPES: dict[str, Any] = {**_BY_TYPE, "integer": 5, "array": ["sample"], "object": {}}


@dataclass(slots=True)
class Fields:
    """Known fields with samples and their certainty; `open` where more may come."""

    samples: dict[str, Any] = field(default_factory=dict)
    certainty: dict[str, Certainty] = field(default_factory=dict)
    open: bool = False

    def add(self, name: str, sample: Any, certainty: Certainty) -> None:
        self.samples[name] = sample
        self.certainty[name] = certainty

    def add_schema(self, schema: Mapping[str, Any] | None) -> None:
        """The properties of an object schema; without any, whatever comes."""
        properties = dict(_properties(schema, schema, _DEPTH)) if schema else {}
        self.open = self.open or not properties
        for name, sub in properties.items():
            self.add(name, *_sample(sub, schema or {}, _DEPTH))

    def add_rules(self, rules: Mapping[str, Any]) -> None:
        """The fields that `validation.<step>` requires or gives a type."""
        types = rules.get("types")
        types = types if isinstance(types, Mapping) else {}
        required = rules.get("required")
        for name in [*(required if isinstance(required, list) else ()), *types]:
            if isinstance(name, str) and name not in self.samples:
                kind = types.get(name)
                self.add(name, _RULES_TYPES.get(str(kind), "sample"), "guessed")


def input_fields(
    files: Folder, config: ProcessConfig, input_schema: Mapping[str, Any] | None, found: Findings
) -> Fields:
    """What a request brings: the input schema's fields, or those of seed 4's items file."""
    fields = Fields()
    if config.input_schema is not None:
        fields.add_schema(input_schema)
    elif config.own:
        fields.open = True
    else:
        _add_items(fields, files, config.processing, found)
    if config.processing.get("repeat") is not None:
        fields.add("_repetition_id", 0, "typed")
        fields.add("_repetition_seed", 42, "typed")
    fields.add("unit_id", "unit", "typed")
    return fields


def add_answer(fields: Fields, step: StepConfig, schema: Mapping[str, Any] | None) -> None:
    """What an accepted answer of a model step adds to the record."""
    fields.add_schema(schema)
    fields.add_rules(step.rules)


def _add_items(
    fields: Fields, files: Folder, processing: Mapping[str, Any], found: Findings
) -> None:
    settings = processing.get("items")
    source = settings.get("source") if isinstance(settings, Mapping) else None
    if not isinstance(settings, Mapping) or not isinstance(source, str):
        fields.open = True
        return
    if source not in files.files:
        fields.open = True
        found.warning(
            CONFIG, "processing.items.source",
            f"there is no file {source!r}, so the fields of a unit cannot be checked",
        )  # fmt: skip
        return
    content, items = files.files[source], None
    if len(content) > MAX_YAML_BYTES:  # no mistake: no service reads it
        fields.open = True
        found.warning(source, "", "too long to be read here, so the fields of a unit are unknown")
        return
    try:
        items = load_yaml(content.decode())
    except YamlLimitError as error:
        found.mistake(source, "", str(error))
    except (YamlError, UnicodeDecodeError) as error:
        found.warning(source, "", f"cannot be read: {error}")
    positions = processing.get("positions")
    if not isinstance(positions, list) or not positions:
        _add_units(fields, _pool(items, settings.get("key")))
        return
    for position in positions:
        name = position.get("name") if isinstance(position, Mapping) else position
        key = position.get("source_key") if isinstance(position, Mapping) else None
        pool = _pool(items, key or settings.get("key"))
        if isinstance(name, str):
            fields.add(name, pool[0] if pool else {}, "given" if pool else "guessed")


def _pool(items: Any, key: object) -> list[Any]:
    pool = items.get(key) if isinstance(items, Mapping) else items
    return pool if isinstance(pool, list) else []


def _add_units(fields: Fields, units: Iterable[Any]) -> None:
    """A unit that is one item has the item's fields."""
    for unit in units:
        for name, value in unit.items() if isinstance(unit, Mapping) else ():
            if name not in fields.samples:
                fields.add(str(name), value, "given")
    fields.open = fields.open or not fields.samples


def _properties(node: Any, root: Mapping[str, Any] | None, depth: int) -> Iterable[tuple[str, Any]]:
    """Properties at the top of a schema, through references and combinators."""
    if not isinstance(node, Mapping) or depth == 0:
        return
    properties = node.get("properties")
    if isinstance(properties, Mapping):
        yield from properties.items()
    if isinstance(ref := node.get("$ref"), str):
        yield from _properties(_resolved(root or {}, ref), root, depth - 1)
    for keyword in ("allOf", "anyOf", "oneOf"):
        for part in node.get(keyword, ()):
            yield from _properties(part, root, depth - 1)


def _sample(node: Any, root: Mapping[str, Any], depth: int) -> tuple[Any, Certainty]:
    if not isinstance(node, Mapping) or depth == 0:
        return "sample", "guessed"
    if isinstance(ref := node.get("$ref"), str):
        return _sample(_resolved(root, ref), root, depth - 1)
    if "const" in node:
        return node["const"], "typed"
    if isinstance(options := node.get("enum"), list) and options:
        return options[0], "typed" if len({type(o) for o in options}) == 1 else "guessed"
    kind = node.get("type")
    if kind == "integer":
        return max(5, int(node.get("minimum", 5))), "typed"
    if kind == "array":
        item, certainty = _sample(node.get("items"), root, depth - 1)
        return [item] * max(1, min(int(node.get("minItems", 1)), 20)), certainty
    if kind == "object":
        members = {k: _sample(v, root, depth - 1) for k, v in _properties(node, root, depth)}
        return {k: v for k, (v, _) in members.items()}, "typed" if members else "guessed"
    return (_BY_TYPE[kind], "typed") if kind in _BY_TYPE else ("sample", "guessed")


def _resolved(root: Mapping[str, Any], ref: str) -> Any:
    try:
        return resolve(root, ref)
    except SchemaRefError:
        return None
