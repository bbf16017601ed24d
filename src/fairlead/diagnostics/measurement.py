"""The weights Ω that a run has used: counts of contributions, the report on them, and a monitor of training."""

import math
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Literal

import numpy as np
import torch
from torch import Tensor

from fairlead.algorithm import Algorithm
from fairlead.diagnostics.consistency import ConsistencyReport, chi_square, extremes, predicted_consistency
from fairlead.errors import require_number
from fairlead.federation import Federation
from fairlead.records import Conditions, Contributions, RoundRecord
from fairlead.text import ClientNames
from fairlead.theory.convergence import convergence_factors
from fairlead.theory.prediction import implied_surrogate, known_limit, weights_under

Cause = Literal["work", "links", "sampling"]

_FIRST_CHECK = 10
_GROWTH = 1.25
"""The number of rounds grows by a quarter between two checks, so that there are few of them."""
_NOT_YET = 0.5
"""Arrivals credited to a client without any."""
_SCRIPT = 50
"""Rounds of a scripted sampler that theory considers."""
_OUTCOMES = 128
"""Random cohorts per cause: enough to distinguish causes, and cheap compared to a round."""
_STRETCHES = 10


class Tally:
    """Running sums of a run's records; a round costs as much as its participants, not as all clients.

    It is updated in place: copying N numbers per round would cost more than the round's own facts. It counts in
    NumPy, whose operations on the few numbers of a round cost a third of torch's.
    """

    def __init__(self, weights: Tensor) -> None:
        self.weights = weights
        self.rounds = 0
        self.first_round = 0
        """The first round of the records: above 0 after a resume."""
        self.readable = True
        """Whether every round so far recorded its coefficients and the work of its updates."""
        self.longest_steps = 0
        """The largest number of local steps of any update."""
        self._asked, self._arrived, self._last_work, self._last_arrival = np.zeros((4, len(weights)))
        self._sums = np.zeros((len(weights), 5))
        """Work, local steps, echoed work, coefficients and mass of each client."""
        self._steady = True

    def add(self, records: Iterable[RoundRecord]) -> None:
        """Count some more rounds."""
        for record in records:
            self._add(record)

    def _add(self, record: RoundRecord) -> None:
        if not self.rounds:
            self.first_round = record.round
            # Absences before the records are unknown, and do not count.
            self._last_arrival.fill(record.round - 1)
        self.rounds += 1
        arrived = np.array(record.arrived, dtype=np.int64)
        self._asked[np.array(record.asked, dtype=np.int64)] += 1
        self._arrived[arrived] += 1
        if not record.arrived and not record.remembered:
            return
        if record.effective_steps is None or (record.coefficients is None and not record.remembered):
            self.readable = False
            return
        # Without coefficients only remembered weights count, which include this round's updates.
        weighed = record.coefficients or (0.0,) * len(record.arrived)
        work, steps, coefficients = np.array((record.effective_steps, record.num_steps, weighed), dtype=float)
        former = self._last_work[arrived]
        self._steady &= bool(((former == 0) | (former == work)).all())
        if record.coefficients is None:
            self._last_work[arrived] = work
        self._recall(record)
        self._last_work[arrived] = work
        echoed = (record.round - self._last_arrival[arrived]) * work
        self._last_arrival[arrived] = record.round
        gained = np.column_stack((work, steps, echoed, coefficients, coefficients * work))
        np.add.at(self._sums, arrived, gained)
        self.longest_steps = max((self.longest_steps, *record.num_steps))

    def _recall(self, record: RoundRecord) -> None:
        """Count remembered updates: each carries the work of the round in which it arrived."""
        if not record.remembered:
            return
        recalled = np.array(list(record.remembered), dtype=np.int64)
        shares = np.array(list(record.remembered.values()))
        work = self._last_work[recalled]
        if bool((work == 0).any()):
            # Remembered from before these records, as after a resume: its work is unknown.
            self.readable = False
        self._sums[recalled, 3:] += np.column_stack((shares, shares * work))

    @property
    def asked(self) -> Tensor:
        """How often each client was asked, (N,)."""
        return torch.from_numpy(self._asked)

    @property
    def arrived(self) -> Tensor:
        """How often each client's update arrived, (N,)."""
        return torch.from_numpy(self._arrived)

    @property
    def never_arrived(self) -> Tensor:
        """Clients of positive weight none of whose updates arrived."""
        return ((self.weights > 0) & (self.arrived == 0)).nonzero().flatten()

    @property
    def mean_steps(self) -> Tensor:
        """Mean number of local steps of the updates that arrived, (N,); 0 where none did."""
        return torch.from_numpy(self._sums[:, 1]) / self.arrived.clamp(min=1)

    @property
    def contributions(self) -> Contributions | None:
        """Means over the rounds so far; None if they are unknown or no update arrived."""
        if not self.readable or not self.rounds or not bool(self._sums[:, 4].sum() > 0):
            return None
        work, _, echoed, coefficient, mass = torch.from_numpy(self._sums.T.copy())
        return Contributions(
            self.weights,
            coefficient / self.rounds,
            mass / self.rounds,
            work / self.arrived.clamp(min=1),
            echoed / self.rounds,
            self._steady,
        )


def measured_consistency(
    records: Sequence[RoundRecord], weights: Tensor, *, algorithm: Algorithm | None = None
) -> ConsistencyReport:
    """Ω from the coefficients really used, round by round.

    With the `algorithm`, coefficients are read as its corrections demand: Ω = ω whatever the coefficients where
    control variates make every client follow Σ ω_i ∇F_i. The report then has convergence factors.
    """
    tally = Tally(weights)
    tally.add(records)
    return report_of(tally, algorithm)


def report_of(tally: Tally, algorithm: Algorithm | None = None) -> ConsistencyReport:
    """The report on what has been counted so far."""
    weights, facts = tally.weights, tally.contributions
    missing = tuple(tally.never_arrived.tolist()) if tally.rounds else ()
    unknown = ConsistencyReport(weights, None, tally.rounds, unheard=missing, first_round=tally.first_round)
    limit = None if algorithm is None else known_limit(algorithm, weights)
    if limit is not None and limit.weights is not None:
        return _restored(unknown)
    if facts is None or limit is not None:
        return unknown
    if algorithm is None:
        return replace(unknown, surrogate=facts.mass / facts.mass.sum())
    surrogate = weights_under(algorithm, facts).weights
    if surrogate is None:
        return unknown
    factors = convergence_factors(
        algorithm.solver, tally.mean_steps, facts.coefficient, surrogate, weights, longest=tally.longest_steps
    )
    return replace(unknown, surrogate=surrogate, factors=factors)


def _restored(unknown: ConsistencyReport) -> ConsistencyReport:
    """Ω of corrections that restore the weights of all clients whose updates arrived.

    The control state of any other client stays 0, so the fixed point is that of the arrivals alone.
    """
    if not unknown.rounds:
        return replace(unknown, restored=True)
    if not unknown.unheard:
        return replace(unknown, surrogate=unknown.intended, restored=True)
    if unknown.first_round:
        # Their updates may have arrived before the records begin.
        return unknown
    arrived = unknown.intended.index_fill(0, torch.tensor(unknown.unheard), 0.0)
    return replace(unknown, surrogate=arrived / arrived.sum()) if bool(arrived.any()) else unknown


def federation_consistency(federation: Federation) -> ConsistencyReport:
    """The report on the rounds of a federation so far, with the weights that theory predicts for them."""
    records, monitor = federation.records, federation.monitor
    monitor.watch(records)
    first, rounds = monitor.tally.first_round if records else federation.state.round, max(len(records), 1)
    theory = predicted_consistency(
        federation.algorithm, federation.world, rounds=rounds, first=first, key=federation.key
    )
    measured = report_of(monitor.tally, federation.algorithm)
    return replace(measured, predicted=theory.predicted, condition=theory.condition, names=theory.names)


def chance_level(records: Sequence[RoundRecord], weights: Tensor) -> float:
    """Share of the weight that lost updates and draws misplace by chance if Ω is ω on average.

        ½ Σ_i E|N(0, s_i²)| = Σ_i s_i/√(2π)

    Symbols: s_i the standard error of client i's measured weight, from its spread over ten equal
    stretches of the run.
    """
    length = max(len(records) // _STRETCHES, 1)
    stretches = [records[start : start + length] for start in range(0, len(records), length)]
    measured = [measured_consistency(stretch, weights).surrogate for stretch in stretches]
    known = [surrogate for surrogate in measured if surrogate is not None]
    if len(known) < 2:
        return 0.0
    errors = torch.stack(known).std(0) / math.sqrt(len(known))
    return float(errors.sum() / math.sqrt(2 * math.pi))


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
        cause = main_cause(self.algorithm, tally)
        why = "no single cause stands out"
        if cause is not None:
            why = f"the main cause is unequal {cause[0]} (chi-square {cause[1]:.2g} alone)"
        return (
            f"After {report.rounds} rounds, the run optimizes another objective than the one asked for: "
            f"{report.total_variation:.0%} of the weight is misplaced (chi-square {divergence:.2g}, above "
            f"{self.threshold:g}): {whom}; {why}."
        )


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
    done = [torch.where(seen, mean, mean[seen].mean()) for mean in (facts.work, tally.mean_steps)]
    perfect, equal = torch.ones_like(arrival), [torch.full_like(mean, float(mean.mean())) for mean in done]
    alone: dict[Cause, tuple[Tensor, list[Tensor]]] = {
        "work": (perfect, done),
        "links": (arrival, equal),
        "sampling": (perfect, equal),
    }
    found: dict[Cause, float] = {}
    for cause, (rates, (work, steps)) in alone.items():
        rounds = [Conditions.known(round, tally.weights, work, rates, steps) for round in range(_SCRIPT)]
        surrogate = implied_surrogate(algorithm, rounds, outcomes=_OUTCOMES).weights
        found[cause] = 0.0 if surrogate is None else chi_square(tally.weights, surrogate)
    own = found["sampling"]
    if math.isfinite(own):
        found = {"sampling": own, "work": found["work"] - own, "links": found["links"] - own}
    cause = max(found, key=lambda name: found[name])
    return (cause, found[cause]) if found[cause] > 1e-9 else None
