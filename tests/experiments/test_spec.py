"""Specs: TOML that round-trips, presets that expand, overrides, and errors that name the field."""

from __future__ import annotations

import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import tomli_w
from hypothesis import given, settings
from hypothesis import strategies as st

import fairlead as fl
from fairlead.errors import FairleadError, FieldError
from fairlead.experiments.spec_fields import argument_parameters
from fairlead.plain_data import to_plain
from fairlead.presets import METHODS

SPEC = """
rounds = 3

[clients]
type = "Digits"
partition = { type = "DirichletPartitioner", alpha = 0.3 }

[algorithm]
preset = "fednova"
lr = 0.05
momentum = 0.9
"""

BY_PARTS = """
rounds = 4
weights = [1, 2]

[clients]
type = "Quadratics"
num_clients = 2

[algorithm.solver]
steps = 2
optimizer = { type = "SGD", lr = 0.1 }
corrections = [{ type = "Proximal", mu = 0.5 }, { type = "ControlVariates" }]

[link]
type = "BernoulliLink"
drop = [0.1, 0.2]
"""


BY_SETTING = """
rounds = 4

[setting]
name = "fednova_equal_epochs"

[clients]
type = "Digits"

[algorithm]
preset = "fednova"
"""


def experiment(text: str = SPEC, *overrides: str) -> fl.Experiment:
    return fl.from_toml(fl.Experiment, text, overrides)


def some_algorithm(name: str) -> fl.Algorithm:
    """A preset with the arguments that it needs."""
    given_ones: dict[str, Any] = {"cohort_size": 3}
    for parameter in argument_parameters(METHODS[name].build):
        if parameter.required:
            given_ones[parameter.name] = 0.25
    if name == "full_participation":
        del given_ones["cohort_size"]
    return METHODS[name].build(**given_ones)


@pytest.mark.parametrize("name", METHODS)
def test_every_preset_survives_toml(name: str) -> None:
    algorithm = some_algorithm(name)
    assert fl.from_toml(fl.Algorithm, fl.to_toml(algorithm)) == algorithm
    whole = fl.Experiment(fl.Digits(), algorithm, rounds=5, weights=(1.0, 2.0), dtype="float64")
    assert fl.from_toml(fl.Experiment, fl.to_toml(whole)) == whole


@pytest.mark.parametrize("name", METHODS)
def test_a_preset_in_a_spec_is_the_preset_in_python(name: str) -> None:
    arguments: dict[str, Any] = {"preset": name, "cohort_size": 3}
    for parameter in argument_parameters(METHODS[name].build):
        if parameter.required:
            arguments[parameter.name] = 0.25
    if name == "full_participation":
        del arguments["cohort_size"]
    assert fl.from_toml(fl.Algorithm, tomli_w.dumps(arguments)) == some_algorithm(name)


def test_a_preset_expands_to_its_parts() -> None:
    read = experiment()
    assert read.algorithm == fl.presets.fednova(lr=0.05, momentum=0.9)
    saved = fl.to_toml(read)
    assert "preset" not in saved
    assert tomllib.loads(saved)["algorithm"]["aggregator"] == {"type": "FedNova"}


def test_parts_beside_a_preset_change_it() -> None:
    """A table with `type` takes the place of the part; one without changes fields, defaults included."""
    changed = experiment(
        SPEC
        + """
        [algorithm.server]
        momentum = 0.5
        [algorithm.sampler]
        type = "WeightedWithReplacement"
        cohort_size = 4
        [algorithm.solver.optimizer]
        lr = 0.2
        """
    )
    assert changed.algorithm.server == fl.SGD(1.0, momentum=0.5)
    assert changed.algorithm.sampler == fl.WeightedWithReplacement(4)
    assert changed.algorithm.solver.optimizer == fl.SGD(0.2, momentum=0.9)
    assert changed.algorithm.aggregator == fl.FedNova()


def test_an_empty_table_beside_a_preset_changes_nothing_but_must_be_known() -> None:
    for part in ("server", "solver", "sampler", "solver.optimizer"):
        assert experiment(f"{SPEC}\n[algorithm.{part}]") == experiment()
    for part, said in (
        ("server.momentun", r"algorithm\.server\.momentun is not a field of SGD"),
        ("server.x.x", r"algorithm\.server\.x is not a field of SGD"),
        ("server.lr", r"algorithm\.server\.lr must be a"),
        ("x.x", r"algorithm\.x is not"),
    ):
        with pytest.raises(FieldError, match=said):
            experiment(f"{SPEC}\n[algorithm.{part}]")


@pytest.mark.parametrize(
    ("overrides", "path", "expected"),
    [
        (["algorithm.server.lr=0.03"], "algorithm.server.lr", 0.03),
        (["algorithm.lr=0.01"], "algorithm.solver.optimizer.lr", 0.01),
        (["algorithm.server.lr=0.03", "algorithm.lr=0.01"], "algorithm.solver.optimizer.lr", 0.01),
        (["algorithm.preset=fedavg"], "algorithm.aggregator", fl.WeightedMean()),
        (["algorithm.epochs=2"], "algorithm.solver.epochs", 2),
        (["algorithm.solver.batch_size=none"], "algorithm.solver.batch_size", None),
        (['algorithm.server={type="Yogi", lr=0.01}'], "algorithm.server", fl.Yogi(0.01)),
        (["algorithm.server.type=Yogi", "algorithm.server.lr=0.5"], "algorithm.server", fl.Yogi(0.5)),
        (["algorithm.server.type=SGD", "algorithm.server.momentum=0.5"], "algorithm.server.momentum", 0.5),
        (["link.type=UniformBernoulliLink", "link.low=0", "link.high=0.5"], "link.high", 0.5),
        (['link={type="BernoulliLink", drop=[0.1, 0.2]}', "link.drop.1=0.7"], "link.drop", (0.1, 0.7)),
        (['algorithm.transforms=[{type="Clip", bound=1}]'], "algorithm.transforms", (fl.Clip(1.0),)),
        (
            ['algorithm.transforms=[{type="Clip", bound=1}]', "algorithm.transforms.0.bound=2"],
            "algorithm.transforms",
            (fl.Clip(2.0),),
        ),
        (
            ['algorithm.transforms=[{type="Clip", bound=1}]', "algorithm.transforms[0].bound=2"],
            "algorithm.transforms",
            (fl.Clip(2.0),),
        ),
        (["clients.partition.alpha = 1"], "clients.partition.alpha", 1.0),
        (["task.model.type=MLP", "task.model.hidden=[8]"], "task.model", fl.MLP((8,))),
        (["device=cpu", "engine=loop"], "engine", "loop"),
        (["seed=7"], "seed", 7),
        (["per_client=true"], "per_client", True),
    ],
)
def test_overrides(overrides: list[str], path: str, expected: object) -> None:
    value: Any = experiment(SPEC, *overrides)
    for name in path.split("."):
        value = getattr(value, name)
    assert value == expected


def test_a_spec_may_be_made_of_overrides_alone() -> None:
    made = experiment(
        "",
        "rounds=1",
        "clients.type=Digits",
        "algorithm.preset=fedprox",
        "algorithm.mu=1",
        "algorithm.lr=0.1",
    )
    assert made == fl.Experiment(fl.Digits(), fl.presets.fedprox(mu=1.0, lr=0.1), rounds=1)


def test_entries_of_lists_of_parts_are_reached_by_number() -> None:
    changed = experiment(BY_PARTS, "algorithm.solver.corrections.0.mu=2")
    assert changed.algorithm.solver.corrections[0] == fl.Proximal(2.0)


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("seed", "An override must be of the form path.to.field=value, got 'seed'."),
        ("=3", "An override must be of the form"),
        ("algorithm..lr=3", "An override must be of the form"),
        ("sed=3", "sed is not a field of Experiment. Did you mean 'seed'?"),
        ("algorithm.sever.lr=1", "algorithm.sever is not an argument of the preset fednova. Did you"),
        ("algorithm.server.lrr=1", "algorithm.server.lrr is not a field of SGD. Did you mean 'lr'?"),
        ("algorithm.server.lr.x=1", "algorithm.server.lr.x does not exist: algorithm.server.lr is a si"),
        ("algorithm.server.type.x=1", "algorithm.server.type.x does not exist: type is a single value."),
        ("algorithm.server.type=Yogy", "algorithm.server.type must be the name of an Optimizer, got 'Yogy'."),
        ("algorithm.server.type=Yogi", "algorithm.server.lr is missing: Yogi needs it."),
        ("algorithm.transforms.0.bound=1", "algorithm.transforms.0 does not exist: algorithm.transforms"),
        ("algorithm.lr=fast", "algorithm.lr must be a number, got 'fast'."),
        ("algorithm.momentom=1", "algorithm.momentom is not an argument of the preset fednova. Did you"),
        ("algorithm.preset=fednovva", "algorithm.preset must be the name of a preset, got 'fednovva'. Did"),
        ("algorithm.preset=fedprox", "algorithm.mu is missing: the preset fedprox needs it."),
        ("algorithm.momentum=1", "In algorithm: SGD.momentum must be a finite number of at least 0 and below 1"),
        ("algorithm.cohort_size=0", "In algorithm: UniformWithoutReplacement.cohort_size must be"),
        ("algorithm=3", "algorithm must be a table that describes an Algorithm, got 3."),
        ("rounds=1.5", "rounds must be a whole number, got 1.5."),
        ("rounds=0", "Experiment.rounds must be a whole number of at least 1, got 0."),
        ("seed=-1", "Experiment.seed must be a whole number of at least 0, got -1."),
        ("seed=9223372036854775808", "seed must be a whole number of at most 9223372036854775807, got 922337"),
        ("seed=-9223372036854775808", "seed must be a whole number of at least -9223372036854775807, got -92"),
        ("algorithm.cohort_size=9223372036854775808", "algorithm.cohort_size must be a whole number of at most 9"),
        ("device=tpu", "Experiment.device must be 'cpu', 'cuda', 'cuda:<number>' or 'mps', got 'tpu'."),
        ("dtype=float16", "dtype must be 'float32' or 'float64', got 'float16'."),
        ("engine=fast", "engine must be one of 'auto', 'loop', 'batched'"),
        ("weights=exampels", "weights must be one of 'examples', 'uniform', a list, 'none', got 'exampels'."),
        ("per_client=True", "per_client must be true or false, got 'True'."),
        ("task.loss=x", "In task: Task.loss must be a function, 'package.module:name' or a known name, got 'x'."),
        ("clients.partition.alpha=-1", "In clients.partition: DirichletPartitioner.alpha must be"),
        ("rounds=1\nseed = 3", "rounds must be a whole number, got '1\\nseed = 3'."),
    ],
)  # fmt: skip
def test_overrides_that_make_no_sense(override: str, message: str) -> None:
    with pytest.raises(FieldError) as caught:
        experiment(SPEC, override)
    assert str(caught.value).startswith(message)


def test_a_field_of_an_algorithm_given_by_parts_is_not_an_argument() -> None:
    with pytest.raises(FieldError, match=r"algorithm.lr is not a field of Algorithm."):
        experiment(BY_PARTS, "algorithm.lr=1")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("rounds = \n", "lossy.toml, line 1: invalid value."),
        ("rounds = 1\nrounds = 2\n", "lossy.toml, line 2: cannot overwrite a value."),
        ("rounds = 1\n[clients\n", "lossy.toml, line 2: expected ']' at the end of a table declaration."),
        ('x = 1\ny = "abc', "lossy.toml, line 2: unterminated string."),
        ("x = " + "9" * 5000, "lossy.toml exceeds the limits of TOML"),
        ("x = " + "[" * 100_000, "lossy.toml exceeds the limits of TOML"),
        ("rounds = 1", "clients is missing: Experiment needs it."),
        ("clients = 3", "algorithm is missing: Experiment needs it."),
        (SPEC.replace("rounds", "round"), "round is not a field of Experiment. Did you mean 'rounds'?"),
        (SPEC + "[server]\n", "server is not a field of Experiment."),
        (SPEC.replace("momentum", "mometum"), "algorithm.mometum is not an argument of the preset fednova."),
        (SPEC.replace('"fednova"', "3"), "algorithm.preset must be the name of a preset, got 3."),
        (
            SPEC.replace('preset = "fednova"', ""),
            "algorithm.preset is missing: algorithm.lr is an argument of a preset.",
        ),
        (
            'rounds = 1\n[clients]\ntype = "Digits"\n[algorithm]\n',
            "algorithm.solver is missing: give it, or a preset that has one.",
        ),
        (SPEC.replace("0.3", "[0.3]"), "clients.partition.alpha must be a number, got [0.3]."),
    ],
)
def test_specs_that_cannot_be_read(tmp_path: Path, text: str, message: str) -> None:
    file = tmp_path / "lossy.toml"
    file.write_text(text)
    with pytest.raises(FieldError) as caught:
        fl.load_experiment(file)
    said = str(caught.value).replace(str(tmp_path) + "/", "")
    assert said.startswith(message)
    assert "\n" not in said


def test_files_that_cannot_be_read(tmp_path: Path) -> None:
    with pytest.raises(
        FieldError, match=r"The spec .*absent.toml cannot be read: No such file or directory\."
    ):
        fl.load_experiment(tmp_path / "absent.toml")
    with pytest.raises(FieldError, match="cannot be read: Is a directory"):
        fl.load_experiment(tmp_path)
    binary = tmp_path / "binary.toml"
    binary.write_bytes(b"\xff\xfe")
    with pytest.raises(FieldError, match="it is not UTF-8 text"):
        fl.load_experiment(binary)


def test_the_seed_given_to_load_wins(tmp_path: Path) -> None:
    file = tmp_path / "spec.toml"
    file.write_text("seed = 1\n" + SPEC)
    assert fl.load_experiment(file).seed == 1
    assert fl.load_experiment(file, ["seed=2"], seed=3).seed == 3


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


def _leaves(node: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    if isinstance(node, dict):
        for key, value in node.items():
            yield from _leaves(value, f"{path}.{key}" if path else key)
    elif isinstance(node, list) and node and isinstance(node[0], dict):
        for place, value in enumerate(node):
            yield from _leaves(value, f"{path}.{place}")
    else:
        yield path, node


def test_overriding_a_value_with_itself_changes_nothing() -> None:
    whole = experiment(BY_PARTS)
    plain = to_plain(whole, fl.Experiment)
    leaves = list(_leaves(plain))
    assert len(leaves) > 10
    for path, value in leaves:
        written = tomli_w.dumps({"x": value}).removeprefix("x = ")
        assert experiment(BY_PARTS, f"{path}={written}") == whole


JUNK = st.recursive(
    st.none().map(lambda _: "none")
    | st.booleans()
    | st.integers(-(2**80), 2**80)
    | st.floats()
    | st.text(st.characters(codec="utf-8"), max_size=8)
    | st.sampled_from(["SGD", "FedNova", "MLP", "fedavg", "hybrid", "Digits", "cpu", "float64"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=6), inner, max_size=3),
    max_leaves=6,
)


@settings(max_examples=300, deadline=None)
@given(base=st.sampled_from([SPEC, BY_PARTS, BY_SETTING]), data=st.data())
def test_damaged_specs_are_read_or_refused_in_one_sentence(base: str, data: st.DataObject) -> None:
    """Replace, add or drop values anywhere: what comes out is an experiment that round-trips, or one
    sentence, and never another kind of error.
    """
    table = tomllib.loads(base)
    for _ in range(data.draw(st.integers(1, 3))):
        node: Any = table
        while True:
            keys = list(node) if isinstance(node, dict) else list(range(len(node)))
            key = data.draw(st.sampled_from(keys)) if keys else None
            deeper = key is not None and isinstance(node[key], dict | list) and data.draw(st.booleans())
            if not deeper:
                break
            node = node[key]
        change = data.draw(st.sampled_from(["replace", "add", "drop"]))
        if change == "add" and isinstance(node, dict):
            node[data.draw(st.text(st.characters(codec="utf-8"), max_size=6))] = data.draw(JUNK)
        elif key is not None and change == "drop":
            del node[key]
        elif key is not None:
            node[key] = data.draw(JUNK)
    said = ""
    try:
        read = fl.from_toml(fl.Experiment, tomli_w.dumps(table))
    except FairleadError as error:
        said = str(error)
    assert said or fl.from_toml(fl.Experiment, fl.to_toml(read)) == read
