"""Writes the JSON Schemas of all events: `python -m assay.schema_export` (make schemas)."""

from __future__ import annotations

import json
from typing import Any

from assay.contracts import schema_root
from assay.events import EVENTS

DIALECT = "https://json-schema.org/draft/2020-12/schema"


def exported(event: str) -> dict[str, Any]:
    """The schema of an event as committed: Draft 2020-12, its `$id` a URN of name and version."""
    model = EVENTS[event]
    schema = model.model_json_schema(mode="validation")
    return {"$schema": DIALECT, "$id": f"urn:assay:event:{event}", **schema}


def schema_text(event: str) -> str:
    """The file's text: sorted keys, so that a diff shows changes of meaning only."""
    return json.dumps(exported(event), indent=2, sort_keys=True, ensure_ascii=False) + "\n"


def main() -> None:
    """Write schemas/events/<event>.schema.json for every event."""
    for event in EVENTS:
        path = schema_root() / "events" / f"{event}.schema.json"
        path.write_text(schema_text(event), encoding="utf-8")
        print(path.name)


if __name__ == "__main__":
    main()
