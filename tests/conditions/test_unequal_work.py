"""Unequal work: distributions, independence of who else is asked, and budgets by hand."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
import torch
from torch import Tensor

import fairlead as fl
from fairlead.conditions.devices import DeviceProfile, FixedDevices, LogNormalDevices
from fairlead.conditions.work import (
    FixedEpochs,
    FixedSteps,
    LadderEpochs,
    LadderSteps,
    NormalSteps,
    RandomEpochs,
    RandomEpochsAndBatches,
    RandomSteps,
    ScriptedWork,
    TimeBudget,
    TwoGroupEpochs,
    TwoGroupSteps,
    Workload,
    WorkModel,
)
from fairlead.errors import ClashError, FieldError

SOLVER = fl.LocalSolver(fl.SGD(lr=0.1), epochs=1, batch_size=10)
KEY = fl.Key.from_seed(7)
Z = 5.0
"""Fixed seeds, and a bound that one in two million honest tests would break."""


def work_of(
    model: WorkModel, clients: Tensor, size: int = 100, round: int = 0, key: fl.Key = KEY
) -> Workload:
    sizes = torch.full_like(clients, size)
    return model.workload(clients, sizes, SOLVER, round, key, DEVICES.profile(clients, round))


DEVICES = LogNormalDevices(step_seconds=0.1, speed_sigma=0.7, jitter=0.3, seed=3)
DRAWN = [
    RandomEpochs(2, 5),
    RandomSteps(3, 30),
    NormalSteps(),
    TwoGroupEpochs(500),
    TwoGroupSteps(500),
    RandomEpochsAndBatches(),
    TimeBudget(2.0),
]


@pytest.mark.parametrize("model", DRAWN, ids=lambda model: type(model).__name__)
def test_work_is_a_function_of_key_round_and_client(model: WorkModel) -> None:
    """Whoever else is asked, in whatever order and however often, a client does the same."""
    everyone = torch.arange(1000)
    some = torch.tensor([3, 999, 500, 42])
    for round in (0, 1, 17):
        whole, part = work_of(model, everyone, round=round), work_of(model, some, round=round)
        assert torch.equal(whole.num_steps[some], part.num_steps)
        assert torch.equal(whole.batch_sizes[some], part.batch_sizes)
        again = work_of(model, everyone, round=round)
        assert torch.equal(whole.num_steps, again.num_steps)


@pytest.mark.parametrize("model", DRAWN, ids=lambda model: type(model).__name__)
def test_drawn_work_changes_from_round_to_round(model: WorkModel) -> None:
    clients = torch.arange(1000)
    first, second = work_of(model, clients, round=0), work_of(model, clients, round=1)
    assert (first.num_steps != second.num_steps).float().mean() > 0.3


def mean_z(draws: Tensor, mean: float, variance: float) -> float:
    return (float(draws.double().mean()) - mean) / math.sqrt(variance / len(draws))


@pytest.mark.parametrize(("low", "high"), [(2, 5), (1, 5), (20, 30)])
def test_random_epochs_are_uniform(low: int, high: int) -> None:
    """Each of the n = high − low + 1 values has probability 1/n: a χ² of n − 1 degrees of freedom."""
    draws = work_of(RandomEpochs(low, high), torch.arange(100_000)).num_steps // 10
    count = torch.bincount(draws, minlength=high + 1)[low:].double()
    assert int(count.sum()) == 100_000
    expected = 100_000 / (high - low + 1)
    chi_square = float(((count - expected) ** 2 / expected).sum())
    freedom = high - low
    assert chi_square < freedom + Z * math.sqrt(2 * freedom)


def test_hybrid_plus_draws_epochs_and_batches_independently() -> None:
    """E ~ U{2..5} and B ~ U{10..n}: means 3.5 and (10 + n)/2, K = E·⌈n/B⌉, correlation 0."""
    clients, size = torch.arange(50_000), 100
    work = work_of(RandomEpochsAndBatches(), clients, size)
    batches = work.batch_sizes
    assert int(batches.min()) == 10
    assert int(batches.max()) == size
    assert abs(mean_z(batches, 55.0, (91**2 - 1) / 12)) < Z
    per_epoch = (size + batches - 1) // batches
    epochs = work.num_steps // per_epoch
    assert torch.equal(epochs * per_epoch, work.num_steps)
    assert abs(mean_z(epochs, 3.5, 15 / 12)) < Z
    correlation = torch.corrcoef(torch.stack([epochs.double(), batches.double()]))[0, 1]
    assert abs(float(correlation)) * math.sqrt(len(clients)) < Z


def test_hybrid_plus_draws_the_epochs_of_random_epochs() -> None:
    clients = torch.arange(1000)
    work = work_of(RandomEpochsAndBatches(2, 5), clients)
    epochs = work.num_steps // ((100 + work.batch_sizes - 1) // work.batch_sizes)
    assert torch.equal(epochs, work_of(RandomEpochs(2, 5), clients).num_steps // 10)


def test_hybrid_plus_of_small_clients_uses_all_they_have() -> None:
    sizes = torch.tensor([0, 1, 9, 10, 11])
    work = RandomEpochsAndBatches().workload(torch.arange(5), sizes, SOLVER, 0, KEY)
    assert work.batch_sizes[:4].tolist() == [0, 1, 9, 10]
    assert int(work.batch_sizes[4]) in (10, 11)
    assert int(work.num_steps[0]) == 0
    assert all(2 <= steps <= 5 for steps in work.num_steps[1:4].tolist())


def test_normal_steps_have_the_clipped_moments() -> None:
    """P(τ = 1) = Φ((1.5 − 30)/16) and E τ by summing the rounded, clipped distribution."""
    mean, std = 30.0, 16.0

    def phi(x: float) -> float:
        return 0.5 * math.erfc(-(x - mean) / (std * math.sqrt(2)))

    probability = {k: phi(k + 0.5) - phi(k - 0.5) for k in range(2, 96)}
    probability[1], probability[96] = phi(1.5), 1 - phi(95.5)
    first = sum(k * p for k, p in probability.items())
    variance = sum((k - first) ** 2 * p for k, p in probability.items())
    draws = work_of(NormalSteps(mean, std), torch.arange(200_000)).num_steps
    assert int(draws.min()) == 1
    assert int(draws.max()) <= 96
    assert abs(mean_z(draws, first, variance)) < Z
    share = probability[1]
    assert abs(mean_z((draws == 1).long(), share, share * (1 - share))) < Z


def test_two_groups_keep_to_their_ranges() -> None:
    draws = work_of(TwoGroupSteps(40_000), torch.arange(80_000)).num_steps
    slow, fast = draws[:40_000], draws[40_000:]
    assert (int(slow.min()), int(slow.max())) == (1, 10)
    assert (int(fast.min()), int(fast.max())) == (20, 30)
    assert abs(mean_z(slow, 5.5, 99 / 12)) < Z
    assert abs(mean_z(fast, 25.0, 120 / 12)) < Z
    epochs = work_of(TwoGroupEpochs(40_000), torch.arange(80_000)).num_steps
    assert torch.equal(epochs, 10 * draws)


def test_given_work_is_what_was_given() -> None:
    clients = torch.tensor([0, 2, 19])
    assert work_of(LadderSteps(1, 2), clients).num_steps.tolist() == [1, 5, 39]
    assert work_of(LadderEpochs(1, 2), clients).num_steps.tolist() == [10, 50, 390]
    assert work_of(FixedSteps(tuple(range(1, 21))), clients).num_steps.tolist() == [1, 3, 20]
    assert work_of(FixedEpochs(tuple(range(1, 21))), clients).num_steps.tolist() == [10, 30, 200]
    script = ScriptedWork(((1, 2, 3), (4, 5, 6)))
    rows = [work_of(script, torch.arange(3), round=round).num_steps.tolist() for round in range(3)]
    assert rows == [[1, 2, 3], [4, 5, 6], [1, 2, 3]]


def test_budget_counts_the_steps_that_fit() -> None:
    """1 s at 0.1, 0.3, 0.4 and 2 s a step: 10, 3, 2 and, too slow for one, `min_steps`."""
    devices = FixedDevices(step_seconds=(0.1, 0.3, 0.4, 2.0))
    clients, sizes = torch.arange(4), torch.tensor([100, 100, 100, 100])
    profile = devices.profile(clients, 0)

    def steps(budget: TimeBudget) -> list[int]:
        return budget.workload(clients, sizes, SOLVER, 0, KEY, profile).num_steps.tolist()

    assert steps(TimeBudget(1.0)) == [10, 3, 2, 1]
    assert steps(TimeBudget(1.0, min_steps=0)) == [10, 3, 2, 0]
    assert steps(TimeBudget(1.0, max_steps=5)) == [5, 3, 2, 1]


def test_budget_by_examples_knows_the_short_batch() -> None:
    """25 examples in batches of 10, 0.1 s an example: an epoch of 10 + 10 + 5 examples takes 2.5 s.

    In 6.2 s there are two epochs (5 s, 6 steps) and one batch of 10 (1 s); in 4.99 s one epoch and two
    batches (3 + 2 steps), and the third, though short, would end at 5.0 s.
    """
    profile = FixedDevices(example_seconds=0.1).profile(torch.arange(1), 0)
    sizes = torch.tensor([25])
    for seconds, expected in ((6.2, 7), (4.99, 5), (5.0, 6), (2.5, 3), (0.99, 1)):
        work = TimeBudget(seconds).workload(torch.arange(1), sizes, SOLVER, 0, KEY, profile)
        assert work.num_steps.tolist() == [expected], seconds


def test_budget_and_clock_agree() -> None:
    """The steps that a budget allows take no longer than it, and one more would."""
    clients = torch.arange(2000)
    sizes = 1 + clients % 137
    devices = LogNormalDevices(step_seconds=0.01, example_seconds=0.003, speed_sigma=1.0, seed=1)
    profile = devices.profile(clients, 0)
    work = TimeBudget(3.0, min_steps=0).workload(clients, sizes, SOLVER, 0, KEY, profile)
    taken = profile.compute_seconds(work.num_steps, work.batch_sizes, sizes)
    more = profile.compute_seconds(work.num_steps + 1, work.batch_sizes, sizes)
    assert bool((taken <= 3.0 * (1 + 1e-8)).all())
    assert bool((more > 3.0).all())
    assert len(set(work.num_steps.tolist())) > 100


def test_budget_is_not_fooled_by_rounding() -> None:
    """0.3/0.1 and 0.7/0.1 are just below 3 and 7 in floating point."""
    profile = FixedDevices(step_seconds=0.1).profile(torch.arange(1), 0)
    for seconds, expected in ((0.3, 3), (0.7, 7), (0.6, 6)):
        work = TimeBudget(seconds).workload(torch.arange(1), torch.tensor([1000]), SOLVER, 0, KEY, profile)
        assert work.num_steps.tolist() == [expected]


def test_budget_refuses_what_takes_no_time() -> None:
    profile = FixedDevices(latency=1.0).profile(torch.arange(2), 0)
    arguments = torch.arange(2), torch.tensor([5, 5]), SOLVER, 0, KEY, profile
    with pytest.raises(FieldError, match=r"TimeBudget.max_steps must be given: the device of client 0"):
        TimeBudget(1.0).workload(*arguments)
    assert TimeBudget(1.0, max_steps=4).workload(*arguments).num_steps.tolist() == [4, 4]
    with pytest.raises(ClashError, match="TimeBudget needs devices"):
        TimeBudget(1.0).workload(*arguments[:5])


def test_jitter_is_new_in_every_round_and_speed_is_not() -> None:
    clients = torch.arange(20_000)
    steady = LogNormalDevices(step_seconds=1.0, speed_sigma=0.5)
    assert torch.equal(steady.profile(clients, 0).step_seconds, steady.profile(clients, 9).step_seconds)
    shaky = replace(steady, jitter=0.3)
    logs = [shaky.profile(clients, round).step_seconds.log() for round in (0, 1)]
    assert abs(mean_z(logs[0], 0.0, 0.25 + 0.09)) < Z
    # Var(s + j₀)(s + j₁): the covariance of two rounds is σ_s², with variance (v² + σ_s⁴)/n.
    covariance = float((logs[0] * logs[1]).mean())
    assert abs(covariance - 0.25) < Z * math.sqrt((0.34**2 + 0.25**2) / len(clients))


def test_devices_come_from_their_own_seed() -> None:
    clients = torch.tensor([5, 1])
    one, other = (LogNormalDevices(step_seconds=1.0, seed=seed).profile(clients, 0) for seed in (0, 1))
    assert not torch.equal(one.step_seconds, other.step_seconds)
    everyone = LogNormalDevices(step_seconds=1.0).profile(torch.arange(10), 0)
    assert torch.equal(one.step_seconds, everyone.step_seconds[clients])


def test_spread_of_zero_is_fixed_devices() -> None:
    given = {"step_seconds": 0.2, "example_seconds": 0.1, "latency": 3.0, "download": 10.0, "upload": 5.0}
    clients = torch.arange(4)
    even = LogNormalDevices(**given, speed_sigma=0.0, rate_sigma=0.0)  # type: ignore[arg-type]
    pairs = zip(even.profile(clients, 0), FixedDevices(**given).profile(clients, 0), strict=True)
    assert all(torch.equal(a, b) for a, b in pairs)


def test_two_groups_of_devices() -> None:
    devices = fl.TwoGroupDevices(
        2, FixedDevices(step_seconds=1.0), FixedDevices(step_seconds=9.0, upload=2.0)
    )
    profile: DeviceProfile = devices.profile(torch.tensor([0, 1, 2, 7]), 0)
    assert profile.step_seconds.tolist() == [1.0, 1.0, 9.0, 9.0]
    assert profile.upload.tolist() == [math.inf, math.inf, 2.0, 2.0]


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda: RandomEpochs(0, 3), r"RandomEpochs.low must be a whole number of at least 1, got 0\."),
        (lambda: RandomSteps(4, 3), r"RandomSteps.high must be a whole number of at least 4, got 3\."),
        (lambda: NormalSteps(std=-1.0), r"NormalSteps.std must be a finite number of at least 0, got -1.0\."),
        (
            lambda: TwoGroupSteps(5, first=(4, 2)),
            r"TwoGroupSteps.first must be two ascending numbers of at least 1, got \(4, 2\)\.",
        ),
        (lambda: TwoGroupSteps(5, first=(0, 2)), r"TwoGroupSteps.first must be whole numbers of at least 1"),
        (lambda: FixedSteps((1, 0)), r"FixedSteps.steps must be whole numbers of at least 1, got \(1, 0\)\."),
        (lambda: FixedSteps((True,)), r"FixedSteps.steps must be whole numbers of at least 1"),
        (lambda: TimeBudget(0.0), r"TimeBudget.seconds must be a finite number above 0, got 0.0\."),
        (lambda: LadderSteps(0), r"LadderSteps.first must be a whole number of at least 1, got 0\."),
        (
            lambda: FixedDevices(step_seconds=-1.0),
            r"FixedDevices.step_seconds must be numbers from 0 to 1e\+30, got -1.0\.",
        ),
        (
            lambda: FixedDevices(upload=(1.0, 0.0)),
            r"FixedDevices.upload must be numbers from 1e-30 to 1e\+30, or None, got \(1.0, 0.0\)\.",
        ),
        (lambda: FixedDevices(latency=math.nan), r"FixedDevices.latency must be numbers"),
        (
            lambda: LogNormalDevices(seed=2**63),
            r"LogNormalDevices.seed must be a whole number of at most 9223372036854775807, got 9223372036854775808",
        ),
        (
            lambda: LogNormalDevices(jitter=-0.1),
            r"LogNormalDevices.jitter must be a finite number of at least 0",
        ),
        (
            lambda: fl.TwoGroupDevices(1, FixedDevices(), "slow"),  # type: ignore[arg-type]
            r"TwoGroupDevices.second must be a DeviceModel, got 'slow'\.",
        ),
        (
            lambda: fl.FixedBatchSizes((1, 2), work="much"),  # type: ignore[arg-type]
            r"FixedBatchSizes.work must be a WorkModel, got 'much'\.",
        ),
    ],
)
def test_wrong_fields_are_refused(build: type, message: str) -> None:
    with pytest.raises(FieldError, match=message):
        build()


def test_each_client_can_have_its_own_batch_size() -> None:
    """Two epochs over 10, 10 and 3 examples in batches of 4, 32 and 2: 2·⌈10/4⌉, 2·1 and 2·⌈3/2⌉ steps."""
    solver = fl.LocalSolver(fl.SGD(0.1), epochs=2)
    clients, sizes = torch.arange(3), torch.tensor([10, 10, 3])
    model = fl.FixedBatchSizes((4, 32, 2))
    work = model.workload(clients, sizes, solver, 0, fl.Key.from_seed(0))
    assert work.num_steps.tolist() == [6, 2, 4]
    assert work.batch_sizes.tolist() == [4, 10, 2]
    same = fl.FixedBatchSizes((32,) * 3, fl.RandomEpochs(1, 5))
    plain = fl.RandomEpochs(1, 5).workload(clients, sizes, solver, 3, fl.Key.from_seed(1))
    again = same.workload(clients, sizes, solver, 3, fl.Key.from_seed(1))
    assert again.num_steps.tolist() == plain.num_steps.tolist()
