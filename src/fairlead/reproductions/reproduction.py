"""`Reproduction`: a published result by name, how it is obtained here, and what came of it."""

from __future__ import annotations

import os
import platform
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal, NamedTuple, get_args

from fairlead import __version__
from fairlead.errors import DataError, FairleadError, FieldError, did_you_mean
from fairlead.experiments.overrides import parse_override
from fairlead.experiments.provenance import git_commit, now
from fairlead.references import reference
from fairlead.reproductions.claims import Check, Claim, judged
from fairlead.reproductions.table import Cell, Published, Results, deviation, mean
from fairlead.studies.runner import run_study
from fairlead.studies.study import PlannedRun, StudyFolder

Scale = Literal["smoke", "small", "full"]
"""Whether it runs at all; whether the claim shows on a small problem; the paper's own numbers."""
Verdict = Literal["holds", "does not hold", "not run"]
SCALES: tuple[Scale, ...] = get_args(Scale)
_COMPUTING = ("engine", "lanes", "block", "precision", "dtype", "compile", "data_on", "reproducible")

Runner = Callable[[StudyFolder, Sequence[PlannedRun]], Mapping[str, str]]
"""Runs what is planned, and tells the outcomes by folder."""


def _run_quietly(study: StudyFolder, planned: Sequence[PlannedRun]) -> Mapping[str, str]:
    return run_study(study, planned, jobs=1)


@dataclass(frozen=True)
class Request:
    """How a reproduction is to be run."""

    out: Path
    """Where runs and results go."""
    scale: Scale = "small"
    seeds: tuple[int, ...] = (0,)
    data: Path | None = None
    """The user's folder of data sets."""
    device: str = "cpu"
    only: tuple[str, ...] = ()
    """Methods or settings of a table to run now; all if empty."""
    computing: tuple[str, ...] = ()
    """Changes to how runs are computed, such as "precision=tf32"; what is computed stays the paper's."""
    collect: tuple[Path, ...] | None = None
    """Folders whose runs are to be taken in, while nothing is run; None: run."""
    run: Runner = _run_quietly

    def __post_init__(self) -> None:
        for change in self.computing:
            field = parse_override(change).path[0]
            if field not in _COMPUTING:
                raise FieldError(
                    f"Request.computing must change one of {', '.join(_COMPUTING)}, got {change!r}."
                )


class NotRunError(FairleadError):
    """A reproduction cannot be run as asked; the message says why in one sentence."""


class Measured(NamedTuple):
    """Our figures, and what they took."""

    results: Results
    seconds: float
    machine: str
    precision: str = "full"


@dataclass(frozen=True)
class Figure:
    """A number of ours beside the published one."""

    row: str
    column: str
    ours: float
    spread: float | None
    """Sample standard deviation over seeds."""
    seeds: int
    published: float | None
    published_spread: float | None


@dataclass(frozen=True)
class Outcome:
    """What came of a reproduction."""

    name: str
    scale: str
    verdict: str
    """One of `Verdict`."""
    reason: str
    """Why it was not run or cannot be judged; empty otherwise."""
    seeds: tuple[int, ...]
    figures: tuple[Figure, ...]
    checks: tuple[Check, ...]
    """Empty at a scale that cannot test the claim."""
    seconds: float
    machine: str
    fairlead: str
    git_commit: str | None
    date: str
    precision: str = "full"
    """In which products were computed."""


@dataclass(frozen=True)
class Reproduction(ABC):
    """A result of a paper, the claim behind it, and how it is obtained here."""

    name: str
    reference: str
    """Key of the paper."""
    where: str
    """Table or figure of the paper."""
    claim: str
    """What the paper says, in one sentence."""
    claims: tuple[Claim, ...]
    """The same as comparisons of figures; the verdict is that all of them hold."""
    published: Mapping[Cell, Published] = field(default_factory=dict)
    """Empty where the paper has curves only."""
    differences: tuple[str, ...] = ()
    """Known reasons why our figures may differ, a sentence each."""

    @property
    def paper(self) -> str:
        """The paper as text cites it, such as "Wang 2021"."""
        return cited(self.reference)

    @property
    @abstractmethod
    def needs(self) -> tuple[str, ...]:
        """Names of the data sets that must be in the user's folder."""

    @property
    @abstractmethod
    def parts(self) -> tuple[str, ...]:
        """What `Request.only` may name: methods and settings that can be run alone."""

    @abstractmethod
    def judges(self, scale: Scale) -> bool:
        """Whether what is run at a scale can test the claim at all."""

    @abstractmethod
    def measure(self, request: Request) -> Measured:
        """Our figures; raises `NotRunError` where there is something missing."""

    @abstractmethod
    def describe(self, scale: Scale) -> str:
        """What is run at a scale, in one line."""

    def reproduce(self, request: Request) -> Outcome:
        """Run it as asked, and judge the claim by what comes out."""
        unknown = [part for part in request.only if part not in self.parts]
        if unknown:
            raise FieldError(
                f"{unknown[0]!r} is not a method or setting of {self.name}."
                + did_you_mean(unknown[0], self.parts)
            )
        try:
            measured = self.measure(request)
        except (NotRunError, DataError) as error:
            return self._outcome(
                request, Measured({}, 0.0, machine(request.device)), (), "not run", str(error)
            )
        if not self.judges(request.scale):
            reason = f"The scale {request.scale!r} shows that everything runs, and cannot test the claim."
            return self._outcome(request, measured, (), "not run", reason)
        checks = judged(self.claims, measured.results)
        verdict, reason = _verdict(checks, len(_seeds(measured.results)))
        return self._outcome(request, measured, checks, verdict, reason)

    def _outcome(
        self,
        request: Request,
        measured: Measured,
        checks: tuple[Check, ...],
        verdict: Verdict,
        reason: str,
    ) -> Outcome:
        figures = []
        for cell, values in measured.results.items():
            printed = self.published.get(cell)
            figures.append(
                Figure(
                    cell.row,
                    cell.column,
                    mean(values),
                    deviation(values),
                    len(values),
                    None if printed is None else printed.value,
                    None if printed is None else printed.spread,
                )
            )
        return Outcome(
            name=self.name,
            scale=request.scale,
            verdict=verdict,
            reason=reason,
            seeds=_seeds(measured.results) or request.seeds,
            figures=tuple(figures),
            checks=checks,
            seconds=round(measured.seconds, 1),
            machine=measured.machine,
            fairlead=__version__,
            git_commit=git_commit(),
            date=now()[:10],
            precision=measured.precision,
        )


def _seeds(results: Results) -> tuple[int, ...]:
    """All seeds of which there is a figure."""
    return tuple(sorted({seed for values in results.values() for seed in values}))


def _verdict(checks: Sequence[Check], seeds: int) -> tuple[Verdict, str]:
    """What the checks amount to: one that fails is enough, and one that lacks runs leaves the rest open."""
    count, failing = len(checks), sum(check.holds is False for check in checks)
    missing = [check for check in checks if check.holds is None]
    facts = [f"{failing} of {count} comparisons fail"] if failing else []
    if missing:
        held = count - failing - len(missing)
        lacking = f"{len(missing)} of {count} comparisons lack runs"
        facts.append(f"{lacking} and {held} hold" if held else lacking)
        facts.append(f"the first has {missing[0].numbers}")
    fewest = min((check.seeds for check in checks if check.holds is not None), default=seeds)
    if fewest < seeds:
        facts.append(f"some comparisons rest on {fewest} of {seeds} seeds")
    told = "; ".join(facts)
    reason = f"{told[0].upper()}{told[1:]}." if told else ""
    return ("does not hold" if failing else "not run" if missing else "holds"), reason


def listed_parts(text: str, known: Collection[str]) -> tuple[str, ...]:
    """Names of a list such as "FedAvg,FedNova, momentum": the longest that are known, since some have commas."""
    pieces = [piece.strip() for piece in text.split(",")]
    found: list[str] = []
    while pieces:
        joined = [", ".join(pieces[:count]) for count in range(len(pieces), 0, -1)]
        found.append(next((name for name in joined if name in known), pieces[0]))
        del pieces[: found[-1].count(",") + 1]
    return tuple(found)


def cited(key: str) -> str:
    """A paper as text cites it, by the first author's name and the year."""
    found = reference(key)
    return f"{found.authors.split(',')[0]} {found.year}"


def machine(device: str) -> str:
    """What figures are computed on: a device by its name, or how many cores there are."""
    return f"{os.cpu_count()} CPU cores, {platform.machine()}" if device == "cpu" else device
