"""What came of all methods under a setting, in figures."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from os import PathLike
from pathlib import Path

from fairlead.errors import FieldError
from fairlead.experiments.study import folder_name
from fairlead.results.estimates import Estimate, paired_difference
from fairlead.results.figures import (
    Measure,
    MethodFigures,
    RunFigures,
    by_seed,
    measure_of,
    own_target,
    run_figures,
)
from fairlead.results.methods import Method, Study, baseline_of, by_setting, group_runs
from fairlead.results.runs import find_runs, kept_runs_in, read_run


@dataclass(frozen=True, eq=False)
class Summary:
    """All figures of the runs under one setting."""

    setting: str
    """Under which methods are compared; empty where their study has no settings."""
    study: Study
    measure: Measure
    baseline: Method | None
    """None if no run could be read."""
    targets: tuple[float, ...]
    methods: tuple[MethodFigures, ...]

    def titled(self, title: str) -> str:
        """A title that also says which setting it is about."""
        return f"{title}: {self.setting}" if self.setting else title

    def key(self, key: str) -> str:
        """A name for files and parts of a page that no other setting of the report has."""
        return f"{key}-{folder_name(self.setting)}" if self.setting else key

    @property
    def compared(self) -> bool:
        """Whether there is more than one method."""
        return len(self.methods) > 1

    @property
    def ranked(self) -> bool:
        """Whether one method may be called the best."""
        return self.compared and self.study.comparable

    @property
    def client_data(self) -> str:
        """What figures per client were measured on."""
        held_out = {run.run.held_out for method in self.methods for run in method.runs if run.clients}
        if held_out == {True}:
            return "its own held-out data"
        if held_out == {False}:
            return "its own training data"
        return "its own held-out data where it has some, else its training data"


def summarise_settings(
    paths: Iterable[str | PathLike[str]], *, baseline: str | None = None, targets: Sequence[float] = ()
) -> list[Summary]:
    """Figures of all runs in and below folders, and of those that files keep: one summary for each setting.

    Runs that differ in nothing but the seed are repetitions of one method. Methods are compared with the
    one called `baseline`: unless given, FedAvg or the first, of those with finished runs. `targets` are accuracies
    or losses to reach.
    """
    given = {path.resolve(): path for path in map(Path, paths)}.values()
    found = find_runs(path for path in given if not path.is_file())
    kept = [run for path in given if path.is_file() for run in kept_runs_in(path)]
    studies = {
        setting: group_runs(runs) for setting, runs in by_setting([*map(read_run, found), *kept]).items()
    }
    labels = list(dict.fromkeys(method.label for study in studies.values() for method in study.methods))
    sound = {method.label for study in studies.values() for method in study.methods if not method.failed}
    summaries = []
    for setting, study in studies.items():
        here = {method.label for method in study.methods if not method.failed}
        # A setting that lacks the baseline of the others, or where it failed, is compared with its usual one.
        own = None if baseline in sound and baseline not in here else baseline
        measure = measure_of(study, list(studies.values()))
        summaries.append(_summarise(setting, study, measure, labels, baseline=own, targets=targets))
    return summaries


def summarise_runs(
    paths: Iterable[str | PathLike[str]], *, baseline: str | None = None, targets: Sequence[float] = ()
) -> Summary:
    """Figures of runs under one setting, as `summarise_settings` has them."""
    summaries = summarise_settings(paths, baseline=baseline, targets=targets)
    if len(summaries) > 1:
        raise FieldError(
            f"These are runs of {len(summaries)} settings, which are not compared with each other: call "
            "summarise_settings."
        )
    return summaries[0]


def _summarise(
    setting: str,
    study: Study,
    measure: Measure,
    labels: Sequence[str],
    *,
    baseline: str | None,
    targets: Sequence[float],
) -> Summary:
    """Figures of all methods; without targets those kept with their runs, or one that all of the baseline's meet."""
    for target in targets:
        measure.metric.refuse_target(target, "targets")
    if not study.methods:
        return Summary(setting, study, measure, None, tuple(targets), ())
    reference = baseline_of(study, baseline)
    if not targets:
        targets = _kept_targets(study) or own_target(reference, measure)
    figures = {
        method.label: tuple(run_figures(run, measure, targets) for run in method.counted)
        for method in study.methods
    }
    theirs = figures[reference.label]

    def difference(method: Method, read: Callable[[RunFigures], float | None]) -> Estimate | None:
        # Rounds before a failure are not compared with those at the end of other runs.
        if method is reference or method.failed or not method.comparable_with(reference):
            return None
        return paired_difference(by_seed(figures[method.label], read), by_seed(theirs, read))

    methods = tuple(
        MethodFigures(
            method,
            labels.index(method.label),
            figures[method.label],
            difference(method, lambda run: run.last_tenth),
            difference(method, lambda run: run.objective),
            both_complete=method.complete and reference.complete,
        )
        for method in study.methods
    )
    return Summary(setting, study, measure, reference, tuple(targets), methods)


def _kept_targets(study: Study) -> tuple[float, ...]:
    return tuple(sorted({run.target for run in study.runs if run.target is not None}))
