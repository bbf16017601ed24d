"""What clients really contributed, counted round by round."""

from __future__ import annotations

from collections.abc import Iterable

import torch
from torch import Tensor

from fairlead.diagnostics.surrogate import Contributions
from fairlead.records import RoundRecord


class Tally:
    """Running sums of a run's records, at a cost of what took part in each round and not of all clients.

    It grows in place: a copy of N numbers a round would cost more than the round's own facts.
    """

    def __init__(self, weights: Tensor) -> None:
        self.weights = weights
        self.rounds = 0
        self.first_round = 0
        """Where the records begin: later than 0 for those of a resumed run."""
        self.readable = True
        """Whether every round so far told its coefficients and the work behind its updates."""
        self.longest_steps = 0
        """Most local steps that any update had behind it."""
        # One matrix, so that a round is one addition.
        self._sums = weights.new_zeros((5, len(weights)))
        rows: tuple[Tensor, ...] = self._sums.unbind()
        self._work, self._steps, self._echoed, self._coefficient, self._mass = rows
        self.asked, self.arrived = torch.zeros_like(weights), torch.zeros_like(weights)
        self._last_work = torch.zeros_like(weights)
        self._last_heard = torch.full_like(weights, -1.0)
        self._steady = True

    def add(self, records: Iterable[RoundRecord]) -> None:
        """Count some more rounds."""
        for record in records:
            self._add(record)

    def _add(self, record: RoundRecord) -> None:
        if not self.rounds:
            self.first_round = record.round
            # Absences from before the records are not known, and echo in none of their rounds.
            self._last_heard.fill_(record.round - 1)
        self.rounds += 1
        arrived = torch.tensor(record.arrived, dtype=torch.int64)
        self.asked[torch.tensor(record.asked, dtype=torch.int64)] += 1
        self.arrived[arrived] += 1
        if not record.arrived and not record.remembered:
            return
        if record.effective_steps is None or (record.coefficients is None and not record.remembered):
            self.readable = False
            return
        # Without coefficients all that counts is remembered, this round's updates included.
        weighed = record.coefficients or (0.0,) * len(record.arrived)
        facts = torch.tensor((record.effective_steps, record.num_steps, weighed), dtype=self.weights.dtype)
        work, steps, coefficients = facts
        former = self._last_work[arrived]
        self._steady &= bool(((former == 0) | (former == work)).all())
        if record.coefficients is None:
            self._last_work[arrived] = work
        self._recall(record)
        self._last_work[arrived] = work
        echoed = (record.round - self._last_heard[arrived]) * work
        self._last_heard[arrived] = float(record.round)
        gained = (work, steps, echoed, coefficients, coefficients * work)
        self._sums.index_add_(1, arrived, torch.stack(gained))
        self.longest_steps = max((self.longest_steps, *record.num_steps))

    def _recall(self, record: RoundRecord) -> None:
        """Count remembered updates: each carries the work of the round in which it arrived."""
        if not record.remembered:
            return
        recalled = torch.tensor(list(record.remembered), dtype=torch.int64)
        shares = torch.tensor(list(record.remembered.values()), dtype=self.weights.dtype)
        if bool((self._last_work[recalled] == 0).any()):
            # Remembered from before these records, as after a resume: the work behind it is not known.
            self.readable = False
        self._coefficient[recalled] += shares
        self._mass[recalled] += shares * self._last_work[recalled]

    @property
    def unheard(self) -> Tensor:
        """Clients of positive weight none of whose updates arrived."""
        return ((self.weights > 0) & (self.arrived == 0)).nonzero().flatten()

    @property
    def mean_steps(self) -> Tensor:
        """Mean number of local steps of the updates that arrived, (N,); 0 where none did."""
        return self._steps / self.arrived.clamp(min=1)

    @property
    def contributions(self) -> Contributions | None:
        """Means over the rounds so far; None where they cannot be told or nothing got through."""
        if not self.readable or not self.rounds or not bool(self._mass.sum() > 0):
            return None
        return Contributions(
            weights=self.weights,
            coefficient=self._coefficient / self.rounds,
            mass=self._mass / self.rounds,
            work=self._work / self.arrived.clamp(min=1),
            echoed=self._echoed / self.rounds,
            steady=self._steady,
        )
