"""`fairlead reproduce` and `fairlead list reproductions`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from fairlead.cli.console import JsonOption, print_json, print_table, say
from fairlead.cli.options import CheckpointOption, JobsOption, QuietOption
from fairlead.cli.outcomes import show_outcome
from fairlead.cli.progress import duration
from fairlead.cli.study import leave, run_and_show
from fairlead.errors import FieldError

if TYPE_CHECKING:
    from fairlead.experiments.study import PlannedRun, StudyFolder
    from fairlead.reproductions.reproduction import Reproduction, Runner

_HEEDED = {
    "data": ("--data", "data"),
    "device": ("--device", "device"),
    "only": ("--only", "only"),
    "precision": ("--precision", "computing"),
    "computing": ("--set", "computing"),
    "jobs": ("--jobs", "run"),
    "checkpoint_every": ("--checkpoint-every", "run"),
}
"""Options by parameter, with the field of `Request` that they are about."""


def reproduce(
    context: typer.Context,
    name: Annotated[
        str | None, typer.Argument(help="A published result; all if left out. `list reproductions` has them.")
    ] = None,
    scale: Annotated[
        Literal["smoke", "small", "full"],
        typer.Option(
            help="Whether it runs; whether the claim shows on a small problem; the paper's numbers."
        ),
    ] = "small",
    data: Annotated[
        Path | None, typer.Option(help="The folder that holds your data sets, such as cifar-10-batches-py.")
    ] = None,
    device: Annotated[str, typer.Option(help="Where to train: cpu, cuda or cuda:<number>.")] = "cpu",
    seeds: Annotated[str, typer.Option(help="Seeds, such as 0..2 or 0,1,2.")] = "0",
    only: Annotated[
        str | None, typer.Option(help="Methods or settings of a table to run now, separated by commas.")
    ] = None,
    out: Annotated[Path, typer.Option("--out", "-o", help="Folder of runs and results.")] = Path(
        "runs/reproductions"
    ),
    collect: Annotated[
        list[Path] | None,
        typer.Option(help="Run nothing: take in the runs of this folder, and judge what there is then."),
    ] = None,
    precision: Annotated[
        Literal["full", "tf32", "bfloat16"] | None,
        typer.Option(help="Of products on a GPU; full if not said."),
    ] = None,
    computing: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="FIELD=VALUE", help="How runs are computed, such as lanes=32."),
    ] = None,
    jobs: JobsOption = None,
    checkpoint_every: CheckpointOption = 10,
    quiet: QuietOption = False,
    as_json: JsonOption = False,
) -> None:
    """Repeat a published result, and judge its claim by what comes out.

    The same command again goes on with what was interrupted; pieces run with --only add up.
    """
    from fairlead.experiments.overrides import read_seeds
    from fairlead.reproductions.claims import worded
    from fairlead.reproductions.gallery import REPRODUCTIONS, reproduction_named
    from fairlead.reproductions.reproduction import (
        Request,
        listed_parts,
        outcome_file,
        save_outcome,
        seeds_to_lose,
    )
    from fairlead.worlds.arithmetic import usable_device

    # Not only where something is trained: a name that is wrong would go unnoticed elsewhere.
    usable_device("reproduce", device)
    if collect is not None:
        _refuse_beside_collect(context)
    if name is None and only is not None:
        raise FieldError("--only names parts of one reproduction: say which.")
    for folder in collect or []:
        if not folder.is_dir():
            raise FieldError(f"--collect must name a folder, got {folder}.")
    entries = list(REPRODUCTIONS.values()) if name is None else [reproduction_named(name)]
    if name is not None:
        _refuse_unheeded(context, entries[0])
    silent = quiet or as_json
    outcomes = []
    ends: dict[str, str] = {}
    changes = [*(computing or []), *([] if precision is None else [f"precision={precision}"])]
    for entry in entries:
        request = Request(
            out=out,
            scale=scale,
            seeds=tuple(read_seeds(seeds)),
            data=data,
            device=device,
            only=() if only is None else listed_parts(only, entry.parts),
            computing=tuple(changes),
            collect=None if collect is None else tuple(collect),
            run=_runner(ends, jobs, checkpoint_every, quiet=silent),
            tell=(lambda sentence: None) if silent else say,
        )
        outcome = entry.reproduce(request)
        outcomes.append(outcome)
        lost = seeds_to_lose(out, outcome)
        kept = bool(outcome.figures) and not lost
        if kept:
            save_outcome(out, outcome)
        if not silent:
            show_outcome(entry, outcome, scale, out if kept else None)
            if lost:
                say(
                    f"{outcome_file(out, outcome)} stays as it is, since it also has seeds {lost}: ask for them too."
                )
        if any(end in ("interrupted", "waiting") for end in ends.values()):
            break
    if as_json:
        facts = [asdict(outcome) for outcome in outcomes]
        print_json(facts if name is None else facts[0])
    elif len(outcomes) > 1 and not quiet:
        say()
        rows = [
            [each.name, worded(each.verdict, each.checks), duration(each.seconds), each.reason]
            for each in outcomes
        ]
        print_table(["reproduction", "verdict", "time", "reason"], rows, numbers=["time"])
    leave(ends, quiet=silent)
    if name is not None and outcomes[0].verdict == "not run":
        raise typer.Exit(1)


def list_reproductions(as_json: bool) -> None:
    """Every published result that can be repeated, and those that are left out."""
    from fairlead.reproductions.gallery import OMITTED, REPRODUCTIONS

    if as_json:
        print_json(
            [
                {
                    "name": entry.name,
                    "reference": entry.reference,
                    "where": entry.where,
                    "claim": entry.claim,
                    "needs": entry.needs,
                    "differences": entry.differences,
                }
                for entry in REPRODUCTIONS.values()
            ]
        )
        return
    rows = [
        [entry.name, f"{entry.paper}, {entry.where}", ", ".join(entry.needs) or "nothing", entry.claim]
        for entry in REPRODUCTIONS.values()
    ]
    print_table(["name", "published in", "needs", "claim"], rows)
    say("\nLeft out:")
    for omitted in OMITTED:
        say(f"  {omitted.paper}, {omitted.where}: {omitted.reason}")


def _refuse_beside_collect(context: typer.Context) -> None:
    """Raise if something is asked of runs where none is made, or only some are to be judged."""
    from fairlead.text import listed

    given = _given(context, ["seeds", *_HEEDED])
    if given:
        raise FieldError(
            f"--collect runs nothing and judges all runs that there are: leave out {listed(given)}."
        )


def _refuse_unheeded(context: typer.Context, entry: Reproduction) -> None:
    """Raise if options are given that make no difference to a reproduction."""
    from fairlead.text import listed

    given = _given(context, [name for name, (_, field) in _HEEDED.items() if field not in entry.heeds])
    if given:
        has, them = ("has", "it") if len(given) == 1 else ("have", "them")
        raise FieldError(f"{listed(given)} {has} no effect on {entry.name}: leave {them} out.")


def _given(context: typer.Context, parameters: Sequence[str]) -> list[str]:
    """Those of some options that are on the command line."""
    sources = {name: context.get_parameter_source(name) for name in parameters}
    return [
        _HEEDED[name][0] if name in _HEEDED else f"--{name}"
        for name, source in sources.items()
        if source is not None and source.name == "COMMANDLINE"
    ]


def _runner(ends: dict[str, str], jobs: int | None, checkpoint_every: int, *, quiet: bool) -> Runner:
    """Runs what a reproduction plans, with live progress, and enters how each run ended into `ends`."""

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
