"""The map of engines: every path by which local steps are computed, and the one that takes given jobs."""

from collections.abc import Iterator
from typing import Literal

from torch import Tensor

from fairlead.worlds.engines.base import LocalJobs, Objective, Path, StackedLosses, StackedPath
from fairlead.worlds.engines.dense import BatchedProducts, ClosedForm, MlpTriton
from fairlead.worlds.engines.dense_cpu import DenseCpu
from fairlead.worlds.engines.lane_gradients import Branches, OwnStack, Vmap
from fairlead.worlds.engines.loop import LoopEngine
from fairlead.worlds.engines.softmax_kernels import SoftmaxNumba, SoftmaxTriton

Backend = Literal["stacked", "branches"]
"""Whether lanes share batched products, or each has a forward and backward pass of its own."""


STACKED: tuple[StackedPath, ...] = (OwnStack(), BatchedProducts(), Vmap())
"""Fastest first."""


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


def stacked_losses(objective: Objective, buffers: Tensor) -> StackedLosses:
    """Losses by the first of `STACKED` that takes the model."""
    path = next(path for path in STACKED if path.refusal(objective) is None)
    return path.losses(objective, buffers)


def has_own_stack(objective: Objective) -> bool:
    """Whether the model runs in lanes by batched products rather than by `vmap`."""
    return any(path.refusal(objective) is None for path in STACKED if not isinstance(path, Vmap))


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
