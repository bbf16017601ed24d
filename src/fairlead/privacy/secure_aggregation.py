"""Secure aggregation: which methods are content with sums of what clients send."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import fields, is_dataclass

from fairlead.aggregators.base import Aggregator
from fairlead.component import Component
from fairlead.errors import ClashError
from fairlead.samplers.base import Sampler
from fairlead.transforms.base import DirectionTransform


def looks_at_single_updates(part: Component) -> str | None:
    """Name of the part, or of one within it, that needs what single clients sent; None: sums will do."""
    for inner in _parts_within(part):
        if isinstance(inner, Aggregator | Sampler | DirectionTransform) and inner.needs_single_updates:
            return type(inner).__name__
    return None


def refuse_single_updates(*parts: Component) -> None:
    """Raise if a part needs more than sums, where the user asks for secure aggregation."""
    for part in parts:
        name = looks_at_single_updates(part)
        if name is not None:
            raise ClashError(
                f"{name} looks at what single clients sent, and secure aggregation shows the server nothing but "
                "sums: leave Algorithm.secure_aggregation out, or use a method of sums such as FedAvg, FedNova or "
                "FedACS."
            )


def _parts_within(part: Component) -> Iterator[Component]:
    """A part and all parts that it is made of."""
    yield part
    if is_dataclass(part):
        for field in fields(part):
            value = getattr(part, field.name)
            for inner in value if isinstance(value, tuple) else (value,):
                if isinstance(inner, Component):
                    yield from _parts_within(inner)
