"""Reproductions that are computed at once: limits of simulations against theory, statistics of splits."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from time import perf_counter

from fairlead import __version__
from fairlead.experiments.provenance import git_commit
from fairlead.reproductions.claims import Cell
from fairlead.reproductions.data_sets import require_data
from fairlead.reproductions.reproduction import (
    Measured,
    NotRunError,
    Reproduction,
    Request,
    Scale,
    machine,
    today,
)

Measurement = Callable[[Request, int], Mapping[Cell, float]]
"""The figures at a seed."""


@dataclass(frozen=True, kw_only=True)
class Computed(Reproduction):
    """A reproduction whose figures are a function of scale, data and seed.

    Its claims are tested at every scale but those that are left out of `judged_at`.
    """

    compute: Measurement
    what: Mapping[Scale, str] | str
    """What is computed, at all scales or by scale, in one line."""
    figures: str = ""
    """What the figures are, where columns do not say it themselves."""
    data: tuple[str, ...] = ()
    judged_at: tuple[Scale, ...] = ("smoke", "small", "full")
    on_device: bool = False
    """Whether it is computed where the request says, not on the CPU whatever that says."""

    @property
    def needs(self) -> tuple[str, ...]:
        return self.data

    @property
    def parts(self) -> tuple[str, ...]:
        return ()

    @property
    def heeds(self) -> frozenset[str]:
        return frozenset([*(["data"] if self.data else []), *(["device"] if self.on_device else [])])

    def judges(self, scale: Scale) -> bool:
        return scale in self.judged_at

    @property
    def measured(self) -> str:
        return self.figures

    def describe(self, scale: Scale) -> str:
        return self.what if isinstance(self.what, str) else self.what[scale]

    def measure(self, request: Request) -> Measured:
        if request.collect is not None:
            raise NotRunError("It is computed at once: there are no runs to collect.")
        require_data(self.data, request.data)
        started = perf_counter()
        results: dict[Cell, dict[int, float]] = {}
        for seed in request.seeds:
            for cell, value in self.compute(request, seed).items():
                results.setdefault(cell, {})[seed] = value
        seconds, device = perf_counter() - started, request.device if self.on_device else "cpu"
        return Measured(results, seconds, machine(device), __version__, git_commit(), today())
