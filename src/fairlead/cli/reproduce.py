"""`fairlead reproduce`: repeat a published result."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from fairlead.cli.console import JsonOption, print_json, say
from fairlead.cli.options import CheckpointOption, JobsOption, QuietOption
from fairlead.cli.outcomes import show_outcome, show_verdicts
from fairlead.cli.study import leave, run_and_show
from fairlead.errors import FieldError

if TYPE_CHECKING:
    from fairlead.experiments.study import PlannedRun, StudyFolder
    from fairlead.reproductions.reproduction import Outcome, Reproduction, Request, Runner

_OPTIONS = {
    "data": ("--data", "data"),
    "device": ("--device", "device"),
    "only": ("--only", "only"),
    "precision": ("--precision", "computing"),
    "computing": ("--set", "computing"),
    "jobs": ("--jobs", "run"),
    "checkpoint_every": ("--checkpoint-every", "run"),
}
"""Options by parameter, with the field of `Request` that they set."""


def reproduce(
    context: typer.Context,
    name: Annotated[
        str | None,
        typer.Argument(help="A published result; all of them by default. See `fairlead list reproductions`."),
    ] = None,
    scale: Annotated[
        Literal["smoke", "small", "full"],
        typer.Option(
            help="smoke: a quick check that it runs; small: the claim on a small problem; full: the paper's setting."
        ),
    ] = "small",
    data: Annotated[
        Path | None, typer.Option(help="Folder with your data sets, such as cifar-10-batches-py.")
    ] = None,
    device: Annotated[str, typer.Option(help="Device to train on: cpu, cuda or cuda:<number>.")] = "cpu",
    seeds: Annotated[str, typer.Option(help="Seeds, such as 0..2 or 0,1,2.")] = "0",
    only: Annotated[
        str | None, typer.Option(help="Run only these methods or settings of a table, separated by commas.")
    ] = None,
    out: Annotated[Path, typer.Option("--out", "-o", help="Folder for runs and results.")] = Path(
        "runs/reproductions"
    ),
    collect: Annotated[
        list[Path] | None,
        typer.Option(
            help="Run nothing: import the runs of this folder and judge all runs found so far; may be repeated."
        ),
    ] = None,
    precision: Annotated[
        Literal["full", "tf32", "bfloat16"] | None,
        typer.Option(help="Precision of matrix products on a GPU; full by default."),
    ] = None,
    computing: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="FIELD=VALUE", help="Change how runs are computed, such as lanes=32."),
    ] = None,
    jobs: JobsOption = None,
    checkpoint_every: CheckpointOption = 10,
    quiet: QuietOption = False,
    as_json: JsonOption = False,
) -> None:
    """Reproduce a published result and check its claim.

    Re-running the command resumes interrupted runs and skips finished ones. Runs started with --only add up.
    """
    from fairlead.experiments.overrides import read_seeds
    from fairlead.reproductions import REPRODUCTIONS, reproduction_named
    from fairlead.reproductions.reproduction import Request, listed_parts
    from fairlead.worlds.device import usable_device

    # Checked for every reproduction, also for those that are computed on the CPU.
    usable_device("reproduce", device)
    if collect is not None:
        _refuse_beside_collect(context, collect)
    if name is None and only is not None:
        raise FieldError(
            "--only needs the name of a reproduction, because it names methods or settings of one table."
        )
    entries = list(REPRODUCTIONS.values()) if name is None else [reproduction_named(name)]
    if name is not None:
        _refuse_unused(context, entries[0])
    silent = quiet or as_json
    ends: dict[str, str] = {}
    request = Request(
        out=out,
        scale=scale,
        seeds=tuple(read_seeds(seeds)),
        data=data,
        device=device,
        only=() if only is None else listed_parts(only, entries[0].parts),
        computing=(*(computing or []), *([] if precision is None else [f"precision={precision}"])),
        collect=None if collect is None else tuple(collect),
        run=_runner(ends, jobs, checkpoint_every, quiet=silent),
        tell=(lambda sentence: None) if silent else say,
    )
    outcomes = []
    for entry in entries:
        outcomes.append(_reproduce_one(entry, request, silent=silent))
        if any(end in ("interrupted", "waiting") for end in ends.values()):
            break
    if as_json:
        facts = [asdict(outcome) for outcome in outcomes]
        print_json(facts if name is None else facts[0])
    elif len(outcomes) > 1 and not quiet:
        show_verdicts(outcomes)
    leave(ends, quiet=silent)
    if name is not None and outcomes[0].verdict == "not run":
        raise typer.Exit(1)


def _reproduce_one(entry: Reproduction, request: Request, *, silent: bool) -> Outcome:
    """Run an entry, save its outcome unless an earlier one has more seeds, and show it."""
    from fairlead.reproductions.reproduction import outcome_file, save_outcome, seeds_to_lose

    outcome = entry.reproduce(request)
    lost = seeds_to_lose(request.out, outcome)
    kept = bool(outcome.figures) and not lost
    if kept:
        save_outcome(request.out, outcome)
    if not silent:
        show_outcome(entry, outcome, request.scale, request.out if kept else None)
        if lost:
            file = outcome_file(request.out, outcome)
            say(f"{file} was not overwritten, because it also has seeds {lost}: add them to --seeds.")
    return outcome


def _refuse_beside_collect(context: typer.Context, folders: Sequence[Path]) -> None:
    """Refuse options about new runs beside --collect, and folders that do not exist."""
    from fairlead.text import listed

    given = _given(context, ["seeds", *_OPTIONS])
    if given:
        raise FieldError(f"--collect starts no runs and judges all runs found: leave out {listed(given)}.")
    for folder in folders:
        if not folder.is_dir():
            raise FieldError(f"--collect must name a folder, got {folder}.")


def _refuse_unused(context: typer.Context, entry: Reproduction) -> None:
    """Refuse options that have no effect on a reproduction."""
    from fairlead.text import listed

    given = _given(
        context, [name for name, (_, field) in _OPTIONS.items() if field not in entry.options_used]
    )
    if given:
        has, them = ("has", "it") if len(given) == 1 else ("have", "them")
        raise FieldError(f"{listed(given)} {has} no effect on {entry.name}: leave {them} out.")


def _given(context: typer.Context, parameters: Sequence[str]) -> list[str]:
    """Options that were given on the command line, of the given parameters."""
    sources = {name: context.get_parameter_source(name) for name in parameters}
    return [
        _OPTIONS[name][0] if name in _OPTIONS else f"--{name}"
        for name, source in sources.items()
        if source is not None and source.name == "COMMANDLINE"
    ]


def _runner(ends: dict[str, str], jobs: int | None, checkpoint_every: int, *, quiet: bool) -> Runner:
    """A function that runs the planned runs with live progress and records in `ends` how each one ended."""

    def run(study: StudyFolder, planned: Sequence[PlannedRun]) -> Mapping[str, str]:
        outcomes = run_and_show(
            study,
            planned,
            jobs=jobs,
            checkpoint_every=checkpoint_every,
            keep_finished_checkpoints=False,
            quiet=quiet,
        )
        ends.update({f"{study.path}/{folder}": outcome for folder, outcome in outcomes.items()})
        if not quiet:
            for each in planned:
                if outcomes[each.folder].startswith("failed"):
                    say(f"{each.name} {outcomes[each.folder]}")
        return outcomes

    return run
