"""Means over seeds with their intervals, differences between methods, and numbers as people read them."""

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import Literal

from fairlead.text import LEAST_DIVERGENCE

CONFIDENCE = 0.95

_ROUNDING = 1e-9
LARGEST = 1e100
"""Squares and axes of larger numbers overflow; only runs that diverged have such figures."""
_BYTES = ("B", "kB", "MB", "GB", "TB", "PB")

Comparative = Literal["better", "worse"]
NumberKind = Literal["share", "points", "number", "count", "seconds", "bytes", "factor", "divergence"]
"""What a number is: a share of 1 is shown in percent, as points without the sign; a factor with a ×; a χ² may be 0."""


@dataclass(frozen=True)
class Estimate:
    """A mean over seeds, and how far the mean over all seeds may be from it."""

    mean: float
    std: float | None
    """Sample standard deviation s; None for a single seed, or where a value is not finite."""
    half_width: float | None
    """Of the interval mean ± t·s/√n with Student's t; None as `std`, and for two pairs with the same difference."""
    count: int

    @property
    def low(self) -> float | None:
        """Where the interval begins."""
        return None if self.half_width is None else self.mean - self.half_width

    @property
    def high(self) -> float | None:
        """Where it ends."""
        return None if self.half_width is None else self.mean + self.half_width

    @property
    def excludes_zero(self) -> bool | None:
        """Whether the interval lies on one side of zero; None without an interval."""
        return None if self.half_width is None else abs(self.mean) > self.half_width

    @property
    def is_zero(self) -> bool:
        """Whether a difference is 0 on every seed."""
        return self.mean == 0 and not self.std

    @property
    def too_few(self) -> str:
        """The seeds behind a difference without an interval, in words."""
        return "one seed" if self.count == 1 else "only two seeds with equal differences"

    def judged(self, *, higher: bool) -> Comparative | None:
        """What a difference to another method amounts to; None if it may be noise or the noise is not known.

        `higher`: whether more is better.
        """
        if not self.excludes_zero:
            return None
        return "better" if (self.mean > 0) == higher else "worse"

    def text(self, kind: NumberKind, *, sign: bool = False) -> str:
        """The mean with its margin, as in "93.1 % ± 1.2", or a difference with its sign."""
        return " ".join(self.shown(kind, sign=sign)).rstrip()

    def shown(self, kind: NumberKind, *, interval: bool = True, sign: bool = False) -> tuple[str, str]:
        """The mean and its margin, as `show_estimate` has them; without `interval`, the mean alone."""
        return show_estimate(self.mean, self.half_width if interval else None, kind, sign=sign)


def mean_of(values: Collection[float]) -> float:
    """The mean, infinite or NaN where a value is or where their sum overflows, as values of runs that diverged do."""
    add = math.fsum if all(abs(value) <= LARGEST for value in values) else sum
    return add(values) / len(values)


def estimate(values: Sequence[float]) -> Estimate | None:
    """The mean of independent values with its interval; None of nothing.

    >>> found = estimate([1.0, 2.0, 3.0])
    >>> print(f"{found.mean:.2f} ± {found.half_width:.2f}")
    2.00 ± 2.48
    """
    count = len(values)
    if not count:
        return None
    mean = sum(values) / count
    if count < 2 or not all(abs(value) <= LARGEST for value in values):
        return Estimate(mean, None, None, count)
    std = math.sqrt(math.fsum((value - mean) ** 2 for value in values) / (count - 1))
    return Estimate(mean, std, student_quantile(count - 1) * std / math.sqrt(count), count)


def paired_difference(values: Mapping[int, float], others: Mapping[int, float]) -> Estimate | None:
    """The mean of `values` − `others` over the seeds that both have; None if there are none.

    Methods that meet the same data, batches, work and links at a seed share its luck, which the difference
    takes away: its interval is as a rule much smaller than those of the two means. Two differences that agree, as
    shares of a small test set easily do, would leave no interval at all and say nothing of the noise.
    """
    found = estimate([values[seed] - others[seed] for seed in values if seed in others])
    if found is None or found.std is None or found.count > 2 or found.std > _ROUNDING * abs(found.mean):
        return found
    return replace(found, half_width=None)


@cache
def student_quantile(freedom: int, confidence: float = CONFIDENCE) -> float:
    """The t with P(|T| ≤ t) = `confidence` for Student's T with that many degrees of freedom.

    >>> round(student_quantile(4), 3)
    2.776
    """
    low, high = 0.0, 1.0
    while _within(high, freedom) < confidence:
        high *= 2
    while (middle := (low + high) / 2) not in (low, high):
        low, high = (middle, high) if _within(middle, freedom) < confidence else (low, middle)
    return high


def _within(t: float, freedom: int) -> float:
    """P(|T| ≤ t), by the finite sums that whole degrees of freedom have.

        ν odd:   (2/π)(θ + sin θ (cos θ + ⅔ cos³θ + … + (2·4⋯(ν−3))/(3·5⋯(ν−2)) cos^{ν−2}θ))
        ν even:  sin θ (1 + ½ cos²θ + … + (1·3⋯(ν−3))/(2·4⋯(ν−2)) cos^{ν−2}θ)

    Symbols: ν `freedom`, tan θ = t/√ν.
    """
    angle = math.atan2(t, math.sqrt(freedom))
    cosine = math.cos(angle)
    odd = freedom % 2
    term, total = (cosine if odd else 1.0), 0.0
    for power in range(odd, freedom - 1, 2):
        total += term
        term *= cosine * cosine * (power + 1) / (power + 2)
    return 2 / math.pi * (angle + math.sin(angle) * total) if odd else math.sin(angle) * total


def show(value: float | None, kind: NumberKind = "number") -> str:
    """A value in a few characters.

    >>> [show(0.8125, "share"), show(2_500_000, "bytes"), show(None)]
    ['81.2 %', '2.50 MB', '–']
    """
    if value is None or math.isnan(value):
        return "–"
    if math.isinf(value):
        return "∞" if value > 0 else "−∞"
    match kind:
        case "share":
            return _signed(f"{100 * value:.1f} %")
        case "points":
            return _signed(f"{100 * value:.1f}")
        case "factor":
            return f"{value:.2f}×"
        case "bytes":
            return _with_unit(value, _BYTES)
        case "seconds":
            return _seconds(value)
        case "count":
            return f"{value:,.0f}" if value == int(value) or value >= 1000 else f"{value:,.1f}"
        case "number":
            return _number(value)
        case "divergence":
            return _number(value if abs(value) >= LEAST_DIVERGENCE else 0.0)


def show_estimate(
    mean: float, half_width: float | None, kind: NumberKind, *, sign: bool = False
) -> tuple[str, str]:
    """A mean and the ± of its interval, to two digits of the smaller of them, but at most three of the latter.

    A difference has its sign; of shares, it is in percentage points.

    >>> show_estimate(1.8372, 0.0464, "number")
    ('1.837', '± 0.046')
    >>> show_estimate(0.021, 0.009, "share", sign=True)
    ('+2.1', '± 0.9')
    """
    if sign:
        text, detail = show_estimate(mean, half_width, kind)
        if kind == "share" or not detail:
            return show_difference(mean, kind), detail
        return f"+{text}" if mean > 0 and _is_visible(text) else text, detail
    if half_width is None or not math.isfinite(half_width) or not math.isfinite(mean):
        return show(mean, kind), ""
    if kind == "share":
        return show(mean, kind), f"± {100 * half_width:.1f}"
    if kind == "seconds":
        length, unit = _unit_of_time(mean)
        text, detail = show_estimate(mean / length, half_width / length, "number")
        return f"{text} {unit}", detail
    if kind in ("number", "factor", "count") and half_width > 0 and 1e-4 <= max(abs(mean), half_width) < 1e5:
        least = max(min(half_width, abs(mean)), half_width / 10)
        digits = min(max(1 - math.floor(math.log10(least)), 0), 6)
        unit, form = "×" if kind == "factor" else "", f"{',' if kind == 'count' else ''}.{digits}f"
        return _signed(f"{round(mean, digits) + 0.0:{form}}{unit}"), f"± {half_width:{form}}"
    return show(mean, kind), f"± {show(half_width, kind)}"


def show_difference(value: float | None, kind: NumberKind) -> str:
    """A signed difference; of shares, in percentage points."""
    if value is None or not math.isfinite(value):
        return show(value, kind)
    sign = "+" if value >= 0 else "−"
    text = f"{100 * abs(value):.1f}" if kind == "share" else show(abs(value), kind)
    return sign + text if _is_visible(text) else text


def _is_visible(text: str) -> bool:
    """Whether a difference does not round to nothing, which has no sign."""
    return any(digit in text for digit in "123456789")


def show_tick(value: float, kind: NumberKind) -> str:
    """A value beside an axis, as short as can be."""
    if kind in ("share", "points"):
        return _signed(f"{100 * value:.4g}{' %' if kind == 'share' else ''}")
    if kind == "bytes" and value:
        return _with_unit(value, _BYTES, digits=2)
    if kind == "seconds" and value:
        return _seconds(value, digits=2)
    if value and (abs(value) >= 10_000 or abs(value) < 0.001):
        if kind == "count" and abs(value) >= 10_000:
            return _with_unit(value, ("", "k", "M", "G", "T", "P"), digits=2)
        return _scientific(value)
    return _signed(f"{value:.4g}")


def _number(value: float) -> str:
    if value and not 1e-4 <= abs(value) < 1e5:
        return _scientific(value)
    return _signed(f"{value:.4g}" if abs(value) >= 1000 else f"{value:.3g}")


def _scientific(value: float) -> str:
    mantissa, exponent = f"{value:.1e}".split("e")
    power = str(int(exponent)).translate(str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹"))
    lead = mantissa.removesuffix(".0")
    return _signed(f"10{power}" if lead == "1" else f"{lead}·10{power}")


def _with_unit(value: float, units: tuple[str, ...], digits: int = 3) -> str:
    rank = 0
    while abs(value) >= 1000 and rank < len(units) - 1:
        value, rank = value / 1000, rank + 1
    if rank == 0:
        return f"{value:.0f} {units[0]}".strip()
    text = _short(value, digits) if digits < 3 else f"{value:#.3g}".rstrip(".")
    return _signed(f"{text} {units[rank]}")


def _seconds(value: float, digits: int = 3) -> str:
    length, unit = _unit_of_time(value)
    return f"{_short(value / length, digits)} {unit}"


def _short(value: float, digits: int) -> str:
    """So many digits, or all of those before the point where there are more."""
    return f"{value:.{max(digits, len(str(int(abs(value)))))}g}"


def _unit_of_time(seconds: float) -> tuple[float, str]:
    """The largest unit of which there are two, in seconds and by its name."""
    for length, unit in ((86_400.0, "d"), (3_600.0, "h"), (60.0, "min")):
        if abs(seconds) >= 2 * length:
            return length, unit
    return 1.0, "s"


def _signed(text: str) -> str:
    """With a proper minus sign."""
    return text.replace("-", "−")
