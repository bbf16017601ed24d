"""Means over seeds with their intervals, and differences between methods that met the same chance."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import Literal

CONFIDENCE = 0.95

_ROUNDING = 1e-9

Judgement = Literal["better", "worse"]


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
    if count < 2 or not math.isfinite(mean):
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


def too_few(difference: Estimate) -> str:
    """The seeds behind a difference without an interval, in words."""
    return "one seed" if difference.count == 1 else "two seeds that agree"


def judged(difference: Estimate | None, *, smaller_is_better: bool) -> Judgement | None:
    """What a difference to another method amounts to; None if it may be noise or the noise is not known."""
    if difference is None or not difference.excludes_zero:
        return None
    return "better" if (difference.mean < 0) == smaller_is_better else "worse"


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
