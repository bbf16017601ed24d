"""Published settings: the figures of the papers, as one name in Python and in a spec."""

from __future__ import annotations

import math
from pathlib import Path

import pytest
import torch

import fairlead as fl
from fairlead.clients import PooledSource
from fairlead.errors import ClashError, FieldError
from fairlead.references import REFERENCES
from fairlead.settings import SETTINGS, Setting

KEY = fl.Key.from_seed(0)


@pytest.mark.parametrize("name", sorted(SETTINGS))
def test_every_setting_runs_by_name(name: str) -> None:
    """Data, work, links and local solver fit together: one round with every preset argument it implies."""
    setting = SETTINGS[name].build()
    if setting.clients is None:
        # 1,438 training digits over 100 clients.
        source: fl.ClientSource = setting.deal(fl.Digits())
    elif isinstance(setting.clients, fl.SyntheticLogistic):
        source = fl.SyntheticLogistic(1.0, 1.0, num_clients=30, max_examples=60)
    else:
        source = setting.clients
    experiment = fl.Experiment(
        source,
        fl.presets.fedavg(**setting.client_side()),
        rounds=1,
        work=setting.work,
        link=setting.link,
    )
    record = next(iter(experiment.build().train(1)))
    assert len(record.asked) == (setting.cohort_size or setting.num_clients)
    assert set(record.arrived) <= set(record.asked)
    assert all(reference in REFERENCES for reference in SETTINGS[name].references)


def steps_of(setting: Setting, size: int, round: int = 0) -> list[int]:
    clients = torch.arange(setting.num_clients)
    sizes = torch.full_like(clients, size)
    steps: list[int] = setting.work.workload(clients, sizes, setting.solver, round, KEY).num_steps.tolist()
    return steps


def rates_of(setting: Setting, round: int = 0) -> list[float]:
    rates = setting.link.arrival(torch.arange(setting.num_clients), round, KEY)
    assert rates is not None
    values: list[float] = rates.tolist()
    return values


def test_settings_of_fedaware() -> None:
    """100 clients, ten asked, η = 0.01, B = 64, E = 3: 500 examples are 3·8 steps."""
    for setting in (fl.settings.statistical_only(), fl.settings.hybrid()):
        assert (setting.num_clients, setting.cohort_size) == (100, 10)
        assert setting.client_side() == {"lr": 0.01, "batch_size": 64, "cohort_size": 10, "epochs": 3}
        assert steps_of(setting, 500) == [24] * 100
        assert rates_of(setting) == [1.0] * 100
    assert fl.settings.statistical_only().partition == fl.ShardPartitioner(2)
    assert fl.settings.hybrid_plus().partition == fl.DirichletPartitioner(0.1)
    # E ≤ 5 epochs of at most 50 batches of ten.
    first, second = (steps_of(fl.settings.hybrid_plus(), 500, round) for round in (0, 1))
    assert first != second
    assert 2 <= min(first) <= max(first) <= 250


def test_settings_of_fednova() -> None:
    """E = 2 with B = 32 gives 16 ≤ τ ≤ 408 for clients of 225 to 6,500 examples; U(2, 5) up to 1,020."""
    equal, drawn = fl.settings.fednova_equal_epochs(), fl.settings.fednova_random_epochs()
    assert (equal.num_clients, equal.cohort_size, equal.rounds) == (16, None, 100)
    assert steps_of(equal, 225) == [16] * 16
    assert steps_of(equal, 6500) == [408] * 16
    assert max(max(steps_of(drawn, 6500, round)) for round in range(20)) == 1020
    optimizer = equal.solver.optimizer
    assert [optimizer.lr_at(time) for time in (0, 49, 50, 75)] == pytest.approx([0.05, 0.05, 0.005, 0.0005])


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
    lrs = [equal.solver.optimizer.lr_at(time) for time in (0, 599, 600, 900)]
    assert lrs == pytest.approx([0.05, 0.05, 0.01, 0.002])


@pytest.mark.parametrize("quadratic", [False, True])
def test_settings_of_fedacs(quadratic: bool) -> None:
    """T = 1, 3, ..., 39 and 1 − q = 0.60, ..., 0.98; or T and q by group, anew in every round."""
    if quadratic:
        static, dynamic = fl.settings.fedacs_quadratics_static(), fl.settings.fedacs_quadratics_dynamic()
    else:
        static, dynamic = fl.settings.fedacs_static(), fl.settings.fedacs_dynamic()
        assert (static.rounds, static.cohort_size) == (200, 6)
    assert static.cohort_size == 6
    assert steps_of(static, 1) == list(range(1, 40, 2))
    assert rates_of(static) == pytest.approx([0.60 + 0.02 * client for client in range(20)])
    for round in range(30):
        steps, rates = steps_of(dynamic, 1, round), rates_of(dynamic, round)
        assert all(1 <= step <= 10 for step in steps[:10])
        assert all(20 <= step <= 30 for step in steps[10:])
        assert all(0.5 <= rate <= 0.6 for rate in rates[:10])
        assert all(0.9 <= rate <= 1.0 for rate in rates[10:])
    assert steps_of(dynamic, 1, 0) != steps_of(dynamic, 1, 1)


def test_quadratics_of_fedacs_figure_4() -> None:
    equal, unequal = fl.settings.fedacs_quadratics_equal(), fl.settings.fedacs_quadratics_unequal()
    varying = fl.settings.fedacs_quadratics_varying()
    assert (equal.num_clients, equal.cohort_size, equal.solver.optimizer.lr) == (30, 15, 0.001)
    assert steps_of(equal, 1) == [15] * 30
    assert rates_of(equal) == [0.8] * 30
    assert steps_of(unequal, 1) == list(range(1, 31))
    assert rates_of(unequal) == pytest.approx([1 - 0.01 * client for client in range(1, 31)])
    rates = rates_of(varying, 5)
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
        for bias, normalise in ((fedavg, False), (fednova, True)):
            limit = problem.limit(steps, 0.002, arrival=rates, normalise=normalise)
            bias.append(float((limit - problem.optimum).norm()))
    assert sum(fedavg) / 200 == pytest.approx(0.470, abs=0.03)
    assert sum(fednova) / 200 == pytest.approx(0.095, abs=0.01)


def test_one_class_per_client() -> None:
    setting = fl.settings.fedacs_static_one_class()
    data = setting.deal(fl.Digits()).load(KEY).train
    for client in range(20):
        assert len(set(data.targets[data.rows_of(client)].tolist())) == 1
    assert setting.client_side()["lr"] == 0.02


def test_settings_with_data_of_their_own_deal_nothing() -> None:
    with pytest.raises(ClashError, match="This setting makes its own data and cannot deal Digits: take its"):
        fl.settings.fednova_synthetic().deal(fl.Digits())


def test_a_setting_is_one_name_in_a_spec() -> None:
    spec = """
        setting = "hybrid_plus"
        rounds = 3
        [clients]
        type = "Digits"
        [algorithm]
        preset = "fednova"
        """
    experiment = fl.from_toml(fl.Experiment, spec)
    setting = fl.settings.hybrid_plus()
    assert experiment.work == setting.work
    assert isinstance(experiment.clients, PooledSource)
    assert (experiment.clients.num_clients, experiment.clients.partition) == (100, setting.partition)
    assert experiment.algorithm == fl.presets.fednova(**setting.client_side())
    assert fl.from_toml(fl.Experiment, fl.to_toml(experiment)) == experiment


def test_what_a_spec_says_itself_wins() -> None:
    spec = """
        setting = "fedacs_dynamic"
        rounds = 3
        [link]
        type = "PerfectLink"
        [clients]
        type = "Digits"
        num_clients = 4
        [algorithm]
        preset = "fedavg"
        steps = 7
        cohort_size = 2
        """
    experiment = fl.from_toml(fl.Experiment, spec)
    assert experiment.link == fl.PerfectLink()
    assert experiment.work == fl.settings.fedacs_dynamic().work
    assert experiment.rounds == 3
    assert isinstance(experiment.clients, PooledSource)
    assert experiment.clients.num_clients == 4
    assert experiment.algorithm == fl.presets.fedavg(lr=0.03, batch_size=1024, steps=7, cohort_size=2)


def test_a_setting_with_its_own_data_and_schedule_needs_no_more() -> None:
    """Nothing but the name and the method: data, rounds and the learning rate's schedule come with it."""
    spec = 'setting = "fednova_quadratics_random"\nalgorithm = {preset = "fednova"}\n'
    experiment = fl.from_toml(fl.Experiment, spec, ["rounds=5"])
    setting = fl.settings.fednova_quadratics_random()
    assert (experiment.clients, experiment.work, experiment.rounds) == (setting.clients, setting.work, 5)
    assert experiment.algorithm.solver == setting.solver
    changed = fl.from_toml(fl.Experiment, spec, ["setting=fednova_quadratics_equal"])
    assert changed.work == fl.EqualWork()
    assert changed.rounds == 1200


def test_the_schedule_of_a_setting_stays_when_the_solver_is_changed() -> None:
    spec = 'setting = "fednova_equal_epochs"\nclients = {type = "Digits"}\nalgorithm = {preset = "fedavg"'
    schedule = fl.settings.fednova_equal_epochs().solver.optimizer.schedule
    for change, expected in (
        ("clip = 1.0", schedule),
        ("optimizer.momentum = 0.5", schedule),
        ('optimizer.schedule = {type = "Constant"}', fl.Constant()),
        ('optimizer = {type = "SGD", lr = 0.1}', fl.Constant()),
    ):
        algorithm = fl.from_toml(fl.Experiment, f"{spec}, solver.{change}}}").algorithm
        assert algorithm.solver.optimizer.schedule == expected


def test_unknown_settings_are_refused() -> None:
    with pytest.raises(
        FieldError, match=r"setting must be the name of a published setting, got 'hybrid-plus'. Did"
    ):
        fl.from_toml(fl.Experiment, 'setting = "hybrid-plus"')
    with pytest.raises(FieldError, match=r"setting must be the name of a published setting, got 3\."):
        fl.from_toml(fl.Experiment, "setting = 3")


def test_devices_and_traces_are_part_of_a_spec(tmp_path: Path) -> None:
    trace = tmp_path / "trace.csv"
    trace.write_text("round,client,steps,arrives\n0,0,3,1\n0,1,2,1\n0,2,9,1\n")
    experiment = fl.Experiment(
        fl.Quadratics(num_clients=3),
        fl.presets.fedavg(lr=0.1),
        rounds=2,
        work=fl.TraceWork(str(trace)),
        link=fl.CombinedLink((fl.TraceLink(str(trace)), fl.DeadlineLink(5.0))),
        devices=fl.TwoGroupDevices(
            1, fl.FixedDevices(step_seconds=(1.0, 2.0, 3.0)), fl.LogNormalDevices(0.5)
        ),
    )
    again = fl.from_toml(fl.Experiment, fl.to_toml(experiment))
    assert again == experiment
    records = list(again.build().train(2))
    assert all(0 in record.arrived for record in records)
    assert all(record.virtual_seconds is not None for record in records)
