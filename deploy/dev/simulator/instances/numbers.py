"""Numbers within bounds and on a grid, computed exactly."""

from __future__ import annotations

import math
from fractions import Fraction
from random import Random

from deploy.dev.simulator.instances.demands import Demands
from deploy.dev.simulator.instances.failures import Unsatisfiable

_SPREAD = 100
_DRAWS = 12
_GRIDS = tuple(Fraction(1, 10**digits) for digits in (2, 4, 8, 16, 32))


def number(demands: Demands, rng: Random, *, whole: bool) -> int | float:
    """A number that meets bounds and multipleOf; `whole` for type integer."""
    steps = [Fraction(str(multiple)) for multiple in demands.multiples]
    if whole or steps:
        return _on_grid(demands, rng, _least_common([*steps, Fraction(1)] if whole else steps))
    for grid in _GRIDS:
        try:
            return _on_grid(demands, rng, grid)
        except Unsatisfiable:
            continue
    raise Unsatisfiable("maximum")


def _on_grid(demands: Demands, rng: Random, step: Fraction) -> int | float:
    limits = {key: Fraction(str(value)) for key, value in demands.limits.items()}
    lows, highs = [], []
    if "minimum" in limits:
        lows.append(math.ceil(limits["minimum"] / step))
    if "exclusiveMinimum" in limits:
        lows.append(math.floor(limits["exclusiveMinimum"] / step) + 1)
    if "maximum" in limits:
        highs.append(math.floor(limits["maximum"] / step))
    if "exclusiveMaximum" in limits:
        highs.append(math.ceil(limits["exclusiveMaximum"] / step) - 1)
    spread = max(_SPREAD, round(_SPREAD / step))
    first = max(lows) if lows else min(0, min(highs) - spread) if highs else 0
    last = min(highs) if highs else first + spread
    if first > last:
        named = [key for key in ("multipleOf",) if demands.multiples]
        bounds = ("maximum", "exclusiveMaximum", "minimum", "exclusiveMinimum")
        raise Unsatisfiable([*named, *(key for key in bounds if key in limits)][0])
    for _ in range(_DRAWS):
        exact = rng.randint(first, last) * step
        value = int(exact) if exact.denominator == 1 else float(exact)
        # Many validators divide floats, so a multiple that survives a division is preferred.
        if all((value / multiple).is_integer() for multiple in map(float, demands.multiples)):
            break
    return value


def _least_common(steps: list[Fraction]) -> Fraction:
    found = steps[0]
    for step in steps[1:]:
        found = Fraction(
            math.lcm(found.numerator * step.denominator, step.numerator * found.denominator),
            found.denominator * step.denominator,
        )
    return found
