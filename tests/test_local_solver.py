"""`LocalSolver`: steps, batches, clipping, schedules, and the order in which corrections speak."""

from __future__ import annotations

import pytest
import torch

import fairlead as fl
from fairlead.local_solver import epochs_to_steps
from fairlead.worlds.executor import draw_batches


def walk(solver: fl.LocalSolver, gradients: list[list[float]], lr: float) -> list[float]:
    """Parameters after some steps from the origin."""
    anchor = torch.zeros(len(gradients[0]), dtype=torch.float64)
    state = solver.start(anchor, {}, {})
    for gradient in gradients:
        rate = torch.tensor([lr], dtype=torch.float64)
        state = solver.step(state, torch.tensor(gradient, dtype=torch.float64), anchor, {}, rate)
    return [float(x) for x in state.local]


def test_steps_keep_the_last_partial_batch() -> None:
    """E·⌈n/B⌉: 100 examples in batches of 32 are 4 steps an epoch; no example, no step."""
    sizes = torch.tensor([0, 1, 31, 32, 33, 100])
    solver = fl.LocalSolver(fl.SGD(0.1), epochs=3, batch_size=32)
    assert solver.count_steps(sizes).tolist() == [0, 3, 3, 3, 6, 12]
    assert solver.batches(sizes).tolist() == [0, 1, 31, 32, 32, 32]


def test_a_full_batch_is_one_step_an_epoch() -> None:
    solver = fl.LocalSolver(fl.SGD(0.1), epochs=2, batch_size=None)
    assert solver.count_steps(torch.tensor([0, 1, 70])).tolist() == [0, 2, 2]


def test_fixed_steps_do_not_look_at_sizes() -> None:
    solver = fl.LocalSolver(fl.SGD(0.1), steps=7)
    assert solver.count_steps(torch.tensor([0, 1, 1000])).tolist() == [0, 7, 7]


def test_one_epoch_is_the_default() -> None:
    assert fl.LocalSolver(fl.SGD(0.1)).epochs == 1


def test_epochs_may_differ_by_client() -> None:
    steps = epochs_to_steps(torch.tensor([1, 2, 3]), torch.tensor([10, 11, 0]), torch.tensor([5, 5, 0]))
    assert steps.tolist() == [2, 6, 0]


def test_clipping_bounds_the_raw_gradient() -> None:
    """‖(3, 4)‖ = 5 > 1 becomes (.6, .8); ‖(.3, .4)‖ = ½ stays."""
    solver = fl.LocalSolver(fl.SGD(1.0), clip=1.0)
    assert walk(solver, [[3.0, 4.0]], 1.0) == pytest.approx([-0.6, -0.8])
    assert walk(solver, [[0.3, 0.4]], 1.0) == pytest.approx([-0.3, -0.4])
    assert walk(solver, [[0.0, 0.0]], 1.0) == [0.0, 0.0]


def test_clipping_a_gradient_whose_square_overflows() -> None:
    """1e20 is a float32 and its square is not: the client must still move by the bound, not stand still."""
    solver = fl.LocalSolver(fl.SGD(1.0), clip=5.0)
    start = torch.zeros(2)
    state = solver.step(
        solver.start(start, {}, {}), torch.tensor([3e20, 4e20]), start, {}, torch.tensor([1.0])
    )
    assert state.local.tolist() == pytest.approx([-3.0, -4.0])


def test_clipping_comes_before_corrections_and_weight_decay() -> None:
    """From y = 0: g = (3, 4)/5 → y₁ = −(.6, .8). Then g = 0 clipped stays 0, plus μy₁ = −½(.6, .8)."""
    solver = fl.LocalSolver(fl.SGD(1.0), clip=1.0, corrections=(fl.Proximal(0.5),))
    assert walk(solver, [[3.0, 4.0], [0.0, 0.0]], 1.0) == pytest.approx([-0.3, -0.4])


def test_several_corrections_add_up() -> None:
    solver = fl.LocalSolver(fl.SGD(1.0), corrections=(fl.Proximal(0.5), fl.Proximal(0.25)))
    once = fl.LocalSolver(fl.SGD(1.0), corrections=(fl.Proximal(0.75),))
    gradients = [[1.0], [2.0], [-1.0]]
    assert walk(solver, gradients, 0.1) == pytest.approx(walk(once, gradients, 0.1))


def test_learning_rates_by_step_and_by_round_multiply() -> None:
    optimizer = fl.SGD(0.5, schedule=fl.Milestones((10,), gamma=0.1))
    solver = fl.LocalSolver(optimizer, step_schedule=fl.Exponential(0.5))
    assert solver.step_lrs(0, 3).tolist() == pytest.approx([0.5, 0.25, 0.125])
    assert solver.step_lrs(10, 3).tolist() == pytest.approx([0.05, 0.025, 0.0125])
    assert solver.step_lrs(0, 0).shape == (0,)


@pytest.mark.parametrize(
    ("schedule", "factors"),
    [
        (fl.Constant(), [1.0, 1.0, 1.0, 1.0]),
        (fl.Exponential(0.5), [1.0, 0.5, 0.25, 0.125]),
        (fl.Milestones((1, 3), gamma=0.1), [1.0, 0.1, 0.1, 0.01]),
        (fl.Cosine(2, final=0.2), [1.0, 0.6, 0.2, 0.2]),
        (fl.InverseSquareRoot(1.0), [1.0, 2**-0.5, 3**-0.5, 0.5]),
    ],
    ids=repr,
)
def test_schedules_by_hand(schedule: fl.Schedule, factors: list[float]) -> None:
    assert [schedule.factor(time) for time in range(4)] == pytest.approx(factors)


def test_batches_are_epochs_of_permutations() -> None:
    """Seven rows from 10 on in batches of 3: two full batches and one of one, a new order every epoch."""
    batches = draw_batches(10, 7, 9, 3, fl.Key.from_seed(0))
    assert batches.shape == (9, 3)
    epochs = batches.view(3, 9)
    for epoch in epochs:
        assert sorted(epoch.tolist()) == [-1, -1, *range(10, 17)]
        assert epoch[7:].tolist() == [-1, -1]
    assert len({tuple(epoch.tolist()) for epoch in epochs}) == 3


def test_a_longer_stay_begins_like_a_shorter_one() -> None:
    """So that methods with more local steps meet the same first batches."""
    long, short = (draw_batches(0, 11, steps, 4, fl.Key.from_seed(1)) for steps in (30, 7))
    assert torch.equal(long[:7], short)


def test_a_client_that_uses_all_its_rows_keeps_their_order() -> None:
    assert draw_batches(5, 3, 2, 3, fl.Key.from_seed(0)).tolist() == [[5, 6, 7], [5, 6, 7]]
