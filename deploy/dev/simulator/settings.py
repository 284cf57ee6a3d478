"""How the simulator behaves: what can be set, within which bounds, and three named profiles."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields, replace
from typing import Any

# What a gate that knows models reads all the same.
REPAIRABLE = (
    "fences", "prose", "trailing_comma", "string_numbers", "single_quotes", "think_draft",
)  # fmt: skip
# What has to be asked for again.
REJECTED = (
    "wrong_total", "out_of_range", "missing_field", "extra_field", "nan", "cut_off", "two_answers",
    "empty", "not_json", "refusal", "ignored_schema",
)  # fmt: skip
ANSWER = REPAIRABLE + REJECTED
TRANSPORT = (
    "http_500", "http_503", "http_429", "model_missing", "reset", "hang", "malformed_body",
)  # fmt: skip
FAULTS = ANSWER + TRANSPORT

_DEMO = {
    **dict.fromkeys(("fences", "prose", "trailing_comma", "string_numbers"), 0.06),
    **dict.fromkeys(("wrong_total", "missing_field", "cut_off"), 0.1),
    "http_503": 0.03,
}


class BadSetting(ValueError):
    """A setting that does not exist or has an impossible value; the message names it."""


def spread(rate: float) -> dict[str, float]:
    """A rate shared evenly by all faults of an answer."""
    return {name: rate / len(ANSWER) for name in ANSWER}


@dataclass(frozen=True, slots=True)
class Behaviour:
    """Everything that can be changed while the simulator runs; times in the unit of their name.

    `rates`: by fault; those of answers are per answer given, those of connections per call.
    `spare_probes`: calls for a very short answer, such as a client's format canary, meet no fault
    but a connection's that `always` forces: then the server is down for them as well.
    """

    profile: str = "well-behaved"
    seed: int = 0
    draws: str = "content"
    rates: Mapping[str, float] = field(default_factory=dict)
    always: str | None = None
    match: str | None = None
    match_seed: int | None = None
    spare_retries: bool = False
    spare_probes: bool = True
    gullible: bool = False
    latency_ms: float = 0.0
    jitter_ms: float = 0.0
    slots: int = 0
    queue: int = 512
    hang_cap_s: float = 600.0
    retry_after_s: int = 1

    def changed(self, changes: Mapping[str, Any]) -> Behaviour:
        """With some settings replaced: the profile first, then the rest.

        `fault_rate` replaces the rates of all answer faults, `hang_rate` that of hangs, `rates`
        those of the faults it names. Raises BadSetting.
        """
        found = self
        if "profile" in changes:
            found = _profile(changes["profile"])
        rates = dict(found.rates)
        if "fault_rate" in changes:
            rates |= spread(_rate("fault_rate", changes["fault_rate"]))
        if "hang_rate" in changes:
            rates["hang"] = _rate("hang_rate", changes["hang_rate"])
        rates |= _rates(changes.get("rates", {}))
        for group in (ANSWER, TRANSPORT):
            if sum(rates.get(name, 0.0) for name in group) > 1 + 1e-9:
                raise BadSetting(f"rates: those of {', '.join(group)} add to more than 1")
        plain: dict[str, Any] = {}
        for key, value in changes.items():
            if key not in ("profile", "fault_rate", "hang_rate", "rates"):
                plain[key] = _checked(key, value)
        return replace(found, **plain, rates={name: rate for name, rate in rates.items() if rate})

    def shown(self) -> dict[str, Any]:
        """All settings, as `changed` takes them."""
        return asdict(self)


PROFILES: dict[str, Behaviour] = {
    "well-behaved": Behaviour(),
    # Retries are spared, since a demo should show them succeed, and with this seed the sample
    # wallets meet some of everything.
    "demo": Behaviour(
        profile="demo", seed=6, rates=_DEMO, spare_retries=True, latency_ms=150, jitter_ms=150
    ),
    "faulty": Behaviour(profile="faulty", rates={**spread(0.3), "hang": 0.02}),
}
_TYPES = {item.name: str(item.type) for item in fields(Behaviour)}
_CHOICES = {"draws": ("content", "random"), "always": FAULTS}


def _profile(name: Any) -> Behaviour:
    if name not in PROFILES:
        raise BadSetting(f"profile: {name!r} is none of {', '.join(PROFILES)}")
    return PROFILES[name]


def _rate(key: str, value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= 1:
        raise BadSetting(f"{key}: a number from 0 to 1 is expected, not {value!r}")
    return float(value)


def _rates(value: Any) -> dict[str, float]:
    if not isinstance(value, Mapping):
        raise BadSetting("rates: an object of fault names and rates is expected")
    for name in value:
        if name not in FAULTS:
            raise BadSetting(f"rates: {name!r} is none of {', '.join(FAULTS)}")
    return {name: _rate(f"rates.{name}", rate) for name, rate in value.items()}


def _checked(key: str, value: Any) -> Any:
    kind = _TYPES.get(key)
    if kind is None:
        raise BadSetting(f"{key}: there is no such setting")
    if value is None and kind.endswith("None"):
        return None
    if key in _CHOICES and value not in _CHOICES[key]:
        raise BadSetting(f"{key}: {value!r} is none of {', '.join(_CHOICES[key])}")
    expected: Any = {"bool": bool, "int": int, "float": int | float, "str": str}[kind.split()[0]]
    if isinstance(value, bool) != (expected is bool) or not isinstance(value, expected):
        raise BadSetting(f"{key}: {kind.split()[0]} is expected, not {value!r}")
    if kind in ("int", "float") and key != "seed" and not 0 <= value < float("inf"):
        raise BadSetting(f"{key}: {value!r} is below 0 or endless")
    return value
