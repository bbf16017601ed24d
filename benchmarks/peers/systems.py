"""The systems that are compared, and how each is found."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from importlib import import_module
from itertools import pairwise
from typing import ClassVar, NamedTuple

import torch
from benchmarks.peers.problem import Problem
from benchmarks.peers.stand_ins import stand_ins
from torch import Tensor


class Pass(NamedTuple):
    """One run over the first rounds of a problem."""

    seconds: tuple[float, ...]
    """Of each round."""
    params: Tensor
    """The global model afterwards, (d,) float64 on the CPU."""


def durations(marks: Sequence[float]) -> tuple[float, ...]:
    """Seconds between the start, the end of the first round, and so on."""
    return tuple(end - start for start, end in pairwise(marks))


class System(ABC):
    """A simulator set up for a problem."""

    setup: ClassVar[str]
    """How it was set up, in one sentence."""
    in_this_process: ClassVar[bool] = True
    """Whether its work is done here, so that the processor time of this process is its own."""

    def __init__(self, problem: Problem) -> None:
        self.problem = problem

    @abstractmethod
    def run(self, rounds: int) -> Pass:
        """Train `rounds` rounds from the start."""

    @property
    def choice(self) -> str | None:
        """What the system chose by itself, where it does: its engine."""
        return None


class Batches:
    """Batches of a client's epochs: each iteration is the next epoch, gathered at once and sliced."""

    def __init__(self, problem: Problem, round: int, client: int) -> None:
        self._problem, self._round, self._client = problem, round, client
        self._epoch = 0

    def __iter__(self) -> Iterator[tuple[Tensor, Tensor]]:
        inputs, targets = self._problem.epoch(self._round, self._client, self._epoch)
        self._epoch += 1
        size = self._problem.workload.batch_size
        return zip(torch.split(inputs, size), torch.split(targets, size), strict=True)

    def __len__(self) -> int:
        """Examples, not batches."""
        return int(self._problem.clients.sizes[self._client])


@dataclass(frozen=True)
class Listing:
    """Where a system is and how to get it."""

    module: str
    packages: tuple[str, ...]
    pip: str


LISTINGS: dict[str, Listing] = {
    "fairlead": Listing("fairlead_system", ("fairlead",), "fairlead"),
    "pfl": Listing("pfl_system", ("pfl",), "'pfl[pytorch]==0.6.0'"),
    "pfl-workers": Listing("pfl_workers_system", ("pfl",), "'pfl[pytorch]==0.6.0'"),
    "fedlab": Listing("fedlab_system", ("fedlab",), "fedlab==1.3.0"),
    "flower": Listing("flower_system", ("flwr", "ray"), "'flwr[simulation]==1.41.0'"),
}


class Found(NamedTuple):
    """A system that can be imported."""

    system: type[System]
    replaced: tuple[str, ...]
    """Packages that were missing and never called."""


def find_system(name: str) -> Found:
    """The class of a system; `ImportError` where it is not installed."""
    with stand_ins() as used:
        module = import_module(f"benchmarks.peers.{LISTINGS[name].module}")
    system: type[System] = module.SYSTEM
    return Found(system, tuple(sorted(used)))
