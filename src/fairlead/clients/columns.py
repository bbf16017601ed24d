"""Named columns of cells as numbers, classes, clients and texts, with errors that say which cell is wrong."""

import math
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Self

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from fairlead.clients.data import Image, stacked
from fairlead.errors import DataError, did_you_mean, short
from fairlead.text import ClientNames, joined, names_from, shown

_LEAST_CODE = 100
"""Below, a few outputs too many cost nothing, and small data sets keep the numbers of large ones."""


class Classes(NamedTuple):
    """The class of each example, and the names of the classes."""

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


Cells = NDArray[Any]
"""(rows,) numbers, or any objects."""
Names = str | tuple[str, ...]
_GAP_MARKS = frozenset({"na", "n/a", "#n/a", "<na>", "nan", "null", "none", "?"})
"""Common marks for a missing number, in any case."""
_SEVERAL = (np.ndarray, list, tuple, dict, set, Tensor, Image)
"""Types of cells that hold several values."""
_MOST_CATEGORIES = 50
"""A column with more distinct words is text."""


class Owners(NamedTuple):
    """The client of each row, and the names of the clients."""

    numbers: NDArray[np.int64]
    """(rows,)"""
    names: ClientNames
    """(N,)"""


@dataclass(frozen=True, eq=False)
class Columns:
    """A table in memory whose columns have no meaning yet."""

    name: str
    """Name of the table in errors."""
    cells: Mapping[str, Cells]
    locate: Callable[[int], str]
    """The location of a row, such as "data.csv, line 12"."""

    @classmethod
    def of(cls, table: Any, name: str) -> Self:
        """A pandas or Polars frame, a pyarrow table or a Hugging Face dataset."""
        # pyarrow has both, and means by `columns` what they hold.
        found = getattr(table, "column_names", None) or getattr(table, "columns", None)
        if found is None or not hasattr(table, "__len__"):
            raise DataError(
                f"{name} is not a table in memory: give a pandas or Polars frame (a lazy one after collect()), a "
                "pyarrow table or a Hugging Face dataset."
            )
        # Columns of a frame made of an array have numbers for names.
        columns = {str(column): column for column in found}
        refuse_repeated([str(column) for column in found], name)
        cells = {column: _cells(table[own]) for column, own in columns.items()}
        return cls(name, cells, lambda row: f"{name}, row {row}")

    def __len__(self) -> int:
        return len(next(iter(self.cells.values()))) if self.cells else 0

    def place(self, column: str, row: int) -> str:
        """The location of a cell."""
        return f"{self.locate(row)}, column {column!r}"

    def require(self, columns: Iterable[str], field: str | None = None) -> None:
        """Refuse names that are not columns of this table; `field` is where they come from."""
        for column in columns:
            require_known(self.name, "column", column, self.cells, field)

    def rows(self, rows: NDArray[np.int64]) -> Self:
        """Some of the rows."""
        cells = {name: cells[rows] for name, cells in self.cells.items()}
        return type(self)(self.name, cells, lambda row: self.locate(int(rows[row])))

    def complete(self, columns: Sequence[str], owners: Sequence[str]) -> NDArray[np.int64]:
        """Numbers of the rows without a gap in the given columns and in those of the clients.

        Refuses to leave a client without any row.
        """
        named = ~self._gaps_in(owners)
        full = named & ~self._gaps_in(columns)
        if not full.any():
            raise DataError(f"{self.name}: Every row has a missing value in the used columns.")
        if owners:
            clients = owners_of([self.single(owner)[named] for owner in owners])
            lost = np.bincount(clients.numbers, weights=full[named], minlength=len(clients.names)) == 0
            if lost.any():
                some = ", ".join(repr(shown(str(name))) for name in clients.names[lost][:5])
                raise DataError(
                    f"{self.name} has no complete row for {lost.sum()} of {len(lost)} clients ({some}): choose "
                    "features that they have, or remove their rows."
                )
        return np.flatnonzero(full)

    def _gaps_in(self, columns: Iterable[str]) -> NDArray[np.bool_]:
        gaps = np.zeros(len(self), dtype=bool)
        for column in columns:
            gaps |= _gaps(self.cells[column])
        return gaps

    @classmethod
    def stacked(cls, tables: Sequence[Self], name: str) -> Self:
        """The rows of several tables, one after the other, in the columns of the first."""
        for table in tables[1:]:
            table.require(tables[0].cells)
        cells = {
            column: np.concatenate([table.cells[column] for table in tables]) for column in tables[0].cells
        }
        starts = np.cumsum([0, *(len(table) for table in tables)])

        def locate(row: int) -> str:
            table = int(np.searchsorted(starts, row, side="right")) - 1
            return tables[table].locate(row - int(starts[table]))

        return cls(name, cells, locate)

    def inputs(self, columns: Sequence[str], *, gaps: bool = False) -> Tensor:
        """Numbers (rows, columns), NaN in `gaps` if allowed; a single column may hold images or arrays of one shape."""
        if len(columns) == 1 and _holds_arrays(self.cells[columns[0]]):
            return stacked(self.cells[columns[0]], len(self), f"{self.name}, column {columns[0]!r}")
        return torch.from_numpy(np.stack([self.numbers(name, gaps=gaps) for name in columns], axis=1)).to(
            torch.float32
        )

    def numbers(self, column: str, *, target: bool = False, gaps: bool = False) -> NDArray[np.float64]:
        """A column of finite numbers, of features unless it is the target; NaN in `gaps` if they are allowed."""
        cells = self.single(column)
        values = _as_numbers(cells)
        filled = np.flatnonzero(~(gaps & _gaps(cells)))
        wrong = filled[~np.isfinite(values[filled])]
        if len(wrong):
            if not gaps:
                self.refuse_gaps((column,))
            row = int(wrong[0])
            advice = _target_advice if target else _advice
            hint = advice(cells[filled], len(wrong)) if isinstance(cells[row], str) else ""
            raise DataError(f"{self.place(column, row)}: {_shown(cells[row])} is not a finite number{hint}.")
        return values

    def classes(self, column: str) -> Classes:
        """A column of classes: names and codes as 0, 1, 2, ... in sorted order, other whole numbers as they are."""
        cells = self.cells[column]
        if _holds_arrays(cells):
            return Classes(stacked(cells, len(self), f"{self.name}, column {column!r}"), None)
        self.refuse_gaps((column,))
        values = _as_numbers(self.single(column))
        named = np.flatnonzero(np.isnan(values))
        if len(named) == len(values):
            numbers, names = owners_of([cells])
            return Classes(torch.from_numpy(numbers), tuple(names.tolist()))
        if len(named):
            row = int(named[0])
            raise DataError(
                f"{self.place(column, row)}: {_shown(cells[row])} is text in a column of numbers; classes "
                "must be all whole numbers or all names."
            )
        wrong = np.flatnonzero((values != np.floor(values)) | (values < 0) | (values >= 2**31))
        if len(wrong):
            row = int(wrong[0])
            raise DataError(
                f"{self.place(column, row)}: {_shown(cells[row])} is not a class, which is a whole number from "
                "0 to 2^31 - 1 or a name; a target that is a quantity needs regression=True."
            )
        return whole_classes(torch.from_numpy(values.astype(np.int64)))

    def clients(self, columns: Sequence[str]) -> Owners:
        """Owners of the rows by what stands in one or more columns."""
        self.refuse_gaps(columns)
        return owners_of([self.single(column) for column in columns])

    def texts(self, columns: Sequence[str]) -> list[str]:
        """Texts of one column, or of several with a blank between."""
        self.refuse_gaps(columns)
        return [" ".join(map(str, cells)) for cells in zip(*(self.cells[c] for c in columns), strict=True)]

    def single(self, column: str) -> Cells:
        """The cells of a column, refused where one is a list, a table or an image."""
        cells = self.cells[column]
        of_kind: dict[type, int] = {}
        for place, cell in enumerate(cells if cells.dtype == object or cells.ndim > 1 else ()):
            of_kind.setdefault(type(cell), place)
        held = [place for place in of_kind.values() if isinstance(cells[place], _SEVERAL)]
        if held:
            kind = type(cells[held[0]]).__name__
            raise DataError(
                f"{self.place(column, held[0])} must be one number or text, got a value of type {kind}."
            )
        return cells

    def refuse_gaps(self, columns: Sequence[str], *, imputed: bool = False) -> None:
        """Refuse columns with missing values, naming all of them; features could be `imputed`, unless they are."""
        gaps = {column: np.flatnonzero(_gaps(self.cells[column])) for column in columns}
        lacking = [column for column, rows in gaps.items() if len(rows)]
        if not lacking:
            return
        row, column = min((int(gaps[column][0]), column) for column in lacking)
        cell = self.cells[column][row]
        found = f" ({_shown(cell)})" if isinstance(cell, str) and cell.strip() else ""
        *most, last = (f"{column!r} ({len(gaps[column])})" for column in lacking)
        others = (
            f"; rows lack a value in the columns {', '.join(most)} and {last}" if len(lacking) > 1 else ""
        )
        cure = "" if imputed else ', or impute features with missing="median", "mode" or "flag"'
        raise DataError(
            f"{self.place(column, row)} is empty{found}{others}: fill {'them' if others else 'it'} in, or drop "
            f'incomplete rows with missing="drop"{cure}.'
        )


def require_known(place: str, kind: str, name: str, known: Collection[str], field: str | None = None) -> None:
    """Refuse a name that a file does not hold; `field` is where it comes from."""
    if name not in known:
        named = "" if field is None else f", which {field} names"
        raise DataError(f"{place} has no {kind} {short(name)}{named}." + did_you_mean(name, known))


def refuse_repeated(names: Sequence[str], table: str) -> None:
    """Refuse columns of one name, of which only one could be found."""
    for name, count in Counter(names).items():
        if count > 1:
            raise DataError(f"{table} has more than one column {short(name)}.")


def owners_of(columns: Sequence[Cells]) -> Owners:
    """Clients 0, 1, 2, ... in the sorted order of their ids, which stand in one or more columns."""
    numbers = client_numbers(columns[0])
    for cells in columns[1:]:
        position = client_numbers(cells)
        numbers = _positions(numbers * (int(position.max(initial=0)) + 1) + position)
    first = np.unique(numbers, return_index=True)[1]
    return Owners(numbers, joined([names_from(cells[first]) for cells in columns]))


def require_ids(ids: Cells, name: str) -> Cells:
    """The given ids, refused unless there is one per example."""
    if ids.ndim != 1 or ids.dtype.kind in "Vc":
        kind = f"of {ids.dtype}" if ids.ndim == 1 else f"of shape {ids.shape}"
        raise DataError(f"{name} must be one id or name per example, got an array {kind}.")
    gaps = np.flatnonzero(_gaps(ids))
    if len(gaps):
        raise DataError(
            f"{name} must be one id or name per example, got {_shown(ids[gaps[0]])} in row {gaps[0]}."
        )
    return ids


def client_numbers(ids: Cells) -> NDArray[np.int64]:
    """0, 1, 2, ... in the order of ids: by size where all are numbers, else by name."""
    values = _as_numbers(ids)
    # "1" and "01" are two names, and whole numbers beyond 2^53 become equal as floats.
    if not np.isnan(values).any() and len(np.unique(values)) == len(set(ids.tolist())):
        return _positions(values)
    return _positions(np.array([str(id) for id in ids], dtype=object))


def _cells(values: Any) -> Cells:
    """A column of any library: an array where it can give one, else its cells one by one."""
    to_numpy = getattr(values, "to_numpy", None)
    if to_numpy is not None:
        return np.asarray(to_numpy())
    listed = list(values)
    if all(isinstance(value, bool | int | float) for value in listed):
        return np.array(listed)
    cells = np.empty(len(listed), dtype=object)
    for place, value in enumerate(listed):
        cells[place] = value
    return cells


def _holds_arrays(cells: Cells) -> bool:
    if cells.dtype != object or len(cells) == 0:
        return cells.ndim > 1
    return isinstance(cells[0], np.ndarray | list | Tensor | Image)


def _advice(cells: Cells, num_words: int) -> str:
    """Advice for a feature column with so many words."""
    distinct = len(set(cells.tolist()))
    if num_words == len(cells) and 1 < distinct <= min(_MOST_CATEGORIES, len(cells) / 2):
        return (
            f": the column repeats {distinct} words, so leave it out of the features or encode it as numbers, for "
            "example with pandas.get_dummies"
        )
    return ": choose the features, or tokens for text"


def _target_advice(cells: Cells, num_words: int) -> str:
    """The same for a target; one that has numbers too is a quantity with a slip in it."""
    if num_words < len(cells):
        return ""
    return ": remove `regression` to treat the words of the target as classes"


def _as_numbers(cells: Cells) -> NDArray[np.float64]:
    """Cells as float64, NaN where a cell is no number."""
    if cells.dtype.kind in "biuf":
        return cells.astype(np.float64)
    if cells.dtype.kind in "mM":
        return np.full(len(cells), math.nan)
    try:
        return np.array(cells.tolist(), dtype=np.float64)
    except (TypeError, ValueError):
        return np.array([_as_number(cell) for cell in cells], dtype=np.float64)


def _as_number(cell: Any) -> float:
    try:
        return float(cell)
    except (TypeError, ValueError):
        return math.nan


def _gaps(cells: Cells) -> NDArray[np.bool_]:
    """Empty rows; in a column of numbers also marks such as NA."""
    if cells.dtype.kind in "biu":
        return np.zeros(len(cells), dtype=bool)
    if cells.dtype.kind == "f":
        return np.asarray(np.isnan(cells).any(axis=tuple(range(1, cells.ndim))))
    if cells.dtype.kind in "mM":
        return np.asarray(np.isnat(cells))
    gaps = np.array([_is_gap(cell) for cell in cells], dtype=bool)
    marks = np.array(
        [isinstance(cell, str) and cell.strip().lower() in _GAP_MARKS for cell in cells], dtype=bool
    )
    # Among names and texts, "NA" and "none" may well be one.
    rest = ~(gaps | marks)
    if marks.any() and rest.any() and not np.isnan(_as_numbers(cells[rest])).any():
        gaps |= marks
    return gaps


def _is_gap(cell: Any) -> bool:
    """Whether a cell is empty: empty text, None, NaN or pandas' NA."""
    if isinstance(cell, str):
        return not cell.strip()
    if isinstance(cell, float):
        return math.isnan(cell)
    return cell is None or type(cell).__name__ in ("NAType", "NaTType")


def _positions(values: Cells) -> NDArray[np.int64]:
    """Where each value stands among the sorted distinct ones."""
    places: NDArray[np.int64] = np.unique(values, return_inverse=True)[1].astype(np.int64)
    return places


def _shown(cell: Any) -> str:
    text = repr(cell.item() if isinstance(cell, np.generic) else cell)
    return text if len(text) <= 60 else text[:57] + "..."
