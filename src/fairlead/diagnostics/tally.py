"""Contributions of clients, counted round by round."""

from collections.abc import Iterable

import numpy as np
import torch
from torch import Tensor

from fairlead.records import Contributions, RoundRecord


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
        number = len(weights)
        self._asked, self._arrived = np.zeros(number), np.zeros(number)
        self._work, self._steps, self._echoed = np.zeros(number), np.zeros(number), np.zeros(number)
        self._coefficient, self._mass = np.zeros(number), np.zeros(number)
        self._last_work, self._last_arrival = np.zeros(number), np.full(number, -1.0)
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
        for total, gained in (
            (self._work, work),
            (self._steps, steps),
            (self._echoed, echoed),
            (self._coefficient, coefficients),
            (self._mass, coefficients * work),
        ):
            np.add.at(total, arrived, gained)
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
        self._coefficient[recalled] += shares
        self._mass[recalled] += shares * work

    @property
    def asked(self) -> Tensor:
        """How often each client was asked, (N,)."""
        return torch.from_numpy(self._asked)

    @property
    def arrived(self) -> Tensor:
        """How often each client's update arrived, (N,)."""
        return torch.from_numpy(self._arrived)

    @property
    def unheard(self) -> Tensor:
        """Clients of positive weight none of whose updates arrived."""
        return ((self.weights > 0) & (self.arrived == 0)).nonzero().flatten()

    @property
    def mean_steps(self) -> Tensor:
        """Mean number of local steps of the updates that arrived, (N,); 0 where none did."""
        return torch.from_numpy(self._steps) / self.arrived.clamp(min=1)

    @property
    def contributions(self) -> Contributions | None:
        """Means over the rounds so far; None if they are unknown or no update arrived."""
        if not self.readable or not self.rounds or not bool(self._mass.sum() > 0):
            return None
        return Contributions(
            weights=self.weights,
            coefficient=torch.from_numpy(self._coefficient / self.rounds),
            mass=torch.from_numpy(self._mass / self.rounds),
            work=torch.from_numpy(self._work / self._arrived.clip(min=1)),
            echoed=torch.from_numpy(self._echoed / self.rounds),
            steady=self._steady,
        )
