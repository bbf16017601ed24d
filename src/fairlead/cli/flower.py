"""`fairlead flower`: real federations, from a spec to the weights that they optimise."""

from __future__ import annotations

import shutil
import tempfile
from importlib.util import find_spec
from pathlib import Path
from time import monotonic, sleep
from typing import TYPE_CHECKING, Annotated

import typer

from fairlead.cli.console import INTERRUPTED, JsonOption, print_json, print_table, say
from fairlead.cli.options import QuietOption, SpecArgument
from fairlead.cli.progress import RoundProgress
from fairlead.cli.spec import read_spec
from fairlead.errors import FairleadError, FieldError

if TYPE_CHECKING:
    from fairlead.diagnostics.consistency import ConsistencyReport
    from fairlead.experiments import Experiment, RunFolder
    from fairlead.flower.local_federation import LocalFederation, Submitted

_LOOK_SECONDS = 1.0
_ASK_SECONDS = 20.0
"""Between two questions to the SuperLink whether the run has failed, each of which costs a process."""


def init(
    spec: SpecArgument,
    folder: Annotated[Path, typer.Argument(help="The folder to write the app into.", metavar="FOLDER")],
) -> None:
    """Write a Flower app that runs a spec."""
    _require_flower()
    from fairlead.flower.project import write_project

    for file in write_project(read_spec(spec, [], None), folder):
        say(str(file))
    say(f"Try it on this machine: fairlead flower up {folder}")


def up(
    app: Annotated[Path, typer.Argument(help="The folder of the app.", metavar="APP")] = Path("."),
    nodes: Annotated[int, typer.Option(min=1, help="Nodes to start, one for each client.")] = 3,
    output: Annotated[
        Path | None, typer.Option("--output", "-o", help="Folder of the run; one that it holds goes on.")
    ] = None,
    tls: Annotated[
        bool, typer.Option("--tls", help="Make certificates and node keys, and take nothing without.")
    ] = False,
    quiet: QuietOption = False,
    as_json: JsonOption = False,
) -> None:
    """Try an app out: a SuperLink and nodes on this machine alone, one run, and all ended."""
    _require_flower()
    from fairlead.experiments import RunFolder
    from fairlead.flower.credentials import Credentials
    from fairlead.flower.kept_run import MEMBERS, consistency_of
    from fairlead.flower.local_federation import LocalFederation

    experiment = _experiment_of(app)
    store = RunFolder((output or app / "runs" / "flower").resolve())
    if not store.is_free():
        store.refuse_another(experiment)
    # Keys are new at every start: a run that goes on would turn away all who do not have those of its first.
    bind_keys = tls and not (store.path / MEMBERS).exists()
    scratch = Path(tempfile.mkdtemp(prefix="fairlead-flower-"))
    try:
        credentials = Credentials.make(scratch / "keys", nodes) if tls else None
        with (
            RoundProgress(quiet=quiet or as_json) as progress,
            LocalFederation(scratch, app, nodes, credentials, memory=store.path / "memory") as federation,
        ):
            progress.note(
                f"{nodes} nodes{' with keys' if tls else ''} at port {federation.port} of this machine"
            )
            run = federation.submit({"folder": str(store.path), "bind-keys": bind_keys})
            _follow(federation, run, store, experiment, progress)
    except KeyboardInterrupt:
        shutil.rmtree(scratch, ignore_errors=True)
        say(f"Stopped. The same command goes on with the run in {store.path}.")
        raise typer.Exit(INTERRUPTED) from None
    except FairleadError as error:
        raise FairleadError(f"{error} What Flower said is in {scratch}.") from error
    shutil.rmtree(scratch, ignore_errors=True)
    _tell(consistency_of(store.path), store.path, as_json=as_json, quiet=quiet)


def weights(
    run: Annotated[Path, typer.Argument(help="The folder of a run on Flower.", metavar="RUN")],
    as_json: JsonOption = False,
) -> None:
    """The weights that a run on Flower really optimises, client by client, against those asked for."""
    _require_flower()
    from fairlead.flower.kept_run import consistency_of

    _tell(consistency_of(run), run, as_json=as_json, quiet=False)


def _require_flower() -> None:
    if find_spec("flwr") is None:
        raise FieldError(
            "fairlead flower needs Flower, which is not installed: pip install 'fairlead[flower]'."
        )


def _experiment_of(app: Path) -> Experiment:
    specs = sorted(app.glob("*/spec.toml"))
    if len(specs) != 1:
        raise FieldError(f"{app} must be the folder of an app with one package and its spec.toml in it.")
    return read_spec(specs[0], [], None)


def _follow(
    federation: LocalFederation,
    run: Submitted,
    store: RunFolder,
    experiment: Experiment,
    progress: RoundProgress,
) -> None:
    """Show rounds as they end, until the last."""
    from fairlead.experiments.live_figures import figures_of

    shown, asked = 0, monotonic()
    progress.begin("flower", experiment.rounds, 0, evaluating=False)
    while True:
        records = store.records() if store.rounds_file.exists() else []
        for record in records[shown:]:
            progress.advance("flower", figures_of(record))
            for refusal in record.refused:
                progress.note(refusal.sentence)
        shown = len(records)
        if shown == experiment.rounds and store.summary_file.exists():
            return
        if monotonic() - asked > _ASK_SECONDS:
            asked, outcome = monotonic(), federation.outcome(run)
            if outcome is not None and not store.summary_file.exists():
                raise FairleadError(f"The run ended early after {shown} rounds ({outcome}).")
        sleep(_LOOK_SECONDS)


def _tell(report: ConsistencyReport, folder: Path, *, as_json: bool, quiet: bool) -> None:
    surrogate = report.surrogate
    measured = [None] * len(report.intended) if surrogate is None else surrogate.tolist()
    if as_json:
        rows = [
            {"client": client, "intended": asked, "optimised": got}
            for client, (asked, got) in enumerate(zip(report.intended.tolist(), measured, strict=True))
        ]
        print_json({"folder": str(folder), "chi_square": report.chi_square, "clients": rows})
    elif not quiet:
        table = [
            [str(client), f"{asked:.4f}", "unknown" if got is None else f"{got:.4f}"]
            for client, (asked, got) in enumerate(zip(report.intended.tolist(), measured, strict=True))
        ]
        print_table(["client", "ω asked for", "Ω optimised"], table, numbers=["ω asked for", "Ω optimised"])
        say(str(report))
