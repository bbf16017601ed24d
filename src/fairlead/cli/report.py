"""`fairlead report`."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from fairlead.cli.console import JsonOption, print_json, say
from fairlead.cli.options import FigureOption, MetricOption, MinimizeOption, read_target
from fairlead.cli.study import estimate_facts, method_facts
from fairlead.errors import FieldError

if TYPE_CHECKING:
    from fairlead.results.comparison import Summary


def report(
    paths: Annotated[
        list[Path],
        typer.Argument(
            help="Folders of runs, folders that contain them, or archives of runs that `reproduce` writes.",
            metavar="RUNS...",
        ),
    ],
    output: Annotated[
        Path | None,
        typer.Option(
            "--output",
            "-o",
            help="The page. Default: report.html in the given folder, else here; none with --json.",
        ),
    ] = None,
    baseline: Annotated[
        str | None,
        typer.Option(help="The method to compare with. Default: the first of the comparison, else FedAvg."),
    ] = None,
    targets: Annotated[
        list[str] | None,
        typer.Option(
            "--target",
            metavar="VALUE",
            help="Value of the metric to reach, such as 0.7 or 70%; repeatable.",
        ),
    ] = None,
    metric: MetricOption = None,
    minimize: MinimizeOption = False,
    figure: FigureOption = "last-tenth",
    title: Annotated[
        str | None, typer.Option(help="Title of the page. Default: the name of the folder.")
    ] = None,
    figures: Annotated[
        Path | None, typer.Option(help="Folder for figures for papers (needs matplotlib).")
    ] = None,
    formats: Annotated[
        str | None, typer.Option("--format", help="Formats of the figures (default: pdf,svg,png).")
    ] = None,
    tables: Annotated[Path | None, typer.Option(help="Folder for tables in LaTeX and CSV.")] = None,
    as_json: JsonOption = False,
) -> None:
    """Compare runs in a page with curves, tables, consistency and clients, over seeds."""
    from fairlead.reports.page import write_page
    from fairlead.results.comparison import summarise_settings

    if formats is not None and figures is None:
        raise FieldError("--format has no effect without --figures, the folder for them.")
    summaries = summarise_settings(
        paths,
        baseline=baseline,
        targets=[read_target(each) for each in targets or ()],
        metric=metric,
        minimize=minimize,
        figure=figure,
    )
    page = output or (None if as_json else _default_page(paths))
    if page is not None:
        write_page(summaries, page, title or _default_title(paths))
    files = _write_files(summaries, tables, figures, formats)
    if as_json:
        written = [*([] if page is None else [page]), *(file for some in files.values() for file in some)]
        print_json({**_all_facts(summaries), "written": [str(file) for file in written]})
        return
    _say_result(summaries, page)
    for kind, folder in (("tables", tables), ("figures", figures)):
        if folder is not None:
            say(f"{len(files[kind])} files of {kind} are in {folder}")


def _write_files(
    summaries: Sequence[Summary], tables: Path | None, figures: Path | None, formats: str | None
) -> dict[str, list[Path]]:
    """Tables and figures for papers, as far as they are asked for."""
    from fairlead.reports.paper_files import write_figures, write_tables

    made: dict[str, list[Path]] = {}
    if tables is not None:
        made["tables"] = [file for each in summaries for file in write_tables(each, tables)]
    if figures is not None:
        endings = [each.strip() for each in (formats or "pdf,svg,png").split(",")]
        made["figures"] = [file for each in summaries for file in write_figures(each, figures, endings)]
    return made


def _say_result(summaries: Sequence[Summary], page: Path | None) -> None:
    from fairlead.results.sentences import headline
    from fairlead.text import counted

    runs = [run for summary in summaries for run in summary.study.runs]
    unfinished, number = sum(not run.finished for run in runs), len(runs)
    methods = counted(len({label for summary in summaries for label in summary.study.labels}), "method")
    settings = f" in {len(summaries)} settings" if len(summaries) > 1 else ""
    for summary in summaries:
        text = headline(summary) if summary.methods else summary.study.absences
        say(f"{summary.setting}: {text}" if summary.setting else text)
    say(f"{counted(number, 'run')} of {methods}{settings} {'is' if number == 1 else 'are'} in {page}")
    if unfinished:
        say(f"{unfinished} of them did not finish; the page says why.")


def _default_page(paths: list[Path]) -> Path:
    page = paths[0] / "report.html" if len(paths) == 1 and paths[0].is_dir() else Path("report.html")
    if page.is_symlink():
        raise FieldError(f"{page} is a symbolic link to {page.readlink()}: choose another file with -o.")
    return page


def _default_title(paths: list[Path]) -> str:
    from fairlead.results.run_archive import table_name

    return " and ".join(table_name(path.resolve()) for path in paths[:3]) + (" …" if len(paths) > 3 else "")


def _all_facts(summaries: Sequence[Summary]) -> dict[str, Any]:
    """The comparison for programs, or one for each setting where there are settings."""
    if len(summaries) == 1 and not summaries[0].setting:
        return _facts(summaries[0])
    return {"settings": [{"setting": summary.setting, **_facts(summary)} for summary in summaries]}


def _facts(summary: Summary) -> dict[str, Any]:
    return {
        "measure": summary.measure.name,
        "figure": summary.measure.figure,
        "higher_is_better": summary.measure.higher,
        "baseline": None if summary.baseline is None else summary.baseline.label,
        "targets": list(summary.targets),
        "methods": [
            {
                "label": method.label,
                "runs": [run.run.name for run in method.runs],
                "last_tenth": estimate_facts(method.over_seeds(lambda run: run.figure("last-tenth"))),
                **method_facts(summary, method),
                "all_finished": method.method.complete,
                "clear": method.difference.excludes_zero
                if method.difference and method.both_complete
                else None,
                "objective": estimate_facts(method.over_seeds(lambda run: run.objective)),
                "misplaced_weight": estimate_facts(method.over_seeds(lambda run: run.misplaced)),
            }
            for method in summary.methods
        ],
        "absent": list(summary.study.absent),
        "unfinished": [
            {"run": run.name, "state": run.state, "reason": run.reason}
            for run in summary.study.runs
            if not run.finished
        ],
    }
