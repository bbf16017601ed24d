"""`fairlead run`."""

from __future__ import annotations

import shlex
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from fairlead.cli.console import JsonOption, print_json, say
from fairlead.cli.progress import RoundProgress, describe_evaluation
from fairlead.cli.spec import read_spec
from fairlead.errors import FieldError

if TYPE_CHECKING:
    from fairlead.experiments import Experiment, Run

_INTERRUPTED = 130
"""Exit status of a command stopped by Ctrl-C, as shells have it."""


def run(
    spec: Annotated[Path, typer.Argument(help="The TOML file of the experiment.", metavar="SPEC")],
    overrides: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="PATH=VALUE", help="Change a value, such as algorithm.server.lr=0.03."),
    ] = None,
    seed: Annotated[int | None, typer.Option(help="The seed instead of the spec's.")] = None,
    rounds: Annotated[int | None, typer.Option(help="Rounds instead of the spec's.")] = None,
    output: Annotated[
        Path | None,
        typer.Option("--output", "-o", help="Folder of the run; by default a new one under runs/."),
    ] = None,
    resume: Annotated[bool, typer.Option("--resume", help="Go on with the run in the folder.")] = False,
    checkpoint_every: Annotated[int, typer.Option(help="Rounds between checkpoints.")] = 10,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Print nothing but errors.")] = False,
    as_json: JsonOption = False,
) -> None:
    """Run an experiment and keep it in a folder."""
    from fairlead.experiments import run_experiment

    if resume and output is None:
        raise FieldError("--resume needs the folder of the run: give it with -o.")
    changes = [*(overrides or []), *([] if rounds is None else [f"rounds={rounds}"])]
    experiment = read_spec(spec, changes, seed)
    folder = output or _new_folder(spec, experiment)
    name = spec.stem
    with RoundProgress(quiet=quiet or as_json) as progress:
        ended = run_experiment(
            experiment,
            folder,
            resume=resume,
            checkpoint_every=checkpoint_every,
            on_start=lambda federation: progress.begin(name, experiment.rounds, federation.state.round),
            on_round=lambda record: progress.advance(name, record),
            on_interrupt=lambda: progress.note(
                "Stopping after this round; press Ctrl-C again to stop at once."
            ),
            on_notice=progress.note,
        )
    if as_json:
        print_json(_summary(ended))
    elif not quiet:
        _report(ended)
    if ended.outcome == "interrupted":
        raise typer.Exit(_INTERRUPTED)


def _new_folder(spec: Path, experiment: Experiment) -> Path:
    """runs/NAME-SEED, or the next free name."""
    from fairlead.experiments import RunFolder

    folder = Path("runs") / f"{spec.stem}-{experiment.seed}"
    number = 2
    while not RunFolder(folder).is_free():
        folder = folder.with_name(f"{spec.stem}-{experiment.seed}-{number}")
        number += 1
    return folder


def _report(ended: Run) -> None:
    records, store = ended.federation.records, ended.folder
    if ended.outcome == "interrupted":
        command = ["fairlead", "run", str(store.spec_file), "-o", str(store.path), "--resume"]
        say(f"Stopped after {len(records)} rounds. Go on with: {shlex.join(command)}")
        return
    say(f"{len(records)} rounds are in {store.path}")
    evaluation = next((record.evaluation for record in reversed(records) if record.evaluation), None)
    if evaluation is not None:
        say(f"Final model: {describe_evaluation(evaluation)}")
    say(str(ended.federation.consistency()))


def _summary(ended: Run) -> dict[str, Any]:
    records, consistency = ended.federation.records, ended.federation.consistency()
    evaluation = next((record.evaluation for record in reversed(records) if record.evaluation), None)
    return {
        "folder": str(ended.folder.path),
        "outcome": ended.outcome,
        "rounds": len(records),
        "seconds": sum(record.seconds for record in records),
        "train_loss": records[-1].train_loss if records else None,
        "evaluation": None if evaluation is None else asdict(evaluation),
        "chi_square": consistency.chi_square,
        "misplaced_weight": consistency.total_variation,
        "predicted_chi_square": consistency.predicted_chi_square,
        "notice": ended.federation.notice,
    }
