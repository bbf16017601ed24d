"""Kernels for all local steps of small dense models: the loop engine's numbers, or nothing at all."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

import fairlead as fl
from fairlead.models.augmentation import Augmentation, InputPipeline
from fairlead.parameters import FlatModule
from fairlead.task import PerExample, cross_entropy, squared_error
from fairlead.worlds.engines import dense_numba
from fairlead.worlds.engines.base import LocalJobs, LocalSteps, Objective
from fairlead.worlds.engines.dense_cpu import DenseCpu
from fairlead.worlds.engines.dense_numba import DenseNumba
from fairlead.worlds.engines.loop import LoopEngine
from fairlead.worlds.engines.paths import BatchedEngine
from fairlead.worlds.engines.softmax_kernels import SoftmaxTriton
from fairlead.worlds.executor import draw_batches

SIZES, STEPS = (7, 1, 4, 30, 3), (5, 3, 6, 4, 1)
PLAIN = fl.LocalSolver(fl.SGD(0.3), batch_size=3)


def kernel(device: torch.device) -> DenseNumba | SoftmaxTriton:
    return SoftmaxTriton() if device.type == "cuda" else DenseNumba()


def precisions(device: torch.device) -> dict[torch.dtype, float]:
    """How far a kernel may be from the loop engine: relative to the longest update."""
    return {torch.float32: 1e-5} if device.type == "cuda" else {torch.float32: 1e-5, torch.float64: 1e-12}


def problem(
    device: torch.device,
    dtype: torch.dtype,
    model: nn.Module | None = None,
    inputs: Tensor | None = None,
    targets: Tensor | None = None,
    loss: PerExample = cross_entropy,
    augment: tuple[Augmentation, ...] = (),
) -> Objective:
    """Five clients with 7, 1, 4, 30 and 3 examples of 6 numbers and 3 classes."""
    draw = torch.Generator().manual_seed(0)
    drawn = torch.randn(sum(SIZES), 6, generator=draw), torch.randint(0, 3, (sum(SIZES),), generator=draw)
    offsets = torch.tensor([0, *SIZES]).cumsum(0)
    data = fl.ClientData(
        drawn[0] if inputs is None else inputs, drawn[1] if targets is None else targets, offsets
    )
    module = FlatModule(nn.Linear(6, 3) if model is None else model, InputPipeline(augment))
    return Objective.build(module.to(device, dtype), loss, data.to(device, dtype))


def jobs_of(objective: Objective, solver: fl.LocalSolver, batch_size: int = 3) -> LocalJobs:
    """One job per client, of 5, 3, 6, 4 and 1 steps, on batches as a world draws them."""
    key, offsets = fl.Key.from_seed(0), objective.data.offsets.tolist()
    draw = torch.Generator().manual_seed(1)
    like = objective.model.initial_params()
    anchor = (0.3 * torch.randn(len(like), generator=draw, dtype=torch.float64)).to(like)
    batches = [
        draw_batches(first, size, steps, min(batch_size, size), key.fold(client))
        for client, (first, size, steps) in enumerate(zip(offsets, SIZES, STEPS, strict=False))
    ]
    dims = solver.memory_dims(len(like), 0)
    shared = {name: torch.zeros_like(like) for c in solver.corrections for name in c.shared_names}
    remembered = {
        **{name: (len(SIZES), dim) for name, dim in dims.items()},
        **dict.fromkeys(shared, like.shape),
    }
    drawn = {name: 0.1 * torch.randn(shape, generator=draw).to(like) for name, shape in remembered.items()}
    return LocalJobs(
        clients=range(len(SIZES)),
        steps=LocalSteps(
            solver=solver,
            batches=batches,
            noise=[torch.zeros(steps + 1, dtype=torch.int64) for steps in STEPS],
            step_lrs=solver.step_lrs(0, max(STEPS)),
        ),
        anchor=anchor,
        buffers=objective.model.initial_buffers(),
        shared={name: drawn[name] for name in shared},
        memory={name: drawn[name] for name in dims},
    )


def assert_as_the_loop(objective: Objective, jobs: LocalJobs, tolerance: float) -> None:
    path = kernel(objective.device)
    assert path.refusal(objective, jobs) is None
    results = path.run(objective, jobs)
    wanted = LoopEngine().run(objective, jobs)
    far = float(wanted.delta.abs().max())
    assert far > 1e-3
    assert torch.allclose(results.delta, wanted.delta, rtol=tolerance, atol=tolerance * far)
    assert torch.allclose(results.loss, wanted.loss, rtol=tolerance, atol=tolerance)
    assert results.buffers.shape == wanted.buffers.shape


SOLVERS = {
    "plain": PLAIN,
    "weight decay": fl.LocalSolver(fl.SGD(0.3, weight_decay=0.2)),
    "proximal": fl.LocalSolver(fl.SGD(0.3), corrections=(fl.Proximal(0.5),)),
    "both, rate by step": fl.LocalSolver(
        fl.SGD(0.3, weight_decay=0.2),
        corrections=(fl.Proximal(0.5), fl.Proximal(0.2)),
        step_schedule=fl.InverseSquareRoot(),
    ),
}


@pytest.mark.parametrize("solver", SOLVERS.values(), ids=SOLVERS.keys())
@pytest.mark.parametrize("batch_size", [1, 3, 100])
def test_solvers_and_batch_sizes(solver: fl.LocalSolver, batch_size: int, device: torch.device) -> None:
    """Batches of 3 leave partial ones; 100 is more than anyone has."""
    for dtype, tolerance in precisions(device).items():
        objective = problem(device, dtype)
        assert_as_the_loop(objective, jobs_of(objective, solver, batch_size), tolerance)


STEADY = {
    "control variates": (fl.ControlVariates(),),
    "dynamic regularizer": (fl.DynamicRegularizer(0.3),),
    "VRL-SGD and proximal": (fl.VRLSGD(), fl.Proximal(0.2)),
}


@pytest.mark.parametrize("corrections", STEADY.values(), ids=STEADY.keys())
def test_corrections_that_stay_the_same_in_all_steps(corrections: tuple[fl.Correction, ...]) -> None:
    """`DenseCpu` adds them to its plain steps too."""
    solver = fl.LocalSolver(fl.SGD(0.3, weight_decay=0.1), corrections=corrections, batch_size=3)
    cpu = torch.device("cpu")
    for dtype, tolerance in precisions(cpu).items():
        objective = problem(cpu, dtype, nn.Sequential(nn.Linear(6, 4), nn.ReLU(), nn.Linear(4, 3)))
        jobs = jobs_of(objective, solver)
        assert_as_the_loop(objective, jobs, tolerance)
        other, wanted = DenseCpu().run(objective, jobs), LoopEngine().run(objective, jobs)
        assert torch.allclose(other.delta, wanted.delta, rtol=tolerance, atol=tolerance)


STACKS = {
    "ReLU": nn.Sequential(nn.Linear(6, 5), nn.ReLU(), nn.Linear(5, 3)),
    "tanh": nn.Sequential(nn.Linear(6, 20), nn.Tanh(), nn.Linear(20, 3, bias=False)),
    "sigmoid": nn.Sequential(nn.Linear(6, 17, bias=False), nn.Identity(), nn.Sigmoid(), nn.Linear(17, 3)),
    "three layers": nn.Sequential(
        nn.Flatten(), nn.Linear(6, 33), nn.ReLU(), nn.Linear(33, 16), nn.Tanh(), nn.Linear(16, 3)
    ),
    "no activation": nn.Sequential(nn.Linear(6, 2), nn.Linear(2, 3)),
}


@pytest.mark.parametrize("model", STACKS.values(), ids=STACKS.keys())
@pytest.mark.parametrize("loss", [cross_entropy, squared_error])
def test_stacks_of_layers(model: nn.Sequential, loss: PerExample) -> None:
    draw = torch.Generator().manual_seed(5)
    targets = None if loss is cross_entropy else torch.randn(sum(SIZES), 3, generator=draw)
    cpu = torch.device("cpu")
    for dtype, tolerance in precisions(cpu).items():
        objective = problem(cpu, dtype, model, targets=targets, loss=loss)
        assert_as_the_loop(objective, jobs_of(objective, SOLVERS["both, rate by step"]), tolerance)


def test_nan_stays() -> None:
    """Behind a ReLU too."""
    objective = problem(torch.device("cpu"), torch.float32, STACKS["ReLU"])
    jobs = jobs_of(objective, PLAIN)
    jobs.anchor[0] = torch.nan
    assert DenseNumba().run(objective, jobs).loss.isnan().all()


@pytest.mark.parametrize("width", [1, 6, 16, 33, 784])
@pytest.mark.parametrize("num_classes", [2, 10])
@pytest.mark.parametrize("bias", [True, False])
def test_layers_of_every_shape(width: int, num_classes: int, bias: bool, device: torch.device) -> None:
    draw = torch.Generator().manual_seed(2)
    inputs = torch.randn(sum(SIZES), width, generator=draw, dtype=torch.float64) / width**0.5
    targets = torch.randint(0, num_classes, (sum(SIZES),), generator=draw)
    for dtype, tolerance in precisions(device).items():
        model = nn.Linear(width, num_classes, bias=bias)
        objective = problem(device, dtype, model, inputs, targets)
        assert_as_the_loop(objective, jobs_of(objective, PLAIN, 20), tolerance)


def test_pixels(device: torch.device) -> None:
    """Bytes are divided by 255 in the kernel, and images are flattened."""
    draw = torch.Generator().manual_seed(3)
    pixels = torch.randint(0, 256, (sum(SIZES), 2, 3), generator=draw, dtype=torch.uint8)
    for dtype, tolerance in precisions(device).items():
        objective = problem(device, dtype, nn.Sequential(nn.Flatten(), nn.Linear(6, 3)), pixels)
        assert_as_the_loop(objective, jobs_of(objective, PLAIN), tolerance)


def test_examples_without_target(device: torch.device) -> None:
    """A target of -100 adds no loss, but counts in the mean over the batch."""
    targets = torch.arange(sum(SIZES)) % 3
    targets[::4] = -100
    for dtype, tolerance in precisions(device).items():
        objective = problem(device, dtype, targets=targets)
        assert_as_the_loop(objective, jobs_of(objective, PLAIN), tolerance)


def test_padding_anywhere_in_a_batch(device: torch.device) -> None:
    for dtype, tolerance in precisions(device).items():
        objective = problem(device, dtype)
        jobs = jobs_of(objective, PLAIN)
        backwards = [batches.flip(1) for batches in jobs.steps.batches]
        jobs = replace(jobs, steps=replace(jobs.steps, batches=backwards))
        assert_as_the_loop(objective, jobs, tolerance)


def test_scores_beyond_the_range_of_exp(device: torch.device) -> None:
    """Inputs of 1e4 make softmax exact zeros and ones; the loss stays finite."""
    draw = torch.Generator().manual_seed(4)
    inputs = 1e4 * torch.randn(sum(SIZES), 6, generator=draw, dtype=torch.float64)
    for dtype, tolerance in precisions(device).items():
        objective = problem(device, dtype, inputs=inputs)
        jobs = jobs_of(objective, fl.LocalSolver(fl.SGD(1e-6)))
        assert_as_the_loop(objective, jobs, tolerance)


def test_a_repetition_and_any_number_of_threads_give_the_same_bits(device: torch.device) -> None:
    objective = problem(device, torch.float32)
    jobs = jobs_of(objective, PLAIN)
    before = torch.get_num_threads()
    results = []
    try:
        for threads in (1, 1, 2, 3):
            torch.set_num_threads(threads)
            results.append(kernel(device).run(objective, jobs))
    finally:
        torch.set_num_threads(before)
    first, *others = results
    for other in others:
        assert torch.equal(first.delta, other.delta)
        assert torch.equal(first.loss, other.loss)


@pytest.mark.parametrize(
    "solver",
    [
        fl.LocalSolver(fl.SGD(0.3, momentum=0.5)),
        fl.LocalSolver(fl.SGD(0.3), clip=1.0),
        fl.LocalSolver(fl.Adam(0.3)),
        fl.LocalSolver(fl.SGD(0.3), corrections=(fl.ClientMomentum(0.5),)),
    ],
    ids=["momentum", "clipping", "Adam", "client momentum"],
)
def test_other_solvers_are_left_to_the_engine(solver: fl.LocalSolver, device: torch.device) -> None:
    objective = problem(device, torch.float32)
    assert kernel(device).refusal(objective, jobs_of(objective, solver))


def smoothed(outputs: Tensor, targets: Tensor) -> Tensor:
    return F.cross_entropy(outputs, targets, reduction="none", label_smoothing=0.1)


OTHERS: dict[str, dict[str, Any]] = {
    "other activation": {"model": nn.Sequential(nn.Linear(6, 4), nn.GELU(), nn.Linear(4, 3))},
    "activation": {"model": nn.Sequential(nn.Linear(6, 3), nn.Tanh())},
    "dropout": {"model": nn.Sequential(nn.Dropout(0.5), nn.Linear(6, 3))},
    "loss": {"loss": smoothed},
    "probabilities as targets": {"targets": torch.full((sum(SIZES), 3), 1 / 3)},
    "augmentation": {"augment": (fl.Normalize(0.5, 2.0),)},
    "large": {"model": nn.Linear(6, 3000)},
}


@pytest.mark.parametrize("changes", OTHERS.values(), ids=OTHERS.keys())
def test_other_objectives_are_left_to_the_engine(changes: dict[str, Any], device: torch.device) -> None:
    objective = problem(device, torch.float32, **changes)
    assert kernel(device).refusal(objective, jobs_of(objective, PLAIN))


def test_low_precision_and_no_jobs_are_left_to_the_engine(device: torch.device) -> None:
    objective = problem(device, torch.bfloat16)
    assert kernel(device).refusal(objective, jobs_of(objective, PLAIN))
    objective = problem(device, torch.float32)
    jobs = jobs_of(objective, PLAIN)
    nothing = replace(jobs.steps, batches=[], noise=[])
    assert kernel(device).refusal(objective, replace(jobs, clients=[], steps=nothing))


def test_numba_is_optional(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dense_numba, "has_numba", lambda: False)
    objective = problem(torch.device("cpu"), torch.float32)
    assert DenseNumba().missing() == "Numba is not installed"
    results = BatchedEngine().run(objective, jobs_of(objective, PLAIN))
    assert [(run.path, run.backend) for run in results.ran] == [("dense, client by client", "torch")]
