"""The JSON Schemas of a process (Draft 2020-12), read from its folder and checked (SPEC S4.9)."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import jsonschema_rs

from assay_gate.process_assignments import Assignment
from assay_gate.process_folder import Folder, ProcessError
from assay_gate.schema_refs import SchemaRefError, check_refs, with_const
from assay_gate.wire_merge import WireSchemaError
from assay_gate.wire_schema import derive_wire_schema

INJECTED = ("unit_id", "_metadata")
_DIALECT = "https://json-schema.org/draft/2020-12/schema"


def read_schema(files: Folder, name: str | None, key: str) -> dict[str, Any] | None:
    """The schema in a file, without the fields that the system adds itself (S4.10): seed 4's
    schemas may describe them, and a model must not be asked for them. None without a name."""
    if name is None:
        return None
    schema = files.json(name, key)
    try:
        jsonschema_rs.meta.validate({"$schema": _DIALECT, **schema})
        check_refs(schema)
        jsonschema_rs.Draft202012Validator(schema)
    except SchemaRefError as error:
        raise ProcessError(name, "", str(error)) from None
    except (jsonschema_rs.ValidationError, ValueError) as error:
        reason = getattr(error, "message", str(error))
        place = ".".join(str(part) for part in getattr(error, "instance_path", ()))
        raise ProcessError(name, place, f"is no JSON Schema (2020-12): {reason[:300]}") from None
    return _without_injected(schema)


def _without_injected(schema: dict[str, Any]) -> dict[str, Any]:
    stripped = dict(schema)
    if isinstance(properties := schema.get("properties"), dict):
        stripped["properties"] = {k: v for k, v in properties.items() if k not in INJECTED}
    if isinstance(required := schema.get("required"), list):
        stripped["required"] = [name for name in required if name not in INJECTED]
    return stripped


def checked_assignments(
    schema: dict[str, Any], file: str, assignments: Iterable[Assignment]
) -> None:
    """ProcessError where no wire schema can be derived or an assigned value has no place."""
    try:
        derive_wire_schema(schema, [(a.path, a.value) for a in assignments])
        for assignment in assignments:
            with_const(schema, assignment.path, assignment.value)
    except (WireSchemaError, SchemaRefError) as error:
        raise ProcessError(file, "", str(error)) from None
