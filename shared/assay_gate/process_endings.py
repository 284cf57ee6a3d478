"""What follows the last attempt, and where a process's result goes (SPEC S3.6, S5.3).

fallback_score  the marked score computed from the transaction count; scores only
withhold        no score, and a record of it in evidence; scores only
reject          a terminal rejection
empty_result    the JSON value of `assay.empty_result`, which fits the last step's schema
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias, get_args

from assay_gate.config_reading import CONFIG, section, text
from assay_gate.hints import hint
from assay_gate.process_findings import Findings

Policy: TypeAlias = Literal["fallback_score", "withhold", "reject", "empty_result"]
GENERIC_RESULT = "llm.generation.accepted.v1"
SCORE_RESULT = "wallet.score.validated.v1"
_POLICIES: dict[str, tuple[Policy, ...]] = {
    SCORE_RESULT: ("withhold", "fallback_score"),
    GENERIC_RESULT: ("reject", "empty_result"),
}
_REASONS = ("provider_unavailable", "answers_rejected")


@dataclass(frozen=True, slots=True)
class Endings:
    """The result's topic, the policy per reason, and the value of `empty_result`."""

    result: str
    exhausted: Mapping[str, Policy]
    empty_result: Any = None


def parse_endings(ours: Mapping[str, Any], found: Findings) -> Endings:
    """`assay.result`, `assay.exhausted` and `assay.empty_result`, which must fit each other."""
    result = GENERIC_RESULT
    with found.caught():
        result = text(ours, "result", "assay.") or GENERIC_RESULT
    if result not in _POLICIES:
        found.mistake(CONFIG, "assay.result", f"must be one of {', '.join(_POLICIES)}"
                      + hint(result, _POLICIES))  # fmt: skip
        return Endings(result, dict.fromkeys(_REASONS, "reject"))
    allowed = _POLICIES[result]
    exhausted: dict[str, Policy] = dict.fromkeys(_REASONS, allowed[0])
    with found.caught():
        for reason, policy in section(ours, "exhausted", {}, "assay.").items():
            key = f"assay.exhausted.{reason}"
            if reason not in _REASONS:
                found.mistake(CONFIG, key, f"no such reason; known: {', '.join(_REASONS)}")
            elif policy in allowed:
                exhausted[reason] = policy
            elif policy in get_args(Policy):
                message = f"{policy} does not fit {result}; use {' or '.join(allowed)}"
                found.mistake(CONFIG, key, message)
            else:
                found.mistake(CONFIG, key, f"must be one of {', '.join(allowed)}"
                              + hint(policy, allowed))  # fmt: skip
    if "empty_result" in exhausted.values() and "empty_result" not in ours:
        found.mistake(CONFIG, "assay.empty_result", "missing: which value is the empty result?")
    if "empty_result" in ours and "empty_result" not in exhausted.values():
        found.mistake(CONFIG, "assay.empty_result", "no entry of assay.exhausted uses it")
    return Endings(result, exhausted, ours.get("empty_result"))
