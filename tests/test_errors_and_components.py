"""Errors say the field, its value and what is allowed; parts are values that can be found by name."""

from __future__ import annotations

import dataclasses
import functools
import re
from typing import Annotated, Any, Literal, get_type_hints

import numpy as np
import pytest
import torch

import fairlead as fl
from fairlead import errors
from fairlead.component import (
    Component,
    NotNegative,
    Positive,
    PositiveCount,
    is_part,
    part_named,
    parts_of,
    summary,
    worded,
)
from fairlead.errors import ClashError, FairleadError, FieldError, did_you_mean
from fairlead.plain_data import from_plain, to_plain
from fairlead.testing import check_part

anything: Any = fl
"""The library without its types, for values that a type checker would refuse before we do."""


def test_a_part_in_short_has_all_fields_that_are_not_at_their_defaults() -> None:
    """None among them, where it is not the default."""
    assert worded(fl.Krum()) == "Krum"
    assert worded(fl.Krum(keep=None)) == "Krum(keep=None)"


def test_errors_show_no_codes_that_a_terminal_would_obey() -> None:
    error = FieldError("The file a\tb\x1b[2J\u202e\ud800.csv\ncannot be read: über 🙂.")
    assert str(error) == r"The file a\tb\x1b[2J\u202e\ud800.csv\ncannot be read: über 🙂."


REFUSED: list[tuple[Any, str]] = [
    (lambda: anything.SGD(-0.1), "SGD.lr must be a finite number of at least 0, got -0.1."),
    (lambda: anything.SGD(float("nan")), "SGD.lr must be a finite number of at least 0, got nan."),
    (lambda: anything.SGD(True), "SGD.lr must be a finite number of at least 0, got True."),
    (lambda: anything.SGD("0.1"), "SGD.lr must be a finite number of at least 0, got '0.1'."),
    (
        lambda: anything.SGD(0.1, momentum=1.0),
        "SGD.momentum must be a finite number of at least 0 and below 1, got 1.0.",
    ),
    (lambda: anything.SGD(0.1, nesterov="no"), "SGD.nesterov must be a bool, got 'no'."),
    (lambda: anything.FullFirstRound(3), "FullFirstRound.sampler must be a Sampler, got 3."),
    (lambda: anything.Task(fl.MLP(), augment=(3,)), "Task.augment must be an Augmentation, got 3."),
    (lambda: anything.MetaSGD(0.1, delta=0), "MetaSGD.delta must be a finite number above 0, got 0."),
    (lambda: anything.SGD(0.1, nesterov=True), "SGD.nesterov needs momentum above 0 and dampening 0."),
    (
        lambda: anything.SGD(0.1, weight_decay=-1),
        "SGD.weight_decay must be a finite number of at least 0, got -1.",
    ),
    (
        lambda: anything.Adam(0.1, beta2=1),
        "Adam.beta2 must be a finite number of at least 0 and below 1, got 1.",
    ),
    (lambda: anything.Adam(0.1, eps=0), "Adam.eps must be a finite number above 0, got 0."),
    (lambda: anything.AMSGrad(0.1, floor="x"), "AMSGrad.floor must be one of 'square', 'root', got 'x'."),
    (lambda: anything.Proximal(-1), "Proximal.mu must be a finite number of at least 0, got -1."),
    (lambda: anything.Clip(0), "Clip.bound must be a finite number above 0, got 0."),
    (
        lambda: anything.Exponential(1.5),
        "Exponential.gamma must be a finite number above 0 and at most 1, got 1.5.",
    ),
    (
        lambda: anything.Milestones((3, 2)),
        "Milestones.times must be ascending whole numbers of at least 0, got (3, 2).",
    ),
    (lambda: anything.Cosine(0), "Cosine.horizon must be a whole number of at least 1, got 0."),
    (
        lambda: anything.UniformWithoutReplacement(0),
        "UniformWithoutReplacement.cohort_size must be a whole number of at least 1, got 0.",
    ),
    (
        lambda: anything.UniformWithoutReplacement(2.0),
        "UniformWithoutReplacement.cohort_size must be a whole number of at least 1, got 2.0.",
    ),
    (
        lambda: anything.Milestones((2.5,)),
        "Milestones.times must be ascending whole numbers of at least 0, got (2.5,).",
    ),
    (
        lambda: anything.ScriptedSampler(()),
        "ScriptedSampler.cohorts must be at least one list of client ids, got ().",
    ),
    (
        lambda: anything.ScriptedSampler((1, 2)),
        "ScriptedSampler.cohorts must be at least one list of client ids, got (1, 2).",
    ),
    (
        lambda: anything.ScriptedSampler(((-1,),)),
        "ScriptedSampler.cohorts must be at least one list of client ids, got ((-1,),).",
    ),
    (
        lambda: anything.WeightedMean("all"),
        "WeightedMean.over must be one of 'received', 'asked', got 'all'.",
    ),
    (lambda: anything.FedNova(0.0), "FedNova.tau_eff must be a finite number above 0, got 0.0."),
    (
        lambda: anything.LocalSolver(anything.SGD(0.1), epochs=1, steps=2),
        "LocalSolver takes epochs or steps, not both; got epochs=1 and steps=2.",
    ),
    (
        lambda: anything.LocalSolver(anything.SGD(0.1), batch_size=0),
        "LocalSolver.batch_size must be a whole number of at least 1, got 0.",
    ),
    (
        lambda: anything.LocalSolver(anything.SGD(0.1), clip=0.0),
        "LocalSolver.clip must be a finite number above 0, got 0.0.",
    ),
    (
        lambda: anything.ControlVariates("both"),
        "ControlVariates.estimate must be one of 'path', 'anchor', got 'both'.",
    ),
    (
        lambda: anything.presets.fedavg(lr=0.1, epoch=2),
        "'epoch' is not an argument of this preset. Did you mean 'epochs'?",
    ),
    (lambda: anything.presets.fedavg(), "Presets need lr, the learning rate of the clients."),
    (
        lambda: anything.presets.fedacs(lr=0.1),
        "cohort_size is missing: this method draws with replacement.",
    ),
    (lambda: anything.presets.method_named("fedavgg"), "'fedavgg' is not a preset. Did you mean 'fedavg'?"),
]


@pytest.mark.parametrize(("make", "sentence"), REFUSED, ids=[sentence[:40] for _, sentence in REFUSED])
def test_values_that_are_not_allowed_are_refused_with_a_sentence(make: Any, sentence: str) -> None:
    with pytest.raises(FieldError) as caught:
        make()
    assert str(caught.value) == sentence


CLASHES: list[tuple[Any, str]] = [
    (
        lambda: fl.presets.scaffold(lr=0.1, clip=1.0),
        "does not exist with LocalSolver.clip because the update is then not linear",
    ),
    (
        lambda: fl.LocalSolver(fl.Adam(0.1), corrections=(fl.ControlVariates(),)),
        "does not exist with Adam because the update is then not linear",
    ),
    (
        lambda: fl.presets.fednova(lr=0.1, clip=1.0),
        "FedNova needs the effective number of local steps, which does not exist with LocalSolver.clip",
    ),
    (
        lambda: fl.LocalSolver(fl.SGD(0.1), corrections=(fl.ControlVariates(), fl.ControlVariates("anchor"))),
        "ControlVariates and ControlVariates in LocalSolver.corrections both keep 'control' between rounds",
    ),
    (
        lambda: fl.LocalSolver(fl.SGD(0.1), corrections=(fl.ClientMomentum(), fl.ClientMomentum(0.5))),
        "both keep 'momentum' between rounds: remove one of them",
    ),
    (
        lambda: fl.LocalSolver(fl.SGD(0.1), corrections=(fl.ControlVariates(), fl.VRLSGD())),
        "ControlVariates reads the clients' gradients from their updates, and would mistake the terms of VRLSGD in",
    ),
    (
        lambda: fl.LocalSolver(fl.SGD(0.1), corrections=(fl.ControlVariates("anchor"), fl.ClientMomentum())),
        "ClientMomentum reads the clients' gradients from their updates",
    ),
]


@pytest.mark.parametrize(("make", "sentence"), CLASHES, ids=[sentence[:40] for _, sentence in CLASHES])
def test_combinations_that_make_no_sense_are_refused_with_cause_and_cure(make: Any, sentence: str) -> None:
    with pytest.raises(ClashError) as caught:
        make()
    assert sentence in str(caught.value)


def test_every_error_is_a_fairlead_error_and_a_python_one() -> None:
    kinds = [
        value
        for value in vars(errors).values()
        if isinstance(value, type) and issubclass(value, FairleadError)
    ]
    assert len(kinds) >= 7
    for kind in kinds:
        if kind is not FairleadError:
            assert len([base for base in kind.__mro__ if issubclass(base, Exception)]) >= 3


def test_the_nearest_name_is_proposed_or_all_are_listed() -> None:
    assert did_you_mean("epochz", ("epochs", "steps")) == " Did you mean 'epochs'?"
    assert did_you_mean("learning_rate", ("lr", "epochs")) == " Did you mean 'lr'?"
    assert did_you_mean("mse", ("mean_squared_error", "rmse")) == " Did you mean 'mean_squared_error'?"
    assert did_you_mean("f1", ("f1_macro", "f1_binary", "r2")) == " Did you mean 'f1_binary' or 'f1_macro'?"
    assert did_you_mean("expected_calibration_error", ("accuracy", "calibration_error")) == (
        " Did you mean 'calibration_error'?"
    )
    assert did_you_mean("peak_gpu_memory_of_all", ("memory", "seconds")) == " Did you mean 'memory'?"
    assert did_you_mean("xyz", ("b", "a")) == " Known: a, b."
    assert did_you_mean("fedfoo", ("fedyogi", "fedprox"), otherwise="See all.") == " See all."
    assert did_you_mean("xyz", ()) == ""


def test_parts_are_values() -> None:
    one, other = (fl.presets.fednova(lr=0.1, momentum=0.9, cohort_size=3) for _ in range(2))
    assert one == other
    assert hash(one) == hash(other)
    assert one != fl.presets.fednova(lr=0.2, momentum=0.9, cohort_size=3)
    with pytest.raises(dataclasses.FrozenInstanceError):
        one.server = fl.SGD(2.0)  # type: ignore[misc]


@pytest.mark.parametrize("cohorts", [[[0, 1], [2]], ((0, 1), (2,)), ([0, 1], (2,))])
def test_lists_become_tuples_whoever_made_them(cohorts: Any) -> None:
    assert fl.ScriptedSampler(cohorts).cohorts == ((0, 1), (2,))


@pytest.mark.parametrize("convert", [np.array, torch.tensor, list])
def test_arrays_and_tensors_become_tuples(convert: Any) -> None:
    made = fl.FixedSteps(convert([1, 2]))
    assert made.steps == (1, 2)
    assert hash(made) == hash(fl.FixedSteps((1, 2)))


def test_a_field_that_a_part_gives_another_default_keeps_its_range() -> None:
    """A subclass that declares a field anew replaces the type, and with it the range."""
    pending, loosened = list[type[Any]]([Component]), []
    while pending:
        cls = pending.pop()
        pending += cls.__subclasses__()
        for base in cls.__mro__[1:] if dataclasses.is_dataclass(cls) else ():
            if dataclasses.is_dataclass(base):
                types, own = (get_type_hints(each, include_extras=True) for each in (base, cls))
                names = (field.name for field in dataclasses.fields(base))
                loosened += [(cls.__name__, name) for name in names if types[name] != own[name]]
    assert loosened == []


@dataclasses.dataclass(frozen=True)
class Declared(Component):
    """Fields of all kinds that a type can constrain."""

    mixed: Literal["median"] | Positive | None = None
    several: tuple[Positive, ...] | PositiveCount = ()
    pair: tuple[NotNegative, Literal["a", "b"]] = (0.0, "a")
    inner: tuple[fl.Schedule, ...] = ()
    flag: bool = False
    noted: Annotated[float, "a note, which is no range"] = 0.0
    free: float | tuple[float, ...] | str = 0.0


@pytest.mark.parametrize(
    ("field", "value", "constraint"),
    [
        ("mixed", "mean", "one of 'median'"),
        ("mixed", -1, "a finite number above 0"),
        ("mixed", True, "a finite number above 0"),
        ("mixed", [1.0], "a finite number above 0"),
        ("several", 0, "a whole number of at least 1"),
        ("several", [1.0, "x"], "a whole number of at least 1"),
        ("pair", (0.0, "c"), "one of 'a', 'b'"),
        ("pair", 1.0, "a tuple"),
        ("inner", [3], "a Schedule"),
        ("flag", "no", "a bool"),
        ("flag", 1, "a bool"),
        ("flag", None, "a bool"),
    ],
)
def test_a_field_takes_the_values_that_its_type_states(field: str, value: Any, constraint: str) -> None:
    for make in (Declared, functools.partial(dataclasses.replace, Declared(mixed=2.0))):
        with pytest.raises(FieldError, match=re.escape(f"Declared.{field} must be {constraint}, got ")):
            make(**{field: value})


def test_every_member_of_a_union_of_types_is_taken_and_comes_back_from_a_spec() -> None:
    for given in (
        {"mixed": "median"},
        {"mixed": 0.5, "several": [1.0, 0.1]},
        {"several": 2, "pair": [1, "b"], "flag": True, "noted": -1.0, "free": "x"},
        {"inner": [fl.Exponential(0.5)], "free": (-1.0, 2.0)},
    ):
        part = Declared(**given)
        assert from_plain(Declared, to_plain(part, Declared)) == part


def test_a_part_that_leaves_its_types_unchecked_breaks_its_contract() -> None:
    @dataclasses.dataclass(frozen=True)
    class _Careless(fl.Clip):
        def __post_init__(self) -> None:
            """Without that of the base."""

    with pytest.raises(AssertionError, match=r"must refuse wrong values of bound: call super\(\)"):
        check_part(_Careless(1.0))


def test_parts_are_found_by_walking_subclasses() -> None:
    found = parts_of(fl.Optimizer)  # type: ignore[type-abstract]
    assert {"SGD", "Adam", "Yogi", "Adagrad", "AMSGrad"} <= set(found)
    assert not any(name.startswith("_") for name in found)
    assert list(found) == sorted(found)
    assert not is_part(fl.Optimizer)
    assert is_part(fl.SGD)


def test_a_part_is_looked_up_by_its_class_name() -> None:
    assert part_named(fl.Optimizer, "SGD", "x") is fl.SGD  # type: ignore[type-abstract]
    with pytest.raises(
        FieldError, match=r"server\.type must be the name of an Optimizer, got 'Sgd'\. Did you mean 'SGD'"
    ):
        part_named(fl.Optimizer, "Sgd", "server.type")  # type: ignore[type-abstract]


def test_the_summary_is_the_first_sentence_of_the_docstring() -> None:
    assert summary(fl.WeightedMean) == "Averages updates by their importance."
