"""Work that is drawn anew for every client and round."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from fairlead.component import freeze_lists
from fairlead.conditions.base import require_counts, require_range
from fairlead.conditions.work.base import EpochCounts, StepCounts, Workload, WorkModel
from fairlead.errors import require_integer, require_number
from fairlead.local_solver import MOST_STEPS, LocalSolver, epochs_to_steps
from fairlead.randomness import Key


@dataclass(frozen=True)
class RandomEpochs(EpochCounts):
    """Epochs drawn uniformly from `low` to `high`, anew for every client and round (Wang 2021: U(2, 5))."""

    low: int
    high: int

    references = ("wang2021fednova",)

    def __post_init__(self) -> None:
        require_integer(self, "low", at_least=1)
        require_integer(self, "high", at_least=self.low, at_most=MOST_STEPS)

    def epochs_of(self, clients: Tensor, round: int, key: Key) -> Tensor:
        return key.fold(round).integers(clients, self.low, self.high)


@dataclass(frozen=True)
class RandomSteps(StepCounts):
    """Local steps drawn uniformly from `low` to `high`, anew for every client and round."""

    low: int
    high: int

    def __post_init__(self) -> None:
        require_integer(self, "low", at_least=1)
        require_integer(self, "high", at_least=self.low, at_most=MOST_STEPS)

    def steps_of(self, clients: Tensor, round: int, key: Key) -> Tensor:
        return key.fold(round).integers(clients, self.low, self.high)


@dataclass(frozen=True)
class NormalSteps(StepCounts):
    """Local steps drawn from a normal distribution, anew for every client and round (Wang 2021 Fig. 2b).

        τ_i(t) = round(N(mean, std²)), then bounded by `low` and `high`

    The paper says mean 30 and a range of [1, 96]; `std` = 16 is what makes that range of 36,000 draws
    likely.
    """

    mean: float = 30.0
    std: float = 16.0
    low: int = 1
    high: int = 96

    references = ("wang2021fednova",)

    def __post_init__(self) -> None:
        require_number(self, "mean")
        require_number(self, "std", at_least=0)
        require_integer(self, "low", at_least=1)
        require_integer(self, "high", at_least=self.low, at_most=MOST_STEPS)

    def steps_of(self, clients: Tensor, round: int, key: Key) -> Tensor:
        draws = self.mean + self.std * key.fold(round).normal(clients)
        return draws.round().clamp(self.low, self.high).to(torch.int64)


@dataclass(frozen=True)
class TwoGroupEpochs(EpochCounts):
    """Clients below `boundary` draw epochs from the range `first`, the others from `second`.

    Anew in every round, both ends included. With (1, 10) and (20, 30) this is the dynamic setting of Weng 2025.
    """

    boundary: int
    first: tuple[int, int] = (1, 10)
    second: tuple[int, int] = (20, 30)

    references = ("weng2025fedacs",)

    def __post_init__(self) -> None:
        _check_groups(self)

    def epochs_of(self, clients: Tensor, round: int, key: Key) -> Tensor:
        return _draw_by_group(self, clients, round, key)


@dataclass(frozen=True)
class TwoGroupSteps(StepCounts):
    """Clients below `boundary` draw local steps from the range `first`, the others from `second`.

    Anew in every round, both ends included. With (1, 10) and (20, 30) this is the right panel of Weng 2025 Fig. 4.
    """

    boundary: int
    first: tuple[int, int] = (1, 10)
    second: tuple[int, int] = (20, 30)

    references = ("weng2025fedacs",)

    def __post_init__(self) -> None:
        _check_groups(self)

    def steps_of(self, clients: Tensor, round: int, key: Key) -> Tensor:
        return _draw_by_group(self, clients, round, key)


@dataclass(frozen=True)
class RandomEpochsAndBatches(WorkModel):
    """Epochs and batch size both drawn for every client and round: *hybrid+* of Zeng 2023.

        E_i ~ U{low, ..., high},   B_i ~ U{min_batch_size, ..., n_i},   K_i = E_i·⌈n_i/B_i⌉

    Symbols: n_i the client's examples. A client with fewer than `min_batch_size` uses all of them at every
    step. The epochs are those that `RandomEpochs` with the same range draws.

    Differs from the paper, whose K_i = ⌊E_i n_i/B_i⌋ drops the last partial batch and is 0 for some
    draws; the released code keeps it, as here, and never draws B_i = n_i.
    """

    low: int = 2
    high: int = 5
    min_batch_size: int = 10

    references = ("zeng2023gradient",)

    def __post_init__(self) -> None:
        require_integer(self, "low", at_least=1)
        require_integer(self, "high", at_least=self.low, at_most=MOST_STEPS)
        require_integer(self, "min_batch_size", at_least=1, at_most=MOST_STEPS)

    def workload(self, clients: Tensor, sizes: Tensor, solver: LocalSolver, round: int, key: Key) -> Workload:
        key = key.fold(round)
        epochs = key.integers(clients, self.low, self.high)
        batches = key.fold("batch").integers(clients, sizes.clamp(max=self.min_batch_size), sizes)
        return Workload(epochs_to_steps(epochs, sizes, batches), batches)


def _check_groups(work: TwoGroupEpochs | TwoGroupSteps) -> None:
    freeze_lists(work)
    require_integer(work, "boundary", at_least=0)
    for field in ("first", "second"):
        require_counts(work, field, getattr(work, field))
        require_range(work, field, 1)


def _draw_by_group(work: TwoGroupEpochs | TwoGroupSteps, clients: Tensor, round: int, key: Key) -> Tensor:
    is_first = clients < work.boundary
    low = torch.where(is_first, work.first[0], work.second[0])
    high = torch.where(is_first, work.first[1], work.second[1])
    return key.fold(round).integers(clients, low, high)
