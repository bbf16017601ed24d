"""Ends of curves, times to a target and spreads over clients; `studies.seed_statistics` has those over seeds."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise


@dataclass(frozen=True)
class Curve:
    """A quantity of one run, where it was measured."""

    rounds: tuple[int, ...]
    """Numbers of rounds done, ascending."""
    values: tuple[float, ...]

    def __len__(self) -> int:
        return len(self.values)

    @property
    def spacing(self) -> int:
        """Most rounds from one measurement to the next, or to the first; 0 without any."""
        return max((later - done for done, later in pairwise((0, *self.rounds))), default=0)

    def tail_mean(self, total: int, last: int) -> float | None:
        """Mean of what was measured in the `last` of `total` rounds; None if nothing was."""
        tail = [
            value
            for done, value in zip(self.rounds, self.values, strict=True)
            if total - last < done <= total
        ]
        return math.fsum(tail) / len(tail) if tail else None

    def best(self, *, higher: bool) -> float | None:
        """The largest value, or the smallest unless `higher` is better."""
        if not self.values:
            return None
        return max(self.values) if higher else min(self.values)

    def rounds_to(self, target: float, *, higher: bool) -> int | None:
        """Rounds done when the target was first met; None if it never was."""
        for done, value in zip(self.rounds, self.values, strict=True):
            if value >= target if higher else value <= target:
                return done
        return None


def tenth(rounds: int) -> int:
    """How many rounds the last 10 % are: rounded up, so that there is always one."""
    return -(-rounds // 10)


def worst_tenth(values: Sequence[float], *, higher: bool) -> float | None:
    """Mean over the worst 10 % (at least one) of the finite values; None without any."""
    known = sorted((value for value in values if math.isfinite(value)), reverse=not higher)
    return math.fsum(known[: tenth(len(known))]) / tenth(len(known)) if known else None


def spread(values: Sequence[float]) -> float | None:
    """Standard deviation of the finite values as those of a whole population; None without any."""
    known = [value for value in values if math.isfinite(value)]
    if not known:
        return None
    mean = math.fsum(known) / len(known)
    return math.sqrt(math.fsum((value - mean) ** 2 for value in known) / len(known))
