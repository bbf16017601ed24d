"""Parts as plain data: what is written reads back, and what cannot be read says why."""

from __future__ import annotations

import dataclasses
import tomllib
from dataclasses import dataclass
from typing import Any, Literal, get_args, get_origin

import pytest
import tomli_w
from hypothesis import given, settings
from hypothesis import strategies as st
from part_examples import examples
from torch import nn

import fairlead as fl
from fairlead.component import Component, alternatives, parts_of
from fairlead.errors import FairleadError, FieldError
from fairlead.experiments.catalog import ROLES
from fairlead.plain_data import NONE, field_types, from_plain, settable_fields, to_plain


@dataclass(frozen=True)
class PairOfEnds(Component):
    """A part with the kinds of fields that no shipped part has together."""

    ends: tuple[float, float] = (0.0, 1.0)
    label: str | None = "x"
    mode: Literal["a", "b"] | float | None = "a"
    inner: fl.Task | None = None


ALL_PARTS = [
    (role, cls)
    for kind, roles in ROLES.items()
    if kind != "tables"
    for role in roles
    for cls in parts_of(role).values()
    if cls.__module__.startswith("fairlead")
]


def _has_example(cls: type[Component]) -> bool:
    try:
        return bool(examples(cls))
    except (AssertionError, FairleadError):
        # Sources that read files have no example without a file.
        return False


EXAMPLE_PARTS = [(role, cls) for role, cls in ALL_PARTS if _has_example(cls)]


def _through_toml(part: Component, declared: type[Component]) -> Component:
    return from_plain(declared, tomllib.loads(tomli_w.dumps(to_plain(part, declared))))


def _values(declared: Any) -> st.SearchStrategy[Any]:
    """Values of a declared type, small ones so that most parts take them."""
    options = alternatives(declared)
    if len(options) > 1:
        return st.one_of([_values(option) for option in options])
    (option,) = options
    if get_origin(option) is Literal:
        return st.sampled_from(get_args(option))
    if get_origin(option) is tuple:
        items = get_args(option)
        if items[-1] is not Ellipsis:
            return st.tuples(*map(_values, items))
        return st.lists(_values(items[0]), min_size=1, max_size=3).map(tuple)
    if isinstance(option, type) and issubclass(option, Component):
        known = [part for cls in parts_of(option).values() if _has_example(cls) for part in examples(cls)]
        return st.sampled_from(known)
    simple: dict[Any, st.SearchStrategy[Any]] = {
        type(None): st.none(),
        bool: st.booleans(),
        int: st.integers(0, 9),
        float: st.floats(0, 1) | st.integers(0, 5),
        str: st.sampled_from(["accuracy", "fairlead.task:accuracy"]),
    }
    return simple.get(option, st.nothing())


@pytest.mark.parametrize(("role", "cls"), ALL_PARTS, ids=lambda value: value.__name__)
def test_every_field_of_every_part_can_be_said_in_a_spec(role: type[Component], cls: type[Component]) -> None:
    hints = field_types(cls)
    for name in settable_fields(cls):
        readable = [
            option
            for option in alternatives(hints[name])
            if option in (bool, int, float, str)
            or get_origin(option) in (Literal, tuple)
            or (isinstance(option, type) and issubclass(option, Component))
        ]
        assert readable, f"{cls.__name__}.{name} is declared as {hints[name]}"


@pytest.mark.parametrize(("role", "cls"), EXAMPLE_PARTS, ids=lambda value: value.__name__)
@settings(max_examples=15, deadline=None)
@given(data=st.data())
def test_every_part_reads_back_equal(
    role: type[Component], cls: type[Component], data: st.DataObject
) -> None:
    """An example of each discovered part, with some fields changed at random, through TOML and back."""
    part: Any = data.draw(st.sampled_from(examples(cls)))
    hints = field_types(cls)
    for name in settable_fields(cls):
        strategy = _values(hints[name])
        if not strategy.is_empty and data.draw(st.booleans()):
            try:
                part = dataclasses.replace(part, **{name: data.draw(strategy)})
            except FairleadError:
                # The part does not take this value beside its other fields.
                continue
    assert _through_toml(part, role) == part


def test_none_is_a_word_where_none_is_not_the_default() -> None:
    solver = fl.LocalSolver(fl.SGD(0.1), batch_size=None)
    plain = to_plain(solver, fl.LocalSolver)
    assert plain["batch_size"] == NONE
    assert from_plain(fl.LocalSolver, plain) == solver
    assert from_plain(fl.LocalSolver, {**plain, "batch_size": None}) == solver


def test_fields_at_their_default_are_left_out() -> None:
    assert to_plain(fl.SGD(0.1), fl.Optimizer) == {"type": "SGD", "lr": 0.1}
    assert to_plain(fl.SGD(0.1), fl.SGD) == {"lr": 0.1}


def test_whole_numbers_are_taken_for_numbers() -> None:
    link = from_plain(fl.BernoulliLink, {"drop": [0, 1]})
    assert repr(link.drop) == "(0.0, 1.0)"


@pytest.mark.parametrize(
    ("declared", "data", "message"),
    [
        (fl.Optimizer, {"lr": 0.1}, "x.type is missing: it must name an Optimizer. Known: AMSGrad"),
        (
            fl.Optimizer,
            {"type": "SDG"},
            "x.type must be the name of an Optimizer, got 'SDG'. Did you mean 'SGD'?",
        ),
        (fl.Optimizer, {"type": 3}, "x.type must be the name of an Optimizer, got 3."),
        (fl.Optimizer, 3, "x must be a table that describes an Optimizer, got 3."),
        (fl.SGD, {}, "x.lr is missing: SGD needs it."),
        (fl.SGD, {"lr": 0.1, "momentom": 1}, "x.momentom is not a field of SGD. Did you mean 'momentum'?"),
        (fl.SGD, {"lr": "fast"}, "x.lr must be a number, got 'fast'."),
        (fl.SGD, {"lr": True}, "x.lr must be a number, got True."),
        (fl.SGD, {"lr": 10**400}, "x.lr must be a number, got 1000000"),
        (fl.SGD, {"lr": 0.1, "nesterov": 1}, "x.nesterov must be true or false, got 1."),
        (fl.SGD, {"lr": -1}, "In x: SGD.lr must be a finite number of at least 0, got -1.0."),
        (fl.WeightedMean, {"over": "all"}, "x.over must be 'received' or 'asked', got 'all'."),
        (fl.Milestones, {"times": 3}, "x.times must be a list, got 3."),
        (fl.Milestones, {"times": "3"}, "x.times must be a list, got '3'."),
        (
            fl.Task,
            {"model": {"type": "MLP"}, "metrics": "auc"},
            "x.metrics must be a list such as ['auc'], got 'auc'.",
        ),
        (fl.Milestones, {"times": [1, 2.5]}, "x.times[1] must be a whole number, got 2.5."),
        (
            fl.Milestones,
            {"times": [2**70]},
            "x.times[0] must be a whole number of at most 9223372036854775807, got 1",
        ),
        (
            fl.LocalSolver,
            {"optimizer": {"type": "SGD", "lr": 1}, "epochs": "some"},
            "x.epochs must be a whole",
        ),
        (fl.LocalSolver, {"optimizer": {"type": "SGD"}}, "x.optimizer.lr is missing: SGD needs it."),
        (fl.BernoulliLink, {"drop": "often"}, "x.drop must be a number or a list, got 'often'."),
        (
            fl.LocalSolver,
            {
                "optimizer": {"type": "SGD", "lr": 1},
                "corrections": [{"type": "Proximal", "mu": 1}, {"mu": 2}],
            },
            "x.corrections[1].type is missing: it must name a Correction.",
        ),
        (
            fl.Algorithm,
            {"solver": {"optimizer": {"type": "Adam", "lr": 0.1}}, "aggregator": {"type": "FedNova"}},
            "In x: FedNova needs the effective number of local steps",
        ),
        (PairOfEnds, {"ends": [1.0]}, "x.ends must be a list of 2, got [1.0]."),
        (PairOfEnds, {"mode": "c"}, "x.mode must be one of 'a', 'b', a number, 'none', got 'c'."),
    ],
)
def test_what_cannot_be_read_names_its_path(declared: type[Component], data: object, message: str) -> None:
    with pytest.raises(FairleadError) as caught:
        from_plain(declared, data, "x")
    assert str(caught.value).startswith(message)
    assert "\n" not in str(caught.value)


def test_numbers_too_long_to_print_are_refused_in_words() -> None:
    with pytest.raises(FieldError, match="must be a number, got a number of thousands of digits"):
        from_plain(fl.SGD, {"lr": 16**5000}, "x")


def test_pairs_and_optional_strings_read_back() -> None:
    for pair in (
        PairOfEnds(),
        PairOfEnds((2.0, 3.0), None, 0.5),
        PairOfEnds(mode=None),
        PairOfEnds(label="y", mode="b"),
    ):
        assert from_plain(PairOfEnds, to_plain(pair, PairOfEnds)) == pair


@pytest.mark.parametrize(
    ("part", "message"),
    [
        (PairOfEnds(label=NONE), "label must not be the word 'none'"),
        (fl.Task(nn.Linear(2, 2)), "model holds a Linear, which cannot be written in a spec"),
        (
            fl.Task(fl.MLP(), loss=fl.cross_entropy),
            "loss holds a function, which cannot be written in a spec",
        ),
        (PairOfEnds(inner=fl.Task(nn.Linear(2, 2))), "inner.model holds a Linear"),
    ],
)
def test_what_a_spec_cannot_say_is_refused_with_its_path(part: Component, message: str) -> None:
    with pytest.raises(FieldError) as caught:
        to_plain(part, type(part))
    assert str(caught.value).startswith(message)
