"""`fairlead reproduce` and `fairlead list reproductions`."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from fairlead.cli.console import JsonOption, print_json, print_table, say
from fairlead.cli.options import CheckpointOption, JobsOption, QuietOption
from fairlead.cli.progress import duration
from fairlead.cli.study import leave, run_and_show
from fairlead.errors import FieldError

if TYPE_CHECKING:
    from fairlead.reproductions import Outcome, Reproduction
    from fairlead.reproductions.claims import Check
    from fairlead.reproductions.reproduction import Figure, Runner, Scale
    from fairlead.studies.study import PlannedRun, StudyFolder

_WIDE = 4
"""Columns from which on a table gets a line for each figure."""
_NAMED = 4
"""How many of the figures that comparisons lack are named."""


def reproduce(
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
    from fairlead.reproductions import REPRODUCTIONS, Request, reproduction_named
    from fairlead.reproductions.judgement import worded
    from fairlead.reproductions.outcome_files import outcome_file, save_outcome, seeds_to_lose
    from fairlead.reproductions.reproduction import listed_parts
    from fairlead.studies.ranges import read_seeds
    from fairlead.worlds.usable_device import usable_device

    # Not only where something is trained: a name that is wrong would go unnoticed elsewhere.
    usable_device("reproduce", device)
    if name is None and only is not None:
        raise FieldError("--only names parts of one reproduction: say which.")
    for folder in collect or []:
        if not folder.is_dir():
            raise FieldError(f"--collect must name a folder, got {folder}.")
    entries = list(REPRODUCTIONS.values()) if name is None else [reproduction_named(name)]
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
        )
        outcome = entry.reproduce(request)
        outcomes.append(outcome)
        lost = seeds_to_lose(out, outcome)
        if outcome.figures and not lost:
            save_outcome(out, outcome)
        if not silent:
            _report(entry, outcome, scale)
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


def list_reproductions(as_json: bool) -> None:
    """Every published result that can be repeated, and those that are left out."""
    from fairlead.reproductions import OMITTED, REPRODUCTIONS

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


def _report(entry: Reproduction, outcome: Outcome, scale: Scale) -> None:
    from fairlead.reproductions.judgement import worded

    say(f"\n{entry.name}: {entry.paper}, {entry.where}")
    say(f"Claim: {entry.claim}")
    say(f"Run at scale {scale}: {entry.describe(scale)}.")
    if outcome.figures:
        say()
        _print_figures(outcome.figures)
        say(_key(outcome.figures, entry.measured))
        say()
        _say_checks(outcome.checks)
        if outcome.released is not None:
            _say_checks(outcome.released.checks, "as released: ")
        for difference in entry.differences:
            say(f"  note {difference}")
    taken = f" ({duration(outcome.seconds)})" if outcome.figures else ""
    say(f"Verdict: {worded(outcome.verdict, outcome.checks)}{taken}. {outcome.reason}".rstrip())
    if outcome.released is not None:
        released = worded(outcome.released.verdict, outcome.released.checks)
        say(f"As released: {released}. {outcome.released.reason}".rstrip())


def _say_checks(checks: Sequence[Check], of_what: str = "") -> None:
    """A line for every comparison that could be judged, and one for all that lack runs."""
    for check in checks:
        if check.holds is not None:
            say(f"  {'yes' if check.holds else 'no':4} {of_what}{check.statement}: {check.numbers}")
    lacking = [check for check in checks if check.holds is None]
    if lacking:
        names = list(dict.fromkeys(name for check in lacking for name in check.missing))
        more = f" and {len(names) - _NAMED} more" if len(names) > _NAMED else ""
        lack = "comparison lacks" if len(lacking) == 1 else "comparisons lack"
        # Names have commas of their own.
        say(f"  open {of_what}{len(lacking)} {lack} runs of {'; '.join(names[:_NAMED])}{more}")


def _print_figures(figures: Sequence[Figure]) -> None:
    columns = list(dict.fromkeys(figure.column for figure in figures))
    printed = any(figure.published is not None for figure in figures)
    if len(columns) > _WIDE:
        rows = [[f.row, f.column, _ours(f), *([_published(f)] if printed else [])] for f in figures]
        print_table(["", "figure", "ours", *(["published"] if printed else [])], rows, numbers=["ours"])
        return
    cells = {
        (figure.row, figure.column): f"{_ours(figure)} [{_published(figure)}]" if printed else _ours(figure)
        for figure in figures
    }
    names = dict.fromkeys(figure.row for figure in figures)
    print_table(
        ["", *columns],
        [[row, *(cells.get((row, column), "") for column in columns)] for row in names],
        numbers=columns,
    )


def _key(figures: Sequence[Figure], measured: str) -> str:
    """What the figures of a table are, and what stands after ± in ours and in the published ones."""
    from fairlead.diagnostics.wording import counted

    fewest, most = min(figure.seeds for figure in figures), max(figure.seeds for figure in figures)
    seeds = f"{fewest} to {most} seeds" if fewest < most else counted(most, "seed")
    if any(figure.half_width is not None for figure in figures):
        key = f"Ours: mean over {seeds} ± half the 95 % interval"
    else:
        key = f"Ours: {seeds}"
    if any(figure.published is not None for figure in figures):
        in_brackets = "" if len({figure.column for figure in figures}) > _WIDE else " in brackets"
        theirs = any(figure.published_spread is not None for figure in figures)
        key += f"; published{in_brackets}: as the authors print it{', with their own ±' if theirs else ''}"
    return f"{key}." + (f" Figures: {measured}." if measured else "")


def _ours(figure: Figure) -> str:
    return _number(figure.ours, figure.half_width)


def _published(figure: Figure) -> str:
    return "–" if figure.published is None else _number(figure.published, figure.published_spread)


def _number(value: float, spread: float | None) -> str:
    if math.isinf(value):
        return "never"
    return f"{value:.4g}" if spread is None else f"{value:.4g} ± {spread:.2g}"
