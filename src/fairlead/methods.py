"""The table of methods: presets by name, with what is known of each."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, ParamSpec, Required, TypedDict

from fairlead.algorithm import Algorithm
from fairlead.errors import FieldError, did_you_mean


class ClientSide(TypedDict, total=False):
    """What clients do, and how many are asked."""

    lr: Required[float]
    momentum: float
    nesterov: bool
    weight_decay: float
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


Cause = Literal["work", "links", "drift"]
Arguments = ParamSpec("Arguments")


@dataclass(frozen=True)
class Method:
    """A preset with what is known of it."""

    name: str
    build: Callable[..., Algorithm]
    corrects: tuple[Cause, ...]
    """What cannot move its limit: unequal work, unequal links, the drift of heterogeneous clients."""
    references: tuple[str, ...]


METHODS: dict[str, Method] = {}


def method(
    *references: str, corrects: tuple[Cause, ...] = ()
) -> Callable[[Callable[Arguments, Algorithm]], Callable[Arguments, Algorithm]]:
    """Enter a preset into the table of methods."""

    def enter(build: Callable[Arguments, Algorithm]) -> Callable[Arguments, Algorithm]:
        METHODS[build.__name__] = Method(build.__name__, build, corrects, references)
        return build

    return enter


def method_named(name: str) -> Method:
    """The method whose preset is called `name`."""
    if name not in METHODS:
        raise FieldError(f"{name!r} is not a preset." + did_you_mean(name, METHODS))
    return METHODS[name]
