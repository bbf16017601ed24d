"""Studies on the terminal: the runs of `compare` and `sweep` as they go, their tables and what they say."""

import shlex
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from typer import Exit

from fairlead.charts.chart import draw_bars, draw_intervals
from fairlead.cli.console import INTERRUPTED, print_table, say
from fairlead.cli.progress import StudyProgress, duration
from fairlead.cli.show_results import comparison_facts, method_facts, say_notes
from fairlead.errors import FieldError
from fairlead.experiments.study import Label, PlannedRun, StudyFolder, describe_labels, runs_of_study
from fairlead.experiments.workers import run_study
from fairlead.results import sentences
from fairlead.results.comparison import Summary, summarize
from fairlead.results.curves import ROUNDS, bands
from fairlead.results.estimates import Estimate, NumberKind, estimate, show
from fairlead.results.figures import Measure, MethodFigures, RunFigures, measure_named, planned_measure
from fairlead.results.runs import read_run
from fairlead.text import counted, divergence, shown

_SHOWN = 20
"""Settings in the table; the runs of the others stay in their folders."""
_NO_BEST = ("not evaluated", "not comparable", "nothing learned", "tied")
"""Rankings without a best setting."""
_FAILED = 1


def study_folder(
    output: Path | None, spec: Path, command: str, planned: Sequence[PlannedRun], changes: Sequence[str]
) -> StudyFolder:
    """The folder of a study: --rounds becomes part of its default name; runs of another length are refused."""
    name = f"{spec.stem}-{command}"
    if any(change.partition("=")[0].strip() == "rounds" for change in changes):
        name += f"-{counted(planned[0].experiment.rounds, 'round').replace(' ', '-')}"
    study = StudyFolder(output or Path("runs") / name)
    study.refuse_other_lengths(planned)
    return study


def run_and_show(
    study: StudyFolder,
    planned: Sequence[PlannedRun],
    jobs: int | None,
    checkpoint_every: int,
    *,
    quiet: bool,
    keep_finished_checkpoints: bool = True,
    shown: StudyProgress | None = None,
) -> dict[str, str]:
    """Run a study with live progress, `shown` by the caller or here; returns the outcomes by folder."""
    for option, value in (("--jobs", jobs), ("--checkpoint-every", checkpoint_every)):
        if value is not None and value < 1:
            raise FieldError(f"{option} must be at least 1, got {value}.")
    with nullcontext(shown) if shown else StudyProgress(len(planned), quiet=quiet) as progress:
        try:
            return run_study(
                study,
                planned,
                jobs=jobs,
                checkpoint_every=checkpoint_every,
                keep_finished_checkpoints=keep_finished_checkpoints,
                watch=progress.watch,
                on_interrupt=lambda: progress.note(
                    "Stopping after the current rounds; press Ctrl-C again to stop immediately."
                ),
            )
        except KeyboardInterrupt:
            progress.note("Stopped. Re-run the command to resume from the last checkpoints.")
            raise Exit(INTERRUPTED) from None


def leave_interrupted(outcomes: Mapping[str, str], quiet: bool) -> None:
    """End the command if a run was interrupted."""
    if any(outcome in ("interrupted", "waiting") for outcome in outcomes.values()):
        if not quiet:
            done = sum(outcome == "finished" for outcome in outcomes.values())
            say(f"Stopped with {done} of {len(outcomes)} runs finished. Re-run the command to resume.")
        raise Exit(INTERRUPTED)


def leave(outcomes: Mapping[str, str], *, quiet: bool) -> None:
    """End the command with the exit status of the outcomes."""
    leave_interrupted(outcomes, quiet)
    if any(outcome != "finished" for outcome in outcomes.values()):
        raise Exit(_FAILED)


@dataclass(frozen=True)
class PlannedMethod:
    """The planned runs that differ only in their seed, and their figures."""

    labels: Mapping[str, Label]
    failures: Mapping[int, str]
    """Outcomes of the runs that did not finish, by seed."""
    num_runs: int
    figures: MethodFigures | None
    """None if no run can be read."""

    @property
    def name(self) -> str:
        """Its labels in one line."""
        return describe_labels(self.labels) or "as in the spec"

    @property
    def learned(self) -> bool:
        """Whether a run may have learned; see `MethodRuns.learned`."""
        if self.figures is None:
            return not all(outcome.startswith("failed") for outcome in self.failures.values())
        return self.figures.method.learned

    def shown(self, estimate: str, kind: NumberKind, *, sign: bool = False) -> str:
        """One of the estimates of `figures` in words; empty without figures."""
        found: Estimate | None = getattr(self.figures, estimate, None)
        return found.text(kind, sign=sign) if found else ""

    def mean(self, figure: str) -> float | None:
        """The mean of a figure over seeds."""
        found = self.figures and self.figures.over_seeds(lambda run: getattr(run, figure))
        return found.mean if found else None


def compared(
    study: StudyFolder,
    planned: Sequence[PlannedRun],
    outcomes: Mapping[str, str],
    measure: Measure,
    target: float | None = None,
    trials: Sequence[PlannedRun] = (),
) -> tuple[list[Summary], list[PlannedMethod]]:
    """The comparison of the planned runs, one for each setting, and their methods in the order of the plan.

    The summary also has the tuning of the methods by `trials`.
    """
    summaries = summarize(
        [read_run(found) for found in runs_of_study(study, [*planned, *trials])],
        targets=() if target is None else (target,),
        metric=measure.metric,
        minimize=not measure.higher,
        figure=measure.figure,
    )
    known = {_common(method.method.runs[0].labels): method for each in summaries for method in each.methods}
    groups: dict[tuple[tuple[str, Label], ...], list[PlannedRun]] = {}
    for run in planned:
        groups.setdefault(_common(run.labels), []).append(run)
    methods = [
        PlannedMethod(
            dict(labels),
            {run.experiment.seed: outcomes[run.folder] for run in some if outcomes[run.folder] != "finished"},
            len(some),
            known.get(labels),
        )
        for labels, some in groups.items()
    ]
    return summaries, methods


def _common(labels: Mapping[str, Label]) -> tuple[tuple[str, Label], ...]:
    """What a method's runs have in common: all labels but the seed."""
    return tuple((name, value) for name, value in labels.items() if name != "seed")


def _figures_beside(method: PlannedMethod, measure: Measure) -> dict[str, str]:
    """The columns beside the measure."""
    objective, misplaced, chance, chi_square, seconds = map(
        method.mean, ("objective", "misplaced", "by_chance", "chi_square", "seconds")
    )
    runs = method.figures.runs if method.figures else ()
    # A single round does not show how much rounds differ.
    alone = any(len(run.run.records) < 2 for run in runs)
    by_design = method.figures is not None and method.figures.by_design()
    finished = method.num_runs - len(method.failures)
    figures = {
        "objective": "" if objective is None else f"{objective:.4g}",
        "misplaced": "none by design" if by_design else "" if misplaced is None else f"{misplaced:.1%}",
        "by\nchance": "" if by_design or misplaced is None or chance is None or alone else f"{chance:.1%}",
        "chi-square": "" if by_design or chi_square is None else divergence(chi_square, digits=3),
        "time": "" if seconds is None else duration(seconds),
        "seeds": str(finished) if not method.failures else f"{finished} of {method.num_runs}",
    }
    return {column: cell for column, cell in figures.items() if column != measure.metric}


def _measure_column(measure: Measure) -> str:
    """The title of the column of the measure."""
    return f"{measure.name}\n({measure.column})"


def planned_facts(
    method: PlannedMethod, summaries: Sequence[Summary], target: float | None
) -> dict[str, Any]:
    """A planned method for JSON; a method without figures has its failures alone."""
    found = method.figures
    summary = next((each for each in summaries if found in each.methods), None)
    done = [run for run in (found.runs if found else ()) if run.run.finished]
    reached = {} if target is None else {str(run.seed): run.rounds_to(target) for run in done}
    seeds = {
        str(run.seed): {**asdict(run.run.summary), "objective": run.objective}
        for run in done
        if run.run.summary is not None
    }
    figures = ("value", "difference", "standing", "verdict", "final", "objective", "misplaced_weight")
    return {
        **method.labels,
        **(dict.fromkeys(figures) if found is None or summary is None else method_facts(summary, found)),
        "learnt": method.learned,
        "rounds_to_target": reached,
        "seconds": method.mean("seconds"),
        "seeds": seeds,
        "failures": {str(seed): reason for seed, reason in method.failures.items()},
    }


def _say_failures(methods: Sequence[PlannedMethod], noun: str) -> None:
    """A line for each run that failed, with the reason, and one on methods or settings without a finished run."""
    for method in methods:
        for seed, outcome in method.failures.items():
            if outcome.startswith("failed"):
                say(f"{method.name}, seed {seed} {outcome}")
    lost = [method for method in methods if not method.learned]
    if lost and all(len(method.failures) == method.num_runs for method in lost):
        whose = sentences.any_or_listed([method.name for method in lost], len(methods), noun)
        say(f"No run of {whose} finished: the reasons above say what to change.")


def say_where(
    study: StudyFolder, planned: int, measure: Measure, default: Measure, target: float | None = None
) -> None:
    """The folder of the runs, and the command for their page with the same measure."""
    words = ["fairlead", "report", str(study.path)]
    if measure.metric != default.metric:
        words += ["--metric", measure.metric]
    if measure.higher != measure_named(measure.metric).higher:
        words += ["--minimize"]
    if measure.figure != default.figure:
        words += ["--figure", measure.figure]
    if target is not None:
        words += ["--target", f"{target:g}"]
    if earlier := len(study.runs()) - planned:
        others = counted(earlier, "run")
        say(f"The folder also has {others} of earlier commands: the page includes them, this table does not.")
    say(f"The runs are in {study.path}; for a page with curves and tables: {shlex.join(words)}")


_SPARE = ("chi-square", "by\nchance", "time", "objective\ndifference", "seeds", "misplaced", "objective")
"""Columns that a narrow terminal leaves out, in this order."""


def say_comparison(summary: Summary, rows: Sequence[PlannedMethod], target: float | None) -> None:
    """The table and the charts of a comparison, and what they say."""
    _print_tunings(summary)
    if rows:
        _print_comparison(summary, rows, target)
        _print_clients(summary)
        _draw(summary)
        say()
        say(sentences.headline(summary))
    for sentence in sentences.standings(summary):
        say(sentence)
    say_notes([summary])
    _say_failures(rows, "method")


def show_trial(
    study: StudyFolder, planned: Sequence[PlannedRun], outcomes: Mapping[str, str], *, quiet: bool
) -> dict[str, Any]:
    """The table of a trial and the recommendation that follows from it; the same for JSON."""
    measure = planned_measure([each.experiment for each in planned], None)
    (summary,), rows = compared(study, planned, outcomes, measure)
    verdict = sentences.recommendation(summary)
    if not quiet:
        counts = f"{counted(planned[0].experiment.rounds, 'round')}, {counted(rows[0].num_runs, 'seed')} each"
        say(f"\nTrial ({counts})")
        say_comparison(summary, rows, None)
        say(f"\nAfter the trial: {verdict.sentence}")
        say(f"The runs are in {study.path}.")
    facts = {"folder": str(study.path), "rounds": planned[0].experiment.rounds, **comparison_facts(summary)}
    methods = [planned_facts(row, [summary], None) for row in rows]
    return {**facts, "methods": methods, "recommended": verdict.method, "reason": verdict.sentence}


def _print_tunings(summary: Summary) -> None:
    """The settings of tuned methods, the choices, and warnings."""
    rows = [
        [
            tuning.method,
            setting.label,
            "" if setting.value is None else setting.value.text(tuning.measure.kind),
            setting.problem or ("chosen" if setting.chosen else ""),
        ]
        for tuning in summary.tunings
        for setting in tuning.settings
    ]
    if rows:
        column = _measure_column(summary.measure)
        say()
        print_table(["tuned", "setting", column, ""], rows, numbers=[column])
    for sentence in sentences.tunings(summary):
        say(sentence)


def _print_comparison(summary: Summary, rows: Sequence[PlannedMethod], target: float | None) -> None:
    measure, table = summary.measure, []
    for row in rows:
        cells = {
            "method": row.name,
            _measure_column(measure): row.shown("value", measure.kind),
            "difference": row.shown("difference", measure.kind, sign=True),
            "beyond\nnoise": _beyond_noise(summary, row.figures),
        }
        if target is not None:
            cells[f"rounds\nto {target:g}"] = _reached(row, target)
        beside = _figures_beside(row, measure)
        if "objective" in beside:
            cells["objective"] = beside.pop("objective")
            cells["objective\ndifference"] = row.shown("objective_difference", "number", sign=True)
        table.append({**cells, **beside})
    columns = list(table[0])
    say()
    print_table(columns, [list(cells.values()) for cells in table], numbers=columns[1:], spare=_SPARE)
    if target is not None and (resolution := sentences.target_resolution(summary)):
        say(resolution)


def _print_clients(summary: Summary) -> None:
    """How evenly the final models serve clients, and the measure of each where they are few."""
    found, measure = summary.clients, summary.measure
    if found is None:
        return
    figures: dict[str, tuple[NumberKind, Callable[[RunFigures], float | None]]] = {
        "mean": (measure.kind, lambda run: run.client_mean),
        "worst 10 %": (measure.kind, lambda run: run.client_worst),
        "variance": ("number", lambda run: run.client_variance),
        "Gini": ("number", lambda run: run.client_gini),
    }
    rows = []
    for method in summary.methods:
        estimates = [(method.over_seeds(read), kind) for kind, read in figures.values()]
        rows.append([method.label, *("" if each is None else each.text(kind) for each, kind in estimates)])
    say(f"\n{measure.quantity.title} of the final model for every client, on {summary.client_data}:")
    print_table(["method", *figures], rows, numbers=list(figures))
    if len(found.values) <= _SHOWN:
        labels = [method.label for method in summary.methods]
        rows = [
            [shown(client), *(show(values.get(label), measure.kind) for label in labels)]
            for client, values in found.values.items()
        ]
        say(
            f"\nEvery client, the one that {labels[0] if summary.baseline is None else summary.baseline.label} serves "
            f"worst first. {found.explanation}"
        )
        print_table(["client", *labels], rows, numbers=labels)


def _draw(summary: Summary) -> None:
    """Intervals of the differences, and the mean curves of all methods."""
    measure, curve = summary.measure, summary.measure.over_rounds
    intervals = {
        method.label: (method.difference.mean, method.difference.half_width)
        for method in summary.methods
        if method.difference is not None and method.difference.half_width is not None
    }
    if intervals and summary.baseline is not None:
        say(
            f"\nDifference to {summary.baseline.label} in {measure.described} ({measure.direction}), "
            "95 % interval over seeds:"
        )
        say(draw_intervals(intervals))
        say(sentences.COVERED)
    found = {
        method.label: bands(method.method, curve, [ROUNDS]).get(ROUNDS.key) for method in summary.methods
    }
    curves = {label: list(zip(band.x, band.y, strict=True)) for label, band in found.items() if band}
    if any(len(points) > 1 for points in curves.values()):
        say(f"\n{curve.title} over the rounds, mean over seeds:")
        say(draw_bars(curves))


def _reached(row: PlannedMethod, target: float) -> str:
    """Rounds to the target with their margin; where not all seeds met it, the mean and the number of those that did."""
    runs = [run.rounds_to(target) for run in row.figures.runs if run.run.finished] if row.figures else []
    found = estimate([float(rounds) for rounds in runs if rounds is not None])
    if found is None:
        return "never" if runs else ""
    if found.count == row.num_runs:
        return found.text("count")
    return f"{found.mean:.4g} in {found.count} of {row.num_runs}"


def _beyond_noise(summary: Summary, method: MethodFigures | None) -> str:
    if method is None or method.difference is None or method.difference.excludes_zero is None:
        return ""
    return method.judged or "no"


def say_sweep(
    summaries: Sequence[Summary], rows: Sequence[PlannedMethod], study: StudyFolder, run: Sequence[str]
) -> None:
    """The table of a sweep, best first, and the best setting; `run` is the command without its values."""
    measure = summaries[0].measure
    table = [
        {
            **{path: str(value) for path, value in row.labels.items()},
            _measure_column(measure): row.shown("value", measure.kind),
            **_figures_beside(row, measure),
        }
        for row in rows[:_SHOWN]
    ]
    columns = list(table[0])
    say()
    print_table(columns, [list(cells.values()) for cells in table], numbers=columns)
    if len(rows) > _SHOWN:
        say(f"and {len(rows) - _SHOWN} more settings, in {study.path}")
    for summary in summaries:
        say(summary.titled("").removeprefix(": "))
        _say_best(summary, rows, run)
    _say_failures(rows, "setting")


def _say_best(summary: Summary, rows: Sequence[PlannedMethod], run: Sequence[str]) -> None:
    """The best setting, whether its lead over the next is more than noise, and the command that runs it."""
    say(sentences.headline(summary))
    complete = [method for method in summary.best_first if method.complete]
    if not complete or (summary.compared and summary.ranking in _NO_BEST):
        return
    best = next(row for row in rows if row.figures is complete[0])
    if len(complete) > 1 and complete[1] is not summary.baseline:
        say(sentences.show_lead(summary, complete[0], complete[1]))
    values = (word for path, value in best.labels.items() for word in ("--set", f"{path}={value}"))
    say(f"Run it with: {shlex.join([*run, *values])}")
