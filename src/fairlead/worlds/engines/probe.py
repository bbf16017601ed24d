"""A small measured trial of an engine on made-up work for the user's model and data."""

from __future__ import annotations

from time import perf_counter

import torch

from fairlead.errors import EngineError
from fairlead.local_solver import LocalSolver
from fairlead.optimizers.sgd import SGD
from fairlead.worlds.engines.base import LocalJobs, LocalSteps, Objective
from fairlead.worlds.engines.graphs import GraphEngine
from fairlead.worlds.engines.lane_gradients import Backend

_CLIENTS, _STEPS, _BATCH, _REPEATS = 8, 8, 32, 3


def seconds_per_step(objective: Objective, backend: Backend) -> float:
    """Time of one step of eight clients in captured graphs; raises where they cannot be captured."""
    jobs, engine = _trial_jobs(objective), GraphEngine(_CLIENTS, backend)
    try:
        engine.run(objective, jobs)
        torch.cuda.synchronize()
        taken = []
        for _ in range(_REPEATS):
            started = perf_counter()
            engine.run(objective, jobs)
            torch.cuda.synchronize()
            taken.append(perf_counter() - started)
    except EngineError:
        raise
    except RuntimeError as error:
        reason = str(error).splitlines()[0]
        raise EngineError(
            f"The steps of {type(objective.model.module).__name__} cannot be captured in a CUDA graph: {reason} "
            'Keep values on the device, without .item() or control flow on them, or use engine="loop".'
        ) from error
    return min(taken) / _STEPS


def _trial_jobs(objective: Objective) -> LocalJobs:
    model, num_rows = objective.model, len(objective.data.inputs)
    rows = torch.arange(_CLIENTS * _STEPS * _BATCH).view(_CLIENTS, _STEPS, _BATCH) % num_rows
    return LocalJobs(
        clients=range(_CLIENTS),
        steps=LocalSteps(
            solver=LocalSolver(SGD(lr=0.0), steps=_STEPS, batch_size=_BATCH),
            batches=list(rows),
            noise=[torch.zeros(_STEPS + 1, dtype=torch.int64)] * _CLIENTS,
            step_lrs=torch.zeros(_STEPS, dtype=torch.float64),
        ),
        anchor=model.initial_params(),
        buffers=model.initial_buffers(),
        shared={},
        memory={},
    )
