"""Local work of each client in each round."""

from abc import ABC, abstractmethod
from dataclasses import dataclass, replace
from typing import Annotated, Literal, NamedTuple, TypeAlias

import torch
from torch import Tensor

from fairlead.component import Finite, NaturalNumber, NotNegative, Positive, WholeList, WholeRange
from fairlead.conditions.base import COUNTS, AscendingPair, Condition, PositiveCounts, entries_of
from fairlead.conditions.devices import DeviceProfile
from fairlead.conditions.traces import replay, require_trace_path
from fairlead.errors import ClashError, FieldError, field_error, require_integer
from fairlead.local_solver import MOST_EXAMPLES, MOST_STEPS, LocalSolver, epochs_to_steps
from fairlead.randomness import Key

Speed: TypeAlias = DeviceProfile | None
"""Speed of the given clients, None in a world without devices."""


class Workload(NamedTuple):
    """Local work of some clients in one round."""

    num_steps: Tensor
    """(c,) 0 for a client without examples."""
    batch_sizes: Tensor
    """(c,) examples a step."""


class WorkModel(Condition, ABC):
    """Decides the workload of any set of clients in a round."""

    @abstractmethod
    def workload(
        self, clients: Tensor, sizes: Tensor, solver: LocalSolver, round: int, key: Key, devices: Speed = None
    ) -> Workload:
        """Work of the given clients, which hold `sizes` examples; a model with `needs_devices` reads `devices`."""

    def planned(
        self, clients: Tensor, sizes: Tensor, solver: LocalSolver, round: int, key: Key, devices: Speed = None
    ) -> Workload:
        """The same, refused where a client would take more than `MOST_STEPS`."""
        work = self.workload(clients, sizes, solver, round, key, devices)
        longest = int(work.num_steps.max()) if len(clients) else 0
        if longest > MOST_STEPS:
            field = "LocalSolver.epochs" if isinstance(self, EqualWork) else type(self).__name__
            raise FieldError(
                f"{field} must give every client at most {MOST_STEPS} local steps a round, got {longest} for client "
                f"{int(clients[work.num_steps.argmax()])} in round {round + 1}."
            )
        return work


class CountedWork(WorkModel, ABC):
    """Family of models that count epochs or steps: a subclass implements `counts`."""

    @abstractmethod
    def counts(self, clients: Tensor, round: int, key: Key) -> Tensor:
        """Epochs or steps of the given clients, (c,) int64."""


class EpochCounts(CountedWork, ABC):
    """Models that count passes over the data, in batches of the solver's size."""

    def workload(
        self, clients: Tensor, sizes: Tensor, solver: LocalSolver, round: int, key: Key, devices: Speed = None
    ) -> Workload:
        batches = solver.batches(sizes)
        return Workload(epochs_to_steps(self.counts(clients, round, key), sizes, batches), batches)


class StepCounts(CountedWork, ABC):
    """Models that count local steps, independent of the number of examples."""

    def workload(
        self, clients: Tensor, sizes: Tensor, solver: LocalSolver, round: int, key: Key, devices: Speed = None
    ) -> Workload:
        steps = self.counts(clients, round, key)
        return Workload(torch.where(sizes > 0, steps, 0), solver.batches(sizes))


@dataclass(frozen=True)
class EqualWork(WorkModel):
    """Every client does the solver's number of epochs or steps."""

    def workload(
        self, clients: Tensor, sizes: Tensor, solver: LocalSolver, round: int, key: Key, devices: Speed = None
    ) -> Workload:
        return Workload(solver.count_steps(sizes), solver.batches(sizes))


@dataclass(frozen=True)
class FixedEpochs(EpochCounts):
    """Each client does its own number of epochs, the same in every round."""

    epochs: PositiveCounts

    per_client = ("epochs",)

    def counts(self, clients: Tensor, round: int, key: Key) -> Tensor:
        return torch.tensor(entries_of(self, "epochs", self.epochs, clients), dtype=torch.int64)


@dataclass(frozen=True)
class FixedSteps(StepCounts):
    """Each client takes its own number of local steps, the same in every round."""

    steps: PositiveCounts

    per_client = ("steps",)

    def counts(self, clients: Tensor, round: int, key: Key) -> Tensor:
        return torch.tensor(entries_of(self, "steps", self.steps, clients), dtype=torch.int64)


@dataclass(frozen=True)
class _Ladder:
    """Counts that rise from client to client."""

    first: Annotated[int, WholeRange(1, MOST_STEPS)] = 1
    increment: Annotated[int, WholeRange(0, MOST_STEPS)] = 2

    def counts(self, clients: Tensor, round: int, key: Key) -> Tensor:
        return self.first + clients * self.increment


@dataclass(frozen=True)
class LadderEpochs(_Ladder, EpochCounts):
    """Client i does `first` + i·`increment` epochs in every round (Weng 2025 §I.3.1: 1, 3, ..., 39)."""

    references = ("weng2025fedacs",)


@dataclass(frozen=True)
class LadderSteps(_Ladder, StepCounts):
    """Client i takes `first` + i·`increment` local steps in every round (Weng 2025 Fig. 7: 1, 3, ..., 39)."""

    references = ("weng2025fedacs",)


@dataclass(frozen=True)
class ScriptedWork(StepCounts):
    """Replays given numbers of steps: one row per round, one column per client, then again."""

    steps: tuple[PositiveCounts, ...]

    per_client = ("steps",)

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.steps:
            raise field_error(self, "steps", "at least one row", self.steps)

    def counts(self, clients: Tensor, round: int, key: Key) -> Tensor:
        row = self.steps[round % len(self.steps)]
        return torch.tensor(entries_of(self, "steps", row, clients), dtype=torch.int64)


@dataclass(frozen=True)
class _Uniform:
    """Counts drawn uniformly, anew for every client and round."""

    low: int
    high: int

    def __post_init__(self) -> None:
        _require_bounds(self)

    def counts(self, clients: Tensor, round: int, key: Key) -> Tensor:
        return key.fold(round).integers(clients, self.low, self.high)


@dataclass(frozen=True)
class RandomEpochs(_Uniform, EpochCounts):
    """A number of epochs drawn uniformly from `low` to `high` for every client in every round (Wang 2021: U(2, 5))."""

    references = ("wang2021fednova",)


@dataclass(frozen=True)
class RandomSteps(_Uniform, StepCounts):
    """Local steps drawn uniformly from `low` to `high`, anew for every client and round."""


@dataclass(frozen=True)
class NormalSteps(StepCounts):
    """Local steps drawn from a normal distribution, anew for every client and round (Wang 2021 Fig. 2b).

        τ_i(t) = round(N(mean, std²)), then bounded by `low` and `high`

    The paper says mean 30 and a range of [1, 96]; `std` = 16 is what makes that range of 36,000 draws
    likely.
    """

    mean: Finite = 30.0
    std: NotNegative = 16.0
    low: int = 1
    high: int = 96

    references = ("wang2021fednova",)

    def __post_init__(self) -> None:
        super().__post_init__()
        _require_bounds(self)

    def counts(self, clients: Tensor, round: int, key: Key) -> Tensor:
        draws = self.mean + self.std * key.fold(round).normal(clients)
        return draws.round().clamp(self.low, self.high).to(torch.int64)


@dataclass(frozen=True)
class _TwoGroups:
    """Counts drawn from two ranges, anew in every round."""

    boundary: NaturalNumber
    first: Annotated[tuple[int, int], COUNTS, AscendingPair(1)] = (1, 10)
    second: Annotated[tuple[int, int], COUNTS, AscendingPair(1)] = (20, 30)

    def counts(self, clients: Tensor, round: int, key: Key) -> Tensor:
        is_first = clients < self.boundary
        low = torch.where(is_first, self.first[0], self.second[0])
        high = torch.where(is_first, self.first[1], self.second[1])
        return key.fold(round).integers(clients, low, high)


@dataclass(frozen=True)
class TwoGroupEpochs(_TwoGroups, EpochCounts):
    """Clients below `boundary` draw epochs from the range `first`, the others from `second`.

    Anew in every round, both ends included. With (1, 10) and (20, 30) this is the dynamic setting of Weng 2025.
    """

    references = ("weng2025fedacs",)


@dataclass(frozen=True)
class TwoGroupSteps(_TwoGroups, StepCounts):
    """Clients below `boundary` draw local steps from the range `first`, the others from `second`.

    Anew in every round, both ends included. With (1, 10) and (20, 30) this is the right panel of Weng 2025 Fig. 4.
    """

    references = ("weng2025fedacs",)


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
    min_batch_size: Annotated[int, WholeRange(1, MOST_EXAMPLES)] = 10

    references = ("zeng2023gradient",)

    def __post_init__(self) -> None:
        super().__post_init__()
        _require_bounds(self)

    def workload(
        self, clients: Tensor, sizes: Tensor, solver: LocalSolver, round: int, key: Key, devices: Speed = None
    ) -> Workload:
        key = key.fold(round)
        epochs = key.integers(clients, self.low, self.high)
        batches = key.fold("batch").integers(clients, sizes.clamp(max=self.min_batch_size), sizes)
        return Workload(epochs_to_steps(epochs, sizes, batches), batches)


def _require_bounds(work: _Uniform | NormalSteps | RandomEpochsAndBatches) -> None:
    require_integer(work, "low", at_least=1)
    require_integer(work, "high", at_least=work.low, at_most=MOST_STEPS)


@dataclass(frozen=True)
class TraceWork(WorkModel):
    """Replays the local steps in a trace (`fairlead.conditions.traces`), then again from its first round.

    `path` names a CSV file or JSON lines with the columns round, client, steps and, if the trace knows it,
    batch_size; the solver's batch size otherwise. `missing` says what a client does in a round without
    an entry: "refuse" stops the run, "hold" repeats its latest entry, "absent" means no work. 0 steps mean absence
    too.
    """

    path: str
    missing: Literal["refuse", "hold", "absent"] = "refuse"

    replayed = {"path": ("steps", "batch_size")}

    def __post_init__(self) -> None:
        super().__post_init__()
        require_trace_path(self, self.path)

    def workload(
        self, clients: Tensor, sizes: Tensor, solver: LocalSolver, round: int, key: Key, devices: Speed = None
    ) -> Workload:
        values, known = replay(self, self.path, self.replayed["path"], self.missing, clients, round)
        steps, batch_sizes = values.unbind(1)
        batches = torch.where(known & (batch_sizes > 0), batch_sizes.minimum(sizes), solver.batches(sizes))
        return Workload(torch.where(known & (sizes > 0), steps, 0), batches)


@dataclass(frozen=True)
class TimeBudget(WorkModel):
    """Every client takes as many local steps as its device can within the same `seconds` (Wang 2021 §II).

        K_i = max{k : seconds of k steps ≤ budget}, bounded by `min_steps` and `max_steps`

    The budget covers computing; latency and transmission come on top. `min_steps` = 0 leaves out clients
    that cannot finish a single step; with 1 they are late instead. Batches are the solver's.
    """

    seconds: Positive
    min_steps: Annotated[int, WholeRange(0, MOST_STEPS)] = 1
    max_steps: int | None = None

    references = ("wang2021fednova",)
    needs_devices = True

    def __post_init__(self) -> None:
        super().__post_init__()
        require_integer(self, "max_steps", at_least=max(1, self.min_steps), at_most=MOST_STEPS, optional=True)

    def workload(
        self, clients: Tensor, sizes: Tensor, solver: LocalSolver, round: int, key: Key, devices: Speed = None
    ) -> Workload:
        if devices is None:
            raise ClashError("TimeBudget needs devices that define the time of a local step.")
        batches = solver.batches(sizes)
        steps = torch.where(sizes > 0, devices.steps_within(self.seconds, batches, sizes), 0.0)
        steps = steps.clamp(min=self.min_steps, max=self.max_steps)
        if bool(steps.isinf().any()):
            client = int(clients[steps.isinf()][0])
            raise FieldError(
                f"TimeBudget.max_steps must be given: the device of client {client} takes no time."
            )
        # Beyond 64 bits, the number would turn negative.
        return Workload(torch.where(sizes > 0, steps, 0.0).clamp(max=2**62).to(torch.int64), batches)


@dataclass(frozen=True)
class FixedBatchSizes(WorkModel):
    """Each client has its own batch size, the same in every round; `work` sets epochs or steps.

    Reduces to `work` where all batch sizes are the solver's.
    """

    batch_sizes: Annotated[tuple[int, ...], WholeList(1, MOST_EXAMPLES, fewest=1)]
    work: WorkModel = EqualWork()

    per_client = ("batch_sizes",)

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.work.needs_devices:
            raise field_error(self, "work", "independent of the speed of devices", self.work)

    def workload(
        self, clients: Tensor, sizes: Tensor, solver: LocalSolver, round: int, key: Key, devices: Speed = None
    ) -> Workload:
        own = torch.tensor(entries_of(self, "batch_sizes", self.batch_sizes, clients), dtype=torch.int64)
        steps, batches = torch.zeros_like(sizes), torch.zeros_like(sizes)
        for batch_size in sorted(set(own.tolist())):
            chosen = own == batch_size
            part = self.work.workload(
                clients[chosen], sizes[chosen], replace(solver, batch_size=batch_size), round, key
            )
            steps[chosen], batches[chosen] = part.num_steps, part.batch_sizes
        return Workload(steps, batches)
