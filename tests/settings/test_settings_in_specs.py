"""A published setting in a spec: a name or a table, what it fills in, and what is refused."""

from __future__ import annotations

from collections.abc import Callable

import pytest

import fairlead as fl
from fairlead.clients.source import PooledSource
from fairlead.errors import FairleadError
from fairlead.settings import SETTINGS, Setting

HYBRID_PLUS = """
setting = "hybrid_plus"
rounds = 3

[clients]
type = "Digits"

[algorithm]
preset = "fednova"
"""

STATIC = """
[setting]
name = "fedacs_static"
alpha = 0.3

[clients]
type = "Digits"

[algorithm]
preset = "fedavg"
"""


def read(text: str, *overrides: str) -> fl.Experiment:
    return fl.from_toml(fl.Experiment, text, overrides)


def built(setting: Setting, preset: Callable[..., fl.Algorithm], rounds: int) -> fl.Experiment:
    """The same experiment in Python."""
    return fl.Experiment(
        setting.deal(fl.Digits()),
        preset(**setting.client_side()),
        rounds,
        work=setting.work,
        link=setting.link,
    )


def test_a_setting_is_one_name() -> None:
    assert read(HYBRID_PLUS) == built(fl.settings.hybrid_plus(), fl.presets.fednova, 3)


def test_a_setting_with_arguments_is_a_table() -> None:
    assert read(STATIC) == built(fl.settings.fedacs_static(alpha=0.3), fl.presets.fedavg, 200)


@pytest.mark.parametrize("text", [HYBRID_PLUS, STATIC])
def test_the_saved_spec_needs_the_setting_no_more(text: str) -> None:
    experiment = read(text)
    saved = fl.to_toml(experiment)
    assert "setting" not in saved
    assert read(saved) == experiment


@pytest.mark.parametrize("name", SETTINGS)
def test_every_setting_survives_a_spec(name: str) -> None:
    text = f'setting = "{name}"\nalgorithm = {{preset = "fedavg"}}\n'
    setting = SETTINGS[name].build()
    overrides = ["clients.type=Digits"] if setting.clients is None else []
    experiment = read(text, *overrides, *(["rounds=4"] if setting.rounds is None else []))
    assert experiment.algorithm.solver == setting.solver
    assert (experiment.work, experiment.link) == (setting.work, setting.link)
    assert experiment.rounds == (setting.rounds or 4)
    assert experiment.clients == (setting.clients or setting.deal(fl.Digits()))
    assert read(fl.to_toml(experiment)) == experiment


@pytest.mark.parametrize(
    ("text", "overrides", "expected"),
    [
        (HYBRID_PLUS, ["setting.alpha=0.5"], fl.settings.hybrid_plus(0.5)),
        (HYBRID_PLUS, ["setting=hybrid"], fl.settings.hybrid()),
        (HYBRID_PLUS, ["setting=hybrid", "setting.alpha=0.5"], fl.settings.hybrid(0.5)),
        (HYBRID_PLUS, ["setting.alpha=0.5", "setting=hybrid"], fl.settings.hybrid(0.5)),
        (HYBRID_PLUS, ['setting={name="hybrid", alpha=2}'], fl.settings.hybrid(2.0)),
        (HYBRID_PLUS, ["setting=statistical_only"], fl.settings.statistical_only()),
        (STATIC, ["setting=hybrid_plus"], fl.settings.hybrid_plus()),
        (STATIC, ["setting=statistical_only"], fl.settings.statistical_only()),
        (STATIC, ["setting.name=hybrid_plus"], fl.settings.hybrid_plus(0.3)),
    ],
)
def test_overrides_choose_and_change_the_setting(text: str, overrides: list[str], expected: Setting) -> None:
    """Another setting starts without the arguments of the last; arguments are kept wherever they stand."""
    experiment = read(text, *overrides, "rounds=3")
    assert isinstance(experiment.clients, PooledSource)
    assert (experiment.clients.num_clients, experiment.clients.partition) == (
        expected.num_clients,
        expected.partition,
    )
    assert (experiment.work, experiment.link) == (expected.work, expected.link)


def test_a_spec_may_be_made_of_overrides_alone() -> None:
    made = read(
        "", "setting=fedacs_static", "algorithm.preset=fedavg", "clients.type=Digits", "setting.alpha=0.3"
    )
    assert made == read(STATIC)


def test_what_a_spec_says_itself_wins() -> None:
    experiment = read(
        """
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
    )
    assert experiment.link == fl.PerfectLink()
    assert experiment.work == fl.settings.fedacs_dynamic().work
    assert experiment.rounds == 3
    assert isinstance(experiment.clients, PooledSource)
    assert experiment.clients.num_clients == 4
    assert experiment.algorithm == fl.presets.fedavg(lr=0.03, batch_size=1024, steps=7, cohort_size=2)


def test_overrides_win_and_reach_into_what_the_setting_gives() -> None:
    experiment = read(
        HYBRID_PLUS, "work.high=9", "clients.partition.alpha=1", "algorithm.lr=0.5", "algorithm.server.lr=0.1"
    )
    assert experiment.work == fl.RandomEpochsAndBatches(low=2, high=9, min_batch_size=10)
    assert isinstance(experiment.clients, PooledSource)
    assert experiment.clients.partition == fl.DirichletPartitioner(1.0, 10, self_balancing=True)
    assert experiment.algorithm.solver.optimizer == fl.SGD(0.5)
    assert experiment.algorithm.server == fl.SGD(0.1)


@pytest.mark.parametrize(
    ("name", "override", "steps"),
    [("hybrid", "algorithm.steps=7", 7), ("consensus_femnist", "algorithm.epochs=2", None)],
)
def test_steps_take_the_place_of_epochs_and_epochs_of_steps(
    name: str, override: str, steps: int | None
) -> None:
    solver = read(HYBRID_PLUS, f"setting={name}", override).algorithm.solver
    assert (solver.steps, solver.epochs) == (steps, None if steps else 2)


def test_other_data_are_dealt_as_the_setting_says() -> None:
    """A new `type` starts the clients afresh, and the setting deals them again."""
    experiment = read(HYBRID_PLUS, "clients.type=MnistFolder", "clients.path=mnist")
    assert experiment.clients == fl.MnistFolder(
        "mnist", num_clients=100, partition=fl.DirichletPartitioner(0.1, 10, self_balancing=True)
    )


HOSPITALS = """
rounds = 3

[setting]
name = "fedacs_static"

[clients]
type = "CsvTable"
path = "patients.csv"
target = "ill"
client = "hospital"

[algorithm]
preset = "fedavg"
"""


@pytest.mark.parametrize(
    ("text", "overrides"),
    [
        (HOSPITALS, []),
        (HOSPITALS, ["setting=hybrid", "clients.num_clients=4"]),
        (HOSPITALS.replace('client = "hospital"', ""), ["clients.client=hospital"]),
        (HOSPITALS, ["clients.client=hospital", "clients.features=age"]),
    ],
)
def test_named_clients_are_not_dealt_anew_in_silence(text: str, overrides: list[str]) -> None:
    message = (
        r"^clients\.client names the clients \('hospital'\), but the setting would deal their examples anew by its "
        r"DirichletPartitioner: leave out clients\.client, or say which partition, such as "
        r'clients\.partition = { type = "NaturalIdPartitioner" } to keep them\.$'
    )
    with pytest.raises(FairleadError, match=message):
        read(text, *overrides)


def test_named_clients_are_dealt_by_a_partition_of_the_spec() -> None:
    """Partitioners that keep the data's clients keep their number; others deal to the setting's 20."""
    own = 'client = "hospital"\npartition = { type = "%s" }'
    for partition, num_clients in (
        (fl.NaturalIdPartitioner(), None),
        (fl.ReshuffledPartitioner(), None),
        (fl.IidPartitioner(), 20),
    ):
        name = type(partition).__name__
        expected = fl.CsvTable(
            "patients.csv", "ill", "hospital", partition=partition, num_clients=num_clients
        )
        assert read(HOSPITALS.replace('client = "hospital"', own % name)).clients == expected
        assert read(HOSPITALS, f"clients.partition.type={name}").clients == expected


def test_no_partition_keeps_named_clients() -> None:
    own = HOSPITALS.replace('client = "hospital"', 'client = "hospital"\npartition = "none"')
    assert read(own).clients == fl.CsvTable("patients.csv", "ill", "hospital")


def test_without_the_column_the_setting_deals() -> None:
    for text, overrides in (
        (HOSPITALS.replace('client = "hospital"', ""), []),
        (HOSPITALS, ["clients.client=none"]),
    ):
        assert read(text, *overrides).clients == fl.CsvTable(
            "patients.csv", "ill", num_clients=20, partition=fl.DirichletPartitioner(0.1)
        )


def test_a_setting_of_natural_clients_keeps_named_ones() -> None:
    experiment = read(HOSPITALS, "setting=consensus_femnist")
    assert experiment.clients == fl.CsvTable(
        "patients.csv", "ill", "hospital", partition=fl.NaturalIdPartitioner()
    )


def test_natural_clients_are_left_as_they_are() -> None:
    text = 'setting = "consensus_femnist"\nrounds = 1\nalgorithm = {preset = "fedavg"}\n'
    experiment = read(text, "clients.type=LeafFolder", "clients.path=femnist")
    assert experiment.clients == fl.LeafFolder("femnist", partition=fl.NaturalIdPartitioner())
    assert experiment.algorithm == fl.presets.fedavg(lr=0.1, batch_size=None, steps=10, cohort_size=500)


def test_a_setting_with_its_own_data_and_schedule_needs_no_more() -> None:
    """Nothing but the name and the method: data, rounds and the learning rate's schedule come with it."""
    text = 'setting = "fednova_quadratics_random"\nalgorithm = {preset = "fednova"}\n'
    setting = fl.settings.fednova_quadratics_random()
    experiment = read(text, "rounds=5")
    assert (experiment.clients, experiment.work, experiment.rounds) == (setting.clients, setting.work, 5)
    assert experiment.algorithm.solver == setting.solver
    assert read(text, "clients.dim=3").clients == fl.Quadratics(num_clients=30, dim=3, spread=0.1, start=1.0)
    changed = read(text, "setting=fednova_quadratics_equal")
    assert (changed.work, changed.rounds) == (fl.EqualWork(), 1200)


def test_the_schedule_of_a_setting_stays_when_the_solver_is_changed() -> None:
    text = 'setting = "fednova_equal_epochs"\nclients = {type = "Digits"}\nalgorithm = {preset = "fedavg"'
    schedule = fl.settings.fednova_equal_epochs().solver.optimizer.schedule
    for change, expected in (
        ("clip = 1.0", schedule),
        ("optimizer.momentum = 0.5", schedule),
        ('optimizer.schedule = {type = "Constant"}', fl.Constant()),
        ('optimizer = {type = "SGD", lr = 0.1}', fl.Constant()),
    ):
        algorithm = read(f"{text}, solver.{change}}}").algorithm
        assert algorithm.solver.optimizer.schedule == expected


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            'setting = "hybrid-plus"',
            "setting must be the name of a published setting, got 'hybrid-plus'. Did you mean 'hybrid_plus'?",
        ),
        (
            "setting = 3",
            "setting must be the name of a published setting, got 3. See `fairlead list settings`.",
        ),
        (
            '[setting]\nname = "hybrids"',
            "setting.name must be the name of a published setting, got 'hybrids'. Did you mean 'hybrid'?",
        ),
        ("[setting]\nalpha = 1", "setting.name is missing: it must be the name of a published setting."),
        (
            '[setting]\nname = "hybrid"\nalfa = 1',
            "setting.alfa is not an argument of the setting hybrid. Did you mean 'alpha'?",
        ),
        (
            '[setting]\nname = "statistical_only"\nalpha = 1',
            "setting.alpha is not an argument of the setting statistical_only.",
        ),
        ('[setting]\nname = "hybrid"\nalpha = "low"', "setting.alpha must be a number, got 'low'."),
        (
            '[setting]\nname = "hybrid"\nalpha = -1',
            "In setting: DirichletPartitioner.alpha must be a finite number above 0, got -1.0.",
        ),
        (
            '[setting]\nname = "consensus_femnist"\nsteps = 1.5',
            "setting.steps must be a whole number, got 1.5.",
        ),
        ('seting = "hybrid"', "seting is not a field of Experiment. Did you mean 'setting'?"),
        ("zzz = 1", "zzz is not a field of Experiment. Known: algorithm, block, clients, "),
        (
            'learning_rate = 0.1\nalgorithm = {preset = "fedavg"}',
            "learning_rate is not a field of Experiment. Did you mean algorithm.lr?",
        ),
        (
            'regression = true\nclients = {type = "CsvTable"}',
            "regression is not a field of Experiment. Did you mean clients.regression?",
        ),
        (
            'epochs = 2\nalgorithm = {preset = "fedavg"}\nwork = {type = "FixedEpochs"}',
            "epochs is not a field of Experiment. Did you mean algorithm.epochs or work.epochs?",
        ),
        ('lr = 0.1\nalgorithm = {preset = "fedavgg"}', "lr is not a field of Experiment. Known: algorithm"),
        ('setting = "hybrid"\nclients = {type = "Digits"}', "algorithm is missing: Experiment needs it."),
        (
            'setting = "hybrid"\nclients = {type = "Quadratics"}',
            "The setting deals a data set to its clients, and Quadratics makes its own: choose other clients, "
            "or another setting.",
        ),
        (
            'setting = "hybrid"\nclients = {type = "Digits"}\nalgorithm = {preset = "fedavg"}',
            "rounds is missing: Experiment needs it.",
        ),
    ],
)
def test_settings_that_make_no_sense(text: str, message: str) -> None:
    with pytest.raises(FairleadError) as caught:
        read(text)
    assert str(caught.value).startswith(message)


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("setting=hybrib", "setting must be the name of a published setting, got 'hybrib'. Did you mean"),
        ("setting.alpha=low", "setting.alpha must be a number, got 'low'."),
        ("setting.beta=1", "setting.beta is not an argument of the setting hybrid_plus. Known: alpha."),
        ("setting.alpha.x=1", "setting.alpha.x does not exist: setting.alpha is a single value."),
        ("seting=hybrid", "seting is not a field of Experiment. Did you mean 'setting'?"),
    ],
)
def test_overrides_of_settings_that_make_no_sense(override: str, message: str) -> None:
    with pytest.raises(FairleadError) as caught:
        read(HYBRID_PLUS, override)
    assert str(caught.value).startswith(message)


def test_arguments_of_no_setting_are_refused() -> None:
    with pytest.raises(FairleadError, match=r"setting\.name is missing: it must be the name"):
        read("", "setting.alpha=0.5")


def test_the_known_fields_name_the_setting() -> None:
    with pytest.raises(
        FairleadError,
        match=r"zzz is not a field of Experiment\. Known: .*, setting, stop_when, tables_in, task",
    ):
        read("zzz = 1")
