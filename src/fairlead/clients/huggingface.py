"""Client data in folders of Hugging Face's `datasets`."""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass
from importlib import import_module
from typing import Any

import numpy as np

from fairlead.clients.columns import Columns, Names
from fairlead.clients.files import existing_folder
from fairlead.clients.pool import Missing, Pool, names_of
from fairlead.clients.pooled import PooledSource, table_task
from fairlead.clients.tokenizers import Tokenizer
from fairlead.errors import DataError, did_you_mean, require_choice
from fairlead.models.convolutional import FedAvgCNN
from fairlead.task import Task


@dataclass(frozen=True)
class HuggingFaceData(PooledSource):
    """A data set that `save_to_disk` left in a folder; needs datasets (the extra `data`).

    Nothing is downloaded: `datasets.load_dataset(name).save_to_disk(path)` once makes the folder. `features`
    is a column of images, of numbers or of lists of them, or with `tokens` of texts; `target` holds classes,
    or quantities with `regression`; `client` columns name the client of each row. `split` is trained
    on, and `test_split` is the test set where the folder has it. `missing` = "drop" leaves out rows that lack
    a value in one of these columns.
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

    def __post_init__(self) -> None:
        super().__post_init__()
        require_choice(self, "missing", ("refuse", "drop"))

    def pool(self) -> Pool:
        folder = existing_folder(self.path)
        splits = _load(str(folder))
        if self.split not in splits:
            raise DataError(f"{folder} has no split {self.split!r}." + did_you_mean(self.split, splits))
        used = (*names_of(self.features), self.target, *names_of(self.client))
        parts = [name for name in (self.split, self.test_split) if name in splits]
        tables = [_columns(splits[name], used, f"{folder}, {name}") for name in parts]
        columns = Columns.stacked(tables, str(folder))
        return Pool.from_columns(
            columns,
            self.target,
            self.features,
            self.client,
            self.tokens,
            regression=self.regression,
            missing=self.missing,
            is_test=np.arange(len(columns)) >= len(tables[0]),
        )

    def default_task(self) -> Task:
        if self.tokens is not None or self.regression or len(names_of(self.features)) > 1:
            return table_task(self.tokens, regression=self.regression)
        return Task(FedAvgCNN())


def _load(folder: str) -> dict[str, Any]:
    """Splits by name; a data set without splits is one called "train"."""
    try:
        library = import_module("datasets")
    except ImportError as error:
        raise DataError(
            "HuggingFaceData needs datasets: install it with pip install 'datasets>=3.0,<5'."
        ) from error
    try:
        loaded = library.load_from_disk(folder)
    except (ValueError, OSError) as error:
        raise DataError(f"{folder} is not a folder that save_to_disk of datasets wrote.") from error
    return dict(loaded) if isinstance(loaded, dict) else {"train": loaded}


def _columns(dataset: Any, used: tuple[str, ...], name: str) -> Columns:
    for column in used:
        if column not in dataset.column_names:
            raise DataError(f"{name} has no column {column!r}." + did_you_mean(column, dataset.column_names))
    # Only what is used is read: other columns may hold images that take long to decode.
    return Columns.of(dataset.select_columns(list(used)), name)
