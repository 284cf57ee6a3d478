"""The wire schema as text: written once, sent with every call and named by its hash in events."""

from __future__ import annotations

import hashlib
import json
from collections import OrderedDict
from dataclasses import dataclass
from typing import Any

_MOST = 256


@dataclass(frozen=True, slots=True)
class WireText:
    """Compact JSON in the schema's own key order, and the hex SHA-256 of it.

    The order is part of it, because models write keys in the order of the grammar. The full
    schema is covered by the process hash.
    """

    text: str
    sha256: str


# A process gives the same object for every call of a step, and nobody changes it; what is kept
# holds the object, so that its identity cannot become another's.
_written: OrderedDict[int, tuple[dict[str, Any], WireText]] = OrderedDict()


def wire_text(schema: dict[str, Any]) -> WireText:
    """The text of a schema; of one that was seen before, without writing it again."""
    known = _written.get(id(schema))
    if known is not None:
        return known[1]
    text = json.dumps(schema, separators=(",", ":"), ensure_ascii=False)
    made = WireText(text, hashlib.sha256(text.encode()).hexdigest())
    _written[id(schema)] = (schema, made)
    while len(_written) > _MOST:
        _written.popitem(last=False)
    return made
