"""Lists of methods: presets and spec files in the place of a spec's own algorithm."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

import fairlead as fl
from fairlead.errors import ClashError, FairleadError
from fairlead.experiments.method_list import listed_methods, on_client_side
from fairlead.experiments.study import planned_comparison, read_seeds, split_values

WORLD = """
rounds = 3
[clients]
type = "Digits"
num_clients = 6
"""
PRESET = (
    WORLD
    + """
[algorithm]
preset = "fedprox"
mu = 0.5
lr = 0.05
steps = 3
cohort_size = 4
[algorithm.solver.optimizer.schedule]
type = "InverseSquareRoot"
[algorithm.server]
lr = 0.7
"""
)


def algorithms(tmp_path: Path, spec: str, methods: str, *overrides: str) -> dict[str, fl.Algorithm]:
    (tmp_path / "spec.toml").write_text(spec)
    found = listed_methods(tmp_path / "spec.toml", methods, overrides)
    return {name: method.experiment.algorithm for name, method in found.items()}


def test_a_preset_keeps_the_client_side_of_the_spec_and_nothing_else(tmp_path: Path) -> None:
    (nova,) = algorithms(tmp_path, PRESET, "fednova").values()
    expected = fl.presets.fednova(lr=0.05, steps=3, cohort_size=4)
    assert (nova.sampler, nova.aggregator, nova.server) == (
        expected.sampler,
        expected.aggregator,
        expected.server,
    )
    assert nova.solver.corrections == ()
    assert nova.solver.steps == 3
    assert nova.solver.optimizer == fl.SGD(0.05, schedule=fl.InverseSquareRoot())


def test_the_preset_of_the_spec_is_the_preset_as_defined_too(tmp_path: Path) -> None:
    """Also its arguments: μ = 0.5 is the spec's, and the preset has no default for it."""
    (prox,) = algorithms(tmp_path, PRESET, "fedprox:mu=0.1").values()
    assert prox.solver.corrections == (fl.Proximal(0.1),)
    assert prox.server == fl.SGD(1.0)


TRANSFORM = (
    WORLD
    + """
[algorithm]
preset = "fedavg"
lr = 0.05
batch_size = 8
transforms = [{ type = "Clip", bound = 0.5 }]
"""
)
SERVER = WORLD + '[algorithm]\npreset = "fedavg"\nlr = 0.05\ncohort_size = 4\n[algorithm.server]\nlr = 0.3\n'


@pytest.mark.parametrize(
    ("spec", "plain"),
    [
        (TRANSFORM, fl.presets.fedavg(lr=0.05, batch_size=8)),
        (SERVER, fl.presets.fedavg(lr=0.05, cohort_size=4)),
    ],
)
def test_fedavg_is_fedavg_and_the_own_algorithm_is_another_row(
    tmp_path: Path, spec: str, plain: fl.Algorithm
) -> None:
    (tmp_path / "study.toml").write_text(spec)
    for methods in ("fedavg,study", f"fedavg,{tmp_path / 'study.toml'}", None):
        found = listed_methods(tmp_path / "study.toml", methods)
        assert list(found) == ["fedavg", "study"]
        assert found["fedavg"].experiment.algorithm == plain
        assert found["study"].experiment == fl.load_experiment(tmp_path / "study.toml")
        assert found["study"].experiment.algorithm != plain
        assert found["study"].from_spec == {"algorithm": "whole"}
        taken = found["fedavg"].from_spec
        assert taken is not None
        assert taken["not_taken"] == ("transforms" if spec == TRANSFORM else "server")


def test_each_method_says_what_it_took_from_the_spec(tmp_path: Path) -> None:
    (tmp_path / "spec.toml").write_text(PRESET)
    found = listed_methods(tmp_path / "spec.toml", "fednova,fedavg:lr=0.2:steps=5")
    assert found["fednova"].from_spec == {
        "optimizer": "SGD",
        "lr": 0.05,
        "schedule": "InverseSquareRoot",
        "steps": 3,
        "batch_size": 32,
        "cohort_size": 4,
        "not_taken": "server, corrections",
    }
    assert found["fedavg:lr=0.2:steps=5"].from_spec == {
        "optimizer": "SGD",
        "schedule": "InverseSquareRoot",
        "batch_size": 32,
        "cohort_size": 4,
        "not_taken": "server, corrections",
    }
    assert found["fedavg:lr=0.2:steps=5"].experiment.algorithm.solver.steps == 5


def test_a_spec_that_is_named_like_a_preset_keeps_its_ending(tmp_path: Path) -> None:
    (tmp_path / "fedavg.toml").write_text(SERVER)
    found = listed_methods(tmp_path / "fedavg.toml", None)
    assert [method.experiment.algorithm.server.lr for method in found.values()] == [1.0, 0.3]
    assert list(found) == ["fedavg", "fedavg.toml"]


def test_values_after_colons_are_overrides_of_the_algorithm(tmp_path: Path) -> None:
    found = algorithms(
        tmp_path, PRESET, "fedprox:mu=0.1,fednova:server.lr=0.5:lr=0.2,fedadam", "algorithm.batch_size=8"
    )
    assert list(found) == ["fedprox:mu=0.1", "fednova:server.lr=0.5:lr=0.2", "fedadam"]
    prox, nova, adam = found.values()
    assert prox.solver.corrections == (fl.Proximal(0.1),)
    assert (nova.server, nova.solver.optimizer.lr) == (fl.SGD(0.5), 0.2)
    assert adam.server == fl.presets.fedadam(lr=1.0).server
    assert {algorithm.solver.batch_size for algorithm in found.values()} == {8}


def test_an_algorithm_by_parts_gives_its_client_side_too(tmp_path: Path) -> None:
    """As the spec.toml of a run has it, whose presets have become parts."""
    original = fl.Experiment(
        fl.Digits(6),
        fl.Algorithm(
            fl.LocalSolver(fl.Adam(0.03), steps=3, batch_size=8, corrections=(fl.Proximal(0.1),)),
            fl.UniformWithoutReplacement(4),
            server=fl.SGD(0.5),
        ),
        rounds=3,
    )
    (avg,) = algorithms(tmp_path, fl.to_toml(original), "fedavg").values()
    assert avg.solver == fl.LocalSolver(fl.Adam(0.03), steps=3, batch_size=8)
    assert avg.sampler == fl.UniformWithoutReplacement(4)
    assert avg.server == fl.presets.fedavg(lr=1.0).server


def test_another_optimizer_than_sgd_reaches_personal_training_and_replaces_no_optimizer_of_a_method(
    tmp_path: Path,
) -> None:
    adam = fl.Adam(0.03, beta2=0.999)
    algorithm = fl.Algorithm(fl.LocalSolver(adam, steps=3, batch_size=8))
    spec = fl.to_toml(fl.Experiment(fl.Digits(6), algorithm, rounds=3))
    ditto, tuned = algorithms(
        tmp_path, spec, "ditto:mu=0.1:personal_lr=0.5,fedavg_finetuned:lr=0.2:beta2=0.9"
    ).values()
    assert ditto.solver.personal is not None
    assert (ditto.solver.optimizer, ditto.solver.personal.optimizer) == (adam, replace(adam, lr=0.5))
    assert (ditto.solver.personal.batch_size, ditto.solver.personal.steps) == (8, 3)
    assert tuned.solver.personal is not None
    assert tuned.solver.optimizer == tuned.solver.personal.optimizer == fl.Adam(0.2, beta2=0.9)
    for name, own in (("pfedme:mu=2", "MoreauSGD"), ("per_fedavg", "MetaSGD"), ("apfl", "MixedSGD")):
        with pytest.raises(ClashError, match=rf"^Method {name}: \w+ trains clients with {own}, which has no"):
            algorithms(tmp_path, spec, name)
    steps = fl.presets.pfedme(lr=0.01, inner_steps=1)
    avg, _ = on_client_side("fedavg", steps)
    assert avg == fl.presets.fedavg(lr=0.01)


def test_a_spec_file_gives_its_algorithm(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    other = WORLD.replace("6", "99") + '[algorithm]\npreset = "fedavg"\nlr = 0.9\n'
    Path("own.toml").write_text(other)
    Path("spec.toml").write_text(PRESET)
    found = listed_methods("spec.toml", "own.toml,own.toml:lr=0.3")
    assert list(found) == ["own", "own:lr=0.3"]
    assert found["own"].experiment.algorithm == fl.presets.fedavg(lr=0.9)
    assert found["own:lr=0.3"].experiment.algorithm == fl.presets.fedavg(lr=0.3)
    assert found["own"].experiment.clients == fl.Digits(6)


@pytest.mark.parametrize(
    ("methods", "message"),
    [
        ("fedavgg", "Method fedavgg: 'fedavgg' is not a preset. Did you mean 'fedavg'?"),
        ("feddyn", "Method feddyn: feddyn needs alpha: write feddyn:alpha=0.1."),
        ("fedprox", "Method fedprox: fedprox needs mu: write fedprox:mu=0.1."),
        ("ditto:lr=0.2", "Method ditto:lr=0.2: ditto needs mu: write ditto:lr=0.2:mu=0.1."),
        ("fedavg:mu=1", "Method fedavg:mu=1: mu is not an argument of the preset fedavg."),
        (
            "fedavg,fedavg:lr=0.05",
            "fedavg and fedavg:lr=0.05 are the same algorithm: leave one of them out.",
        ),
        ("fedavg,fednova,fedavg", "Every method must be listed once, got 'fedavg' 2 times."),
        (
            "absent.toml",
            "Method absent.toml: The spec absent.toml cannot be read: No such file or directory.",
        ),
    ],
)
def test_refusals(tmp_path: Path, methods: str, message: str) -> None:
    with pytest.raises(FairleadError) as caught:
        algorithms(tmp_path, PRESET, methods)
    assert str(caught.value).startswith(message)


def test_the_plan_has_every_method_at_every_seed(tmp_path: Path) -> None:
    (tmp_path / "spec.toml").write_text(PRESET)
    planned = planned_comparison(listed_methods(tmp_path / "spec.toml", "fedavg,fedprox:mu=0.1"), [3, 5])
    assert [run.folder for run in planned] == [
        "fedavg/seed-3",
        "fedprox,mu=0.1/seed-3",
        "fedavg/seed-5",
        "fedprox,mu=0.1/seed-5",
    ]
    assert [run.experiment.seed for run in planned] == [3, 3, 5, 5]
    assert planned[1].labels == {"method": "fedprox:mu=0.1", "seed": 3}
    assert planned[1].name == "fedprox:mu=0.1, seed 3"


def test_lists_of_values() -> None:
    assert split_values("0..3,7", "a list") == ["0", "1", "2", "3", "7"]
    assert split_values("[32],[64, 64],'a,b',x", "a list") == ["[32]", "[64, 64]", "'a,b'", "x"]
    assert split_values("0.1, 1e-3", "a list") == ["0.1", "1e-3"]
    assert split_values("-2..1", "a list") == ["-2", "-1", "0", "1"]
    assert read_seeds("4,0..2, 7") == [4, 0, 1, 2, 7]
    assert read_seeds("9223372036854775807") == [2**63 - 1]


WHOLE = "be different whole numbers from 0 to 9223372036854775807, such as 0..4 or 0,1,2, got"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("0..x", f"{WHOLE} '0..x'."),
        ("-1", f"{WHOLE} '-1'."),
        ("", f"{WHOLE} ''."),
        ("0,", f"{WHOLE} '0,'."),
        ("0,0", f"{WHOLE} '0,0'."),
        ("0..2,01", f"{WHOLE} '0..2,01'."),
        ("9223372036854775808", f"{WHOLE} '9223372036854775808'."),
        ("0,99999999999999999999", f"{WHOLE} '0,99999999999999999999'."),
        ("0..99999999999999999999", f"{WHOLE} '0..99999999999999999999'."),
        ("5..2", "ascend, such as 1..3, to 10000 numbers at most, got '5..2'."),
        ("0..999999999", "ascend, such as 1..3, to 10000 numbers at most, got '0..999999999'."),
    ],
)
def test_seeds_that_are_none(text: str, message: str) -> None:
    with pytest.raises(FairleadError) as caught:
        read_seeds(text)
    assert str(caught.value) == f"--seeds must {message}"
    with pytest.raises(FairleadError) as caught:
        read_seeds(text, "compare.seeds")
    assert str(caught.value) == f"compare.seeds must {message}"


def test_overrides_change_the_spec(tmp_path: Path) -> None:
    own, avg = algorithms(
        tmp_path, PRESET, "spec,fedavg", "algorithm.server.lr=0.4", "algorithm.lr=0.2"
    ).values()
    assert (own.server.lr, avg.server.lr) == (0.4, 1.0)
    assert own.solver.optimizer == avg.solver.optimizer
    with pytest.raises(
        FairleadError, match=r"^--set algorithm.server.lr=0.4 changes the spec's own algorithm"
    ):
        algorithms(tmp_path, PRESET, "fedavg", "algorithm.server.lr=0.4")


def test_a_spec_of_fedavg_alone_has_nothing_to_compare_with(tmp_path: Path) -> None:
    (tmp_path / "study.toml").write_text(WORLD + '[algorithm]\npreset = "fedavg"\nlr = 0.1\n')
    with pytest.raises(
        FairleadError, match=r"^compare needs methods, because the algorithm of .* is FedAvg itself"
    ):
        listed_methods(tmp_path / "study.toml", None)
