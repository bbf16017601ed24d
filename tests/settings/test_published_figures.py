"""Published settings have the figures of their papers."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import NamedTuple

import numpy as np
import pytest
import torch

import fairlead as fl
from fairlead.diagnostics import predicted_consistency
from fairlead.errors import ClashError, FieldError
from fairlead.references import REFERENCES
from fairlead.settings import SETTINGS, Setting

KEY = fl.Key.from_seed(0)


class Figures(NamedTuple):
    """What a paper prints; None where all are asked, the data decide or the paper does not say."""

    clients: int | None
    asked: int | None
    rounds: int | None
    lr: float
    batch_size: int | None
    epochs: int | None = None
    steps: int | None = None


FIGURES = {
    # Zeng 2023 §5: 100 clients, 10 % of them asked, η = 0.01, B = 64, three epochs; no number of rounds.
    "statistical_only": Figures(100, 10, None, 0.01, 64, epochs=3),
    "hybrid": Figures(100, 10, None, 0.01, 64, epochs=3),
    "hybrid_plus": Figures(100, 10, None, 0.01, 64, epochs=3),
    # Zeng 2025 §5 and Table 2: N = 100, ten asked, T = 500, 600 and 300, η = 0.01 but 0.0001 for AG News.
    "fedaware_cifar10": Figures(100, 10, 500, 0.01, 64, epochs=3),
    "fedaware_cifar100": Figures(100, 10, 600, 0.01, 64, epochs=3),
    "fedaware_agnews": Figures(100, 10, 300, 0.0001, 64, epochs=3),
    # Zeng 2025 Fig. 6: 20 clients, seen up to T = 150.
    "label_blocks": Figures(20, None, 150, 0.01, 64, epochs=3),
    # Wang 2021 Table I and App. B: 16 clients, 100 rounds, B = 32, η = 0.05 without momentum, E = 2.
    "fednova_equal_epochs": Figures(16, None, 100, 0.05, 32, epochs=2),
    "fednova_random_epochs": Figures(16, None, 100, 0.05, 32, epochs=2),
    # Wang 2021 Fig. 5: 30 clients, B = 20, η = 0.02, E = 5, C = 0.3; 200 rounds are ours.
    "fednova_synthetic": Figures(30, None, 200, 0.02, 20, epochs=5),
    "fednova_synthetic_partial": Figures(30, 9, 200, 0.02, 20, epochs=5),
    "fednova_synthetic_random": Figures(30, 9, 200, 0.02, 20, epochs=5),
    # Wang 2021 Fig. 2 and Fig. 4: 30 clients, η = 0.05, exact gradients; 1,200 rounds are ours.
    "fednova_quadratics_equal": Figures(30, None, 1200, 0.05, None, steps=30),
    "fednova_quadratics_random": Figures(30, None, 1200, 0.05, None, steps=30),
    "fednova_quadratics_fixed": Figures(30, None, 1200, 0.05, None, steps=30),
    # Wang 2024 Table 3: 500, 1,000 and 200 clients, gradient descent, η = 0.1, 0.5 and 0.5; ten steps are ours.
    "consensus_femnist": Figures(None, 500, None, 0.1, None, steps=10),
    "consensus_stackoverflow": Figures(None, 1000, None, 0.5, None, steps=10),
    "consensus_cifar100": Figures(500, 200, None, 0.5, None, steps=10),
    # Weng 2025 §6 and Table 3: M = 20, a fraction of 0.3, 200 rounds; 0.02 and 512 for MNIST, else 0.03 and 1024.
    "fedacs_static": Figures(20, 6, 200, 0.03, 1024, epochs=1),
    "fedacs_dynamic": Figures(20, 6, 200, 0.03, 1024, epochs=1),
    "fedacs_static_one_class": Figures(20, 6, 200, 0.02, 512, epochs=1),
    "fedacs_dynamic_one_class": Figures(20, 6, 200, 0.02, 512, epochs=1),
    # Weng 2025 Fig. 4: M = 30, K = 15, η = 0.001, T = 15. Fig. 7: M = 20, a fraction of 0.3, η = 0.002.
    "fedacs_quadratics_equal": Figures(30, 15, None, 0.001, None, steps=15),
    "fedacs_quadratics_unequal": Figures(30, 15, None, 0.001, None, steps=15),
    "fedacs_quadratics_varying": Figures(30, 15, None, 0.001, None, steps=15),
    "fedacs_quadratics_static": Figures(20, 6, None, 0.002, None, steps=1),
    "fedacs_quadratics_dynamic": Figures(20, 6, None, 0.002, None, steps=1),
}


def test_no_setting_goes_unchecked() -> None:
    assert set(FIGURES) == set(SETTINGS)
    assert all(getattr(fl.settings, name) is SETTINGS[name].build for name in FIGURES)


@pytest.mark.parametrize("name", FIGURES)
def test_numbers_of_the_papers(name: str) -> None:
    setting, expected = SETTINGS[name].build(), FIGURES[name]
    solver = setting.solver
    found = Figures(
        setting.num_clients,
        setting.cohort_size,
        setting.rounds,
        solver.optimizer.lr,
        solver.batch_size,
        solver.epochs,
        solver.steps,
    )
    assert found == expected
    assert (setting.partition is None) != (setting.clients is None)
    assert all(reference in REFERENCES for reference in SETTINGS[name].references)


@pytest.mark.parametrize("name", FIGURES)
def test_every_setting_runs(name: str) -> None:
    """Data, work, links and local solver fit together: one round with the preset arguments that it implies."""
    setting = SETTINGS[name].build()
    if isinstance(setting.clients, fl.SyntheticLogistic):
        setting = replace(setting, clients=replace(setting.clients, max_examples=60))
    if setting.num_clients is None:
        # Data that name their clients, of whom five are asked.
        setting = replace(setting, clients=fl.Quadratics(num_clients=7), num_clients=7, cohort_size=5)
    experiment = fl.Experiment(
        setting.clients or setting.deal(fl.Digits()),
        fl.presets.fedavg(**setting.client_side()),
        rounds=1,
        evaluate_every=0,
        work=setting.work,
        link=setting.link,
    )
    (record,) = experiment.build().train()
    assert len(record.asked) == (setting.cohort_size or setting.num_clients)
    assert set(record.arrived) <= set(record.asked)


def steps_of(setting: Setting, size: int, round: int = 0) -> list[int]:
    assert setting.num_clients is not None
    clients = torch.arange(setting.num_clients)
    sizes = torch.full_like(clients, size)
    steps: list[int] = setting.work.workload(clients, sizes, setting.solver, round, KEY).num_steps.tolist()
    return steps


def rates_of(setting: Setting, round: int = 0) -> list[float]:
    assert setting.num_clients is not None
    rates = setting.link.arrival(torch.arange(setting.num_clients), round, KEY)
    assert rates is not None
    values: list[float] = rates.tolist()
    return values


@pytest.mark.parametrize(
    "name",
    [
        "statistical_only",
        "hybrid",
        "fedaware_cifar10",
        "fedaware_cifar100",
        "fedaware_agnews",
        "label_blocks",
    ],
)
def test_equal_work_over_perfect_links(name: str) -> None:
    """E = 3 and B = 64: 500 examples are 3·8 steps."""
    setting = SETTINGS[name].build()
    assert steps_of(setting, 500) == [24] * len(rates_of(setting))
    assert set(rates_of(setting)) == {1.0}


def test_statistical_only_deals_200_shards_two_to_a_client() -> None:
    setting = fl.settings.statistical_only()
    assert setting.partition == fl.ShardPartitioner(num_shards_per_partition=2)
    assert setting.num_clients == 200 // 2


@pytest.mark.parametrize(
    "name",
    ["hybrid", "hybrid_plus", "fedaware_cifar10", "fedaware_cifar100", "fedaware_agnews"],
)
def test_hybrid_settings_deal_labels_by_dirichlet(name: str) -> None:
    """As FedLab does: capped at the equal share, with ten examples or more."""
    capped = fl.DirichletPartitioner(0.1, min_partition_size=10, self_balancing=True)
    assert SETTINGS[name].build().partition == capped


@pytest.mark.parametrize(
    "name", ["hybrid", "hybrid_plus", "fedaware_cifar10", "fedacs_static", "fedacs_dynamic"]
)
def test_alpha_is_an_argument(name: str) -> None:
    usual, changed = SETTINGS[name].build(), SETTINGS[name].build(alpha=0.5)
    assert isinstance(usual.partition, fl.DirichletPartitioner)
    assert changed == replace(usual, partition=replace(usual.partition, alpha=0.5))


def test_hybrid_plus_draws_epochs_and_batches() -> None:
    """E from U(2, 5) and B from U(10, 500) anew: from two steps to five epochs of 50 batches."""
    setting = fl.settings.hybrid_plus()
    assert setting.work == fl.RandomEpochsAndBatches(low=2, high=5, min_batch_size=10)
    first, second = (steps_of(setting, 500, round) for round in (0, 1))
    assert first != second
    assert 2 <= min(first) <= max(first) <= 250


def test_label_blocks_balance_the_first_ten() -> None:
    """The first ten clients see the labels in the pool's proportions, the others do not."""
    data = fl.settings.label_blocks().deal(fl.Digits()).load(KEY).train
    shares = []
    for client in range(20):
        counts = torch.bincount(data.targets[data.rows_of(client)], minlength=10)
        shares.append(float(counts.max() / counts.sum()))
    assert max(shares[:10]) < 0.2
    assert np.mean(shares[10:]) > 0.2


@pytest.mark.parametrize("name", ["consensus_femnist", "consensus_stackoverflow", "consensus_cifar100"])
def test_consensus_settings_keep_the_natural_clients(name: str) -> None:
    """Those of CIFAR-100 are dealt as in TensorFlow Federated."""
    setting = SETTINGS[name].build(steps=3)
    artificial = name == "consensus_cifar100"
    assert setting.partition == (fl.PachinkoPartitioner() if artificial else fl.NaturalIdPartitioner())
    assert setting.solver.count_steps(torch.tensor([5, 500])).tolist() == [3, 3]


def test_epochs_of_fednova() -> None:
    """E = 2 with B = 32 gives 16 ≤ τ ≤ 408 for clients of 225 to 6,500 examples; U(2, 5) up to 1,020."""
    equal, drawn = fl.settings.fednova_equal_epochs(), fl.settings.fednova_random_epochs()
    assert equal.partition == drawn.partition == fl.DirichletPartitioner(0.1, 10, True, released_seed=2020)
    assert steps_of(equal, 225) == [16] * 16
    assert steps_of(equal, 6500) == [408] * 16
    draws = [step for round in range(20) for step in steps_of(drawn, 6500, round)]
    assert set(draws) == {408, 612, 816, 1020}
    optimizer = equal.solver.optimizer
    assert [optimizer.lr_at(time) for time in (0, 49, 50, 75)] == pytest.approx([0.05, 0.05, 0.005, 0.0005])


def test_synthetic_data_of_fednova() -> None:
    """Synthetic(1, 1); E = 5, then C = 0.3, then E from U(1, 5): ten batches of 20 are an epoch of 200."""
    drawn = fl.settings.fednova_synthetic_random()
    for setting in (fl.settings.fednova_synthetic(), fl.settings.fednova_synthetic_partial(), drawn):
        assert setting.clients == fl.SyntheticLogistic(1.0, 1.0, num_clients=30)
    assert steps_of(fl.settings.fednova_synthetic_partial(), 200) == [50] * 30
    draws = [step for round in range(20) for step in steps_of(drawn, 200, round)]
    assert set(draws) == {10, 20, 30, 40, 50}


def test_quadratics_of_fednova() -> None:
    """30 clients, e ~ N(0, 0.01 I), η = 0.05 over 5 at rounds 600 and 900, τ = 30 or normal in [1, 96]."""
    equal, drawn = fl.settings.fednova_quadratics_equal(), fl.settings.fednova_quadratics_random()
    assert isinstance(equal.clients, fl.Quadratics)
    problem = equal.clients.problem(KEY)
    assert problem.linear.shape == (30, 10)
    assert float(problem.linear.square().mean()) == pytest.approx(0.01, rel=5 * math.sqrt(2 / 300))
    assert torch.equal(problem.hessians[3], torch.eye(10, dtype=torch.float64))
    assert steps_of(equal, 1) == [30] * 30
    draws = [step for round in range(200) for step in steps_of(drawn, 1, round)]
    assert (min(draws), max(draws) <= 96) == (1, True)
    assert np.mean(draws) == pytest.approx(30, abs=1)
    lrs = [equal.solver.optimizer.lr_at(time) for time in (0, 599, 600, 900)]
    assert lrs == pytest.approx([0.05, 0.05, 0.01, 0.002])


def proximal_bias(alpha: float) -> float:
    """χ² = Σ (p_i − w_i)²/w_i with p_i = 1/30 and w_i ∝ ‖a_i‖₁ = Σ_{j<τ_i} (1 − α)^j, where α = ημ."""
    steps = steps_of(fl.settings.fednova_quadratics_fixed(), 1)
    work = np.array([sum((1 - alpha) ** j for j in range(step)) for step in steps])
    weights = work / work.sum()
    return float(((1 / 30 - weights) ** 2 / weights).sum())


def test_the_proximal_term_trades_bias_for_speed_as_in_figure_4() -> None:
    """The bias falls from χ² = τ̄·mean(1/τ) − 1 at α = 0 to 0 at α = 1, where a round is one step instead of τ̄."""
    steps = np.array(steps_of(fl.settings.fednova_quadratics_fixed(), 1))
    assert (len(steps), steps.min(), steps.max()) == (30, 1, 63)
    assert proximal_bias(0.0) == pytest.approx(steps.mean() * (1 / steps).mean() - 1)
    bias = [proximal_bias(alpha) for alpha in (0.0, 0.1, 0.5, 1.0)]
    assert bias == sorted(bias, reverse=True)
    assert bias[0] == pytest.approx(4.0, abs=0.1)
    assert bias[-1] == pytest.approx(0.0, abs=1e-12)


@pytest.mark.parametrize("alpha", [0.0, 0.1, 1.0])
def test_the_bias_of_figure_4_is_foreseen(alpha: float) -> None:
    setting = fl.settings.fednova_quadratics_fixed()
    side = setting.client_side()
    algorithm = fl.presets.fedprox(mu=alpha / side["lr"], **side)
    assert setting.clients is not None
    experiment = fl.Experiment(setting.clients, algorithm, rounds=1, work=setting.work, dtype="float64")
    report = predicted_consistency(algorithm, experiment.build().world, rounds=1, key=KEY)
    assert report.predicted_chi_square == pytest.approx(proximal_bias(alpha), abs=1e-9)


@pytest.mark.parametrize("quadratic", [False, True])
def test_static_and_dynamic_conditions_of_fedacs(quadratic: bool) -> None:
    """T = 1, 3, ..., 39 and 1 − q = 0.60, ..., 0.98; or T and q by group, anew in every round."""
    if quadratic:
        static, dynamic = fl.settings.fedacs_quadratics_static(), fl.settings.fedacs_quadratics_dynamic()
    else:
        static, dynamic = fl.settings.fedacs_static(), fl.settings.fedacs_dynamic()
    assert steps_of(static, 1) == list(range(1, 40, 2))
    assert rates_of(static) == pytest.approx([0.60 + 0.02 * client for client in range(20)])
    for round in range(30):
        steps, rates = steps_of(dynamic, 1, round), rates_of(dynamic, round)
        assert all(1 <= step <= 10 for step in steps[:10])
        assert all(20 <= step <= 30 for step in steps[10:])
        assert all(0.5 <= rate <= 0.6 for rate in rates[:10])
        assert all(0.9 <= rate <= 1.0 for rate in rates[10:])
    assert steps_of(dynamic, 1, 0) != steps_of(dynamic, 1, 1)


def test_classes_and_epochs_of_fedacs() -> None:
    """Dirichlet(0.1) or one class per client; the figures T are epochs, so 1,025 examples double the steps."""
    static, dynamic = fl.settings.fedacs_static(), fl.settings.fedacs_dynamic()
    assert static.partition == dynamic.partition == fl.DirichletPartitioner(0.1)
    assert steps_of(static, 1025) == list(range(2, 79, 4))
    for setting in (fl.settings.fedacs_static_one_class(), fl.settings.fedacs_dynamic_one_class()):
        data = setting.deal(fl.Digits()).load(KEY).train
        for client in range(20):
            assert len(set(data.targets[data.rows_of(client)].tolist())) == 1
    assert fl.settings.fedacs_static_one_class().work == static.work
    assert fl.settings.fedacs_dynamic_one_class().link == dynamic.link


def test_quadratics_of_fedacs_figure_4() -> None:
    equal, unequal = fl.settings.fedacs_quadratics_equal(), fl.settings.fedacs_quadratics_unequal()
    varying = fl.settings.fedacs_quadratics_varying()
    assert equal.clients == fl.Quadratics(num_clients=30, dim=10, spread=1.0)
    assert steps_of(equal, 1) == [15] * 30
    assert rates_of(equal) == [0.8] * 30
    assert steps_of(unequal, 1) == list(range(1, 31))
    assert rates_of(unequal) == pytest.approx([1 - 0.01 * client for client in range(1, 31)])
    steps, rates = steps_of(varying, 1, 5), rates_of(varying, 5)
    assert all(1 <= step <= 10 for step in steps[:15])
    assert all(20 <= step <= 30 for step in steps[15:])
    assert all(0.6 <= rate <= 0.8 for rate in rates[:15])
    assert all(0.8 <= rate <= 1.0 for rate in rates[15:])


def test_the_bias_of_figure_7_is_the_published_shape() -> None:
    """In the mean FedAvg misses the optimum most, FedNova less: 0.470 and 0.095 over 200 draws of e."""
    setting = fl.settings.fedacs_quadratics_static()
    assert isinstance(setting.clients, fl.Quadratics)
    steps, rates = steps_of(setting, 1), rates_of(setting)
    fedavg: list[float] = []
    fednova: list[float] = []
    for seed in range(200):
        problem = setting.clients.problem(fl.Key.from_seed(seed))
        for bias, normalize in ((fedavg, False), (fednova, True)):
            limit = problem.limit(steps, 0.002, arrival=rates, normalize=normalize)
            bias.append(float((limit - problem.optimum).norm()))
    assert sum(fedavg) / 200 == pytest.approx(0.470, abs=0.03)
    assert sum(fednova) / 200 == pytest.approx(0.095, abs=0.01)


def test_settings_with_data_of_their_own_deal_nothing() -> None:
    with pytest.raises(
        ClashError, match="This setting has its own synthetic clients and cannot split Digits"
    ):
        fl.settings.fednova_synthetic().deal(fl.Digits())


def test_settings_of_natural_clients_need_data_that_name_them() -> None:
    source = fl.settings.consensus_femnist().deal(fl.Digits())
    with pytest.raises(
        FieldError, match=r"The data name no clients: .* by fl\.Digits\(\.\.\., num_clients=10\)\."
    ):
        source.load(KEY)
