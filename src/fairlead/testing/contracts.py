"""Contract checks of parts, which test whether a part works with all others.

Every check takes an instance and raises an `AssertionError` with a sentence. A part lists the contracts that it
breaks by intention in its class attribute `exemptions`, with the reason.

>>> from fairlead import WeightedMean
>>> check_part(WeightedMean())
"""

import dataclasses
import typing
from collections.abc import Callable, Mapping
from typing import Any

from fairlead.aggregators.base import Aggregator
from fairlead.algorithm import Algorithm
from fairlead.clients.partitioners import Partitioner
from fairlead.component import Component, constrains, declared_types
from fairlead.conditions.devices import DeviceModel
from fairlead.conditions.links import LinkModel
from fairlead.conditions.work import WorkModel
from fairlead.corrections.base import Correction
from fairlead.errors import FieldError
from fairlead.optimizers.base import Optimizer, Schedule
from fairlead.plain_data import from_plain, to_plain
from fairlead.samplers.base import Sampler
from fairlead.testing.client_checks import check_correction, check_optimizer, check_schedule
from fairlead.testing.rounds import fault
from fairlead.testing.run_checks import check_algorithm
from fairlead.testing.server_checks import check_aggregator, check_sampler, check_transform
from fairlead.testing.world_checks import check_devices, check_link, check_partitioner, check_work
from fairlead.transforms.base import DirectionTransform

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
