"""What reads and writes every record is written for speed; the plain way says the same."""

from __future__ import annotations

import json
import uuid

from hypothesis import example, given
from hypothesis import strategies as st

from assay.envelope import Attributes, read_binary, text_headers
from assay.errors import EnvelopeError
from assay.ids import EVENT_NAMESPACE, _uuid5

_NAMES = [
    "content-type", "ce_specversion", "ce_id", "ce_source", "ce_type", "ce_requestid",
    "ce_tenantid", "CE_ID", "Ce_Type", "traceparent", "x-other",
]  # fmt: skip
_VALUES = st.sampled_from([b"1.0", b"a", b"\xff", b"", None]) | st.binary(max_size=8)
_COMPLETE = [("ce_specversion", b"1.0"), ("ce_id", b"i"), ("ce_source", b"/s"), ("ce_type", b"t")]


def plainly(headers: list[tuple[str, bytes | None]]) -> Attributes | str:
    text = text_headers(headers)
    if not all(text.get(n) for n in ("ce_id", "ce_source", "ce_type", "ce_specversion")):
        return "missing"
    if text["ce_specversion"] != "1.0":
        return "version"
    return Attributes(text["ce_id"], text["ce_source"], text["ce_type"], text.get("ce_requestid"))


@given(st.lists(st.tuples(st.sampled_from(_NAMES), _VALUES), max_size=8), st.booleans())
@example([("ce_id", b"first"), ("CE_ID", b"second"), ("ce_id", b"third")], True)
@example([("ce_requestid", None)], True)
def test_attributes_are_the_same_whichever_way_they_are_read(
    headers: list[tuple[str, bytes | None]], complete: bool
) -> None:
    """The last of a name wins, in any case of letters; bytes that are no UTF-8 are replaced."""
    headers = [*(_COMPLETE if complete else []), *headers]
    try:
        found: Attributes | str = read_binary(headers)
    except EnvelopeError as error:
        found = "missing" if "missing" in str(error) else "version"
    assert found == plainly(headers)


@given(st.lists(st.text(st.characters(exclude_categories=["Cs"]), max_size=20), max_size=4))
def test_ids_are_version_5_uuids_of_a_json_array(parts: list[str]) -> None:
    """The one id rule, written out with the standard library."""
    name = json.dumps(parts, ensure_ascii=True, separators=(",", ":"))
    assert _uuid5(EVENT_NAMESPACE, *parts) == str(uuid.uuid5(EVENT_NAMESPACE, name))
