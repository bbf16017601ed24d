"""Scales: from values to positions along an axis, with ticks at round numbers."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

_DECADES = 1.0
"""Orders of magnitude from which on an axis is logarithmic, where it may be."""


@dataclass(frozen=True)
class Scale:
    """Maps [low, high] onto [start, end], evenly or by logarithm."""

    low: float
    high: float
    start: float
    end: float
    logarithmic: bool = False

    def at(self, value: float) -> float:
        """The position of a value; values outside keep to the line beyond the ends."""
        low, high = self.low, self.high
        if self.logarithmic:
            low, high, value = math.log10(low), math.log10(high), math.log10(max(value, 1e-300))
        return self.start + (value - low) / (high - low) * (self.end - self.start)

    def ticks(self, count: int = 5) -> list[float]:
        """About `count` round values within the scale."""
        return self._decades(count) if self.logarithmic else self._steps(count)

    def _steps(self, count: int) -> list[float]:
        step = round_step((self.high - self.low) / max(count, 1))
        first = math.ceil(self.low / step - 1e-9)
        last = math.floor(self.high / step + 1e-9)
        # Multiples of the step, not sums of it: 0.30000000000000004 is no tick.
        return [float(f"{number * step:.12g}") for number in range(first, last + 1)]

    def _decades(self, count: int) -> list[float]:
        first, last = math.ceil(math.log10(self.low) - 1e-9), math.floor(math.log10(self.high) + 1e-9)
        if last - first < 2:
            mantissas = (1, 2, 5)
            every = [m * 10.0**power for power in range(first - 1, last + 1) for m in mantissas]
            within = [value for value in every if self.low * (1 - 1e-9) <= value <= self.high * (1 + 1e-9)]
            return within if len(within) > 2 else self._steps(count)
        stride = -(-(last - first + 1) // count)
        return [10.0**power for power in range(first, last + 1, stride)]


def round_step(least: float) -> float:
    """The next of … 0.1, 0.2, 0.5, 1, 2, 5, 10 … that is at least `least`."""
    if not least > 0:
        return 1.0
    power = 10.0 ** math.floor(math.log10(least))
    return next(m * power for m in (1.0, 2.0, 5.0, 10.0) if m * power >= least * (1 - 1e-9))


def fitted(
    values: Iterable[float],
    start: float,
    end: float,
    *,
    logarithmic: bool = False,
    bounds: tuple[float, float] = (-math.inf, math.inf),
    margin: float = 0.04,
) -> Scale:
    """A scale for finite values with a little room, within `bounds`.

    Logarithmic only if all values are positive and span an order of magnitude.
    """
    known = [value for value in values if math.isfinite(value)]
    if not known:
        return Scale(0.0, 1.0, start, end)
    low, high = min(known), max(known)
    if logarithmic and low > 0 and math.log10(high / low) >= _DECADES:
        room = (high / low) ** margin
        return Scale(low / room, high * room, start, end, logarithmic=True)
    if high == low:
        # From zero to twice the value, where it is the middle of an axis with round ticks.
        room = abs(high) or 1.0
    else:
        room = (high - low) * margin
    fitted_low, fitted_high = max(low - room, bounds[0]), min(high + room, bounds[1])
    if fitted_high <= fitted_low:
        return Scale(low - room, high + room, start, end)
    return Scale(fitted_low, fitted_high, start, end)
