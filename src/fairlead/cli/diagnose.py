"""`fairlead diagnose`."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from fairlead.cli.console import JsonOption, print_json, print_table, say
from fairlead.cli.options import find_modules, read_spec
from fairlead.cli.progress import RoundProgress
from fairlead.errors import FieldError

if TYPE_CHECKING:
    from fairlead.diagnostics.diagnosis import Diagnosis
    from fairlead.experiments.experiment import Experiment
    from fairlead.records import RoundRecord


def diagnose(
    subject: Annotated[
        Path,
        typer.Argument(
            metavar="SUBJECT",
            help="A spec (TOML), the folder of a run, or the records (.jsonl) of a real federation.",
        ),
    ],
    overrides: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="PATH=VALUE", help="Override a value of the spec."),
    ] = None,
    seed: Annotated[
        int | None, typer.Option(help="Seed; overrides the spec's.", min=0, max=2**63 - 1)
    ] = None,
    rounds: Annotated[
        int | None,
        typer.Option(help="Rounds of the probe of a spec. [default: 20, or 10 with --quick]", max=10**6),
    ] = None,
    quick: Annotated[
        bool, typer.Option("--quick", help="Run a shorter probe and skip the consensus test.")
    ] = False,
    against: Annotated[
        str | None,
        typer.Option(
            metavar="PRESETS",
            help="Presets whose predicted effect to compare, such as fedavg,fednova,scaffold.",
        ),
    ] = None,
    figures: Annotated[Path | None, typer.Option(metavar="FOLDER", help="Write figures to a folder.")] = None,
    figure_format: Annotated[
        str, typer.Option("--format", help="Format of the figures: svg, png or pdf.")
    ] = "svg",
    as_json: JsonOption = False,
) -> None:
    """Find what is unequal, which objective is optimized, and which method to use."""
    from fairlead.diagnostics.plots import SUFFIXES, draw_diagnosis
    from fairlead.experiments.diagnose import diagnose as probe
    from fairlead.experiments.diagnose import spec_file
    from fairlead.experiments.live_figures import figures_of

    suffix = next((known for known in SUFFIXES if known == figure_format.lstrip(".")), None)
    if suffix is None:
        raise FieldError(f"--format must be one of {', '.join(SUFFIXES)}, got {figure_format!r}.")
    judged = _subject(subject, overrides or [], seed)
    presets = [name.strip() for name in (against or "").split(",") if name.strip()]
    started = False
    with RoundProgress(quiet=as_json) as progress:

        def advance(record: RoundRecord) -> None:
            nonlocal started
            if not started:
                progress.begin("probe", rounds or _probe_rounds(quick=quick))
                started = True
            progress.advance("probe", figures_of(record))

        found = probe(judged, rounds=rounds, quick=quick, against=presets, on_round=advance)
    found = replace(found, source=str(subject))
    if judged is not subject:
        found = replace(found, spec=spec_file(subject, overrides or []))
    if not as_json:
        say(str(found))
        if found.against:
            say()
            _print_comparison(found)
    drawn = [] if figures is None else draw_diagnosis(found, figures, suffix)
    if as_json:
        print_json({**found.to_dict(), "figures": [str(path) for path in drawn]})
        return
    if drawn:
        say()
    for path in drawn:
        say(f"Figure: {path}")


def _subject(path: Path, overrides: list[str], seed: int | None) -> Experiment | Path:
    """The subject: a spec with its overrides, or the path itself."""
    if path.suffix == ".toml" and not path.is_dir():
        return read_spec(path, overrides, seed)
    if overrides or seed is not None:
        raise FieldError("--set and --seed only apply to a spec file; a finished run cannot be changed.")
    find_modules()
    return path


def _probe_rounds(*, quick: bool) -> int:
    from fairlead.experiments.diagnose import PROBE_ROUNDS, QUICK_ROUNDS

    return QUICK_ROUNDS if quick else PROBE_ROUNDS


def _print_comparison(found: Diagnosis) -> None:
    """A table of the presets in `--against`, and theory's explanation for those without weights."""
    from fairlead.text import divergence, percent

    columns = ["preset", "misplaced weight", "chi-square", "steps per round"]
    rows = [
        [
            method.preset,
            "" if method.misplaced is None else percent(method.misplaced),
            "" if method.chi_square is None else divergence(method.chi_square),
            "" if method.step_length is None else f"{method.step_length:.3g}",
        ]
        for method in found.against
    ]
    print_table(columns, rows, numbers=columns[1:])
    for method in found.against:
        if method.misplaced is None:
            say(f"{method.preset}: {method.surrogate.explanation}")
