"""Whether a kernel takes a round's local work, and which one."""

from __future__ import annotations

from importlib.util import find_spec

import torch
from torch import nn

from fairlead.task import cross_entropy
from fairlead.worlds.engines.base import LocalJobs, LocalResults, Objective
from fairlead.worlds.engines.linear import kernel_numba
from fairlead.worlds.engines.linear.work import LinearWork
from fairlead.worlds.engines.plain_descent import PlainDescent, plain_descent
from fairlead.worlds.engines.stacked import dense_layers


def linear_runs(objective: Objective, jobs: LocalJobs) -> LocalResults | None:
    """The local work of every job, or None where no kernel applies.

    Kernels are for one linear layer with cross-entropy, trained by SGD without momentum and clipping, with
    no correction but `Proximal`: on a CPU by Numba if it is installed, in float32 or float64; on a GPU by
    Triton, in float32.
    """
    resident = objective.data.inputs.device == jobs.anchor.device
    descent, layer = plain_descent(jobs.steps.solver), _only_layer(objective)
    if not jobs.steps.batches or not resident or descent is None or layer is None:
        return None
    device, dtype = jobs.anchor.device.type, jobs.anchor.dtype
    size = layer.in_features, layer.out_features
    if device == "cpu" and dtype in (torch.float32, torch.float64) and kernel_numba.fits(*size):
        run = kernel_numba.run_natively
    elif device == "cuda" and dtype == torch.float32 and find_spec("triton") is not None:
        from fairlead.worlds.engines.linear import kernel_triton

        if not kernel_triton.fits(*size, jobs.anchor.device):
            return None
        run = kernel_triton.run_on_gpu
    else:
        return None
    delta, loss = run(_work_of(objective, jobs, layer, descent))
    return LocalResults(delta, loss, jobs.buffers.expand(len(jobs), -1))


def _only_layer(objective: Objective) -> nn.Linear | None:
    """The linear layer that is the whole model, if cross-entropy with classes follows it."""
    layers = None if objective.draws_noise or objective.model.pipeline.steps else dense_layers(objective)
    targets = objective.data.targets
    classes = objective.loss is cross_entropy and targets.ndim == 1 and targets.dtype == torch.int64
    if layers is None or len(layers) != 1 or not classes:
        return None
    return layers[0] if isinstance(layers[0], nn.Linear) else None


def _work_of(objective: Objective, jobs: LocalJobs, layer: nn.Linear, descent: PlainDescent) -> LinearWork:
    inputs = objective.data.inputs
    counts = torch.tensor([batches.numel() for batches in jobs.steps.batches])
    return LinearWork(
        inputs=inputs.flatten(1),
        input_scale=255.0 if inputs.dtype == torch.uint8 else 1.0,
        targets=objective.data.targets,
        rows=torch.cat([batches.flatten() for batches in jobs.steps.batches]),
        starts=counts.cumsum(0) - counts,
        batch_sizes=torch.tensor([batches.shape[1] for batches in jobs.steps.batches]),
        num_steps=torch.tensor(jobs.steps.num_steps),
        lrs=jobs.steps.step_lrs,
        anchor=jobs.anchor,
        num_classes=layer.out_features,
        weight_decay=descent.weight_decay,
        mu=descent.mu,
    )
