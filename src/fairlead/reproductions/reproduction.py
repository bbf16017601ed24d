"""`Reproduction`: a published result, the way to obtain it, and its outcome."""

import json
import math
import tomllib
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import cache, partial
from importlib.resources import files
from pathlib import Path
from time import perf_counter
from typing import Any, Literal, NamedTuple, get_args

from fairlead import __version__
from fairlead.errors import DataError, FieldError, require_name
from fairlead.experiments.provenance import git_commit, machine, now
from fairlead.experiments.record_io import decoded
from fairlead.experiments.run_folder import write_facts
from fairlead.experiments.spec_fields import parse_override
from fairlead.experiments.study import PlannedRun, StudyFolder
from fairlead.experiments.workers import run_study
from fairlead.references import reference
from fairlead.reproductions.claims import Check, Claim, Judgement, Published, Results, TableCell, judge
from fairlead.reproductions.data_sets import NotRunError, require_data
from fairlead.results.curves import Curve, FigureName
from fairlead.results.estimates import estimate, student_quantile
from fairlead.text import counted


@dataclass(frozen=True)
class FailedRun:
    """A run that failed, so that its figures are missing."""

    method: str
    setting: str
    seed: int
    rounds: int
    """Rounds before the failure."""
    reason: str
    """A sentence."""
    columns: tuple[str, ...]
    """Columns of the missing figures."""

    @property
    def cells(self) -> tuple[TableCell, ...]:
        """The cells of these figures."""
        return tuple(TableCell(self.method, column) for column in self.columns)

    def lacks(self, cell: TableCell) -> bool:
        """Whether a cell is for a figure or a curve of this run."""
        return cell.row == self.method and f"{cell.column}: ".startswith(f"{self.setting}: ")

    def __str__(self) -> str:
        where = TableCell(self.method, self.setting)
        return f"{where}, seed {self.seed}, failed after {counted(self.rounds, 'round')}: {self.reason}"


Scale = Literal["smoke", "small", "full"]
"""A check that it runs; the claim on a small problem; the paper's setting."""
SCALES: tuple[Scale, ...] = get_args(Scale)
_COMPUTING = ("engine", "lanes", "block", "precision", "dtype", "compile", "data_on", "reproducible")

Runner = Callable[[StudyFolder, Sequence[PlannedRun]], Mapping[str, str]]
"""Runs the planned runs and returns how each ended, by folder."""


@dataclass(frozen=True)
class Request:
    """Options of a reproduction."""

    out: Path
    """Folder for runs and results."""
    scale: Scale = "small"
    seeds: tuple[int, ...] = (0,)
    data: Path | None = None
    """Folder with the data sets."""
    device: str = "cpu"
    only: tuple[str, ...] = ()
    """Methods or settings of a table to run now; all if empty."""
    computing: tuple[str, ...] = ()
    """Changes to how runs are computed, such as "precision=tf32"; the method itself stays the paper's."""
    collect: tuple[Path, ...] | None = None
    """Folders whose runs are imported instead of running anything; None: run."""
    run: Runner = partial(run_study, jobs=1)
    tell: Callable[[str], None] = lambda sentence: None
    """Receives one sentence for each imported folder."""

    def __post_init__(self) -> None:
        for change in self.computing:
            field = parse_override(change).path[0]
            if field not in _COMPUTING:
                raise FieldError(
                    f"Request.computing (--set) must change one of {', '.join(_COMPUTING)}, got {change!r}."
                )


class Measured(NamedTuple):
    """Our figures, with time, machine and versions."""

    results: Results
    seconds: float
    machine: str
    fairlead: str
    git_commit: str | None
    date: str
    precision: str = "full"
    failures: tuple[FailedRun, ...] = ()
    curves: Mapping[TableCell, Mapping[int, Curve]] = {}
    pooled: Mapping[TableCell, tuple[float, int]] = {}
    """Figures of all seeds together, with their number."""


@dataclass(frozen=True)
class ReproducedFigure:
    """A number of ours beside the published one."""

    row: str
    column: str
    ours: float
    spread: float | None
    """Sample standard deviation over seeds."""
    seeds: int
    published: float | None
    published_spread: float | None

    @property
    def half_width(self) -> float | None:
        """Of the 95 % interval of `ours` over seeds, t·s/√n with Student's t; None as `spread`."""
        if self.spread is None:
            return None
        return student_quantile(self.seeds - 1) * self.spread / math.sqrt(self.seeds)


@dataclass(frozen=True)
class Outcome:
    """The outcome of a reproduction."""

    name: str
    scale: str
    verdict: str
    """One of `Verdict`, on the method as the paper prints it."""
    reason: str
    """Why it was not run or judged, or the number of failing comparisons; empty otherwise."""
    seeds: tuple[int, ...]
    figures: tuple[ReproducedFigure, ...]
    checks: tuple[Check, ...]
    """Empty at a scale that cannot test the claim."""
    seconds: float
    machine: str
    fairlead: str
    git_commit: str | None
    """Commit that computed the figures; several if runs differ, like `fairlead`."""
    date: str
    """Date of the latest run."""
    precision: str = "full"
    """Precision of matrix products."""
    released: Judgement | None = None
    """The verdict on the other form, `Reproduction.released`; None where that is not judged."""
    failures: tuple[FailedRun, ...] = ()
    """Failed runs, which have no figures."""


@dataclass(frozen=True)
class Reproduction(ABC):
    """A result of a paper, its claim, and the way to obtain it here."""

    name: str
    reference: str
    """Key of the paper."""
    where: str
    """Table or figure of the paper."""
    claim: str
    """The claim of the paper, in one sentence."""
    claims: tuple[Claim, ...]
    """The claim as comparisons of figures and curves; it holds if all of them hold."""
    released: tuple[Claim, ...] = ()
    """Comparisons for another form than the printed one: the authors' released method, or a corrected bound."""
    released_as: str = "as published"
    """The name of that form."""
    published: Mapping[TableCell, Published] = field(default_factory=dict)
    """Published figures; empty if the paper has only curves."""
    differences: tuple[str, ...] = ()
    """Known reasons for different figures, one sentence each."""
    judged_at: tuple[Scale, ...] = ("small", "full")
    """Scales whose runs can test the claim."""
    released_at: tuple[Scale, ...] = ("full",)
    """Scales whose runs are long enough to test the released method."""

    @property
    def paper(self) -> str:
        """The paper as text cites it, such as "Wang 2021"."""
        return cited(self.reference)

    @property
    @abstractmethod
    def needs(self) -> tuple[str, ...]:
        """Names of the required data sets."""

    @property
    @abstractmethod
    def parts(self) -> tuple[str, ...]:
        """Methods and settings that `Request.only` may name."""

    @property
    @abstractmethod
    def options_used(self) -> frozenset[str]:
        """Fields of `Request` that have an effect, beside folder, scale and seeds."""

    @property
    def figure(self) -> FigureName | None:
        """The figure of a run by which the paper judges, where it is not the default of `fairlead report`."""
        return None

    @property
    @abstractmethod
    def measured(self) -> str:
        """Description of the figures, where the columns do not give it; empty otherwise."""

    @abstractmethod
    def measure(self, request: Request) -> Measured:
        """Our figures; raises `NotRunError` if data or runs are missing."""

    @abstractmethod
    def describe(self, scale: Scale) -> str:
        """Description of the runs at a scale, in one line."""

    def reproduce(self, request: Request) -> Outcome:
        """Run it and judge the claim by its figures."""
        for part in request.only:
            require_name(part, self.parts, f"a method or setting of {self.name}")
        released = None
        try:
            measured = self.measure(request)
        except (NotRunError, DataError) as error:
            measured = measured_here({}, 0.0, request.device)
            printed = Judgement("not run", str(error), ())
        else:
            needed = {cell for claim in (*self.claims, *self.released) for cell in claim.cells}
            failed = {cell for cell in needed if any(failure.lacks(cell) for failure in measured.failures)}
            values = {**measured.results, **measured.curves}
            if request.scale not in self.judged_at:
                reason = (
                    f"The scale {request.scale!r} only shows that everything runs; it cannot test the claim."
                )
                printed = Judgement("not judged", reason, ())
            else:
                printed = judge(self.claims, values, failed)
                if self.released and request.scale in self.released_at:
                    released = judge(self.released, values, failed)
        return Outcome(
            name=self.name,
            scale=request.scale,
            verdict=printed.verdict,
            reason=printed.reason,
            seeds=tuple(sorted(set().union(*measured.results.values()))) or request.seeds,
            figures=tuple(
                ReproducedFigure(
                    *cell, found.mean, found.std, found.count, *self.published.get(cell, (None, None))
                )
                for cell, values in measured.results.items()
                if (found := estimate(list(values.values())))
            )
            + tuple(
                ReproducedFigure(*cell, value, None, seeds, None, None)
                for cell, (value, seeds) in measured.pooled.items()
            ),
            checks=printed.checks,
            seconds=round(measured.seconds, 1),
            machine=measured.machine,
            fairlead=measured.fairlead,
            git_commit=measured.git_commit,
            date=measured.date,
            precision=measured.precision,
            released=released,
            failures=measured.failures,
        )


@dataclass(frozen=True, kw_only=True)
class Computation(Reproduction):
    """A reproduction whose figures are a function of scale, data and seed."""

    compute: Callable[[Request, int], Mapping[TableCell, float]]
    """The figures at a seed."""
    what: Mapping[Scale, str] | str
    """Description of the computation, for all scales or by scale, in one line."""
    measured: str = ""
    needs: tuple[str, ...] = ()
    judged_at: tuple[Scale, ...] = SCALES
    on_device: bool = False
    """Whether it is computed on the device of the request, not always on the CPU."""

    parts = ()

    @property
    def options_used(self) -> frozenset[str]:
        return frozenset([*(["data"] if self.needs else []), *(["device"] if self.on_device else [])])

    def describe(self, scale: Scale) -> str:
        return self.what if isinstance(self.what, str) else self.what[scale]

    def measure(self, request: Request) -> Measured:
        if request.collect is not None:
            raise NotRunError("It is a direct computation, without runs to collect.")
        require_data(self.needs, request.data)
        started = perf_counter()
        results: dict[TableCell, dict[int, float]] = {}
        for seed in request.seeds:
            for cell, value in self.compute(request, seed).items():
                results.setdefault(cell, {})[seed] = value
        return measured_here(results, perf_counter() - started, request.device if self.on_device else "cpu")


@cache
def gallery() -> dict[str, Any]:
    """The words of all reproductions by name, shared sentences as `notes`, and the results that are `omitted`."""
    return tomllib.loads(files("fairlead.reproductions").joinpath("gallery.toml").read_text(encoding="utf-8"))


def words(name: str) -> dict[str, Any]:
    """The fields of a reproduction that are words: its paper, claim and differences."""
    found, notes = gallery()[name], gallery()["notes"]
    differences = tuple(
        sentence
        for each in found.get("differences", ())
        for sentence in (notes[each[1:]] if each.startswith("@") else (each,))
    )
    return {"name": name, **found, "differences": differences}


def listed_parts(text: str, known: Collection[str]) -> tuple[str, ...]:
    """The names in a list such as "FedAvg,FedNova, momentum"; known names may contain commas."""
    pieces = [piece.strip() for piece in text.split(",")]
    found: list[str] = []
    while pieces:
        joined = [", ".join(pieces[:count]) for count in range(len(pieces), 0, -1)]
        found.append(next((name for name in joined if name in known), pieces[0]))
        del pieces[: found[-1].count(",") + 1]
    return tuple(found)


def cited(key: str) -> str:
    """A paper by the first author's name and the year."""
    found = reference(key)
    return f"{found.authors.split(',')[0]} {found.year}"


def measured_here(results: Results, seconds: float, device: str) -> Measured:
    """Figures computed now, by this version."""
    return Measured(results, seconds, machine(device), __version__, git_commit(), now()[:10])


def outcome_file(folder: Path, outcome: Outcome) -> Path:
    """The file of an outcome in a folder: one for each scale of a reproduction."""
    return folder / f"{outcome.name}-{outcome.scale}.json"


def save_outcome(folder: Path, outcome: Outcome) -> Path:
    """Write an outcome into a folder; it replaces an earlier one of the same scale."""
    file = outcome_file(folder, outcome)
    write_facts(file, asdict(outcome), indent=1)
    return file


def seeds_to_lose(folder: Path, outcome: Outcome) -> list[int]:
    """Seeds of the stored outcome that would be lost if this one replaced it."""
    file = outcome_file(folder, outcome)
    return sorted(set(load_outcome(file).seeds) - set(outcome.seeds)) if file.is_file() else []


def load_outcome(file: Path) -> Outcome:
    """The outcome in a file."""
    try:
        return decoded(Outcome, json.loads(file.read_text(encoding="utf-8")))
    except (ValueError, TypeError) as error:
        raise FieldError(f"{file} is not the outcome of a reproduction.") from error


def load_outcomes(folder: Path) -> list[Outcome]:
    """All outcomes in a folder, by name and scale."""
    return [load_outcome(file) for file in sorted(folder.glob("*.json"))]
