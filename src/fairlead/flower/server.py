"""`make_server_app`: a Flower ServerApp that runs a fairlead experiment on a real federation."""

from __future__ import annotations

import secrets
import threading
from collections.abc import Callable
from logging import getLogger
from os import PathLike
from pathlib import Path

import torch
from flwr.app import Context
from flwr.serverapp import Grid, ServerApp
from torch import nn

from fairlead.checkpoint.durable_files import write_durably
from fairlead.clients.source import RealClients
from fairlead.errors import FieldError
from fairlead.experiments.experiment import Experiment
from fairlead.experiments.runner import Run, run_experiment
from fairlead.experiments.spec import load_experiment
from fairlead.federation import Federation
from fairlead.flower.messages import ModelForm
from fairlead.flower.pending import RoundRules
from fairlead.flower.roster import Roster
from fairlead.flower.run_identity import EarlierStarts, note_start
from fairlead.flower.validation import refuse_reported_weights
from fairlead.flower.world import FlowerWorld
from fairlead.parameters import FlatModule
from fairlead.records import RoundRecord

_log = getLogger("flwr")


def make_server_app(
    spec: str | PathLike[str] | Experiment,
    build_model: Callable[[], nn.Module],
    *,
    folder: str | PathLike[str] | None = None,
    rules: RoundRules | None = None,
    join_seconds: float = 600.0,
    bind_keys: bool = False,
) -> ServerApp:
    """A ServerApp that runs an experiment on the nodes it finds, and keeps it in a folder.

    `spec` is an experiment or the path of its TOML: its algorithm, rounds, work, weights, seed, evaluations and
    dtype are used. Its clients say how many there are (`RealClients`, or the simulated ones that the real ones
    replace); links, devices and engine are what they are out there. `folder` holds the run, `folder` of the run
    config if it is not given here; a run that it holds already goes on, bit for bit as if it had never
    stopped. With `bind_keys`, or `bind-keys` of the run config, a client stays with the public key of the node
    that first spoke for it: for SuperLinks that demand registered keys.

    Every node gets the spec with the app, and could tell from its seed who is asked and what the noise of
    `ClientPrivacy` is: a private run draws a secret seed instead, which its folder keeps. A round of it that is done
    again has other noise, so that such a run goes on correctly but not to the same bits.
    """
    app = ServerApp()

    @app.main()
    def main(grid: Grid, context: Context) -> None:
        place = folder or context.run_config.get("folder")
        if not place:
            raise FieldError(
                "make_server_app needs the folder of the run: give it, or `folder` in the run config."
            )
        experiment = spec if isinstance(spec, Experiment) else load_experiment(spec)
        bound = bind_keys or bool(context.run_config.get("bind-keys", False))
        run_on_grid(
            grid, experiment, build_model, Path(str(place)), rules, join_seconds=join_seconds, bind_keys=bound
        )

    return app


def run_on_grid(
    grid: Grid,
    experiment: Experiment,
    build_model: Callable[[], nn.Module],
    folder: Path,
    rules: RoundRules | None = None,
    *,
    join_seconds: float = 600.0,
    bind_keys: bool = False,
) -> Run:
    """Run an experiment on the nodes of a grid, or go on with the run that the folder holds."""
    refuse_reported_weights(experiment.algorithm.aggregator, experiment.weights)
    earlier = EarlierStarts.of(folder)

    def build() -> Federation:
        dtype = torch.float64 if experiment.dtype == "float64" else torch.float32
        form = ModelForm.of(FlatModule(build_model()), dtype)
        roster = Roster(count_clients(experiment), form.digest, earlier.members, bind_keys=bind_keys)
        world = FlowerWorld(
            grid,
            build_model,
            roster,
            earlier.next_start,
            rules=rules,
            work=experiment.work,
            weights="examples" if experiment.weights is None else experiment.weights,
            join_seconds=join_seconds,
            dtype=dtype,
        )
        return Federation(
            experiment.algorithm,
            world,
            experiment.seed if experiment.algorithm.privacy is None else _secret_seed(folder),
            rounds=experiment.rounds,
            evaluate_every=experiment.evaluate_every,
            per_client=experiment.per_client,
        )

    def begin(federation: Federation) -> None:
        world = federation.world
        assert isinstance(world, FlowerWorld)
        repeated = earlier.repeated_from(federation.state.round, experiment.rounds)
        world.recall(federation.records, experiment.algorithm.solver, federation.key, repeated)
        note_start(folder, earlier.next_start, world.roster, repeated)

    def tell(record: RoundRecord) -> None:
        loss = "" if record.train_loss is None else f", train loss {record.train_loss:.4g}"
        done, total = record.round + 1, experiment.rounds
        _log.info(
            "Round %d/%d: %d of %d arrived%s", done, total, len(record.arrived), len(record.asked), loss
        )
        for refusal in record.refused:
            _log.info("  %s", refusal.sentence)

    # A checkpoint every round: clients remember the last version committed and the one after, and no older.
    run = run_experiment(
        experiment,
        folder,
        resume=True,
        checkpoint_every=1,
        build=build,
        stop=threading.Event(),
        on_start=begin,
        on_round=tell,
        on_notice=_log.info,
        on_recovery=_log.info,
    )
    _log.info("%s", run.federation.consistency())
    return run


def count_clients(experiment: Experiment) -> int:
    """How many clients a federation for an experiment has."""
    clients = experiment.clients
    return clients.num_clients if isinstance(clients, RealClients) else experiment.load().train.num_clients


def _secret_seed(folder: Path) -> int:
    """Drawn at the first start of a run and kept in its folder, which is closed to other users."""
    file = folder / "secret-seed"
    if not file.exists():
        folder.mkdir(parents=True, exist_ok=True)
        folder.chmod(0o700)
        write_durably(file, str(secrets.randbits(128)).encode())
    return int(file.read_bytes())
