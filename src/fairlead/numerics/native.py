"""Loops compiled by Numba, an optional dependency that is looked up on first use."""

from collections.abc import Callable
from functools import cache
from importlib import import_module
from importlib.util import find_spec
from typing import Any


@cache
def has_numba() -> bool:
    """Whether loops can be compiled here."""
    return find_spec("numba") is not None


@cache
def compiled(loop: Callable[..., None]) -> Callable[..., Any]:
    """The loop in machine code, without Python's global lock.

    Sums may be taken in any order, so that they use the full width of the machine; NaN and infinity keep their
    meaning. Compiling takes seconds, once per machine and type of number.
    """
    numba = import_module("numba")
    options = {"nogil": True, "error_model": "numpy", "fastmath": {"reassoc", "contract"}}
    try:
        result: Callable[..., Any] = numba.njit(cache=True, **options)(loop)
    except RuntimeError:
        # Nowhere to keep it: neither the package nor the user has a folder that can be written.
        result = numba.njit(**options)(loop)
    return result
