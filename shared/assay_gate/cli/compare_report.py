"""A comparison of two process versions as text."""

from __future__ import annotations

from typing import Any

from assay.cli.printable import printable

_BAR = 20
# Below so many a rate or a delta says little; the interval says how little.
_FEW = 30


def report(result: dict[str, Any]) -> str:
    """Two columns: the first version and the second."""
    first, second = result["versions"]
    rows = [("", _name(first), _name(second))]
    rows += [
        (said, str(first[name]), str(second[name]))
        for said, name in (("requests", "requests"), ("ended", "ended"), ("still open", "open"))
    ]
    rows += [
        (said, _rate(first[name]), _rate(second[name]))
        for said, name in (
            ("accepted", "accepted"), ("fallback", "fallback"), ("rejected", "rejected"),
            ("retried", "retried"),
        )
    ]  # fmt: skip
    attempts = [_number(version["mean_attempts"]) for version in (first, second)]
    rows.append(("attempts per step", attempts[0], attempts[1]))
    scores = [version["scores"] for version in (first, second)]
    rows.append(("scores", _member(scores[0], "count"), _member(scores[1], "count")))
    if any(scores):
        rows += [
            (f"  {name}", _member(scores[0], name), _member(scores[1], name))
            for name in ("min", "p10", "p50", "p90", "max", "mean")
        ]
        rows += _histogram(scores)
    lines = _columns(rows)
    lines.append("")
    lines += [
        _delta("requests both accepted", result["delta"]["by_request"]),
        _delta("wallets both scored", result["delta"]["by_wallet"]),
    ]
    if any(version["ended"] < _FEW for version in (first, second)):
        lines.append(f"fewer than {_FEW} requests have ended: read the intervals, not the rates")
    if result["erased_events"]:
        lines.append(f"{result['erased_events']} erased events are left out")
    return "\n".join(lines)


def _name(version: dict[str, Any]) -> str:
    named = (
        f"{version['process']} {version['version']}" if version["process"] else version["version"]
    )
    return printable(named)


def _rate(rate: dict[str, Any]) -> str:
    if rate["rate"] is None:
        return "-"
    low, high = rate["wilson95"]
    return f"{rate['count']} = {rate['rate']:.1%} [{low:.1%}, {high:.1%}]"


def _member(scores: dict[str, Any] | None, name: str) -> str:
    return _number(scores[name] if scores else None)


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:g}"


def _histogram(scores: list[dict[str, Any] | None]) -> list[tuple[str, str, str]]:
    edges = next(each["histogram"]["edges"] for each in scores if each)
    counts = [each["histogram"]["counts"] if each else [0] * (len(edges) - 1) for each in scores]
    return [
        (
            f"  {edges[place]:g} to {edges[place + 1]:g}",
            _bar(counts[0], place),
            _bar(counts[1], place),
        )
        for place in range(len(edges) - 1)
    ]


def _bar(counts: list[int], place: int) -> str:
    most = max(counts)
    return f"{counts[place]:>6} {'#' * round(_BAR * counts[place] / most) if most else ''}".rstrip()


def _delta(said: str, delta: dict[str, Any]) -> str:
    if not delta["count"]:
        return f"{said}: none"
    return (
        f"{said}: {delta['count']}; second minus first: mean {delta['mean']:+g}, "
        f"median {delta['median']:+g}, 90 % within ±{delta['p90_abs']:g}"
    )


def _columns(rows: list[tuple[str, str, str]]) -> list[str]:
    widths = [max(len(row[column]) for row in rows) for column in (0, 1)]
    return [
        f"{said:<{widths[0]}}  {first:<{widths[1]}}  {second}".rstrip()
        for said, first, second in rows
    ]
