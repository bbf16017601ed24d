"""A monitor of training: reports once that the run optimizes another objective, and why."""

import math
from collections.abc import Sequence
from typing import Literal

import torch
from torch import Tensor

from fairlead.algorithm import Algorithm
from fairlead.diagnostics.consistency import ConsistencyReport, chi_square, extremes, report_of
from fairlead.diagnostics.tally import Tally
from fairlead.errors import require_number
from fairlead.records import Conditions, RoundRecord
from fairlead.text import ClientNames
from fairlead.theory.prediction import implied_surrogate, known_limit

Cause = Literal["work", "links", "sampling"]

_FIRST_CHECK = 10
_GROWTH = 1.25
"""The number of rounds grows by a quarter between two checks, so that there are few of them."""
_WORDS: dict[Cause, str] = {
    "work": "unequal work",
    "links": "unequal links",
    "sampling": "unequal sampling",
}
_NOT_YET = 0.5
"""Arrivals credited to a client without any."""
_SCRIPT = 50
"""Rounds of a scripted sampler that theory considers."""
_OUTCOMES = 128
"""Random cohorts per cause: enough to distinguish causes, and cheap compared to a round."""


class ConsistencyMonitor:
    """Watches the measured χ²(ω‖Ω) of a run and gives one notice when it exceeds a threshold.

    Counting costs as much as the participants of a round; χ² is computed from the tenth round on, at geometrically
    growing intervals. The notice waits until χ² exceeds the threshold by twice the effect of lost updates and random
    draws, about Σ ω_i/(arrivals of i), and until half of the weight has been asked often enough.
    """

    def __init__(
        self,
        algorithm: Algorithm,
        weights: Tensor,
        threshold: float = 0.1,
        *,
        names: ClientNames | None = None,
    ) -> None:
        self.threshold = threshold
        require_number(self, "threshold", above=0)
        self.algorithm, self.weights, self.names = algorithm, weights, names
        self.notice: str | None = None
        """The sentence, once there is one."""
        self.tally = Tally(weights)
        """What clients contributed in the rounds seen so far."""
        self._next_check = math.inf if known_limit(algorithm, weights) is not None else _FIRST_CHECK

    def watch(self, records: Sequence[RoundRecord]) -> str | None:
        """Count the records of a run that are new, and return the notice if there is one.

        `records` start at the first round of the run; those counted before cost nothing.
        """
        if len(records) < self.tally.rounds:
            self.tally, self._next_check = Tally(self.weights), min(self._next_check, _FIRST_CHECK)
        # One by one, so that a resumed run is judged after the same rounds as one that was never interrupted.
        for place in range(self.tally.rounds, len(records)):
            self.tally.add([records[place]])
            if self.notice is None and self.tally.rounds >= self._next_check:
                self._next_check = math.ceil(self.tally.rounds * _GROWTH)
                self.notice = self._judged()
        return self.notice

    def _judged(self) -> str | None:
        tally = self.tally
        # Clients asked too rarely are left out, on both sides.
        judged = (tally.asked >= min(_FIRST_CHECK, tally.rounds)) & (self.weights > 0)
        covered = self.weights[judged].sum()
        if covered < 0.5:
            return None
        report = report_of(tally, self.algorithm)
        if report.surrogate is None or (through := report.surrogate[judged].sum()) <= 0:
            return None
        divergence = chi_square(self.weights[judged] / covered, report.surrogate[judged] / through)
        # Without chance, every client arrives in every round.
        noisy = self.weights * (tally.arrived < tally.rounds)
        chance = float((noisy / tally.arrived.clamp(min=1))[judged].sum() / covered)
        if divergence <= self.threshold + 2 * chance:
            return None
        whom = extremes(torch.where(judged, self.weights, 0.0), report.surrogate, self.names)
        return _notice(report, divergence, self.threshold, whom, main_cause(self.algorithm, tally))


def main_cause(algorithm: Algorithm, tally: Tally) -> tuple[Cause, float] | None:
    """The cause that alone makes χ² largest with the arrival rates and work so far; None if there is none.

    With equal work and perfect links, theory's χ² is the effect of sampling; unequal work alone and unequal links
    alone count by the χ² that they add to it.
    """
    facts = tally.contributions
    if facts is None:
        return None
    asked, seen = tally.asked > 0, tally.arrived > 0
    # A client without arrivals may still arrive: methods that divide by the rate refuse a rate of 0.
    arrival = torch.where(asked, tally.arrived.clamp(min=_NOT_YET) / tally.asked.clamp(min=1), 1.0)
    arrival = torch.where(asked, arrival, arrival[asked].mean())
    work = torch.where(seen, facts.work, facts.work[seen].mean())
    perfect, equal = torch.ones_like(arrival), torch.full_like(work, float(work.mean()))
    alone: dict[Cause, tuple[Tensor, Tensor]] = {
        "work": (perfect, work),
        "links": (arrival, equal),
        "sampling": (perfect, equal),
    }
    found: dict[Cause, float] = {}
    for cause, (rates, steps) in alone.items():
        rounds = _constant(tally.weights, rates, steps)
        surrogate = implied_surrogate(algorithm, rounds, outcomes=_OUTCOMES).weights
        found[cause] = 0.0 if surrogate is None else chi_square(tally.weights, surrogate)
    own = found["sampling"]
    if math.isfinite(own):
        found = {"sampling": own, "work": found["work"] - own, "links": found["links"] - own}
    cause = max(found, key=lambda name: found[name])
    return (cause, found[cause]) if found[cause] > 1e-9 else None


def _constant(weights: Tensor, arrival: Tensor, work: Tensor) -> list[Conditions]:
    return [Conditions(round, weights, lambda: work, lambda: arrival) for round in range(_SCRIPT)]


def _notice(
    report: ConsistencyReport,
    divergence: float,
    threshold: float,
    whom: str,
    cause: tuple[Cause, float] | None,
) -> str:
    why = "no single cause stands out"
    if cause is not None:
        why = f"the main cause is {_WORDS[cause[0]]} (chi-square {cause[1]:.2g} alone)"
    return (
        f"After {report.rounds} rounds, the run optimizes another objective than the one asked for: "
        f"{report.total_variation:.0%} of the weight is misplaced (chi-square {divergence:.2g}, above {threshold:g}): "
        f"{whom}; {why}."
    )
