"""`fairlead flower`: real federations, from a spec to the weights that they optimize."""

from __future__ import annotations

import shlex
import shutil
import signal
import sys
import tempfile
import tomllib
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from time import monotonic, sleep
from typing import TYPE_CHECKING, Annotated, Any

from typer import Argument, Exit, Option

from fairlead.cli.console import INTERRUPTED, print_json, print_table, say
from fairlead.cli.options import JsonOption, QuietOption, SpecArgument, read_spec
from fairlead.errors import FairleadError, FieldError

if TYPE_CHECKING:
    from fairlead.cli.progress import RoundProgress
    from fairlead.experiments.experiment import Experiment
    from fairlead.experiments.run_folder import RunFolder
    from fairlead.flower.local_trial import LocalFederation

_LOOK_SECONDS = 1.0
_ASK_SECONDS = 20.0
"""Between two questions to the SuperLink whether the run has failed; each starts a process."""
_FEW_NODES = 10
"""Started without --nodes; each takes some hundred megabytes."""


def init(
    spec: SpecArgument,
    folder: Annotated[Path, Argument(metavar="FOLDER")],
) -> None:
    """Write a Flower app that runs a spec.

    Options:
        folder: The folder to write the app into.
    """
    _require_flower()
    from fairlead.flower.project import write_project

    for file in write_project(read_spec(spec, [], None), folder):
        say(str(file))
    say(f"Try it on this machine: fairlead flower up {folder}")


def credentials(
    folder: Annotated[Path, Argument(metavar="FOLDER")],
    clients: Annotated[int, Option(min=1)],
    host: list[str] | None = None,
    days: Annotated[int, Option(min=1, max=3650)] = 365,
) -> None:
    """Make a certificate authority, the SuperLink's certificate and a key per node, or renew the certificate.

    Options:
        folder: The folder for certificates and keys.
        clients: Number of clients, each of which gets a key.
        host: A name or address by which nodes reach the SuperLink; may be repeated. A renewal keeps earlier names.
        days: Days for which the server certificate is valid.
    """
    _require_flower()
    from fairlead.flower.local_trial import Credentials

    made = Credentials.make(folder, clients, host or (), days)
    say(made.change)
    say(
        f"{made.folder}: ca.pem, server.pem and server.key for the SuperLink, ca.pem and client-i for the node of"
    )
    say("client i, client-i.pub to register it. Keep ca.key away from both: it signs the next certificate.")


def up(
    app: Annotated[Path, Argument(metavar="APP")] = Path("."),
    nodes: Annotated[int | None, Option(min=1)] = None,
    output: Annotated[Path | None, Option("--output", "-o")] = None,
    tls: Annotated[bool, Option("--tls")] = False,
    quiet: QuietOption = False,
    as_json: JsonOption = False,
) -> None:
    """Start a SuperLink and nodes locally, run the app once, and shut everything down.

    Options:
        app: The folder of the app.
        nodes: Confirms the number of nodes, one per client of the spec; required above 10.
        output: Folder of the run; an existing run in it is resumed.
        tls: Generate TLS certificates and node keys, and reject unauthenticated nodes.
    """
    _require_flower()
    from fairlead.cli.progress import RoundProgress, describe_evaluation
    from fairlead.experiments.run_folder import RunFolder
    from fairlead.flower.local_trial import Credentials, LocalFederation
    from fairlead.flower.project import own_modules, refuse_without_imports
    from fairlead.flower.requests import refuse_unsuitable
    from fairlead.flower.server import MEMBERS, refuse_foreign_run

    experiment, package = _experiment_of(app)
    settings = _settings(app)
    refuse_without_imports(own_modules(experiment), package)
    refuse_unsuitable(experiment.algorithm, experiment.weights)
    num_nodes = _one_for_each_client(experiment, settings, nodes)
    store = RunFolder((output or app / "runs" / "flower").resolve())
    if not store.is_free():
        store.refuse_another(experiment)
        refuse_foreign_run(store)
    # Keys are new at every start: a resumed run would reject every node, because its key has changed.
    bind_keys = tls and not (store.path / MEMBERS).exists()
    scratch = Path(tempfile.mkdtemp(prefix="fairlead-flower-"))
    try:
        credentials = Credentials.make(scratch / "keys", num_nodes) if tls else None
        with (
            _ended_by_signals(),
            RoundProgress(quiet=quiet or as_json) as progress,
            LocalFederation(scratch, app, num_nodes, credentials, memory=store.path / "memory") as federation,
        ):
            progress.note(
                f"{num_nodes} nodes{' with keys' if tls else ''} at port {federation.port} of this machine"
            )
            run_id = federation.submit({"folder": str(store.path), "bind-keys": bind_keys})
            _follow(federation, run_id, store, experiment.rounds, progress)
    except KeyboardInterrupt:
        shutil.rmtree(scratch, ignore_errors=True)
        left = "is finished" if store.is_done(experiment) else "resumes when you re-run the command"
        say(f"Stopped. The run in {store.path} {left}.")
        raise Exit(INTERRUPTED) from None
    except FairleadError as error:
        raise FairleadError(f"{error} Flower's logs are in {scratch}.") from error
    shutil.rmtree(scratch, ignore_errors=True)
    summary = store.summary()
    if summary is not None and summary.evaluation is not None and not (quiet or as_json):
        say(f"Final model: {describe_evaluation(summary.evaluation)}")
    _print_weights(store.path, as_json=as_json, quiet=quiet)
    if not (quiet or as_json):
        say(f"Report of the run: {shlex.join(['fairlead', 'report', str(store.path)])}")


def weights(
    run: Annotated[Path, Argument(metavar="RUN")],
    as_json: JsonOption = False,
) -> None:
    """Compare the weights that a run on Flower optimized with the intended ones, client by client.

    Options:
        run: The folder of a run on Flower.
    """
    _require_flower()
    _print_weights(run, as_json=as_json, quiet=False)


def _require_flower() -> None:
    if find_spec("flwr") is None:
        raise FieldError("fairlead flower needs Flower, which is not installed: pip install 'flwr>=1.41,<2'.")


def _experiment_of(app: Path) -> tuple[Experiment, Path]:
    """The experiment of an app, and the folder of its package."""
    specs = sorted(app.glob("*/spec.toml"))
    if len(specs) != 1:
        raise FieldError(f"{app} is no Flower app with a spec.toml: `fairlead flower init` writes one.")
    package = specs[0].parent
    # An app imports the modules whose parts its spec names.
    sys.path.insert(0, str(app.resolve()))
    try:
        import_module(package.name)
    except ImportError as error:
        raise FieldError(f"{package / '__init__.py'} cannot be imported: {error}.") from error
    return read_spec(specs[0], [], None), package


@contextmanager
def _ended_by_signals() -> Iterator[None]:
    """Let SIGTERM and SIGHUP end the processes of a federation as Ctrl-C does; while they end, ignore all three."""
    from fairlead.experiments.runner import handling

    signals = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)

    def interrupt(*_: object) -> None:
        for number in signals:
            signal.signal(number, signal.SIG_IGN)
        raise KeyboardInterrupt

    with handling(signals, interrupt):
        yield


def _settings(app: Path) -> dict[str, Any]:
    """The settings of an app; without those of `up` it is refused, since Flower accepts only declared settings."""
    file = app / "pyproject.toml"
    try:
        settings = dict(tomllib.loads(file.read_text(encoding="utf-8"))["tool"]["flwr"]["app"]["config"])
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError, KeyError, TypeError, ValueError):
        settings = {}
    if not {"folder", "bind-keys"} <= settings.keys():
        raise FieldError(
            f'{file} must have the lines folder = "" and bind-keys = false under [tool.flwr.app.config].'
        )
    return settings


def _one_for_each_client(experiment: Experiment, settings: dict[str, Any], nodes: int | None) -> int:
    """The number of nodes: one per client, since a run waits for every client."""
    from fairlead.flower.server import count_clients

    num_clients = count_clients(experiment, settings)
    if nodes is None and num_clients > _FEW_NODES:
        raise FieldError(
            f"The spec has {num_clients} clients, and each would be a node with its own processes on this machine: "
            f"write --nodes {num_clients} to confirm, or lower clients.num_clients."
        )
    if nodes not in (None, num_clients):
        raise FieldError(
            f"--nodes must be {num_clients}, one for each client of the spec, got {nodes}: omit it, or change "
            "clients.num_clients."
        )
    return num_clients


def _follow(
    federation: LocalFederation, run_id: str, store: RunFolder, rounds: int, progress: RoundProgress
) -> None:
    """Show each round when it ends, until the last."""
    from fairlead.experiments.tracking import figures_of

    shown, asked, said = 0, monotonic(), 0
    progress.begin("flower", rounds)
    while True:
        records = store.records() if store.rounds_file.exists() else []
        for record in records[shown:]:
            progress.advance(figures_of(record))
            for refusal in record.refused:
                progress.note(f"Round {record.round + 1}: {refusal.sentence}")
        shown = len(records)
        if shown == rounds and store.summary_file.exists():
            return
        if monotonic() - asked > _ASK_SECONDS:
            outcome, log = federation.outcome(run_id), federation.server_log(run_id)
            for line in log.warnings[said:]:
                # Those of rounds are in their records.
                if not line.startswith("Round "):
                    progress.note(line)
            asked, said = monotonic(), len(log.warnings)
            if outcome is not None and not store.summary_file.exists():
                raise FairleadError(f"The run ended early after {shown} rounds ({outcome}): {log.error}")
        sleep(_LOOK_SECONDS)


def _print_weights(folder: Path, *, as_json: bool, quiet: bool) -> None:
    from fairlead.cli.show_results import say_consistency
    from fairlead.flower.server import consistency_of

    report, chance = consistency_of(folder)
    intended, surrogate = report.intended.tolist(), report.surrogate
    optimized = [None] * len(intended) if surrogate is None else surrogate.tolist()
    rows = list(enumerate(zip(intended, optimized, strict=True)))
    if as_json:
        clients = [{"client": client, "intended": asked, "optimised": got} for client, (asked, got) in rows]
        print_json({"folder": str(folder), "chi_square": report.chi_square, "clients": clients})
    elif not quiet:
        table = [
            [str(client), f"{asked:.4f}", "unknown" if got is None else f"{got:.4f}"]
            for client, (asked, got) in rows
        ]
        numbers = ["ω asked for", "Ω optimized"]
        print_table(["client", *numbers], table, numbers=numbers)
        say_consistency(report, chance)
