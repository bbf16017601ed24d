"""Parts: frozen values found by walking subclasses, so that adding one needs no registration."""

import dataclasses
import inspect
from collections.abc import Iterator, Mapping
from importlib import import_module
from typing import Any, ClassVar, TypeVar

import numpy as np
from torch import Tensor

from fairlead import CONTENTS
from fairlead.errors import FieldError, a_or_an, did_you_mean, short

PartT = TypeVar("PartT", bound="Component")


class Component:
    """Base of everything that can be written in a spec.

    A *role* (`Sampler`, `Aggregator`, ...) is an abstract subclass; a *part* is a frozen dataclass
    whose fields are its hyper-parameters and nothing else. The name of the class is the only name
    of the part: in Python, in TOML, on the command line and in the documentation.
    """

    references: ClassVar[tuple[str, ...]] = ()
    """Keys into `fairlead.references` for the papers that the part implements."""
    exemptions: ClassVar[Mapping[str, str]] = {}
    """Contracts of `fairlead.testing` that do not bind the part, each with the reason."""


class MethodPart(Component):
    """Base of the roles that make up a method: samplers, aggregators, transforms and corrections."""

    needs_single_updates: ClassVar[bool] = False
    """Whether it needs the updates of single clients, which secure aggregation hides."""

    @property
    def needs_effective_steps(self) -> bool:
        """Whether it uses ‖a‖₁, the effective number of local steps, so that only linear solvers will do."""
        return False

    @property
    def needs_arrival(self) -> bool:
        """Whether it uses 1 − q, so that the world must know the arrival rates."""
        return False


def parts_within(part: Component) -> Iterator[Component]:
    """A part and all parts that it is made of."""
    yield part
    if dataclasses.is_dataclass(part):
        for field in dataclasses.fields(part):
            value = getattr(part, field.name)
            for inner in value if isinstance(value, tuple) else (value,):
                if isinstance(inner, Component):
                    yield from parts_within(inner)


def freeze_lists(part: Component) -> None:
    """Turn list, array and tensor fields into tuples, so that a part is an immutable value."""
    assert dataclasses.is_dataclass(part)
    for field in dataclasses.fields(part):
        object.__setattr__(part, field.name, _frozen(getattr(part, field.name)))


def _frozen(value: Any) -> Any:
    if isinstance(value, Tensor | np.ndarray):
        value = value.tolist()
    return tuple(map(_frozen, value)) if isinstance(value, list | tuple) else value


def is_part(cls: type) -> bool:
    """Whether `cls` is a final, public dataclass rather than a role or a family."""
    return dataclasses.is_dataclass(cls) and not inspect.isabstract(cls) and not cls.__name__.startswith("_")


def parts_of(role: type[PartT]) -> dict[str, type[PartT]]:
    """Every final part of a role by class name, those of other packages included."""
    room = role.__module__.rpartition(".")[0]
    for module in CONTENTS:
        if f"fairlead.{module}".startswith(f"{room}."):
            import_module(f"fairlead.{module}")
    found: dict[str, type[PartT]] = {}
    pending = [role]
    while pending:
        cls = pending.pop()
        if is_part(cls):
            found[cls.__name__] = cls
        pending.extend(cls.__subclasses__())
    return dict(sorted(found.items()))


def part_named(role: type[PartT], name: str, where: str) -> type[PartT]:
    """The part of `role` called `name`; `where` is the spec path that the error names."""
    known = parts_of(role)
    if name not in known:
        near = did_you_mean(name, known, otherwise="`fairlead list` shows all.")
        refused = f"{where} must be the name of {a_or_an(role.__name__)}, got {short(name)}.{near}"
        raise FieldError(f"{refused} For a part of your own, import its module: fairlead --import MODULE ...")
    return known[name]


def summary(documented: object) -> str:
    """First paragraph of the docstring of a class or function, for tables."""
    return (inspect.getdoc(documented) or "").split("\n\n", maxsplit=1)[0].replace("\n", " ")
