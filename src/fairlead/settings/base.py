"""What a published setting is, and the table of them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import ParamSpec

from fairlead.clients import ClientSource, Partitioner, PooledSource
from fairlead.conditions import EqualWork, LinkModel, PerfectLink, WorkModel
from fairlead.errors import ClashError
from fairlead.local_solver import LocalSolver
from fairlead.methods import ClientSide

Arguments = ParamSpec("Arguments")


@dataclass(frozen=True)
class Setting:
    """What a paper fixes about its clients."""

    num_clients: int | None
    """None: as many as the data name."""
    solver: LocalSolver
    """What clients do with plain SGD."""
    cohort_size: int | None = None
    """Clients asked in a round; None: all."""
    rounds: int | None = None
    """None where the paper does not say."""
    partition: Partitioner | None = None
    """How a pooled data set is dealt; None where the paper makes its own data."""
    clients: ClientSource | None = None
    """The data that the paper makes; None where it deals a pooled data set."""
    work: WorkModel = EqualWork()
    link: LinkModel = PerfectLink()

    def deal(self, source: PooledSource) -> PooledSource:
        """A pooled data set, dealt to this setting's clients."""
        if self.partition is None:
            raise ClashError(
                f"This setting makes its own data and cannot deal {type(source).__name__}: take its clients."
            )
        return replace(source, num_clients=self.num_clients, partition=self.partition)

    def client_side(self) -> ClientSide:
        """What every preset takes: learning rate, local work and how many are asked."""
        solver = self.solver
        side = ClientSide(lr=solver.optimizer.lr, batch_size=solver.batch_size, cohort_size=self.cohort_size)
        if solver.steps is None:
            side["epochs"] = solver.epochs
        else:
            side["steps"] = solver.steps
        return side


@dataclass(frozen=True)
class PublishedSetting:
    """A setting with what is known of it."""

    name: str
    build: Callable[..., Setting]
    references: tuple[str, ...]


SETTINGS: dict[str, PublishedSetting] = {}


def published(
    *references: str,
) -> Callable[[Callable[Arguments, Setting]], Callable[Arguments, Setting]]:
    """Enter a setting into the table."""

    def enter(build: Callable[Arguments, Setting]) -> Callable[Arguments, Setting]:
        SETTINGS[build.__name__] = PublishedSetting(build.__name__, build, references)
        return build

    return enter
