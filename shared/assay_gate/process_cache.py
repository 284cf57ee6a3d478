"""`assay.cache`: whether an accepted answer may be served again to the same question (seed 5).

true           for as long as the scorer keeps it
{max_age_s: N} for N seconds
false, null    never; the default

Only processes whose requests share a seed gain by it, so it wants `assay.key`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from assay_gate.config_reading import CONFIG
from assay_gate.hints import hint
from assay_gate.process_findings import Findings

_KEYS = ("max_age_s",)


@dataclass(frozen=True, slots=True)
class Caching:
    """Accepted answers may be served again; for `max_age_s` seconds, None: without end."""

    max_age_s: float | None = None


def parse_caching(ours: Mapping[str, Any], found: Findings) -> Caching | None:
    """The process's choice; None where every request is to be asked for itself."""
    given = ours.get("cache")
    if given is None or given is False:
        return None
    if ours.get("key") is None:
        found.warning(
            CONFIG, "assay.cache", "nothing will be served: without assay.key every request has a "
            "seed of its own"
        )  # fmt: skip
    if given is True:
        return Caching()
    if not isinstance(given, Mapping):
        found.mistake(
            CONFIG, "assay.cache", f"must be true, false or {{max_age_s: seconds}}, not {given!r}"
        )
        return None
    for key in given:
        if key not in _KEYS:
            found.mistake(CONFIG, f"assay.cache.{key}", "no such key" + hint(key, _KEYS))
    age = given.get("max_age_s")
    number = isinstance(age, int | float) and not isinstance(age, bool)
    if age is None or not number or not 0 < age < float("inf"):
        found.mistake(
            CONFIG, "assay.cache.max_age_s", f"must be a number of seconds above 0, not {age!r}"
        )
        return None
    return Caching(float(age))
