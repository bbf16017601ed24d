"""Contract checks of parts, which test whether a part works with all others, and examples of parts to check.

Every check takes an instance and raises an `AssertionError` with a sentence. A part lists the contracts that it
breaks by intention in its class attribute `exemptions`, with the reason.

>>> from fairlead import WeightedMean
>>> check_part(WeightedMean())
"""

import dataclasses
import typing
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Literal, TypeVar, get_args, get_origin

from fairlead.aggregators.base import Aggregator
from fairlead.algorithm import Algorithm
from fairlead.clients.partitioners import Partitioner, SizePartitioner
from fairlead.component import Component, alternatives, constrains, declared_types, parts_of
from fairlead.conditions.devices import DeviceModel
from fairlead.conditions.links import BernoulliLink, DriftingLink, LinkModel, ScriptedLink, SinusoidalLink
from fairlead.conditions.timed_links import CombinedLink, OutageLink
from fairlead.conditions.work import FixedBatchSizes, FixedEpochs, FixedSteps, ScriptedWork, WorkModel
from fairlead.corrections.base import Correction
from fairlead.corrections.compression import CompressedUpdate
from fairlead.errors import FairleadError, FieldError
from fairlead.optimizers.base import Exponential, Optimizer, Schedule
from fairlead.optimizers.descent import SGD
from fairlead.plain_data import field_types, from_plain, is_required, settable_fields, to_plain
from fairlead.samplers.base import Sampler
from fairlead.samplers.fixed import ScriptedSampler, WeightedWithReplacement
from fairlead.testing.client_checks import check_correction, check_optimizer, check_schedule
from fairlead.testing.rounds import fault
from fairlead.testing.run_checks import check_algorithm
from fairlead.testing.server_checks import check_aggregator, check_sampler, check_transform
from fairlead.testing.world_checks import check_devices, check_link, check_partitioner, check_work
from fairlead.transforms.base import DirectionTransform

PartT = TypeVar("PartT", bound=Component)

CHECKS: Mapping[type[Component], Callable[[Any], None]] = {
    Aggregator: check_aggregator,
    Algorithm: check_algorithm,
    Correction: check_correction,
    DeviceModel: check_devices,
    DirectionTransform: check_transform,
    LinkModel: check_link,
    Optimizer: check_optimizer,
    Partitioner: check_partitioner,
    Sampler: check_sampler,
    Schedule: check_schedule,
    WorkModel: check_work,
}
"""The check of each role."""

CONTRACTS: Mapping[type[Component], tuple[str, ...]] = {
    Aggregator: ("zero rows", "identical rows"),
    Correction: ("affine", "neutral"),
    DirectionTransform: ("zero direction",),
    LinkModel: ("independent", "rates"),
    Optimizer: ("at rest",),
    Partitioner: ("different keys",),
    Sampler: ("different keys", "unbiased"),
}
"""Contracts that a part may exempt itself from; all others bind every part."""


def check_part(part: Component) -> None:
    """Raise an `AssertionError` unless a part keeps the contract of its role and survives a spec."""
    role = next((role for role in CHECKS if isinstance(part, role)), None)
    if role is None:
        roles = ", ".join(role.__name__ for role in CHECKS)
        raise AssertionError(f"{type(part).__name__} has no role with a contract: {roles}.")
    for contract, reason in part.exemptions.items():
        if contract not in CONTRACTS.get(role, ()) or not reason:
            raise AssertionError(
                f"{type(part).__name__}.exemptions must give a reason for one of "
                f"{list(CONTRACTS.get(role, ()))}, got {contract!r}: {reason!r}."
            )
    declared = declared_types(type(part)).ranged
    for field in dataclasses.fields(typing.cast("Any", part)):
        if constrains(declared[field.name]) and not _refuses(part, field.name):
            raise fault(part, f"refuse wrong values of {field.name}: call super().__post_init__() in its own")
    plain = to_plain(part, role)
    if from_plain(role, plain) != part:
        raise fault(part, f"survive being written in a spec, got {plain}")
    CHECKS[role](part)


def _refuses(part: Component, field: str) -> bool:
    try:
        dataclasses.replace(typing.cast("Any", part), **{field: object()})
    except FieldError:
        return True
    return False


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
