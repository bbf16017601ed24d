"""The map of engines: every path by which local steps are computed, and the one that takes given jobs."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal

from fairlead.worlds.engines.base import LocalJobs, Objective, Path
from fairlead.worlds.engines.dense import ClosedForm, MlpTriton
from fairlead.worlds.engines.dense_cpu import DenseCpu
from fairlead.worlds.engines.lane_gradients import STACKED, Branches
from fairlead.worlds.engines.loop import LoopEngine
from fairlead.worlds.engines.softmax_kernels import SoftmaxNumba, SoftmaxTriton

PATHS: tuple[Path, ...] = (
    SoftmaxNumba(),
    SoftmaxTriton(),
    DenseCpu(),
    MlpTriton(),
    ClosedForm(),
    *STACKED,
    Branches(),
    LoopEngine(),
)
"""Fastest first. A new path is one entry here."""

Backend = Literal["stacked", "branches"]
"""Whether lanes share batched products, or each has a forward and backward pass of its own."""


def path_for(backend: Backend, device: str, objective: Objective, jobs: LocalJobs) -> Path:
    """The first path for lanes of this back end on this kind of device that takes the jobs."""
    return next(path for path, refused in asked(backend, device, objective, jobs) if refused is None)


def asked(
    backend: Backend, device: str, objective: Objective, jobs: LocalJobs
) -> Iterator[tuple[Path, str | None]]:
    """Each path for such lanes in turn, with the reason why it does not take the jobs."""
    engine = "batched" if backend == "stacked" else backend
    for path in PATHS:
        if path.engine == engine and device in path.devices:
            yield path, path.missing() or path.refusal(objective, jobs)
