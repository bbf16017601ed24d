"""Lists of values on the command line: `0..4`, `0,1,2`, `0.01,0.1`, `[32],[64,64]`."""

from __future__ import annotations

import re

from fairlead.errors import FieldError, short
from fairlead.plain_data import LARGEST_INTEGER

_SPAN = re.compile(r"\s*(-?\d{1,18})\.\.(-?\d{1,18})\s*")
_MOST = 100_000
_OPENING, _CLOSING = "([{", ")]}"


def split_values(text: str, named: str) -> list[str]:
    """The values of a list: parted by commas outside of brackets and quotes, with whole spans written out.

    A span that is refused is said to stand in what the user knows as `named`.
    """
    values: list[str] = []
    for value in _split(text):
        span = _SPAN.fullmatch(value)
        values += _written_out(int(span[1]), int(span[2]), value, named) if span else [value.strip()]
    return values


def read_seeds(text: str, named: str = "--seeds") -> list[int]:
    """Seeds such as "0..4" or "0,1,2"."""
    found = split_values(text, named)
    written = [int(value) for value in found if re.fullmatch(r"\d{1,19}", value)]
    numbers = [number for number in written if number <= LARGEST_INTEGER]
    if len(set(numbers)) < len(found):
        raise FieldError(
            f"{named} must be different whole numbers from 0 to {LARGEST_INTEGER}, such as 0..4 or 0,1,2, got "
            f"{short(text)}."
        )
    return numbers


def _written_out(first: int, last: int, text: str, named: str) -> list[str]:
    if not first <= last < first + _MOST:
        raise FieldError(
            f"{named} must have spans that go upwards, of at most {_MOST} numbers, got {text.strip()!r}."
        )
    return list(map(str, range(first, last + 1)))


def _split(text: str) -> list[str]:
    parts, depth, quote = [""], 0, ""
    for character in text:
        if quote:
            quote = "" if character == quote else quote
        elif character in "\"'":
            quote = character
        depth += not quote and character in _OPENING
        depth -= not quote and character in _CLOSING
        if character == "," and not depth and not quote:
            parts.append("")
        else:
            parts[-1] += character
    return parts
