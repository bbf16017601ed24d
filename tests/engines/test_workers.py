"""Clients are shared out between threads so that each is trained once, on its own cores, with the same bits."""

from __future__ import annotations

from collections.abc import Iterator
from threading import current_thread, main_thread
from typing import Any

import pytest
import torch
from torch import nn

import fairlead as fl
from fairlead.errors import EngineError
from fairlead.worlds.base import EngineName
from fairlead.worlds.engines.loop import LoopEngine, Workers


@pytest.fixture
def two_threads() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    yield
    torch.set_num_threads(before)


@pytest.mark.parametrize(
    ("threads", "num_steps", "heavy", "expected"),
    [
        (2, [9, 9, 9], False, Workers(1, 1)),
        (1, [9, 9, 9], True, Workers(1, 1)),
        (2, [9, 9, 9], True, Workers(2, 1)),
        (2, [90, 9, 4], True, Workers(1, 2)),
        (2, [7], True, Workers(1, 2)),
        (2, [], True, Workers(1, 2)),
        (8, [9, 9, 9], True, Workers(3, 2)),
        (8, [9, 3, 3, 3], True, Workers(2, 4)),
        (8, [1] * 100, True, Workers(8, 1)),
    ],
)
def test_who_gets_how_many_cores(
    two_threads: None, threads: int, num_steps: list[int], heavy: bool, expected: Workers
) -> None:
    """9 + 9 + 9 steps keep three workers busy for nine; 9 + 3 + 3 + 3 two; 90 + 9 + 4 only one."""
    torch.set_num_threads(threads)
    assert Workers.for_jobs(num_steps, heavy=heavy) == expected


@pytest.mark.parametrize("workers", [Workers(1, 1), Workers(1, 2), Workers(2, 1), Workers(3, 2)])
def test_every_job_is_trained_once_on_its_cores(two_threads: None, workers: Workers) -> None:
    seen: list[tuple[int, int, bool]] = []

    def train(job: int) -> None:
        seen.append((job, torch.get_num_threads(), current_thread() is main_thread()))

    workers.train([3, 1, 8, 3], train)
    assert sorted(job for job, _, _ in seen) == [0, 1, 2, 3]
    assert {(cores, alone) for _, cores, alone in seen} == {(workers.cores, workers.number == 1)}
    if workers.number == 1:
        assert [job for job, _, _ in seen] == [2, 0, 3, 1]
    assert torch.get_num_threads() == 2


def test_threads_compute_in_the_precision_asked_for(two_threads: None) -> None:
    found: list[torch.dtype] = []

    def train(job: int) -> None:
        found.append(torch.mm(torch.ones(2, 2), torch.ones(2, 2)).dtype)

    Workers(2, 1).train([1, 1], train)
    with torch.autocast("cpu", torch.bfloat16):
        Workers(2, 1).train([1, 1], train)
    assert found == [torch.float32, torch.float32, torch.bfloat16, torch.bfloat16]


@pytest.mark.parametrize("number", [1, 2])
def test_an_error_ends_the_round_and_leaves_torch_as_it_was(two_threads: None, number: int) -> None:
    """The longest job fails first; of forty others only those that had begun by then are trained."""
    trained: list[int] = []

    def train(job: int) -> None:
        if job == 0:
            raise EngineError("broken")
        trained.append(job)
        torch.mm(torch.ones(300, 300), torch.ones(300, 300))

    with pytest.raises(EngineError, match="broken"):
        Workers(number, 1).train([2, *[1] * 400], train)
    assert len(trained) < 400
    assert torch.get_num_threads() == 2


class Centered(nn.Module):
    """A convolution with running statistics and dropout: buffers, noise and a state in the module."""

    def __init__(self) -> None:
        super().__init__()
        self.features = nn.Sequential(nn.Conv2d(1, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.Dropout(0.3))
        self.scores = nn.Linear(144, 3)

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        scores: torch.Tensor = self.scores(self.features(inputs).flatten(1))
        return scores


def trained(engine: EngineName, threads: int, **options: Any) -> fl.Federation:
    """Three rounds with clients of 9, 4, 6, 12 and 5 images."""
    draw, sizes = torch.Generator().manual_seed(0), (9, 4, 6, 12, 5)
    data = fl.ClientData.from_lists(
        [torch.randn((n, 1, 8, 8), generator=draw) for n in sizes],
        [torch.randint(0, 3, (n,), generator=draw) for n in sizes],
    )
    torch.manual_seed(0)
    world = fl.SimulatedWorld(fl.Task(Centered()), data, engine=engine, **options)
    assert world.engine == LoopEngine(per_core=engine == "auto")
    torch.set_num_threads(threads)
    federation = fl.Federation(fl.presets.scaffold(lr=0.1, epochs=2, batch_size=4, cohort_size=5), world)
    list(federation.train(3))
    return federation


def test_a_loop_on_every_core_is_the_loop(two_threads: None) -> None:
    """In float64, memory of clients and running statistics included; and bit by bit, however many workers there are."""
    options: dict[str, Any] = {"dtype": torch.float64}
    loop = trained("loop", 1, **options)
    two, again, five = (trained("auto", n, **options) for n in (2, 2, 5))
    start, _ = loop.world.initial_model(loop.key)
    assert float((loop.params - start).abs().max()) > 1e-3
    for other in (two, five):
        assert torch.allclose(loop.params, other.params, rtol=1e-12, atol=1e-12)
        assert torch.allclose(loop.state.buffers, other.state.buffers, rtol=1e-12, atol=1e-12)
        assert [r.train_loss for r in loop.records] == pytest.approx([r.train_loss for r in other.records])
    assert torch.equal(two.params, again.params)
    assert torch.equal(two.state.buffers, again.state.buffers)


def test_reduced_precision_reaches_every_core(two_threads: None) -> None:
    full = trained("auto", 2)
    coarse = trained("auto", 2, precision="bfloat16")
    one = trained("loop", 1, precision="bfloat16")
    start, _ = full.world.initial_model(full.key)
    moved = (full.params - start).norm()
    assert float((full.params - coarse.params).norm() / moved) > 1e-4
    assert float((one.params - coarse.params).norm() / moved) < 1e-4
