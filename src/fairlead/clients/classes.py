"""Classes as 0, 1, 2, ..., and what the data call them."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

_LEAST_CODE = 100
"""Below, a few outputs too many cost nothing, and small data sets keep the numbers of large ones."""


class Classes(NamedTuple):
    """The class of each example, and what classes are called."""

    numbers: Tensor
    """(examples,); arrays of several targets each are left as they are."""
    names: tuple[str, ...] | None
    """Of 0, 1, 2, ...; None where the data number them themselves."""


def whole_classes(values: Tensor) -> Classes:
    """Whole numbers as they are, unless they are codes, which are numbered in sorted order.

    They are codes where the largest is at least 100 and at least twice the number of distinct ones: a model
    would have most of its outputs for classes that do not exist.
    """
    if not len(values) or int(values.max()) < _LEAST_CODE:
        return Classes(values, None)
    distinct, numbers = torch.unique(values, return_inverse=True)
    if int(distinct[-1]) < 2 * len(distinct):
        return Classes(values, None)
    return Classes(numbers, tuple(map(str, distinct.tolist())))
