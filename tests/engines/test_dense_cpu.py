"""Dense stacks trained client by client in closed form: the loop engine's numbers, whoever works on which core."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import pairwise
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, nn
from torch.nn import functional as F

import fairlead as fl
from fairlead.corrections.base import OWN_MASK
from fairlead.local_solver import LocalSolver
from fairlead.models.augmentation import Augmentation, InputPipeline
from fairlead.parameters import FlatModule
from fairlead.task import PerExample, cross_entropy, squared_error
from fairlead.worlds.engines import dense_cpu as module
from fairlead.worlds.engines import loop as workers
from fairlead.worlds.engines.base import LocalJobs, LocalReturns, LocalSteps, Objective
from fairlead.worlds.engines.dense_cpu import DenseCpu
from fairlead.worlds.engines.loop import LoopEngine
from fairlead.worlds.engines.paths import BatchedEngine
from fairlead.worlds.executor import draw_batches

SIZES, STEPS = (7, 1, 4, 30, 3), (5, 3, 6, 9, 1)
PLAIN = LocalSolver(fl.SGD(0.3), batch_size=3)
DRAW = torch.Generator().manual_seed(0)
INPUTS = torch.randn(sum(SIZES), 6, generator=DRAW, dtype=torch.float64)
CLASSES = torch.randint(0, 3, (sum(SIZES),), generator=DRAW)


@pytest.fixture(autouse=True)
def threads() -> Iterator[None]:
    before = torch.get_num_threads()
    yield
    torch.set_num_threads(before)


def problem(
    model: nn.Module | None = None,
    inputs: Tensor = INPUTS,
    targets: Tensor = CLASSES,
    loss: PerExample = cross_entropy,
    augment: tuple[Augmentation, ...] = (),
    dtype: torch.dtype = torch.float64,
) -> Objective:
    """Five clients with 7, 1, 4, 30 and 3 examples of 6 numbers and 3 classes."""
    data = fl.ClientData(inputs, targets, torch.tensor([0, *SIZES]).cumsum(0))
    default = nn.Sequential(nn.Linear(6, 5), nn.ReLU(), nn.Linear(5, 3))
    cpu = torch.device("cpu")
    flat = FlatModule(default if model is None else model, InputPipeline(augment)).to(cpu, dtype)
    return Objective.build(flat, loss, data.to(cpu, dtype))


def jobs_of(objective: Objective, solver: LocalSolver = PLAIN, batch_size: int = 3) -> LocalJobs:
    """One job per client, of 5, 3, 6, 9 and 1 steps, with something to remember and to share for every part."""
    draw = torch.Generator().manual_seed(1)
    like = objective.model.initial_params()
    dim, offsets = len(like), objective.data.offsets.tolist()
    batches = [
        draw_batches(first, size, steps, min(batch_size, size), fl.Key.from_seed(0).fold(client))
        for client, (first, size, steps) in enumerate(zip(offsets, SIZES, STEPS, strict=False))
    ]
    shared = [name for correction in solver.corrections for name in correction.shared_names]
    own = {} if solver.own_parameters is None else {OWN_MASK: torch.ones_like(like)}
    return LocalJobs(
        clients=range(len(SIZES)),
        steps=LocalSteps(
            solver=solver,
            batches=batches,
            noise=[torch.zeros(steps + 1, dtype=torch.int64) for steps in STEPS],
            step_lrs=solver.step_lrs(0, max(STEPS)),
        ),
        anchor=(0.5 * torch.randn(dim, generator=draw)).to(like),
        buffers=objective.model.initial_buffers(),
        shared={name: torch.randn(dim, generator=draw).to(like) for name in shared} | own,
        memory={
            name: 0.1 * torch.randn(len(SIZES), length, generator=draw).to(like)
            for name, length in solver.memory_dims(dim, 0).items()
        },
    )


def run(objective: Objective, jobs: LocalJobs) -> LocalReturns:
    assert DenseCpu().refusal(objective, jobs) is None
    return DenseCpu().run(objective, jobs)


def assert_as_the_loop(
    results: LocalReturns, objective: Objective, jobs: LocalJobs, tolerance: float = 1e-12
) -> None:
    before = jobs.anchor.clone()
    wanted = LoopEngine().run(objective, jobs)
    assert float(wanted.delta.abs().max()) > 1e-3
    assert torch.allclose(results.delta, wanted.delta, rtol=tolerance, atol=tolerance)
    assert torch.allclose(results.loss, wanted.loss, rtol=tolerance, atol=tolerance)
    assert results.buffers.shape == wanted.buffers.shape
    assert (results.kept is None) == (wanted.kept is None)
    if results.kept is not None and wanted.kept is not None:
        assert float(wanted.kept.abs().max()) > 1e-3
        assert torch.allclose(results.kept, wanted.kept, rtol=tolerance, atol=tolerance)
    assert torch.equal(jobs.anchor, before)


SOLVERS = {
    "plain": PLAIN,
    "weight decay": LocalSolver(fl.SGD(0.3, weight_decay=0.2)),
    "proximal, rate by step": LocalSolver(
        fl.SGD(0.3, weight_decay=0.2),
        corrections=(fl.Proximal(0.5), fl.Proximal(0.2)),
        step_schedule=fl.InverseSquareRoot(),
    ),
    "momentum": LocalSolver(fl.SGD(0.1, momentum=0.5, weight_decay=0.1)),
    "clipping": LocalSolver(fl.SGD(0.3), clip=0.2),
    "Adam": LocalSolver(fl.Adam(0.1)),
    "control variates": LocalSolver(fl.SGD(0.1), corrections=(fl.ControlVariates(),)),
    "a mixture that is learned and kept": LocalSolver(
        fl.MixedSGD(0.1, adaptive=True), corrections=(fl.OwnParameters(("*",)),)
    ),
    "dynamic regularizer": LocalSolver(fl.SGD(0.1), corrections=(fl.DynamicRegularizer(0.3),)),
}


@pytest.mark.parametrize("solver", SOLVERS.values(), ids=SOLVERS.keys())
@pytest.mark.parametrize("batch_size", [1, 3, 100])
def test_solvers_and_batch_sizes(solver: LocalSolver, batch_size: int) -> None:
    """Batches of 3 leave partial ones; 100 is more than anyone has."""
    objective = problem()
    jobs = jobs_of(objective, solver, batch_size)
    assert_as_the_loop(run(objective, jobs), objective, jobs)


@pytest.mark.parametrize("solver", SOLVERS.values(), ids=SOLVERS.keys())
def test_lanes_give_the_same(solver: LocalSolver, monkeypatch: pytest.MonkeyPatch) -> None:
    """The other way for light steps, in two lanes, each of which takes several clients."""
    monkeypatch.setattr(module, "_WORTH_LANES", 1)
    objective = problem()
    jobs = jobs_of(objective, solver)
    assert DenseCpu().refusal(objective, jobs)
    assert_as_the_loop(BatchedEngine(lanes=2).run(objective, jobs), objective, jobs)


@st.composite
def stacks(draw: st.DrawFn) -> nn.Sequential:
    """Linear layers of random widths, each with some activations before or after it, or none."""
    widths = [6, *draw(st.lists(st.integers(1, 7), max_size=3)), 3]
    some = st.lists(st.sampled_from((nn.ReLU, nn.Tanh, nn.Sigmoid, nn.Identity)), max_size=2)
    layers: list[nn.Module] = [kind() for kind in draw(some)]
    for inputs, outputs in pairwise(widths):
        layers.append(nn.Linear(inputs, outputs, bias=draw(st.booleans())))
        layers += [kind() for kind in draw(some)]
    return nn.Sequential(*layers)


@given(stacks(), st.booleans())
def test_random_stacks(model: nn.Sequential, regression: bool) -> None:
    targets = INPUTS[:, :3].sin() if regression else CLASSES
    objective = problem(model, targets=targets, loss=squared_error if regression else cross_entropy)
    jobs = jobs_of(objective)
    results, wanted = run(objective, jobs), LoopEngine().run(objective, jobs)
    assert torch.allclose(results.delta, wanted.delta, rtol=1e-10, atol=1e-11)
    assert torch.allclose(results.loss, wanted.loss, rtol=1e-11)


def test_one_number_as_target() -> None:
    objective = problem(nn.Linear(6, 1), targets=INPUTS.sum(1), loss=squared_error)
    jobs = jobs_of(objective, LocalSolver(fl.SGD(0.02)))
    assert_as_the_loop(run(objective, jobs), objective, jobs)


def test_pixels_and_fixed_augmentation() -> None:
    """Bytes are scaled and normalized on their way in, as the model itself does."""
    pixels = torch.randint(0, 256, (sum(SIZES), 2, 3), generator=DRAW, dtype=torch.uint8)
    objective = problem(
        nn.Sequential(nn.Flatten(), nn.Linear(6, 3)),
        inputs=pixels,
        augment=(fl.Normalize((0.3, 0.6), (0.2, 0.4)),),
    )
    jobs = jobs_of(objective)
    assert_as_the_loop(run(objective, jobs), objective, jobs)


def test_padding_anywhere_in_a_batch() -> None:
    objective = problem()
    jobs = jobs_of(objective)
    backwards = [batches.flip(1) for batches in jobs.steps.batches]
    jobs = replace(jobs, steps=replace(jobs.steps, batches=backwards))
    assert_as_the_loop(run(objective, jobs), objective, jobs)


def test_float32_and_scores_beyond_the_range_of_exp() -> None:
    objective = problem(dtype=torch.float32)
    jobs = jobs_of(objective)
    assert_as_the_loop(run(objective, jobs), objective, jobs, 1e-5)
    objective = problem(nn.Linear(6, 3), inputs=1e4 * INPUTS)
    jobs = jobs_of(objective, LocalSolver(fl.SGD(1e-6)))
    assert_as_the_loop(run(objective, jobs), objective, jobs, 1e-9)


def test_any_number_of_workers_and_any_chunks_give_the_same_bits(monkeypatch: pytest.MonkeyPatch) -> None:
    objective = problem(dtype=torch.float32)
    jobs = jobs_of(objective)
    light = run(objective, jobs)
    monkeypatch.setattr(workers, "_HEAVY", 0)
    for num_threads in (1, 2, 2):
        torch.set_num_threads(num_threads)
        heavy = run(objective, jobs)
        assert torch.equal(light.delta, heavy.delta)
        assert torch.equal(light.loss, heavy.loss)
    monkeypatch.setattr(module, "_CHUNK_BYTES", 1)
    step_by_step = run(objective, jobs)
    assert torch.equal(light.delta, step_by_step.delta)
    assert torch.allclose(light.loss, step_by_step.loss, rtol=1e-5)


def smoothed(outputs: Tensor, targets: Tensor) -> Tensor:
    return F.cross_entropy(outputs, targets, reduction="none", label_smoothing=0.1)


OTHERS: dict[str, dict[str, Any]] = {
    "activation": {"model": nn.Sequential(nn.Linear(6, 5), nn.GELU(), nn.Linear(5, 3))},
    "dropout": {"model": nn.Sequential(nn.Dropout(0.5), nn.Linear(6, 3))},
    "loss": {"loss": smoothed},
    "missing targets": {"targets": CLASSES.where(CLASSES > 0, -100)},
    "low precision": {"dtype": torch.bfloat16},
}


@pytest.mark.parametrize("changes", OTHERS.values(), ids=OTHERS.keys())
def test_other_objectives_are_left_to_the_engine(changes: dict[str, Any]) -> None:
    objective = problem(**changes)
    assert DenseCpu().refusal(objective, jobs_of(objective))


def test_reduced_precision_and_no_jobs_are_left_to_the_engine() -> None:
    objective = problem(dtype=torch.float32)
    jobs = jobs_of(objective)
    nothing = replace(jobs.steps, batches=[], noise=[])
    assert DenseCpu().refusal(objective, replace(jobs, clients=[], steps=nothing))
    with torch.autocast("cpu", torch.bfloat16):
        assert DenseCpu().refusal(objective, jobs)


def test_bfloat16_parameters_run_in_lanes() -> None:
    """With 8 bits each of up to nine steps is off by some 2⁻⁸ of what has been learned."""
    objective = problem(dtype=torch.bfloat16)
    jobs = jobs_of(objective)
    results, wanted = BatchedEngine().run(objective, jobs), LoopEngine().run(objective, jobs)
    assert float((results.delta - wanted.delta).norm() / wanted.delta.norm()) < 0.05
