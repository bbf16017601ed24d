"""What came of a whole study, in figures."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from os import PathLike

from fairlead.reports.measure import Measure, measure_of, own_target
from fairlead.reports.method_figures import MethodFigures, by_seed
from fairlead.reports.methods import Method, Study, baseline_of, group_runs
from fairlead.reports.run_figures import RunFigures, run_figures
from fairlead.reports.runs import find_runs, read_run
from fairlead.studies.seed_statistics import Estimate, paired_difference


@dataclass(frozen=True, eq=False)
class Summary:
    """All figures of a study."""

    study: Study
    measure: Measure
    baseline: Method | None
    """None if no run could be read."""
    targets: tuple[float, ...]
    methods: tuple[MethodFigures, ...]

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


def summarise_runs(
    folders: Iterable[str | PathLike[str]], *, baseline: str | None = None, targets: Sequence[float] = ()
) -> Summary:
    """Figures of all runs in and below the given folders.

    Runs that differ in nothing but the seed are repetitions of one method. Methods are compared with the
    one called `baseline`: FedAvg unless given, or the first. `targets` are accuracies or losses to reach.
    """
    study = group_runs([read_run(found) for found in find_runs(folders)])
    return summarise_study(study, baseline=baseline, targets=targets)


def summarise_study(study: Study, *, baseline: str | None = None, targets: Sequence[float] = ()) -> Summary:
    """Figures of all methods; without targets, one that every run of the baseline meets is taken."""
    measure = measure_of(study)
    for target in targets:
        measure.metric.refuse_target(target, "--target")
    if not study.methods:
        return Summary(study, measure, None, tuple(targets), ())
    reference = baseline_of(study, baseline)
    if not targets:
        targets = own_target(reference, measure)
    figures = {
        method.label: tuple(run_figures(run, measure, targets) for run in method.counted)
        for method in study.methods
    }
    theirs = figures[reference.label]

    def difference(method: Method, read: Callable[[RunFigures], float | None]) -> Estimate | None:
        if method is reference or not method.comparable_with(reference):
            return None
        return paired_difference(by_seed(figures[method.label], read), by_seed(theirs, read))

    methods = tuple(
        MethodFigures(
            method,
            figures[method.label],
            difference(method, lambda run: run.last_tenth),
            difference(method, lambda run: run.objective),
            both_complete=method.complete and reference.complete,
        )
        for method in study.methods
    )
    return Summary(study, measure, reference, tuple(targets), methods)
