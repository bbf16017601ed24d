"""`fairlead report`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from fairlead.cli.console import JsonOption, print_json, say
from fairlead.cli.options import read_target
from fairlead.errors import FieldError

if TYPE_CHECKING:
    from fairlead.reports import Summary
    from fairlead.reports.method_figures import MethodFigures


def report(
    folders: Annotated[
        list[Path], typer.Argument(help="Folders of runs, or folders that contain them.", metavar="RUNS...")
    ],
    output: Annotated[
        Path | None,
        typer.Option(
            "--output",
            "-o",
            help="The page; by default report.html in the folder given, and none with --json.",
        ),
    ] = None,
    baseline: Annotated[
        str | None, typer.Option(help="The method to compare with; the first of a comparison, else FedAvg.")
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
    from fairlead.diagnostics.wording import counted
    from fairlead.reports import summarise_runs, write_figures, write_page, write_tables

    summary = summarise_runs(
        folders, baseline=baseline, targets=[read_target(each) for each in targets or ()]
    )
    if formats is not None and figures is None:
        raise FieldError("--format has no effect without --figures, the folder for them.")
    page = output or (None if as_json else _default_page(folders))
    if page is not None:
        write_page(summary, page, title or _default_title(folders))
    made: dict[str, tuple[Path, list[Path]]] = {}
    if tables is not None:
        made["tables"] = tables, write_tables(summary, tables)
    if figures is not None:
        endings = [each.strip() for each in (formats or "pdf,svg,png").split(",")]
        made["figures"] = figures, write_figures(summary, figures, endings)
    if as_json:
        pages = [] if page is None else [page]
        written = [*pages, *(path for _, paths in made.values() for path in paths)]
        print_json({**_facts(summary), "written": [str(path) for path in written]})
        return
    unfinished = sum(not run.finished for run in summary.study.runs)
    number = len(summary.study.runs)
    methods = counted(len(summary.methods), "method")
    say(f"{counted(number, 'run')} of {methods} {'is' if number == 1 else 'are'} in {page}")
    if unfinished:
        say(f"{unfinished} of them did not finish; the page says why.")
    for kind, (folder, paths) in made.items():
        say(f"{len(paths)} files of {kind} are in {folder}")


def _default_page(folders: list[Path]) -> Path:
    page = folders[0] / "report.html" if len(folders) == 1 else Path("report.html")
    if page.is_symlink():
        raise FieldError(
            f"{page} is a symbolic link to {page.readlink()}: say with -o where the page should be."
        )
    return page


def _default_title(folders: list[Path]) -> str:
    return " and ".join(folder.resolve().name for folder in folders[:3]) + (" …" if len(folders) > 3 else "")


def _clear(method: MethodFigures) -> bool | None:
    """Whether it differs from the baseline by more than noise; None where that cannot be told."""
    if method.difference is None or not method.both_complete:
        return None
    return method.difference.excludes_zero


def _facts(summary: Summary) -> dict[str, Any]:
    """The comparison for programs."""
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
        "unfinished": [
            {"run": run.name, "state": run.state, "reason": run.reason}
            for run in summary.study.runs
            if not run.finished
        ],
    }
