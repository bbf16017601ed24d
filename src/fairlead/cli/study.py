"""What `fairlead compare` and `fairlead sweep` have in common: running a study and showing its results."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from fairlead.cli.console import INTERRUPTED, say
from fairlead.cli.progress import StudyProgress, duration

if TYPE_CHECKING:
    from fairlead.experiments.study import PlannedRun, StudyFolder
    from fairlead.results.estimates import Estimate
    from fairlead.results.study_results import Metric, Result

_FAILED = 1


def study_folder(
    output: Path | None, spec: Path, command: str, planned: Sequence[PlannedRun], changes: Sequence[str]
) -> StudyFolder:
    """The folder of a study: a default one has rounds in its name that were asked for; other lengths are refused."""
    from fairlead.experiments.study import StudyFolder
    from fairlead.text import counted

    name = f"{spec.stem}-{command}"
    if any(change.partition("=")[0].strip() == "rounds" for change in changes):
        name += f"-{counted(planned[0].experiment.rounds, 'round').replace(' ', '-')}"
    study = StudyFolder(output or Path("runs") / name)
    study.refuse_other_lengths(planned)
    return study


def run_and_show(
    study: StudyFolder,
    planned: Sequence[PlannedRun],
    *,
    jobs: int | None,
    checkpoint_every: int,
    keep_finished_checkpoints: bool = True,
    quiet: bool,
) -> dict[str, str]:
    """Run a study with live progress; returns the outcomes by folder."""
    from fairlead.errors import FieldError
    from fairlead.experiments.workers import run_study

    for option, value in (("--jobs", jobs), ("--checkpoint-every", checkpoint_every)):
        if value is not None and value < 1:
            raise FieldError(f"{option} must be at least 1, got {value}.")
    with StudyProgress(len(planned), quiet=quiet) as progress:
        try:
            return run_study(
                study,
                planned,
                jobs=jobs,
                checkpoint_every=checkpoint_every,
                keep_finished_checkpoints=keep_finished_checkpoints,
                watch=progress.watch,
                on_interrupt=lambda: progress.note(
                    "Stopping after the rounds that are running; press Ctrl-C again to stop at once."
                ),
            )
        except KeyboardInterrupt:
            progress.note("Stopped. The same command again goes on from the last checkpoints.")
            raise typer.Exit(INTERRUPTED) from None


def leave(outcomes: Mapping[str, str], *, quiet: bool) -> None:
    """End the command with the exit status that the outcomes deserve."""
    if any(outcome in ("interrupted", "waiting") for outcome in outcomes.values()):
        if not quiet:
            done = sum(outcome == "finished" for outcome in outcomes.values())
            say(f"Stopped with {done} of {len(outcomes)} runs done. The same command again goes on.")
        raise typer.Exit(INTERRUPTED)
    if any(outcome != "finished" for outcome in outcomes.values()):
        raise typer.Exit(_FAILED)


def figures_beside(result: Result, metric: Metric) -> dict[str, str]:
    """What a result shows beside the metric, by column."""
    from fairlead.text import divergence

    objective, misplaced, chance, chi_square = (
        result.mean(figure)
        for figure in ("objective", "misplaced_weight", "misplaced_by_chance", "chi_square")
    )
    seconds = result.mean("seconds")
    # One round does not tell how much rounds differ.
    alone = any(each.rounds < 2 for each in result.summaries.values())
    by_design = bool(result.summaries) and all(each.by_design for each in result.summaries.values())
    count, total = len(result.summaries), result.num_runs
    figures = {
        "objective": "" if objective is None else f"{objective:.4g}",
        "misplaced": "none by design" if by_design else "" if misplaced is None else f"{misplaced:.1%}",
        "by\nchance": "" if by_design or misplaced is None or chance is None or alone else f"{chance:.1%}",
        "chi-square": "" if by_design or chi_square is None else divergence(chi_square, digits=3),
        "time": "" if seconds is None else duration(seconds),
        "seeds": str(count) if count == total else f"{count} of {total}",
    }
    return {column: cell for column, cell in figures.items() if column != metric.name}


def result_facts(result: Result) -> dict[str, Any]:
    """A result for JSON."""
    return {
        **result.labels,
        "final": None if result.final is None else asdict(result.final),
        "difference": _difference_facts(result.difference),
        "objective_difference": _difference_facts(result.objective_difference),
        "rounds_to_target": {str(seed): rounds for seed, rounds in result.reached.items()},
        "learnt": result.learnt,
        **{
            figure: result.mean(figure)
            for figure in ("objective", "misplaced_weight", "misplaced_by_chance", "chi_square", "seconds")
        },
        "seeds": {str(seed): asdict(summary) for seed, summary in result.summaries.items()},
        "failures": {str(seed): reason for seed, reason in result.failures.items()},
    }


def _difference_facts(difference: Estimate | None) -> dict[str, Any] | None:
    return None if difference is None else {**asdict(difference), "excludes_zero": difference.excludes_zero}


def say_failures(results: Sequence[Result], noun: str) -> None:
    """A line for each run that failed, with the reason, and one on methods or settings of which no run learnt."""
    from fairlead.results.study_results import any_or_listed, told_unlearnt

    for result in results:
        for seed, outcome in result.failures.items():
            if outcome.startswith("failed"):
                say(f"{result.name}, seed {seed} {outcome}")
    lost = [result for result in results if not result.learnt]
    names = [result.name for result in lost]
    if any(result.summaries for result in lost):
        say(told_unlearnt(names, len(results), noun))
    elif lost:
        whose = any_or_listed(names, len(results), noun)
        say(f"No run of {whose} finished: the reasons above say what to change.")


def say_where(folder: Path, target: float | None = None) -> None:
    """Where the runs are, and what to do with them, with a target of the accuracy if there is one."""
    goal = [] if target is None else ["--target", f"{target:g}"]
    command = shlex.join(["fairlead", "report", str(folder), *goal])
    say(f"The runs are in {folder}; for a page with curves and tables: {command}")


def verdict(result: Result, reference: str, metric: Metric) -> str:
    """A sentence on a method, which mentions the objective where that tells another story."""
    if result.difference is None:
        return f"{result.name} cannot be compared with {reference}: they have no finished seed in common."
    told, objective = _told(result, result.difference, reference, metric), result.objective_difference
    otherwise = result.judged_otherwise(metric)
    if otherwise is None or objective is None:
        return f"{told}."
    amount = f"{abs(objective.mean):.3g} ± {objective.half_width:.2g}"
    return f"{told}; on the objective that was asked for it is {otherwise} by {amount}."


def _told(result: Result, difference: Estimate, reference: str, metric: Metric) -> str:
    from fairlead.results.estimates import too_few
    from fairlead.text import counted

    amount = f"{abs(difference.mean):.3g}"
    if difference.half_width is None:
        better = "better" if (difference.mean < 0) == metric.smaller_is_better else "worse"
        compared = "equals" if difference.mean == 0 else f"is {amount} {better} than"
        return (
            f"{result.name} {compared} {reference} at {too_few(difference)}, which says nothing about noise"
        )
    over = f"over {difference.count} seeds"
    if result.failures:
        lost = f"{len(result.failures)} of its {counted(result.num_runs, 'run')}"
        return (
            f"{result.name} is not judged, since {lost} did not finish: the difference from {reference} is "
            f"{written(difference, sign=True)} in {metric.name} {over}"
        )
    judgement = result.judged(metric)
    if judgement is not None:
        return (
            f"{result.name} is {judgement} than {reference} by {amount} ± {difference.half_width:.2g} in "
            f"{metric.name} {over}: more than the noise"
        )
    return (
        f"{result.name} cannot be told from {reference}: the difference of {written(difference, sign=True)} in "
        f"{metric.name} {over} is within the noise"
    )


def written(value: Estimate | None, *, sign: bool = False) -> str:
    """A mean with its margin, to two digits of the margin: 0.931 ± 0.012."""
    if value is None:
        return ""
    plus = "+" if sign else ""
    if not value.half_width:
        return f"{value.mean:{plus}.4g}"
    decimals = next((n for n in range(12) if value.half_width * 10**n >= 9.95), 12)
    return f"{value.mean:{plus}.{decimals}f} ± {value.half_width:.{decimals}f}"


def metric_title(metric: Metric) -> str:
    """The metric with what is good about it."""
    return f"{metric.name} ({'smaller' if metric.smaller_is_better else 'larger'} is better)"
