"""`fairlead run`."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

import fairlead.cli.options as opt
from fairlead.cli.console import INTERRUPTED, JsonOption, print_json, say
from fairlead.cli.progress import RoundProgress, describe_evaluation
from fairlead.errors import FieldError

if TYPE_CHECKING:
    from fairlead.experiments.experiment import Experiment
    from fairlead.experiments.live_figures import LiveFigures
    from fairlead.experiments.run_folder import RunFolder, RunSummary
    from fairlead.experiments.runner import Run
    from fairlead.experiments.tracking import OpenTracker, Tracker
    from fairlead.federation import Federation
    from fairlead.records import RoundRecord

_TOLD = 0.005
"""Share of the weight below which chance is not mentioned."""


def run(
    spec: Annotated[
        Path,
        typer.Argument(
            help="The TOML file of an experiment, or the folder of a run to resume.", metavar="SPEC"
        ),
    ],
    overrides: opt.OverridesOption = None,
    seed: Annotated[int | None, typer.Option(help="Seed; overrides the spec.")] = None,
    rounds: opt.RoundsOption = None,
    output: Annotated[
        Path | None,
        typer.Option("--output", "-o", help="Folder of the run. Default: a new one under runs/."),
    ] = None,
    resume: Annotated[bool, typer.Option("--resume", help="Resume the run in the folder.")] = False,
    logs: Annotated[
        list[str] | None,
        typer.Option("--log", metavar="NAME", help="Also write rounds to tensorboard or mlflow."),
    ] = None,
    checkpoint_every: opt.CheckpointOption = 10,
    quiet: opt.QuietOption = False,
    as_json: JsonOption = False,
) -> None:
    """Run an experiment and store it in a folder."""
    from fairlead.experiments.run_folder import RunFolder
    from fairlead.experiments.runner import run_experiment
    from fairlead.experiments.tracking import tracker_named

    if spec.is_dir():
        spec, output, resume = _run_in(spec, output)
    if resume and output is None:
        raise FieldError(
            "--resume needs the folder of the run: add -o FOLDER, or give the folder instead of the spec."
        )
    experiment = opt.read_spec(spec, opt.all_overrides(overrides, rounds), seed)
    store = RunFolder(output or _new_folder(spec, experiment))
    opening = [tracker_named(log) for log in logs or []]
    with RoundProgress(quiet=quiet or as_json) as progress:
        onlookers = _Onlookers(progress, spec.stem, experiment, store, opening)
        if resume:
            _say_what_is_left(progress, store, experiment)
        try:
            ended = run_experiment(
                experiment,
                store.path,
                resume=resume,
                checkpoint_every=checkpoint_every,
                on_start=onlookers.begin,
                on_round=onlookers.advance,
                on_interrupt=lambda: progress.note(
                    "Stopping after this round; press Ctrl-C again to stop immediately."
                ),
                on_notice=progress.note,
                on_recovery=progress.note,
            )
            onlookers.outcome = ended.outcome
        except KeyboardInterrupt:
            onlookers.outcome = "interrupted"
            progress.note(f"Stopped. {'Nothing was done.' if store.is_free() else _how_to_go_on(store.path)}")
            raise typer.Exit(INTERRUPTED) from None
        finally:
            onlookers.leave()
    if as_json:
        print_json(_facts(ended))
    elif not quiet:
        _report(ended)
    if ended.outcome == "interrupted":
        raise typer.Exit(INTERRUPTED)


class _Onlookers:
    """The display and the trackers that follow a run."""

    def __init__(
        self,
        progress: RoundProgress,
        name: str,
        experiment: Experiment,
        store: RunFolder,
        opening: Sequence[OpenTracker],
    ) -> None:
        self._progress, self._name = progress, name
        self._experiment, self._store, self._opening = experiment, store, opening
        self._live: LiveFigures | None = None
        self._logs: list[Tracker] = []
        self.outcome = "failed"

    def begin(self, federation: Federation) -> None:
        from fairlead.experiments.live_figures import LiveFigures

        done = federation.state.round
        self._live = LiveFigures(federation)
        evaluating = self._experiment.evaluate_every > 0
        self._progress.begin(self._name, self._experiment.rounds, done, evaluating=evaluating)
        for opened in self._opening:
            self._logs.append(opened(self._store, self._experiment, done))

    def advance(self, record: RoundRecord) -> None:
        assert self._live is not None
        self._progress.advance(self._name, self._live.of(record))
        for log in self._logs:
            log.write(record)

    def leave(self) -> None:
        for log in self._logs:
            log.close(self.outcome)


def _run_in(folder: Path, output: Path | None) -> tuple[Path, Path, bool]:
    """The spec and the folder of a run to resume."""
    from fairlead.experiments.run_folder import RunFolder

    store = RunFolder(folder)
    if not (store.spec_file.exists() and store.rounds_file.exists()):
        raise FieldError(f"{folder} is not the folder of a run: it lacks spec.toml or rounds.jsonl.")
    if output is not None and output != folder:
        raise FieldError(f"The run in {folder} resumes there: leave out -o, or give {folder / 'spec.toml'}.")
    return store.spec_file, folder, True


def _new_folder(spec: Path, experiment: Experiment) -> Path:
    """runs/NAME-SEED, or the next free name."""
    from fairlead.experiments.run_folder import RunFolder

    folder = Path("runs") / f"{spec.stem}-{experiment.seed}"
    number = 2
    while not RunFolder(folder).is_free():
        folder = folder.with_name(f"{spec.stem}-{experiment.seed}-{number}")
        number += 1
    return folder


def _say_what_is_left(progress: RoundProgress, store: RunFolder, experiment: Experiment) -> None:
    """A line if there is nothing to resume."""
    from fairlead.text import counted

    if store.is_free():
        progress.note(f"{store.path} holds no run to resume: starting a new one.")
    elif store.is_done(experiment):
        progress.note(
            f"The run in {store.path} is already finished after {counted(experiment.rounds, 'round')}. A larger "
            "--rounds extends it."
        )


def _how_to_go_on(folder: Path) -> str:
    return f"Resume with: {shlex.join(['fairlead', 'run', str(folder)])}"


def _report(ended: Run) -> None:
    from fairlead.charts.chart import draw_line, plain_curves
    from fairlead.results.comparison import summarise
    from fairlead.results.curves import TRAIN_LOSS
    from fairlead.results.runs import FoundRun, read_run
    from fairlead.results.sentences import headline
    from fairlead.text import counted

    summary, folder = ended.summary, ended.folder.path
    if summary is None:
        done = ended.federation.state.round
        say(f"Stopped after {counted(done, 'round')}. {_how_to_go_on(folder)}")
        return
    (comparison,) = summarise([read_run(FoundRun(ended.folder))])
    ((run,),) = (method.runs for method in comparison.methods)
    quantity = comparison.measure.quantity
    if len(quantity.read(run.run)) <= 2:
        quantity = TRAIN_LOSS
    curve = quantity.read(run.run)
    points = list(zip(map(float, curve.rounds), curve.values, strict=True))
    chart = draw_line(plain_curves({quantity.title: points}))
    if chart:
        say(f"{quantity.title} over the rounds:\n{chart}\n")
    say(f"{counted(summary.rounds, 'round')} {'is' if summary.rounds == 1 else 'are'} in {folder}")
    if summary.evaluation is not None:
        say(f"Final model: {describe_evaluation(summary.evaluation)}")
    say(headline(comparison))
    if summary.privacy is not None:
        say(str(summary.privacy))
    say(f"{ended.federation.consistency()}{_by_chance(summary)}")


def _by_chance(summary: RunSummary) -> str:
    """The share of weight that chance misplaces in as many rounds."""
    from fairlead.text import counted

    chance = summary.misplaced_by_chance
    if summary.by_design or not summary.misplaced_weight or chance < _TOLD:
        return ""
    return f" Chance alone would misplace some {chance:.1%} in {counted(summary.rounds, 'round')}."


def _facts(ended: Run) -> dict[str, Any]:
    facts = {"folder": str(ended.folder.path), "outcome": ended.outcome}
    rounds = {"rounds": ended.federation.state.round}
    return {**facts, **(rounds if ended.summary is None else asdict(ended.summary))}
