"""Parts: frozen values found by walking subclasses, so that adding one needs no registration."""

from __future__ import annotations

import dataclasses
import inspect
import types
import typing
from collections.abc import Callable, Iterator, Mapping
from importlib import import_module
from itertools import groupby
from typing import (
    Annotated,
    Any,
    ClassVar,
    Literal,
    NamedTuple,
    Protocol,
    TypeVar,
    Union,
    get_args,
    get_origin,
    runtime_checkable,
)
from weakref import WeakKeyDictionary

import numpy as np
from torch import Tensor

from fairlead import CONTENTS
from fairlead.errors import (
    FieldError,
    a_or_an,
    did_you_mean,
    field_error,
    integer_fault,
    is_integer,
    number_fault,
    short,
)

PartT = TypeVar("PartT", bound="Component")


@runtime_checkable
class Range(Protocol):
    """The values that a field takes: `Annotated[float, ...]` in its type states one, or several that all apply."""

    def fault(self, value: Any) -> str:
        """The constraint that a value breaks, as in "must be ..."; empty if there is none."""


class RealRange(NamedTuple):
    """The numbers that a field takes: `alpha: Annotated[float, RealRange(above=0, at_most=1)]`."""

    above: float | None = None
    at_least: float | None = None
    below: float | None = None
    at_most: float | None = None

    def __repr__(self) -> str:
        words = (
            f"{name.replace('_', ' ')} {end:g}" for name, end in self._asdict().items() if end is not None
        )
        return " and ".join(words) or "finite"

    def fault(self, value: object) -> str:
        return number_fault(value, *self)


class WholeRange(NamedTuple):
    """The whole numbers that a field takes: `steps: Annotated[int, WholeRange(1, MOST_STEPS)]`."""

    at_least: int
    at_most: int | None = None

    def __repr__(self) -> str:
        return f"at least {self.at_least}" + ("" if self.at_most is None else f" and at most {self.at_most}")

    def fault(self, value: object) -> str:
        return integer_fault(value, *self)


class WholeList(NamedTuple):
    """The whole numbers that a list holds, and how many it needs: `sizes: Annotated[tuple[int, ...], WholeList(0)]`."""

    at_least: int
    at_most: int | None = None
    fewest: int = 0
    noun: str = "whole numbers"

    def __repr__(self) -> str:
        return f"{self.noun} of at least {self.at_least}"

    def fault(self, value: object) -> str:
        numbers = value if isinstance(value, tuple) else (None,)
        if len(numbers) < self.fewest or not all(is_integer(number, self.at_least) for number in numbers):
            return repr(self)
        too_large = self.at_most is not None and max(numbers, default=0) > self.at_most
        return f"{self.noun} of at most {self.at_most}" if too_large else ""


Finite = Annotated[float, RealRange()]
NotNegative = Annotated[float, RealRange(at_least=0)]
Positive = Annotated[float, RealRange(above=0)]
BelowOne = Annotated[float, RealRange(at_least=0, below=1)]
UnitInterval = Annotated[float, RealRange(at_least=0, at_most=1)]
PositiveShare = Annotated[float, RealRange(above=0, at_most=1)]
NaturalNumber = Annotated[int, WholeRange(0)]
PositiveCount = Annotated[int, WholeRange(1)]


class Component:
    """Base of everything that can be written in a spec.

    A *role* (`Sampler`, `Aggregator`, ...) is an abstract subclass; a *part* is a frozen dataclass
    whose fields are its hyper-parameters and nothing else. The name of the class is the only name
    of the part: in Python, in TOML, on the command line and in the documentation.

    A field says in its type which values it takes: a range, the choices of a `Literal`, or a role. A part whose
    fields depend on each other adds a `__post_init__`, which first calls that of `super()`.
    """

    references: ClassVar[tuple[str, ...]] = ()
    """Keys into `fairlead.references` for the papers that the part implements."""
    exemptions: ClassVar[Mapping[str, str]] = {}
    """Contracts of `fairlead.testing` that do not bind the part, each with the reason."""

    def __post_init__(self) -> None:
        ranged = declared_types(type(self)).ranged
        for field in dataclasses.fields(typing.cast("Any", self)):
            value = _frozen(getattr(self, field.name))
            object.__setattr__(self, field.name, value)
            refused = _refused(value, ranged[field.name])
            if refused is not None:
                raise field_error(self, field.name, *refused)


class MethodPart(Component):
    """Base of the roles that make up a method: samplers, aggregators, transforms and corrections."""

    needs_single_updates: ClassVar[bool] = False
    """Whether it needs the updates of single clients, which secure aggregation hides."""

    @property
    def needs_effective_steps(self) -> bool:
        """Whether it uses ‖a‖₁, the effective number of local steps, so that only linear solvers will do."""
        return any(part.needs_effective_steps for part in self.wrapped)

    @property
    def needs_arrival(self) -> bool:
        """Whether it uses 1 − q, so that the world must know the arrival rates."""
        return any(part.needs_arrival for part in self.wrapped)

    @property
    def wrapped(self) -> tuple[MethodPart, ...]:
        """The parts around which it is put, which need the same."""
        return tuple(value for value in vars(self).values() if isinstance(value, MethodPart))


def parts_within(part: Component) -> Iterator[Component]:
    """A part and all parts that it is made of."""
    yield part
    if dataclasses.is_dataclass(part):
        for field in dataclasses.fields(part):
            value = getattr(part, field.name)
            for inner in value if isinstance(value, tuple) else (value,):
                if isinstance(inner, Component):
                    yield from parts_within(inner)


def _frozen(value: Any) -> Any:
    """Tuples in place of lists, arrays and tensors, so that a part is an immutable value."""
    if isinstance(value, Tensor | np.ndarray):
        value = value.tolist()
    return tuple(map(_frozen, value)) if isinstance(value, list | tuple) else value


def alternatives(declared: Any) -> tuple[Any, ...]:
    """The types that a declared type allows: the members of a union, or the type itself."""
    return get_args(declared) if get_origin(declared) in (Union, types.UnionType) else (declared,)


class DeclaredTypes(NamedTuple):
    """The types of a class's fields, resolved from their annotations."""

    plain: dict[str, Any]
    ranged: dict[str, Any]
    """With the values that they take."""


# Kept, because resolving types takes most of the time of reading a spec; weakly, so that own parts can be deleted.
_DECLARED: WeakKeyDictionary[type, DeclaredTypes] = WeakKeyDictionary()


def declared_types(cls: type) -> DeclaredTypes:
    """Declared types of a part's fields."""
    if cls not in _DECLARED:
        plain, ranged = (typing.get_type_hints(cls, include_extras=extras) for extras in (False, True))
        _DECLARED[cls] = DeclaredTypes(plain, ranged)
    return _DECLARED[cls]


def _refused(value: Any, declared: Any) -> tuple[str, Any] | None:
    """The constraint of a declared type that a value or an entry of it breaks, and which; None if it fits.

    A type states a constraint by its ranges, as a choice, and as a role or `bool`. Of a union one member must fit; the
    choices of a `Literal` are for strings, and the others for the rest.
    """
    options = alternatives(declared)
    kinds = [kind for kind in options if kind is not type(None)]
    if value is None and len(kinds) < len(options):
        return None
    fitting = [kind for kind in kinds if (get_origin(kind) is Literal) == isinstance(value, str)]
    refused = [_refused_by(value, kind) for kind in (fitting if len(kinds) > 1 and fitting else kinds)]
    return None if None in refused else refused[-1]


def _refused_by(value: Any, kind: Any) -> tuple[str, Any] | None:
    """The same for a type that is no union."""
    origin, inside = get_origin(kind), get_args(kind)
    if origin is Annotated:
        faults = (rule.fault(value) for rule in kind.__metadata__ if isinstance(rule, Range))
        fault = next(filter(None, faults), "")
        return (fault, value) if fault else _refused(value, inside[0])
    if origin is Literal:
        return None if value in inside else ("one of " + ", ".join(map(repr, inside)), value)
    if origin is tuple and any(map(constrains, inside)):
        if not isinstance(value, tuple):
            return "a tuple", value
        each = inside[:1] * len(value) if inside[1:] == (...,) else inside
        refused = (_refused(entry, own) for entry, own in zip(value, each, strict=False))
        return next((found for found in refused if found), None)
    named = kind is bool or is_role(kind)
    return (a_or_an(kind.__name__), value) if named and not isinstance(value, kind) else None


def constrains(declared: Any) -> bool:
    """Whether a type states a constraint, so that entries of long lists must be looked at."""
    return any(
        get_origin(kind) in (Annotated, Literal)
        or kind is bool
        or is_role(kind)
        or (get_origin(kind) is tuple and any(map(constrains, get_args(kind))))
        for kind in alternatives(declared)
    )


def is_role(declared: Any) -> bool:
    """Whether a declared type is a role or a part."""
    return inspect.isclass(declared) and issubclass(declared, Component)


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


def worded(value: object) -> str:
    """A part with the fields that are not at their defaults; equal neighbors of a list are counted."""
    if isinstance(value, Component) and dataclasses.is_dataclass(value):
        own = [(each, getattr(value, each.name)) for each in dataclasses.fields(value)]
        told = [
            f"{each.name}={worded(content)}"
            for each, content in own
            # Data in memory have no short text.
            if isinstance(content, Component | tuple | Mapping | str | int | float | Callable | None)
            and content != each.default
        ]
        return f"{type(value).__name__}({', '.join(told)})" if told else type(value).__name__
    if isinstance(value, tuple):
        groups = [(worded(item), len(list(same))) for item, same in groupby(value)]
        return ", ".join(f"{count} × {text}" if count > 1 else text for text, count in groups).join("[]")
    return getattr(value, "__name__", type(value).__name__) if callable(value) else str(value)
