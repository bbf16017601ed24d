"""Client data from tables in files: CSV, Parquet, and folders of Hugging Face's `datasets`."""

import csv
import io
import os
from abc import ABC, abstractmethod
from dataclasses import KW_ONLY, dataclass, replace
from pathlib import Path
from typing import Any, Literal, get_args

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from fairlead.clients.columns import Columns, Names, Owners, refuse_repeated, require_known
from fairlead.clients.files import existing, existing_file, existing_folder, read_as, read_text, refuse_bomb
from fairlead.clients.pool import Imputed, Missing, Pool, names_of
from fairlead.clients.source import PooledSource, table_task
from fairlead.clients.tokenizers import Tokenizer, code_points, next_character_windows, next_characters
from fairlead.component import PositiveCount
from fairlead.errors import ClashError, DataError, field_error, optional_package, require_instance, short
from fairlead.models.convolutional import FedAvgCNN
from fairlead.models.sequences import CharLSTM
from fairlead.task import Task

_USUAL_DELIMITERS = ",;\t|"
_LEAST_BYTES = 8
"""Of a cell in memory."""
_MOST_ENTRIES = 100_000
"""Of a folder of Parquet files: all of them are visited before the first is read."""


class TableSource(PooledSource, ABC):
    """Family of tables whose fields name the columns."""

    target: str
    client: Names | None
    tokens: Tokenizer | None
    regression: bool
    missing: Missing

    def __post_init__(self) -> None:
        super().__post_init__()
        require_instance(self, "target", self.target, str)
        if self.missing in get_args(Imputed) and self.tokens is not None:
            raise ClashError(
                f"{type(self).__name__}.missing = {self.missing!r} imputes numbers, but tokens makes ids of texts."
            )

    def examples(self, columns: Columns, features: Names, is_test: NDArray[np.bool_] | None) -> Pool:
        """The examples of a table; rows that are marked form the test set."""
        return Pool.from_columns(
            columns,
            self.target,
            features,
            self.client,
            self.tokens,
            regression=self.regression,
            missing=self.missing,
            is_test=is_test,
        )

    def default_task(self) -> Task:
        return table_task(self.tokens, regression=self.regression)


@dataclass(frozen=True)
class TableFile(TableSource, ABC):
    """Family of tables in files of their own: a subclass implements `read`."""

    path: str
    target: str
    """Column to learn: classes (whole numbers as they are, names and codes numbered in sorted order), or
    quantities. Codes are whole numbers of which the largest is at least 100 and twice their number."""
    client: Names | None = None
    """One or more columns that name the client of each row."""
    features: Names | None = None
    """Columns to learn from: numbers, or texts with `tokens`; all others unless named."""
    _: KW_ONLY
    tokens: Tokenizer | None = None
    regression: bool = False
    """Whether the target is a quantity instead of a class."""
    split: str | None = None
    """Column with "test" for rows of the test set and "train" for the others."""
    test_path: str | None = None
    """Another file with the test set."""
    missing: Missing = "refuse"
    """For rows that lack a value in a used column: an error, or "drop" to leave them out and count them. Or impute
    features from the training rows: "median", "mode" (the most frequent value; of equally frequent ones the smallest),
    or "flag" (the median, and a further feature that is 1 where the value was missing)."""
    standardize: bool = False
    """Give every feature mean 0 and variance 1 over the training rows."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.split is not None and self.test_path is not None:
            raise ClashError(
                f"{type(self).__name__} has both split and test_path, which name two test sets: give only one."
            )
        if self.standardize and self.tokens is not None:
            raise ClashError(
                f"{type(self).__name__}.standardize needs numbers, but tokens makes ids of texts."
            )

    @abstractmethod
    def read(self, path: str) -> Columns:
        """The table in a file."""

    def pool(self) -> Pool:
        pool = self._as_written()
        if not self.standardize:
            return pool
        mean, std = _scale(pool)
        test = None if pool.test_inputs is None else (pool.test_inputs - mean) / std
        return replace(pool, inputs=(pool.inputs - mean) / std, test_inputs=test)

    def scale(self) -> tuple[Tensor, Tensor] | None:
        """Mean and standard deviation of each feature, if the features are standardized."""
        return _scale(self._as_written()) if self.standardize else None

    def _as_written(self) -> Pool:
        train = self.read(self.path)
        columns = train
        is_test = None
        if self.test_path is not None:
            columns = Columns.stacked([train, self.read(self.test_path)], train.name)
            is_test = np.arange(len(columns)) >= len(train)
        elif self.split is not None:
            columns.require((self.split,), "split")
            is_test = _says_test(columns, self.split)
        used = (self.target, *names_of(self.client), *names_of(self.split))
        features = names_of(self.features) or tuple(name for name in columns.cells if name not in used)
        return self.examples(columns, features, is_test)


@dataclass(frozen=True)
class CsvTable(TableFile):
    """Rows of a CSV file with a header, as examples; .csv.gz, .csv.xz and .csv.bz2 are unpacked.

    A relative `path` starts from the working directory.
    """

    _: KW_ONLY
    delimiter: str = ","

    def __post_init__(self) -> None:
        super().__post_init__()
        _require_delimiter(self)

    def read(self, path: str) -> Columns:
        return _read_csv(path, self.delimiter)


@dataclass(frozen=True)
class ParquetTable(TableFile):
    """Rows of a Parquet file, or of all in a folder, as examples; needs pyarrow (the extra `data`).

    A single feature may hold arrays of one shape.
    """

    def read(self, path: str) -> Columns:
        needs = "ParquetTable needs pyarrow: install it with pip install 'pyarrow>=17,<30'."
        parquet = optional_package("pyarrow.parquet", needs, DataError)
        file, entries = existing(path), 0
        for _, folders, files in os.walk(file):
            entries += len(folders) + len(files)
            if entries > _MOST_ENTRIES:
                raise DataError(
                    f"{file} has more than {_MOST_ENTRIES} files and folders, too many for a table."
                )
        with read_as(" as Parquet", file):
            dataset = parquet.ParquetDataset(file)
            for part in dataset.fragments:
                size = Path(part.path).stat().st_size
                refuse_bomb(part.path, _LEAST_BYTES * part.count_rows() * len(dataset.schema), size)
            table = dataset.read()
            table.validate(full=True)
            return Columns.of(table, str(file))


@dataclass(frozen=True)
class CsvText(PooledSource):
    """Texts of a CSV file for predicting the next character, such as the lines of a play by speaker.

    Each client's cells of the `text` column are joined by newlines in the order of the file and cut into pieces.
    An example is `length` characters, and its target the next character at each position, (length,) both. Ids are
    0, 1, 2, ... in the sorted order of all characters that occur. An incomplete last piece is dropped, and so are
    clients without a full piece. `missing` = "drop" drops rows without a text or a client.
    """

    path: str
    text: str
    client: Names | None = None
    length: PositiveCount = 80
    _: KW_ONLY
    delimiter: str = ","
    missing: Literal["refuse", "drop"] = "refuse"

    def __post_init__(self) -> None:
        super().__post_init__()
        _require_delimiter(self)

    def pool(self) -> Pool:
        columns = _read_csv(self.path, self.delimiter)
        owners = names_of(self.client)
        columns.require((self.text,), "text")
        columns.require(owners, "client")
        if len(columns) == 0:
            raise DataError(f"{columns.name} has no row.")
        num_rows = len(columns)
        if self.missing == "drop":
            columns = columns.rows(columns.complete((self.text,), owners))
        named = columns.clients(owners) if owners else None
        owner = np.zeros(len(columns), dtype=np.int64) if named is None else named.numbers
        order = np.argsort(owner, kind="stable")
        ends = np.cumsum(np.bincount(owner))
        texts = [columns.cells[self.text][rows] for rows in np.split(order, ends[:-1])]
        windows = [next_character_windows(code_points("\n".join(own)), self.length) for own in texts]
        inputs, targets = next_characters(np.concatenate(windows))
        if len(inputs) == 0:
            raise DataError(f"{columns.name} has no client with more than {self.length} characters.")
        pool = Pool(inputs, targets, name=columns.name, num_dropped=num_rows - len(columns))
        counts = np.array([len(own) for own in windows])
        spoken = counts > 0
        natural = np.repeat(np.arange(spoken.sum()), counts[spoken])
        return pool if named is None else pool.owned_by(Owners(natural, named.names[spoken]))

    def default_task(self) -> Task:
        return Task(CharLSTM(pooling="none"))


@dataclass(frozen=True)
class HuggingFaceData(TableSource):
    """A folder written by `save_to_disk` of datasets; needs datasets (the extra `data`).

    Nothing is downloaded: `datasets.load_dataset(name).save_to_disk(path)` once makes the folder. `features`
    is a column of images, of numbers or of lists of them, or with `tokens` of texts; `target` holds classes,
    or quantities with `regression`; `client` columns name the client of each row. `split` is trained
    on, and `test_split` is the test set where the folder has it. `missing` = "drop" leaves out rows that lack
    a value in one of these columns; "median", "mode" and "flag" impute features, as in `CsvTable`.
    """

    path: str
    features: Names = "image"
    target: str = "label"
    client: Names | None = None
    _: KW_ONLY
    tokens: Tokenizer | None = None
    regression: bool = False
    split: str = "train"
    test_split: str = "test"
    missing: Missing = "refuse"

    def pool(self) -> Pool:
        folder = existing_folder(self.path)
        used = (*names_of(self.features), self.target, *names_of(self.client))
        with read_as(" as a folder of save_to_disk", folder):
            splits = _load_splits(str(folder))
            require_known(str(folder), "split", self.split, splits)
            parts = [name for name in (self.split, self.test_split) if name in splits]
            tables = [_columns_of(splits[name], used, f"{folder}, {name}") for name in parts]
        columns = Columns.stacked(tables, str(folder))
        return self.examples(columns, self.features, np.arange(len(columns)) >= len(tables[0]))

    def default_task(self) -> Task:
        if self.tokens is not None or self.regression or len(names_of(self.features)) > 1:
            return super().default_task()
        return Task(FedAvgCNN())


def _says_test(columns: Columns, split: str) -> NDArray[np.bool_]:
    cells = columns.single(split)
    for row, cell in enumerate(cells):
        if cell not in ("train", "test"):
            raise DataError(f"{columns.place(split, row)} must say 'train' or 'test', got {short(cell)}.")
    return np.array([cell == "test" for cell in cells], dtype=bool)


def _scale(pool: Pool) -> tuple[Tensor, Tensor]:
    # A single column may hold arrays of bytes or of whole numbers.
    inputs = pool.inputs if pool.inputs.is_floating_point() else pool.inputs.to(torch.float32)
    mean, std = inputs.mean(0), inputs.std(0, correction=0)
    if pool.imputed is not None:
        # Over the known values; those to be imputed come later, since a test set may still be drawn.
        mean = inputs.nanmean(0)
        std = (inputs - mean).square().nanmean(0).sqrt()
    return mean, torch.where(std > 0, std, 1.0)


def _require_delimiter(table: CsvTable | CsvText) -> None:
    if not isinstance(table.delimiter, str) or len(table.delimiter) != 1:
        raise field_error(table, "delimiter", "one character", table.delimiter)


def _read_csv(path: str, delimiter: str) -> Columns:
    file = existing_file(path)
    reader = csv.reader(io.StringIO(read_text(file), newline=""), delimiter=delimiter)
    rows: list[list[str]] = []
    lines: list[int] = []
    header: list[str] | None = None
    try:
        for row in reader:
            if not row:
                continue
            if header is None:
                header = row
                refuse_repeated(header, str(file))
                _refuse_unseparated(header, delimiter, file)
            elif len(row) != len(header):
                raise DataError(
                    f"{file}, line {reader.line_num} has {len(row)} cells, but the header has {len(header)}."
                )
            else:
                rows.append(row)
                lines.append(reader.line_num)
    except csv.Error as error:
        raise DataError(f"{file}, line {reader.line_num} is not CSV: {error}.") from error
    if header is None:
        raise DataError(f"{file} is empty: it must begin with the names of its columns.")
    # Cells of one column may differ much in length, which arrays of text would pad.
    cells = {name: np.array([row[place] for row in rows], dtype=object) for place, name in enumerate(header)}
    return Columns(str(file), cells, lambda row: f"{file}, line {lines[row]}")


def _refuse_unseparated(header: list[str], delimiter: str, file: Path) -> None:
    """Refuse a header that is one cell although it looks like several: another character separates them."""
    others = [mark for mark in _USUAL_DELIMITERS if mark != delimiter and mark in header[0]]
    if len(header) == 1 and others:
        raise DataError(
            f"{file} has a single column, {short(header[0])}, with the delimiter {delimiter!r}: its delimiter is "
            f"probably {others[0]!r}."
        )


def _load_splits(folder: str) -> dict[str, Any]:
    """Splits by name; a data set without splits is one called "train"."""
    needs = "HuggingFaceData needs datasets: install it with pip install 'datasets>=3.0,<5'."
    loaded = optional_package("datasets", needs, DataError).load_from_disk(folder)
    return dict(loaded) if isinstance(loaded, dict) else {"train": loaded}


def _columns_of(dataset: Any, used: tuple[str, ...], name: str) -> Columns:
    for column in used:
        require_known(name, "column", column, dataset.column_names)
    # Read only the used columns: others may hold images that take long to decode.
    chosen = dataset.select_columns(list(used))
    chosen.data.validate(full=True)
    refuse_bomb(name, _LEAST_BYTES * len(chosen) * len(used), chosen.data.nbytes)
    return Columns.of(chosen, name)
