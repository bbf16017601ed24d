"""Reproductions on the terminal: their runs, figures, comparisons and verdicts."""

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from shlex import quote

from typer import Context

import fairlead.reproductions.reproduction as repro
from fairlead.cli.console import print_table, say
from fairlead.cli.progress import duration
from fairlead.cli.show_study import run_and_show
from fairlead.errors import FieldError
from fairlead.experiments.study import PlannedRun, StudyFolder
from fairlead.reproductions.claims import Check, CheckState, Published, TableCell, worded
from fairlead.results.estimates import show_estimate
from fairlead.results.run_archive import archive_file
from fairlead.text import counted, listed

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


def reproduce_one(entry: repro.Reproduction, request: repro.Request, *, silent: bool) -> repro.Outcome:
    """Run an entry, save its outcome unless an earlier one has more seeds, and show it."""
    outcome = entry.reproduce(request)
    lost = repro.seeds_to_lose(request.out, outcome)
    kept = bool(outcome.figures) and not lost
    if kept:
        repro.save_outcome(request.out, outcome)
    if not silent:
        _show_outcome(entry, outcome, request.scale, request.out if kept else None)
        if lost:
            file = repro.outcome_file(request.out, outcome)
            say(f"{file} was not overwritten, because it also has seeds {lost}: add them to --seeds.")
    return outcome


def refuse_beside_collect(context: Context, folders: Sequence[Path]) -> None:
    """Refuse options about new runs beside --collect, and folders that do not exist."""
    given = _given(context, ["seeds", *_OPTIONS])
    if given:
        raise FieldError(f"--collect starts no runs and judges all runs found: leave out {listed(given)}.")
    for folder in folders:
        if not folder.is_dir():
            raise FieldError(f"--collect must name a folder, got {folder}.")


def refuse_unused(context: Context, entry: repro.Reproduction) -> None:
    """Refuse options that have no effect on a reproduction."""
    given = _given(
        context, [name for name, (_, field) in _OPTIONS.items() if field not in entry.options_used]
    )
    if given:
        has, them = ("has", "it") if len(given) == 1 else ("have", "them")
        raise FieldError(f"{listed(given)} {has} no effect on {entry.name}: leave {them} out.")


def _given(context: Context, parameters: Sequence[str]) -> list[str]:
    """Options that were given on the command line, of the given parameters."""
    sources = {name: context.get_parameter_source(name) for name in parameters}
    return [
        _OPTIONS[name][0] if name in _OPTIONS else f"--{name}"
        for name, source in sources.items()
        if source is not None and source.name == "COMMANDLINE"
    ]


def shown_runner(
    ends: dict[str, str], jobs: int | None, checkpoint_every: int, *, quiet: bool
) -> repro.Runner:
    """A function that runs the planned runs with live progress and records in `ends` how each one ended."""

    def run(study: StudyFolder, planned: Sequence[PlannedRun]) -> Mapping[str, str]:
        outcomes = run_and_show(
            study, planned, jobs, checkpoint_every, quiet=quiet, keep_finished_checkpoints=False
        )
        ends.update({f"{study.path}/{folder}": outcome for folder, outcome in outcomes.items()})
        if not quiet:
            for each in planned:
                if outcomes[each.folder].startswith("failed"):
                    say(f"{each.name} {outcomes[each.folder]}")
        return outcomes

    return run


_WIDE = 4
"""A table with more columns has one line per figure."""
_NAMED = 4
"""At most so many missing figures and failed runs are named."""


def _show_outcome(
    entry: repro.Reproduction, outcome: repro.Outcome, scale: repro.Scale, kept_in: Path | None
) -> None:
    """Print figures, comparisons, the file of the outcome and the verdict."""
    say(f"\n{entry.name}: {entry.paper}, {entry.where}")
    say(f"Claim: {entry.claim}")
    say(f"Run at scale {scale}: {entry.describe(scale)}.")
    if outcome.figures:
        say()
        _print_figures(entry, outcome)
        say(_key(outcome, entry.measured))
        _say_failures(outcome.failures)
        say()
        _say_checks(outcome.checks)
        if outcome.released is not None:
            _say_checks(outcome.released.checks, f"{entry.released_as}: ")
        for difference in entry.differences:
            say(f"  note {difference}")
        if kept_in is not None:
            say(f"  saved {_kept(kept_in, outcome, entry.figure)}")
    taken = f" ({duration(outcome.seconds)})" if outcome.figures else ""
    say(f"Verdict: {worded(outcome.verdict, outcome.checks)}{taken}. {outcome.reason}".rstrip())
    if outcome.released is not None:
        released = worded(outcome.released.verdict, outcome.released.checks)
        say(f"{entry.released_as.capitalize()}: {released}. {outcome.released.reason}".rstrip())


def show_verdicts(outcomes: Sequence[repro.Outcome]) -> None:
    """Print a line for each of several outcomes."""
    say()
    rows = [
        [each.name, worded(each.verdict, each.checks), duration(each.seconds), each.reason]
        for each in outcomes
    ]
    print_table(["reproduction", "verdict", "time", "reason"], rows, numbers=["time"])


def _kept(folder: Path, outcome: repro.Outcome, figure: str | None) -> str:
    """The file of an outcome, and the command that shows its runs by the paper's figure."""
    runs = archive_file(folder, f"{outcome.name}-{outcome.scale}")
    chosen = "" if figure is None else f" --figure {figure}"
    page = f"; for a page of its runs: fairlead report {quote(str(runs))}{chosen}" if runs.exists() else ""
    return f"{repro.outcome_file(folder, outcome)}{page}"


def _say_checks(checks: Sequence[Check], of_what: str = "") -> None:
    """A line for every judged comparison, and one line each for those that lack runs or need failed ones."""
    for check in checks:
        if check.holds is not None:
            say(f"  {'yes' if check.holds else 'no':4} {of_what}{check.statement}: {check.numbers}")
    wordings: dict[CheckState, tuple[str, str]] = {
        "lacks runs": ("comparison lacks runs of", "comparisons lack runs of"),
        "needs failed runs": ("comparison needs a run that failed:", "comparisons need runs that failed:"),
    }
    for state, (one, many) in wordings.items():
        lacking = [check for check in checks if check.state == state]
        if lacking:
            names = list(dict.fromkeys(name for check in lacking for name in _lacked(check)))
            more = f" and {len(names) - _NAMED} more" if len(names) > _NAMED else ""
            # Names have commas of their own.
            text = f"{one if len(lacking) == 1 else many} {'; '.join(names[:_NAMED])}{more}"
            say(f"  open {of_what}{len(lacking)} {text}")


def _lacked(check: Check) -> list[str]:
    """The missing figures to name: those that can still be run, or else the failed ones."""
    return [name for name in check.missing if name not in check.failed] or list(check.failed)


def _say_failures(failures: Sequence[repro.FailedRun]) -> None:
    for failure in failures[:_NAMED]:
        say(str(failure))
    if len(failures) > _NAMED:
        say(f"{len(failures) - _NAMED} more runs failed; --json lists them.")


def _print_figures(entry: repro.Reproduction, outcome: repro.Outcome) -> None:
    most = max(figure.seeds for figure in outcome.figures)
    digits = _digits(outcome.figures)
    ours = {
        TableCell(figure.row, figure.column): _ours(figure, most, digits[figure.column])
        for figure in outcome.figures
    }
    failed = Counter(cell for failure in outcome.failures for cell in failure.cells)
    for cell, number in failed.items():
        ours[cell] = f"{ours[cell]} ({number} failed)" if cell in ours else "failed"
    published = {
        cell: _published(entry.published.get(cell), digits.get(cell.column, "#.4g")) for cell in ours
    }
    columns = _columns(outcome)
    printed = any(cell in entry.published for cell in ours)
    if len(columns) > _WIDE:
        rows = [[*cell, text, *([published[cell]] if printed else [])] for cell, text in ours.items()]
        print_table(["", "figure", "ours", *(["published"] if printed else [])], rows, numbers=["ours"])
        return
    texts = {cell: f"{text} [{published[cell]}]" if printed else text for cell, text in ours.items()}
    names = dict.fromkeys(cell.row for cell in ours)
    print_table(
        ["", *columns],
        [[row, *(texts.get(TableCell(row, column), "") for column in columns)] for row in names],
        numbers=columns,
    )


def _columns(outcome: repro.Outcome) -> list[str]:
    """Columns of its figures, and of the figures that failed runs lack."""
    failed = (column for failure in outcome.failures for column in failure.columns)
    return list(dict.fromkeys([*(figure.column for figure in outcome.figures), *failed]))


def _key(outcome: repro.Outcome, measured: str) -> str:
    """The line below a table: its figures, and the meaning of ± in ours and in the published ones."""
    figures = outcome.figures
    fewest, most = min(figure.seeds for figure in figures), max(figure.seeds for figure in figures)
    seeds = f"{fewest} to {most} seeds" if fewest < most else counted(most, "seed")
    repeated = any(figure.half_width is not None for figure in figures)
    key = f"Ours: mean over {seeds} ± half the 95 % interval" if repeated else f"Ours: {seeds}"
    if any(figure.published is not None for figure in figures):
        in_brackets = "" if len(_columns(outcome)) > _WIDE else " in brackets"
        theirs = any(figure.published_spread is not None for figure in figures)
        key += f"; published{in_brackets}: as the authors print it{', with their own ±' if theirs else ''}"
    return f"{key}." + (f" Figures: {measured}." if measured else "")


def _ours(figure: repro.ReproducedFigure, most: int, digits: str) -> str:
    """A figure, with its number of seeds where others have more."""
    if math.isinf(figure.ours):
        number = "never"
    elif figure.half_width is None:
        number = format(figure.ours, digits)
    else:
        number = " ".join(show_estimate(figure.ours, figure.half_width, "number"))
    return number if figure.seeds == most else f"{number} ({counted(figure.seeds, 'seed')})"


def _published(number: Published | None, digits: str) -> str:
    """A published figure as it is printed, with the authors' own ±."""
    if number is None:
        return "–"
    value = "never" if math.isinf(number.value) else format(number.value, digits)
    decimals = len(value.partition(".")[2])
    return value if number.spread is None else f"{value} ± {number.spread:.{decimals}f}"


def _digits(figures: Sequence[repro.ReproducedFigure]) -> dict[str, str]:
    """The format of a number in each column: four digits with the last zeros, or whole numbers where all are."""
    whole = {figure.column: True for figure in figures}
    for figure in figures:
        whole[figure.column] &= math.isinf(figure.ours) or figure.ours.is_integer()
    return {column: ".4g" if is_whole else "#.4g" for column, is_whole in whole.items()}
