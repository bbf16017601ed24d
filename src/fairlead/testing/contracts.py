"""Contract checks: functions that test whether a part works with all others.

Every check takes an instance and raises an `AssertionError` with a sentence. A part lists the contracts that it
breaks by intention in its class attribute `exemptions`, with the reason.

>>> from fairlead import WeightedMean
>>> check_part(WeightedMean())
"""

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any

from fairlead.aggregators.base import Aggregator
from fairlead.algorithm import Algorithm
from fairlead.clients.partitioners import Partitioner
from fairlead.component import Component
from fairlead.conditions.devices import DeviceModel
from fairlead.conditions.links import LinkModel
from fairlead.conditions.work import WorkModel
from fairlead.corrections.base import Correction
from fairlead.optimizers.base import Optimizer, Schedule
from fairlead.plain_data import from_plain, to_plain
from fairlead.samplers.base import Sampler
from fairlead.testing.client_checks import check_correction, check_optimizer, check_schedule
from fairlead.testing.rounds import require
from fairlead.testing.run_checks import check_algorithm
from fairlead.testing.server_checks import check_aggregator, check_sampler, check_transform
from fairlead.testing.world_checks import check_devices, check_link, check_partitioner, check_work
from fairlead.transforms.base import DirectionTransform

CHECKS: Mapping[type[Component], Callable[[Any], None]] = MappingProxyType(
    {
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
)
"""The check of each role."""

CONTRACTS: Mapping[type[Component], tuple[str, ...]] = MappingProxyType(
    {
        Aggregator: ("zero rows", "identical rows"),
        Correction: ("affine", "neutral"),
        DirectionTransform: ("zero direction",),
        LinkModel: ("independent", "rates"),
        Optimizer: ("at rest",),
        Partitioner: ("different keys",),
        Sampler: ("different keys", "unbiased"),
    }
)
"""Contracts that a part may exempt itself from; all others bind every part."""


def role_of(part: Component) -> type[Component]:
    """The role whose check a part must pass."""
    for role in CHECKS:
        if isinstance(part, role):
            return role
    raise AssertionError(
        f"{type(part).__name__} has no role with a contract: {', '.join(role.__name__ for role in CHECKS)}."
    )


def check_part(part: Component) -> None:
    """Raise an `AssertionError` unless a part keeps the contract of its role and survives a spec."""
    role = role_of(part)
    for contract, reason in part.exemptions.items():
        require(
            contract in CONTRACTS.get(role, ()) and bool(reason),
            f"{type(part).__name__}.exemptions must give a reason for one of "
            f"{list(CONTRACTS.get(role, ()))}, got {contract!r}: {reason!r}.",
        )
    plain = to_plain(part, role)
    require(from_plain(role, plain) == part, f"{part!r} must survive being written in a spec, got {plain}.")
    CHECKS[role](part)
