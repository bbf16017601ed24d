"""`fairlead report`."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from fairlead.cli.console import JsonOption, print_json, say
from fairlead.cli.options import read_target
from fairlead.errors import FieldError

if TYPE_CHECKING:
    from fairlead.results.figures import MethodFigures
    from fairlead.results.summary import Summary


def report(
    paths: Annotated[
        list[Path],
        typer.Argument(
            help="Folders of runs, folders that contain them, or files of runs that `reproduce` keeps.",
            metavar="RUNS...",
        ),
    ],
    output: Annotated[
        Path | None,
        typer.Option(
            "--output",
            "-o",
            help="The page; by default report.html in the folder given, else here, and none with --json.",
        ),
    ] = None,
    baseline: Annotated[
        str | None,
        typer.Option(
            help="The method to compare with; of those with finished runs the first of a comparison, else FedAvg."
        ),
    ] = None,
    targets: Annotated[
        list[str] | None,
        typer.Option(
            "--target",
            metavar="VALUE",
            help="Accuracy (0.7 or 70%) or loss to reach; may be given several times.",
        ),
    ] = None,
    title: Annotated[str | None, typer.Option(help="The page's title; the folder's name by default.")] = None,
    figures: Annotated[
        Path | None, typer.Option(help="Folder for figures to print (needs matplotlib).")
    ] = None,
    formats: Annotated[
        str | None, typer.Option("--format", help="Formats of the figures (default: pdf,svg,png).")
    ] = None,
    tables: Annotated[Path | None, typer.Option(help="Folder for tables in LaTeX and CSV.")] = None,
    as_json: JsonOption = False,
) -> None:
    """Make a page of runs: curves, tables, consistency and clients, over seeds."""
    from fairlead.reports.page import write_page
    from fairlead.reports.paper_figures import write_figures
    from fairlead.reports.table_files import write_tables
    from fairlead.results.summary import summarise_settings
    from fairlead.text import counted

    summaries = summarise_settings(
        paths, baseline=baseline, targets=[read_target(each) for each in targets or ()]
    )
    if formats is not None and figures is None:
        raise FieldError("--format has no effect without --figures, the folder for them.")
    page = output or (None if as_json else _default_page(paths))
    if page is not None:
        write_page(summaries, page, title or _default_title(paths))
    made: dict[str, tuple[Path, list[Path]]] = {}
    if tables is not None:
        made["tables"] = tables, [file for each in summaries for file in write_tables(each, tables)]
    if figures is not None:
        endings = [each.strip() for each in (formats or "pdf,svg,png").split(",")]
        made["figures"] = (
            figures,
            [file for each in summaries for file in write_figures(each, figures, endings)],
        )
    if as_json:
        pages = [] if page is None else [page]
        written = [*pages, *(file for _, files in made.values() for file in files)]
        print_json({**_all_facts(summaries), "written": [str(file) for file in written]})
        return
    runs = [run for summary in summaries for run in summary.study.runs]
    unfinished, number = sum(not run.finished for run in runs), len(runs)
    methods = counted(len({label for summary in summaries for label in summary.study.labels}), "method")
    settings = f" in {len(summaries)} settings" if len(summaries) > 1 else ""
    say(f"{counted(number, 'run')} of {methods}{settings} {'is' if number == 1 else 'are'} in {page}")
    if unfinished:
        say(f"{unfinished} of them did not finish; the page says why.")
    for summary in summaries:
        if summary.study.absences:
            say(f"{summary.setting}: {summary.study.absences}".removeprefix(": "))
    for kind, (folder, files) in made.items():
        say(f"{len(files)} files of {kind} are in {folder}")


def _default_page(paths: list[Path]) -> Path:
    page = paths[0] / "report.html" if len(paths) == 1 and paths[0].is_dir() else Path("report.html")
    if page.is_symlink():
        raise FieldError(
            f"{page} is a symbolic link to {page.readlink()}: say with -o where the page should be."
        )
    return page


def _default_title(paths: list[Path]) -> str:
    from fairlead.results.run_archive import table_name

    return " and ".join(table_name(path.resolve()) for path in paths[:3]) + (" …" if len(paths) > 3 else "")


def _clear(method: MethodFigures) -> bool | None:
    """Whether it differs from the baseline by more than noise; None where that cannot be told."""
    if method.difference is None or not method.both_complete:
        return None
    return method.difference.excludes_zero


def _all_facts(summaries: Sequence[Summary]) -> dict[str, Any]:
    """The comparison for programs, or one for each setting where there are settings."""
    if len(summaries) == 1 and not summaries[0].setting:
        return _facts(summaries[0])
    return {"settings": [{"setting": summary.setting, **_facts(summary)} for summary in summaries]}


def _facts(summary: Summary) -> dict[str, Any]:
    from dataclasses import asdict

    def plain(value: Any) -> Any:
        return None if value is None else asdict(value)

    return {
        "measure": summary.measure.name,
        "higher_is_better": summary.measure.higher,
        "baseline": None if summary.baseline is None else summary.baseline.label,
        "targets": list(summary.targets),
        "methods": [
            {
                "label": method.label,
                "runs": [run.run.name for run in method.runs],
                "last_tenth": plain(method.over_seeds(lambda run: run.last_tenth)),
                "difference": plain(method.difference),
                "all_finished": method.method.complete,
                "clear": _clear(method),
                "objective": plain(method.over_seeds(lambda run: run.objective)),
                "objective_difference": plain(method.objective_difference),
                "misplaced_weight": plain(method.over_seeds(lambda run: run.misplaced)),
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
