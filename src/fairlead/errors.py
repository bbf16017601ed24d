"""Errors that users see: one sentence with the field, its value and what is allowed."""

import math
import operator
import re
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from difflib import get_close_matches
from importlib import import_module
from typing import Any, TypeGuard

LARGEST = 1e30
"""Largest number that a field may bring into a computation in float32."""
_SHOWN_AT_MOST = 100
_COMPARED, _LISTED, _OFFERED = 2000, 5 * _SHOWN_AT_MOST, 4
"""Names among which the nearest is sought, characters of a list of them, and the most that are offered at once."""
_ENDLESS = re.compile(r"(\S{300})\S{100,}")
_NEAR = 0.65
"""Similarity of two names, from 0 to 1, above which one is offered for the other."""


class FairleadError(Exception):
    """Base of every error that fairlead raises on purpose.

    Text quoted from files and names may hold line ends and terminal control codes: they are escaped as in Python
    strings. A word or path that would fill a screen is cut.
    """

    def __str__(self) -> str:
        marks = (
            mark if mark.isprintable() else mark.encode("unicode_escape").decode()
            for mark in super().__str__()
        )
        return _ENDLESS.sub(r"\1...", "".join(marks))


class FieldError(FairleadError, ValueError):
    """A hyper-parameter or spec field has a value that is not allowed."""

    field: str | None = None
    """Its name, if a single field is to blame."""
    value: object = None


class ClashError(FairleadError, ValueError):
    """Two parts, each valid alone, cannot work together."""


class EngineError(FairleadError, RuntimeError):
    """An engine cannot run the given model."""


class NonFiniteError(FairleadError, ArithmeticError):
    """A client or the server produced NaN or infinity."""


class StaleStateError(FairleadError, RuntimeError):
    """A state from before the latest round was used after its client rows had moved on."""


class MemoryBudgetError(FairleadError, MemoryError):
    """A table would not fit in the memory that is left."""


class CheckpointError(FairleadError, RuntimeError):
    """A checkpoint cannot be read, or belongs to another run."""


class CheckpointWarning(UserWarning):
    """A checkpoint cannot be used, and an earlier one was."""


class EngineWarning(UserWarning):
    """Clients train on less hardware than asked for."""


class ConsistencyWarning(UserWarning):
    """Theory predicts that a run will optimize another objective than asked, because two parts do not go together."""


class DataError(FairleadError, ValueError):
    """Client data cannot be read, or make no sense."""


class RunFolderError(FairleadError, RuntimeError):
    """A run folder cannot be written or read, or holds another run."""


def field_error(owner: object, field: str, constraint: str, value: object) -> FieldError:
    """The error `Class.field must be <constraint>, got <value>.`"""
    name = owner if isinstance(owner, str) else type(owner).__name__
    error = FieldError(f"{name}.{field} must be {constraint}, got {short(value)}.")
    error.field, error.value = field, value
    return error


def short(value: object) -> str:
    """A value as Python writes it, cut where it would fill more than a line."""
    try:
        written = repr(value)
    except ValueError:
        # Python refuses to print whole numbers of more than some thousands of digits.
        return "a number of thousands of digits"
    except RecursionError:
        return "tables or lists inside each other without end"
    written = " ".join(written.split()) if "\n" in written else written
    return written if len(written) <= _SHOWN_AT_MOST else written[: _SHOWN_AT_MOST - 3] + "..."


def one_line(error: BaseException) -> str:
    """The message of a library's error as part of a sentence."""
    if isinstance(error, UnicodeDecodeError):
        return f"it is not UTF-8 text, because byte {error.start} is invalid"
    said = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
    words = " ".join((said or type(error).__name__).split()).rstrip(".")
    return words if len(words) <= 2 * _SHOWN_AT_MOST else words[: 2 * _SHOWN_AT_MOST] + "..."


@contextmanager
def disk_errors(path: object, verb: str, refusal: type[FairleadError] = RunFolderError) -> Iterator[None]:
    """Turn an error of the system, for which a path may be wrong too, into one sentence."""
    try:
        yield
    except FairleadError:
        raise
    except (OSError, ValueError) as error:
        place = getattr(error, "filename", None) or path
        raise refusal(f"{place} cannot be {verb}: {one_line(error)}.") from error


def optional_package(module: str, without: str, refusal: type[FairleadError] = FieldError) -> Any:
    """A module of a package that may be missing; the error says what needs it and how to install it."""
    try:
        return import_module(module)
    except ImportError as error:
        raise refusal(without) from error


def is_number(value: object) -> TypeGuard[float]:
    """Whether a value is a finite number, which True and False are not."""
    try:
        return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
    except OverflowError:
        # A whole number beyond the largest float.
        return False


def is_integer(value: object, at_least: int) -> TypeGuard[int]:
    """Whether a value is a whole number of at least `at_least`, which True and False are not."""
    return isinstance(value, int) and not isinstance(value, bool) and value >= at_least


def number_fault(
    value: object,
    above: float | None = None,
    at_least: float | None = None,
    below: float | None = None,
    at_most: float | None = None,
) -> str:
    """The constraint that a value breaks, as it is no finite number inside the given bounds; empty if it is one."""
    bounds: list[tuple[float | None, str, Callable[[float, float], bool]]] = [
        (above, "above", operator.gt),
        (at_least, "of at least", operator.ge),
        (below, "below", operator.lt),
        (at_most, "at most", operator.le),
    ]
    stated = [(bound, word, holds) for bound, word, holds in bounds if bound is not None]
    if not is_number(value) or not all(holds(value, bound) for bound, _, holds in stated):
        limits = " and ".join(f"{word} {bound:g}" for bound, word, _ in stated)
        return f"a finite number {limits}".strip()
    return f"a number from {-LARGEST:g} to {LARGEST:g}" if abs(value) > LARGEST else ""


def integer_fault(value: object, at_least: int, at_most: int | None = None) -> str:
    """The constraint that a value breaks, as it is no whole number inside the given bounds; empty if it is one."""
    if not is_integer(value, at_least):
        return f"a whole number of at least {at_least}"
    return f"a whole number of at most {at_most}" if at_most is not None and value > at_most else ""


def require_number(owner: object, *fields: str, optional: bool = False, **bounds: float | None) -> None:
    """Refuse a field of `owner` unless it is a finite number inside bounds, or None if `optional`."""
    _require(owner, fields, lambda value: number_fault(value, **bounds), optional)


def require_integer(
    owner: object, *fields: str, at_least: int, at_most: int | None = None, optional: bool = False
) -> None:
    """Refuse a field of `owner` unless it is a whole number inside the given bounds, or None if `optional`."""
    _require(owner, fields, lambda value: integer_fault(value, at_least, at_most), optional)


def _require(owner: object, fields: Iterable[str], fault_of: Callable[[object], str], optional: bool) -> None:
    for field in fields:
        value = getattr(owner, field)
        if not (value is None and optional) and (fault := fault_of(value)):
            raise field_error(owner, field, fault, value)


def require_instance(owner: object, field: str, value: object, kind: type) -> None:
    """Refuse `value` for `owner.field` unless it is an instance of `kind`."""
    if not isinstance(value, kind):
        raise field_error(owner, field, a_or_an(kind.__name__), value)


def require_choice(owner: object, field: str, choices: Iterable[str]) -> None:
    """Refuse `owner.field` unless it is one of `choices`."""
    value, allowed = getattr(owner, field), list(choices)
    if value not in allowed:
        raise field_error(owner, field, "one of " + ", ".join(map(repr, allowed)), value)


def require_name(name: str, known: Iterable[str], what: str, *, otherwise: str = "") -> None:
    """Refuse a name that is not known; the error proposes the nearest."""
    names = list(known)
    if name not in names:
        raise FieldError(f"{name!r} is not {what}." + did_you_mean(name, names, otherwise=otherwise))


def is_client_lists(value: object) -> bool:
    """Whether a value is a tuple of tuples of client ids, with at least one list, empty or not."""
    return (
        isinstance(value, tuple)
        and bool(value)
        and all(isinstance(ids, tuple) and all(is_integer(client, 0) for client in ids) for ids in value)
    )


def a_or_an(noun: str) -> str:
    """A noun with its article."""
    return f"{'an' if noun[:1].upper() in 'AEIO' else 'a'} {noun}"


def did_you_mean(name: str, known: Iterable[str], *, otherwise: str = "") -> str:
    """` Did you mean 'x'?` for the nearest known names; when none is near, `otherwise` or the list of all.

    A name is near if one is the initials of the other (`lr`, `learning_rate`), by its letters, or if the words of one
    are among those of the other (`f1`, `f1_macro`).
    """
    # A million names, or one as long as a book, would take hours to compare.
    names = sorted(each for each in known if len(each) <= _SHOWN_AT_MOST)[:_COMPARED]
    name = name[:_SHOWN_AT_MOST]
    by_lower = {known_name.lower(): known_name for known_name in names}
    words = {each: each.lower().split("_") for each in (*names, name)}
    initials = {each: "".join(word[:1] for word in parts) for each, parts in words.items()}
    close = get_close_matches(name, names, 1, _NEAR) or get_close_matches(name.lower(), by_lower, 1, _NEAR)
    near = (
        [
            each
            for each in names
            if len(name) > 1 < len(each) and (initials[each] == name or initials[name] == each)
        ]
        or [by_lower[each.lower()] for each in close]
        or [each for each in names if {*words[each]} <= {*words[name]} or {*words[name]} <= {*words[each]}]
    )
    if near:
        return f" Did you mean {' or '.join(map(repr, near[:_OFFERED]))}?"
    if otherwise:
        return f" {otherwise}"
    separator = "; " if any("," in known_name for known_name in names) else ", "
    listed = separator.join(names)
    return f" Known: {listed if len(listed) <= _LISTED else listed[:_LISTED] + '...'}." if names else ""
