"""A preset: what all have in common, and the table of them by name."""

from collections.abc import Callable
from dataclasses import dataclass, fields
from functools import wraps
from inspect import Parameter, signature
from typing import Any, Literal, ParamSpec, Required, TypedDict

from fairlead.algorithm import Algorithm
from fairlead.corrections.base import Correction
from fairlead.errors import FieldError, require_name
from fairlead.local_solver import LocalSolver
from fairlead.optimizers.base import Schedule
from fairlead.optimizers.descent import SGD
from fairlead.samplers.base import Sampler
from fairlead.samplers.fixed import FullParticipation, UniformWithoutReplacement, WeightedWithReplacement


class ClientSide(TypedDict, total=False):
    """Arguments that all presets share: local work, and the number of clients in a cohort."""

    lr: Required[float]
    momentum: float
    nesterov: bool
    dampening: float
    weight_decay: float
    schedule: Schedule
    """Of the learning rate by round; constant if not given."""
    step_schedule: Schedule
    """Of the learning rate by local step; constant if not given."""
    epochs: int | None
    """1 if neither epochs nor steps are given."""
    steps: int | None
    batch_size: int | None
    """Examples a step, 32 if not given; none: all."""
    clip: float | None
    replacement: bool
    """Draw the cohort by weight with replacement instead of uniformly without (Wang 2021, Theorem 3)."""
    cohort_size: int | None
    """Clients asked in a round; all if not given. For methods that draw with replacement, the draws."""


Correctable = Literal["work", "links", "drift"]
_Arguments = ParamSpec("_Arguments")


@dataclass(frozen=True)
class Method:
    """A preset with its papers and claims."""

    name: str
    build: Callable[..., Algorithm]
    corrects: tuple[Correctable, ...]
    """Inequalities that do not bias its limit: work, links, or the drift of heterogeneous clients."""
    references: tuple[str, ...]


METHODS: dict[str, Method] = {}


def method(
    *references: str, corrects: tuple[Correctable, ...] = ()
) -> Callable[[Callable[_Arguments, Algorithm]], Callable[_Arguments, Algorithm]]:
    """Enter a preset into the table of methods."""

    def enter(build: Callable[_Arguments, Algorithm]) -> Callable[_Arguments, Algorithm]:
        name, needed = build.__name__, needed_arguments(build)

        @wraps(build)
        def checked(*args: _Arguments.args, **given: _Arguments.kwargs) -> Algorithm:
            for argument in needed:
                if argument not in given:
                    raise FieldError(f"{name} needs {argument}: write {name}({argument}=0.1).")
            return build(*args, **given)

        METHODS[name] = Method(name, checked, corrects, references)
        return checked

    return enter


def needed_arguments(build: Callable[..., Algorithm]) -> list[str]:
    """The arguments of a preset that have no default, besides those of the client side."""
    return [
        name
        for name, argument in signature(build).parameters.items()
        if argument.default is Parameter.empty and argument.kind is not Parameter.VAR_KEYWORD
    ]


def method_named(name: str) -> Method:
    """The method whose preset is called `name`."""
    otherwise = "`fairlead list methods` shows all; --import MODULE adds your own."
    require_name(name, METHODS, "a preset", otherwise=otherwise)
    return METHODS[name]


def solver_of(clients: ClientSide, *corrections: Correction) -> LocalSolver:
    for name in clients:
        require_name(name, ClientSide.__annotations__, "an argument of this preset")
    if "lr" not in clients:
        raise FieldError("Presets need lr, the learning rate of the clients.")
    given: dict[str, Any] = {**clients}
    optimizer, solver = (
        {field.name: given[field.name] for field in fields(part) if field.name in given}
        for part in (SGD, LocalSolver)
    )
    return LocalSolver(SGD(**optimizer), corrections=corrections, **solver)


def sampler_of(clients: ClientSide) -> Sampler:
    cohort_size = clients.get("cohort_size")
    if clients.get("replacement", False):
        return WeightedWithReplacement(draws_of(clients))
    return FullParticipation() if cohort_size is None else UniformWithoutReplacement(cohort_size)


def draws_of(clients: ClientSide) -> int:
    cohort_size = clients.get("cohort_size")
    if not clients.get("replacement", True):
        raise FieldError("This method draws with replacement: leave the argument replacement out.")
    if cohort_size is None:
        raise FieldError("cohort_size is missing: this method draws with replacement.")
    return cohort_size
