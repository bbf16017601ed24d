"""Sweeps: a spec at many values of its fields, on a grid or drawn at random.

A grid is `path=value,value,…` with paths and values as in overrides, and spans such as `seed=0..4`. A range is
`path=low..high`, drawn evenly, or `path=log:low..high`, drawn evenly in the logarithm; whole bounds give whole
numbers. Every drawn setting is run at every point of the grid.
"""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Callable, Sequence
from os import PathLike
from typing import NamedTuple

from fairlead.errors import FieldError, short
from fairlead.experiments.spec import load_experiment
from fairlead.randomness import Key
from fairlead.studies.ranges import split_values
from fairlead.studies.study import Label, PlannedRun, folder_name

_NUMBER = r"[+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?"
_RANGE = re.compile(rf"(log:)?({_NUMBER})\.\.({_NUMBER})")
_DIGITS = 4
"""Digits of a drawn number: enough for any search, and few enough to be read and typed."""


class _Axis(NamedTuple):
    """Values of one field."""

    path: str
    values: list[str]


class _Range(NamedTuple):
    """A field that is drawn, from a number in [0, 1)."""

    path: str
    draw: Callable[[float], str]


def planned_sweep(
    spec: str | PathLike[str],
    *,
    grid: Sequence[str] = (),
    ranges: Sequence[str] = (),
    draws: int = 0,
    draw_seed: int = 0,
    overrides: Sequence[str] = (),
) -> list[PlannedRun]:
    """A run for every point of the grid and, if there are `ranges`, for each of `draws` settings drawn from them.

    The draws depend on `draw_seed` and their number in the list alone: asking for more adds to them. A setting that
    is drawn twice, as few whole numbers are, is run once.
    """
    axes, drawn = [_axis(text) for text in grid], [_range(text) for text in ranges]
    if bool(drawn) != bool(draws):
        raise FieldError("A random search needs both the number of draws and ranges to draw from.")
    if draws < 0:
        raise FieldError(f"The number of draws must be at least 0, got {draws}.")
    if not axes and not drawn:
        raise FieldError("A sweep needs a grid or ranges, such as seed=0..4 or algorithm.lr=log:1e-3..1.")
    paths = [*(axis.path for axis in axes), *(each.path for each in drawn)]
    for path in paths:
        if paths.count(path) > 1:
            raise FieldError(f"Every field must be swept once, got {path} {paths.count(path)} times.")
    settings = (
        list(dict.fromkeys(_drawn(drawn, number, draw_seed) for number in range(draws))) if drawn else [()]
    )
    points = itertools.product(*([(axis.path, value) for value in axis.values] for axis in axes))
    return [
        _planned(spec, [*setting, *point], overrides)
        for setting, point in itertools.product(settings, points)
    ]


def _planned(
    spec: str | PathLike[str], values: Sequence[tuple[str, str]], overrides: Sequence[str]
) -> PlannedRun:
    changes = [f"{path}={value}" for path, value in values]
    labels: dict[str, Label] = {path: _number(value) for path, value in values}
    experiment = load_experiment(spec, [*overrides, *changes])
    return PlannedRun(folder_name(",".join(changes)), labels, experiment)


def _axis(text: str) -> _Axis:
    path, values = _assignment(text, "seed=0..4 or algorithm.lr=0.01,0.1")
    split = split_values(values, f"The grid of {path}")
    if not all(split) or len(set(map(_number, split))) < len(split):
        raise FieldError(f"The grid of {path} must be a list of different values, got {values!r}.")
    return _Axis(path, split)


def _range(text: str) -> _Range:
    path, bounds = _assignment(text, "algorithm.lr=log:1e-3..1")
    found = _RANGE.fullmatch(bounds)
    if found is None:
        raise FieldError(f"The range of {path} must be low..high or log:low..high, got {bounds!r}.")
    low, high = float(found[2]), float(found[3])
    if not -math.inf < low < high < math.inf or (found[1] and low <= 0):
        raise FieldError(
            f"The range of {path} must go upwards, between finite numbers and from above 0 for log, got "
            f"{short(bounds)}."
        )
    whole = all(re.fullmatch(r"[+-]?\d+", bound) for bound in (found[2], found[3]))

    def draw(share: float) -> str:
        # Whole numbers are drawn from half below the first to half above the last, so that all are alike.
        first, last = (low - 0.5, high + 0.5) if whole and not found[1] else (low, high)
        value = first * (last / first) ** share if found[1] else first + (last - first) * share
        return (
            str(min(max(math.floor(value + 0.5), int(low)), int(high))) if whole else f"{value:.{_DIGITS}g}"
        )

    return _Range(path, draw)


def _drawn(ranges: Sequence[_Range], number: int, seed: int) -> tuple[tuple[str, str], ...]:
    shares = Key.from_seed(seed).fold("sweep", number).generator().random(len(ranges))
    return tuple((each.path, each.draw(float(share))) for each, share in zip(ranges, shares, strict=True))


def _assignment(text: str, example: str) -> tuple[str, str]:
    path, equals, value = text.partition("=")
    if not equals or not path.strip() or not value.strip():
        raise FieldError(f"What is swept must be of a form such as {example}, got {text!r}.")
    return path.strip(), value.strip()


def _number(text: str) -> Label:
    """A value as a number where it is one, so that tables and frames can sort it."""
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return text
