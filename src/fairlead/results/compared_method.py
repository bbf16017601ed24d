"""`compare`: several algorithms on one experiment, over seeds, in memory or in a folder."""

import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from os import PathLike
from pathlib import Path
from typing import Any, overload

from fairlead.algorithm import Algorithm
from fairlead.charts.display import Display, Displayed
from fairlead.diagnostics.consistency import ConsistencyReport, predicted_consistency
from fairlead.errors import FairleadError, FieldError, RunFolderError, require_name, short
from fairlead.experiments.experiment import Experiment
from fairlead.experiments.method_list import methods_on
from fairlead.experiments.provenance import client_facts
from fairlead.experiments.runner import summarize as summarize_run
from fairlead.experiments.study import (
    PlannedRun,
    StudyFolder,
    planned_comparison,
    planned_tuning,
    runs_of_study,
)
from fairlead.experiments.workers import run_study
from fairlead.federation import Federation
from fairlead.records import Evaluation, RoundRecord
from fairlead.results.comparison import Summary, chosen_methods, summarize
from fairlead.results.curves import FigureName
from fairlead.results.figures import MethodFigures, RunFigures, planned_measure
from fairlead.results.runs import ReportedRun, read_run
from fairlead.results.sentences import describe_standing, objective_verdict, tunings


@dataclass(frozen=True, eq=False, repr=False)
class ComparedMethod:
    """One algorithm of a comparison, after its last round."""

    name: str
    figures: MethodFigures
    """Its figures over seeds and its difference to the first method."""
    summary: Summary
    """The whole comparison, as `fairlead report` has it."""
    federations: tuple[Federation, ...] = ()
    """One for each seed; none if the runs are in a folder."""

    @property
    def _first(self) -> RunFigures:
        return self.figures.runs[0]

    @property
    def federation(self) -> Federation:
        """That of the first seed."""
        if not self.federations:
            raise FieldError(
                "compare with a folder keeps no federation in memory: call load_model or load_records with "
                f"{str(self._first.run.path)!r}."
            )
        return self.federations[0]

    @cached_property
    def evaluation(self) -> Evaluation:
        """Of the final model of the first seed, with figures per client."""
        summary = self._first.run.summary
        if self.federations or summary is None or summary.evaluation is None:
            return self.federation.evaluate(per_client=True)
        return summary.evaluation

    @property
    def objective(self) -> float:
        """Σ ω_i F_i of the final model, mean over seeds: the intended loss, over the clients' training data."""
        found = self.figures.over_seeds(lambda run: run.objective)
        if found is None:
            raise FieldError(f"{self.name} has no objective of one model: its clients keep parameters.")
        return found.mean

    @cached_property
    def consistency(self) -> ConsistencyReport:
        """The weights that the rounds of the first seed optimized."""
        report, experiment = self._first.consistency, self._first.run.experiment
        if self.federations or report is None or experiment is None:
            return self.federation.consistency()
        if experiment.is_in_memory:
            return report
        # Theory needs no device, which a machine that reads the runs may lack.
        here: dict[str, Any] = {
            "device": "cpu",
            "precision": "full",
            "reproducible": False,
            "compile": False,
            "ray": None,
        }
        fresh = replace(experiment, **here).build()
        theory = predicted_consistency(
            fresh.algorithm, fresh.world, rounds=report.rounds, first=report.first_round, key=fresh.key
        )
        return replace(report, predicted=theory.predicted)

    @property
    def chance(self) -> float:
        """Share of the weight that chance alone would misplace in as many rounds; see `chance_level`."""
        return self._first.by_chance or 0.0

    @property
    def value(self) -> float | None:
        """The figure by which methods are compared, of the metric `summary.measure`: its mean over seeds."""
        return None if self.figures.value is None else self.figures.value.mean

    @property
    def difference(self) -> float | None:
        """Its `value` less that of the first method, paired by seed; None for the first."""
        return None if self.figures.difference is None else self.figures.difference.mean

    def standing(self) -> str:
        """How it compares with the first method, in words."""
        return str(describe_standing(self.summary, self.figures))

    def objective_verdict(self) -> str:
        """One sentence on the objective that the method optimized."""
        return objective_verdict(self.name, self.consistency, self.chance)

    def __repr__(self) -> str:
        return f"<ComparedMethod {self.name}: {self.standing()}>"


@dataclass(frozen=True, eq=False, repr=False)
class ComparedMethods(Displayed, Sequence[ComparedMethod]):
    """Methods compared on one experiment, in their given order; a method by its place or its name.

    A notebook shows its table and curves; `print` gives the table and what it says.
    """

    methods: tuple[ComparedMethod, ...]
    summary: Summary
    folder: Path | None = None
    """The folder of the runs, if there is one."""

    def __len__(self) -> int:
        return len(self.methods)

    @overload
    def __getitem__(self, place: int | str) -> ComparedMethod: ...
    @overload
    def __getitem__(self, place: slice) -> tuple[ComparedMethod, ...]: ...
    def __getitem__(self, place: int | str | slice) -> ComparedMethod | tuple[ComparedMethod, ...]:
        if not isinstance(place, str):
            return self.methods[place]
        named = {method.name: method for method in self.methods}
        chosen = {each.name: tuning.method for tuning in self.summary.tunings for each in tuning.chosen}
        named |= {chosen[name]: method for name, method in named.items() if name in chosen}
        require_name(place, named, "a method of this comparison")
        return named[place]

    def __repr__(self) -> str:
        return f"<ComparedMethods: {', '.join(method.name for method in self.methods)}>"

    def __str__(self) -> str:
        return self.display().text

    def display(self) -> Display:
        from fairlead.reports.displays import summary_display

        return summary_display(self.summary)

    def rows(self) -> list[dict[str, Any]]:
        """The figures of every method and seed."""
        metric = self.summary.measure.metric
        return [
            {
                "method": method.name,
                "seed": run.seed,
                metric: run.value,
                "objective": run.objective,
                "misplaced_weight": run.misplaced,
                "finished": run.run.finished,
            }
            for method in self.methods
            for run in method.figures.runs
        ]


def compare(
    experiment: Experiment,
    methods: Mapping[str, Algorithm | str] | Sequence[str],
    *,
    seeds: Sequence[int] | None = None,
    folder: str | PathLike[str] | None = None,
    jobs: int = 1,
    metric: str | None = None,
    minimize: bool = False,
    figure: FigureName = "last-tenth",
    target: float | None = None,
    tune: Mapping[str, Sequence[Any]] | None = None,
    tune_seeds: int = 2,
    progress: bool | None = None,
    on_round: Callable[[str, RoundRecord], None] | None = None,
) -> ComparedMethods:
    """Run each method instead of the experiment's own, for each of the `seeds` (the experiment's alone if None).

    `methods` are presets such as "fedavg" and "fedprox:mu=0.1", with the client side of the experiment's algorithm, or
    algorithms and presets by name: {"mine": experiment.algorithm, "FedAvg": "fedavg"}. The first is the baseline.

    Within a seed all share data, initial model, batches, work and links: only the method differs. Differences are
    paired by seed, with 95 % intervals. `metric` and `figure` say which number is compared, as in `fairlead compare`;
    `minimize` that less of it is better; `target` is a value of it to reach. Without a `folder` the runs stay in
    memory, and `on_round` gets the name and the record of each round. With a `folder` each run has its own in it, as
    `fairlead compare` writes them: calling `compare` again resumes interrupted runs and skips finished ones, and
    `jobs` runs are executed at a time, in processes of their own; a script with `jobs` above 1 must call this under
    `if __name__ == "__main__":`. `tune`, such as {"lr": [0.01, 0.1]}, first tries
    every method at each of these values on `tune_seeds` other seeds, and compares each at its best; the record is in
    `summary.tunings`, and `on_round` gets none of these rounds. `progress` shows bars, by default in notebooks and
    on terminals.

    >>> import fairlead as fl
    >>> quadratics = fl.Quadratics(linear=((0.0,), (4.0,)), start=0.0)
    >>> fedavg, fednova = fl.presets.fedavg(lr=0.01, steps=1), fl.presets.fednova(lr=0.01, steps=1)
    >>> experiment = Experiment(quadratics, fedavg, rounds=300, work=fl.FixedSteps((1, 9)))
    >>> for method in compare(experiment, {"FedAvg": fedavg, "FedNova": fednova}):
    ...     print(method.objective_verdict())
    FedAvg optimized another objective: 1 of 2 clients got 90% of the weight instead of 50%.
    FedNova optimized the intended objective.
    """
    if not isinstance(experiment, Experiment):
        raise FieldError(
            f"compare.experiment must be an Experiment, got {short(experiment)}: load_experiment reads a spec."
        )
    if isinstance(methods, str) or not methods:
        raise FieldError(
            f"compare needs at least one algorithm by name, or a list of presets, got {methods!r}."
        )
    texts = [f"{name}={','.join(map(str, values))}" for name, values in (tune or {}).items()]
    listed = methods_on(experiment, methods, texts)
    given = [experiment.seed] if seeds is None else seeds
    seeds = list(given) if isinstance(given, Iterable) else []
    if not seeds or len(set(seeds)) < len(seeds):
        raise FieldError(
            "compare.seeds must be different whole numbers, at least one, such as [0, 1] or range(5), got "
            f"{short(given)}."
        )
    if folder is not None and on_round is not None:
        raise FieldError(
            "compare.on_round must be left out with a folder, whose runs may be in other processes."
        )
    measure = planned_measure(
        [each.experiment for each in listed.values()], metric, figure, minimize=minimize
    )
    if target is not None:
        measure.refuse_target(target, "compare.target")
    kept, tried = None if folder is None else Path(folder), list[ReportedRun]()

    def run(planned: Sequence[PlannedRun], *, tuning: bool = False) -> _Found:
        if kept is not None:
            return _in_folder(StudyFolder(kept), planned, jobs, progress, tuning=tuning)
        return _in_memory(planned, None if tuning else on_round, progress, tuning=tuning)

    def summary_of(runs: Sequence[ReportedRun], baseline: str | None) -> Summary:
        (summary,) = summarize(
            [*runs, *tried],
            baseline=baseline,
            metric=measure.metric,
            minimize=minimize,
            figure=figure,
            targets=() if target is None else (target,),
        )
        return summary

    if tune:
        tried = [each for each, _ in run(planned_tuning(listed, tune_seeds, seeds), tuning=True)]
        tuned = summary_of([], None)
        listed = chosen_methods(listed, tuned)
        if not listed:
            raise FieldError(" ".join(tunings(tuned)))
    found = run(planned_comparison(listed, seeds))
    summary = summary_of([each for each, _ in found], next(iter(listed)))
    compared = tuple(
        ComparedMethod(
            figures.label,
            figures,
            summary,
            tuple(made for run, made in found if made is not None and run.labels["method"] == figures.label),
        )
        for figures in summary.methods
    )
    return ComparedMethods(compared, summary, kept)


_Found = list[tuple[ReportedRun, Federation | None]]


def _in_memory(
    planned: Sequence[PlannedRun],
    on_round: Callable[[str, RoundRecord], None] | None,
    progress: bool | None,
    *,
    tuning: bool,
) -> _Found:
    """Run in this process; a setting that fails in tuning is a failed run, since others may be chosen."""
    from fairlead.cli.progress import RoundProgress

    found: _Found = []
    data = None
    with RoundProgress(quiet=not _is_shown(progress, on_round is None)) as shown:
        for place, run in enumerate(planned):
            experiment = run.experiment
            if not place or planned[place - 1].experiment.seed != experiment.seed:
                data = experiment.load()
            try:
                federation = experiment.build(data)
                for record in federation.train():
                    shown.show(run.name, record, experiment.rounds, evaluating=experiment.evaluate_every > 0)
                    if on_round:
                        on_round(str(run.labels["method"]), record)
                found.append((_run_of(run, federation), None if tuning else federation))
            except FairleadError as error:
                if not tuning:
                    raise
                failed = ReportedRun(
                    run.name, Path(run.folder), run.labels, state="failed", reason=str(error)
                )
                found.append((failed, None))
    return found


def _in_folder(
    study: StudyFolder, planned: Sequence[PlannedRun], jobs: int, progress: bool | None, *, tuning: bool
) -> _Found:
    from fairlead.cli.progress import StudyProgress

    study.refuse_other_lengths(planned)
    with StudyProgress(len(planned), quiet=not _is_shown(progress)) as shown:
        outcomes = run_study(study, planned, jobs=jobs, watch=shown.watch)
    if not tuning:
        study.put_first(planned)
    for outcome in outcomes.values():
        if outcome in ("interrupted", "waiting"):
            raise KeyboardInterrupt
    runs = [read_run(found) for found in runs_of_study(study, planned)]
    if not tuning and not any(run.records for run in runs):
        raise RunFolderError(f"No run in {study.path} could be used: {runs[0].reason}")
    return [(run, None) for run in runs]


def _is_shown(progress: bool | None, by_default: bool = True) -> bool:
    """Whether to show bars: on request, else in notebooks and on terminals."""
    return (
        (by_default and ("ipykernel" in sys.modules or sys.stderr.isatty())) if progress is None else progress
    )


def _run_of(planned: PlannedRun, federation: Federation) -> ReportedRun:
    """A finished federation as the reader of runs has it."""
    return ReportedRun(
        planned.name,
        Path(planned.folder),
        planned.labels,
        seed=planned.experiment.seed,
        state="finished",
        experiment=planned.experiment,
        records=tuple(federation.records),
        weights=federation.world.population.weights,
        names=federation.world.population.names,
        held_out=client_facts(federation).held_out,
        summary=summarize_run(federation),
        from_spec=planned.from_spec,
        detailed=True,
    )
