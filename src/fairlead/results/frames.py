"""Runs as a frame: one row per round, of one run or of many."""

from collections.abc import Iterator, Mapping, Sequence
from importlib import import_module
from os import PathLike
from pathlib import Path
from typing import Any, Literal

from fairlead.errors import FieldError
from fairlead.experiments.record_io import row_of
from fairlead.experiments.study import Label
from fairlead.results.run_archive import load_archive
from fairlead.results.runs import find_runs

_Row = dict[str, Label | None]

_RENAMED_CURVES = {"steps": "local_steps"}
"""Curves that `record_io.row_of` has under another name."""


def load_frame(*paths: str | PathLike[str], library: Literal["pandas", "polars"] = "pandas") -> Any:
    """All rounds of the runs in and below folders, and of those in files, as a pandas or Polars data frame.

    The files are those in which a reproduction keeps its runs (`NAME-SCALE.runs.jsonl.xz`).

    Columns: `run`, the folder of the run, or its file and name there; `finished`, whether it came to its end;
    `method`, swept fields and other labels of its study; `seed`; then the numbers of the round
    (`record_io.row_of`; fewer of a run that is kept in a file), which is counted from 0. A run that failed in its
    first round, or that its study has not begun, is one row without such numbers. Values per client are left to
    `load_records`.
    """
    for path in paths:
        if not isinstance(path, str | PathLike):
            raise FieldError(f"load_frame takes folders or files, as in load_frame('a', 'b'), got {path!r}.")
    if library not in ("pandas", "polars"):
        raise FieldError(f"load_frame.library must be 'pandas' or 'polars', got {library!r}.")
    try:
        frames = import_module(library)
    except ImportError as error:
        raise FieldError(f"load_frame needs {library}: install it with pip install {library}.") from error
    rows = [
        row
        for path in {path.resolve(): path for path in map(Path, paths)}.values()
        for row in (_rows_archived(path) if path.is_file() else _rows_below(path))
    ]
    # Rounds differ in their measurements: every column of any of them, in the order of appearance.
    columns = list(dict.fromkeys(name for row in rows for name in row))
    content = {name: [row.get(name) for row in rows] for name in columns}
    return frames.DataFrame(content) if library == "pandas" else frames.DataFrame(content, strict=False)


def _rows_below(folder: Path) -> Iterator[_Row]:
    """A row for every round of the runs in a folder and below it."""
    for found in find_runs([folder]):
        store = found.folder
        records = store.records() if store.rounds_file.exists() else []
        starts = store.provenance()
        seed = {"seed": starts[0].seed} if starts else {}
        head = {"run": str(store.path), "finished": store.summary() is not None, **found.labels, **seed}
        yield from _rows(head, [row_of(record) for record in records])


def _rows_archived(file: Path) -> Iterator[_Row]:
    """A row for every round of the runs that a file keeps; its columns are called as those of run folders."""
    for run in load_archive(file):
        head: _Row = {
            "run": f"{file}: {run.name}",
            "finished": run.failure is None,
            "setting": run.setting,
            "method": run.method,
            "seed": run.seed,
        }
        columns = {curve: _RENAMED_CURVES.get(curve, curve) for curve in run.curves}
        rounds: list[_Row] = [
            {"round": round, **{column: run.number(curve, round) for curve, column in columns.items()}}
            for round in range(run.rounds)
        ]
        yield from _rows(head, rounds)


def _rows(head: Mapping[str, Label | None], rounds: Sequence[Mapping[str, Label | None]]) -> Iterator[_Row]:
    """What is known of a run with the numbers of each round, or alone if it has none."""
    for numbers in rounds or [{}]:
        yield {**head, **numbers}
