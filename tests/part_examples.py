"""Examples of every part: instances for the contract checks and for the tests that run over all parts."""

from __future__ import annotations

import dataclasses
import typing
from collections.abc import Iterator
from typing import Any, Literal, TypeVar, get_args, get_origin

from fairlead.clients.partitioners import SizePartitioner
from fairlead.component import Component, alternatives, parts_of
from fairlead.conditions.links import BernoulliLink, DriftingLink, ScriptedLink, SinusoidalLink
from fairlead.conditions.timed_links import CombinedLink, OutageLink
from fairlead.conditions.work import FixedBatchSizes, FixedEpochs, FixedSteps, ScriptedWork
from fairlead.corrections.compression import CompressedUpdate
from fairlead.errors import FairleadError
from fairlead.optimizers.base import Exponential
from fairlead.optimizers.descent import SGD
from fairlead.plain_data import field_types, is_required, settable_fields
from fairlead.samplers.fixed import ScriptedSampler, WeightedWithReplacement

PartT = TypeVar("PartT", bound=Component)

_GIVEN: dict[type, tuple[Component, ...]] = {
    BernoulliLink: (BernoulliLink(0.3), BernoulliLink((0.0, 0.1, 0.2, 0.5, 0.7, 0.9, 1.0))),
    CompressedUpdate: (
        CompressedUpdate(),
        CompressedUpdate(0.5),
        CompressedUpdate(1.0, 4),
        CompressedUpdate(0.5, 3),
    ),
    CombinedLink: (CombinedLink((BernoulliLink(0.3), OutageLink(0.2))),),
    DriftingLink: (DriftingLink(0.1, 0.7, rounds=4),),
    FixedBatchSizes: (FixedBatchSizes((1, 2, 3, 4, 5, 6, 7)),),
    FixedEpochs: (FixedEpochs((1, 2, 3, 4, 5, 6, 7)),),
    FixedSteps: (FixedSteps((1, 2, 3, 4, 5, 6, 7)),),
    ScriptedLink: (ScriptedLink(((0, 1, 2), (), (3, 6))), ScriptedLink(((0, 1), (6,)), rates=0.4)),
    ScriptedSampler: (
        ScriptedSampler(((0, 0, 2), (1,), (3, 4, 6))),
        ScriptedSampler(((0, 2), (1,)), importance="weights"),
        ScriptedSampler(((0, 0, 2), ()), importance=((0.5, 0.25, 2.0), ())),
    ),
    ScriptedWork: (ScriptedWork(((1, 2, 3, 4, 5, 6, 7), (2, 2, 2, 2, 2, 2, 2))),),
    SinusoidalLink: (SinusoidalLink(0.5, amplitude=0.3, period=5.0),),
    SGD: (
        SGD(0.1),
        SGD(0.1, momentum=0.9, weight_decay=0.1),
        SGD(0.1, momentum=0.9, nesterov=True),
        SGD(0.1, momentum=0.9, dampening=0.5, schedule=Exponential(0.9)),
    ),
    SizePartitioner: (SizePartitioner((60, 20, 0, 20, 10, 9, 1)),),
}
"""Parts whose fields depend on each other, or on the population of the checks."""

_PREFERRED: tuple[Component, ...] = (WeightedWithReplacement(3), BernoulliLink(0.3), SGD(0.1))
"""Examples for fields that hold other parts."""

_FLOATS: dict[str, float] = {"lr": 0.1, "low": 0.1, "high": 0.6}
_INTEGERS: dict[str, int] = {"cohort_size": 3, "low": 1, "high": 3}


def examples(cls: type[PartT]) -> tuple[PartT, ...]:
    """Instances of a part to check: one made from its required fields, and one for every alternative.

    Numbers are 0.5 and 2 unless their name says more; a part-valued field takes an example of its own role;
    then every other value of a `Literal` or `bool` field is tried, one field at a time. A part that cannot
    be made so raises an `AssertionError` with a remedy.
    """
    if cls in _GIVEN:
        return typing.cast("tuple[PartT, ...]", _GIVEN[cls])
    hints = field_types(cls)
    fields = settable_fields(cls)
    try:
        first = cls(
            **{name: _value(name, hints[name]) for name, field in fields.items() if is_required(field)}
        )
    except (FairleadError, TypeError, LookupError) as error:
        raise AssertionError(
            f"No example of {cls.__name__} can be made from its fields ({error}): give its required fields "
            "defaults, or call fairlead.testing.check_part with an instance of your own."
        ) from error
    return first, *_variants(first, {name: hints[name] for name in fields})


def _value(name: str, declared: Any) -> Any:
    """A value for a required field, by its name or else by its type."""
    for option in alternatives(declared):
        origin = get_origin(option)
        if option is type(None):
            return None
        if option is bool:
            return False
        if option is int:
            return _INTEGERS.get(name, 2)
        if option is float:
            return _FLOATS.get(name, 0.5)
        if origin is Literal:
            return get_args(option)[0]
        if origin is tuple:
            first = _value(name, get_args(option)[0])
            return (first, first + 1 if isinstance(first, int) else first)
        if isinstance(option, type) and issubclass(option, Component):
            preferred = (part for part in _PREFERRED if isinstance(part, option))
            return next(preferred, None) or examples(next(iter(parts_of(option).values())))[0]
    raise LookupError(f"no value is known for {name}: {declared}")


def _variants(first: PartT, hints: dict[str, Any]) -> Iterator[PartT]:
    for name, declared in hints.items():
        current = getattr(first, name)
        for value in _choices(declared):
            if value == current:
                continue
            try:
                yield dataclasses.replace(typing.cast("Any", first), **{name: value})
            except FairleadError:
                # Not every alternative goes with the other fields as they stand.
                continue


def _choices(declared: Any) -> Iterator[Any]:
    for option in alternatives(declared):
        if get_origin(option) is Literal:
            yield from get_args(option)
        elif option is bool:
            yield from (False, True)
