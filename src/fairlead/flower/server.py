"""`make_server_app`: a Flower ServerApp that runs a fairlead experiment on a real federation."""

import json
import secrets
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from os import PathLike
from pathlib import Path

import torch
from flwr.app import Context
from flwr.serverapp import Grid, ServerApp
from torch import nn

from fairlead.checkpoint.durable_files import write_durably
from fairlead.clients.preprocessing import Agreement
from fairlead.clients.source import RealClients
from fairlead.diagnostics.consistency import ConsistencyReport
from fairlead.errors import FieldError, RunFolderError, is_integer
from fairlead.experiments.diagnose import evidence_of_records
from fairlead.experiments.experiment import Experiment
from fairlead.experiments.record_io import recorded_run
from fairlead.experiments.run_folder import RunFolder, load_agreement
from fairlead.experiments.runner import Run, run_experiment
from fairlead.experiments.spec import load_experiment
from fairlead.federation import Federation
from fairlead.flower.messages import ModelForm
from fairlead.flower.monitoring import Watch
from fairlead.flower.requests import RoundRules, log_round, refuse_unsuitable
from fairlead.flower.roster import LOG, Member, Roster
from fairlead.flower.world import FlowerWorld, RunIdentity
from fairlead.parameters import FlatModule
from fairlead.randomness import Key, seeded_start
from fairlead.records import RoundRecord
from fairlead.reply_checks import ReplyLimits

MEMBERS = "flower.json"
"""The file in a run's folder that lists its clients and counts its attempts."""


def make_server_app(
    spec: str | PathLike[str] | Experiment,
    build_model: Callable[[], nn.Module],
    *,
    folder: str | PathLike[str] | None = None,
    rules: RoundRules | None = None,
    limits: ReplyLimits | None = None,
    join_seconds: float = 600.0,
    bind_keys: bool = False,
) -> ServerApp:
    """A ServerApp that runs an experiment on the nodes of its federation, and keeps the run in a folder.

    `spec` is an experiment or the path of its TOML. The run uses its algorithm, rounds, work, weights, seed,
    evaluations and dtype; its links, devices and engine are ignored. The number of clients is that of `RealClients`,
    else `num-clients` of the run config, else that of the data in the spec, which are loaded only then. `folder` holds
    the run (default: `folder` of the run config). A run that is already in the folder resumes, bit for bit as if it
    had never stopped. `rules` say when a round ends and `limits` bound replies; `deadline`, `quorum` and `max-
    examples` of the run config replace theirs, and `join-seconds` the wait for clients. With `start-with` rounds begin
    with that many of them. `json-log` keeps the log as JSON lines in log.jsonl of the folder, `trackers` names those
    that follow the run ("tensorboard,mlflow"), and `metrics-address` (HOST:PORT) is where Prometheus reads the figures
    of the server. With `bind_keys`, or `bind-keys` of the run config, a client keeps the public key of its first node:
    use it where the SuperLink requires registered keys.

    Every node receives the spec with the app, and could derive cohorts and the noise of `ClientPrivacy` from its seed.
    A private run therefore draws a secret seed, which its folder keeps. A repeated round of such a run has new noise,
    so the run resumes correctly, but not with the same bits.
    """
    app = ServerApp()

    @app.main()
    def main(grid: Grid, context: Context) -> None:
        config = context.run_config
        place = folder or config.get("folder")
        if not place:
            raise FieldError(
                "make_server_app needs the folder of the run: give it, or `folder` in the run config."
            )
        experiment = spec if isinstance(spec, Experiment) else load_experiment(spec)
        given = {name: value for name in ("deadline", "quorum") if (value := config.get(name)) is not None}
        most = config.get("max-examples")
        run_on_grid(
            grid,
            experiment,
            build_model,
            Path(str(place)),
            replace(rules or RoundRules(), **given),  # type: ignore[arg-type]
            num_clients=count_clients(experiment, config),
            limits=limits if most is None else replace(limits or ReplyLimits(), max_examples=most),  # type: ignore[arg-type]
            join_seconds=float(config.get("join-seconds", join_seconds)),
            bind_keys=bind_keys or bool(config.get("bind-keys", False)),
            json_log=bool(config.get("json-log", False)),
            trackers=[name.strip() for name in str(config.get("trackers", "")).split(",") if name.strip()],
            metrics_address=str(config.get("metrics-address", "")),
            start_with=int(config.get("start-with", 0)) or None,
        )

    return app


def run_on_grid(
    grid: Grid,
    experiment: Experiment,
    build_model: Callable[[], nn.Module],
    folder: Path,
    rules: RoundRules | None = None,
    *,
    num_clients: int | None = None,
    limits: ReplyLimits | None = None,
    join_seconds: float = 600.0,
    bind_keys: bool = False,
    json_log: bool = False,
    trackers: Sequence[str] = (),
    metrics_address: str = "",
    start_with: int | None = None,
) -> Run:
    """Run an experiment on the nodes of a grid, or resume the run in the folder."""
    refuse_unsuitable(experiment.algorithm, experiment.weights, rules)
    store = RunFolder(folder)
    watch = Watch(store, json_log=json_log, trackers=trackers, address=metrics_address)
    earlier, limits = EarlierAttempts.of(folder), limits or ReplyLimits()

    def build() -> Federation:
        dtype = torch.float64 if experiment.dtype == "float64" else torch.float32
        with seeded_start(Key.from_seed(0)):
            form = ModelForm.of(FlatModule(build_model()), dtype)
        roster = Roster(
            num_clients or count_clients(experiment),
            form.digest,
            earlier.members,
            bind_keys=bind_keys,
            max_examples=limits.max_examples,
        )
        world = FlowerWorld(
            grid,
            build_model,
            roster,
            earlier.identity,
            rules=rules,
            work=experiment.work,
            weights="examples" if experiment.weights is None else experiment.weights,
            limits=limits,
            start_with=start_with,
            join_seconds=join_seconds,
            dtype=dtype,
        )
        if experiment.preprocessing is not None:
            agreed.append(world.preprocess(experiment.preprocessing, _kept_agreement(folder, experiment)))
        return Federation(
            experiment.algorithm,
            world,
            experiment.seed if experiment.algorithm.privacy is None else _secret_seed(folder),
            rounds=experiment.rounds,
            evaluate_every=experiment.evaluate_every,
            per_client=experiment.evaluates_clients,
            stop_when=experiment.stop_rule,
        )

    def begin(federation: Federation) -> None:
        world = federation.world
        assert isinstance(world, FlowerWorld)
        repeated = earlier.repeated_from(federation.state.round, experiment.rounds)
        world.recall(federation.records, experiment.algorithm.solver, federation.key, repeated)
        for agreement in agreed:
            store.settle(agreement)
            if agreement.constant:
                LOG.warning(
                    "Features %s have the same value in all examples: they are only centered.",
                    list(agreement.constant[:10]),
                )
        _write_attempt(folder, earlier.identity, world.roster, repeated)
        begun.append((world.roster, repeated))
        watch.begin(federation, experiment, lambda: world.roster.num_placed)

    begun: list[tuple[Roster, Sequence[int]]] = []
    agreed: list[Agreement] = []

    def end_round(record: RoundRecord) -> None:
        log_round(record, experiment.rounds)
        watch.write(record)
        if start_with is not None:
            # Clients that have joined meanwhile are members too.
            _write_attempt(folder, earlier.identity, *begun[0])

    # A checkpoint every round: clients keep the last committed version of their memory and the next, none older.
    with watch.active():
        run = run_experiment(
            experiment,
            folder,
            resume=True,
            checkpoint_every=1,
            build=build,
            stop=threading.Event(),
            on_start=begin,
            on_round=end_round,
            on_notice=LOG.warning,
            on_recovery=LOG.warning,
        )
        LOG.info("%s", run.federation.consistency())
    return run


def _kept_agreement(folder: Path, experiment: Experiment) -> Agreement | None:
    """The agreement of a run that resumes; None before round 1. Another would change its inputs in the middle."""
    store = RunFolder(folder)
    if store.is_free():
        return None
    store.refuse_another(experiment)
    return load_agreement(store.path)


def count_clients(experiment: Experiment, config: Mapping[str, object] | None = None) -> int:
    """The number of clients in the federation of an experiment, by its spec or the settings of its app."""
    clients, setting = experiment.clients, (config or {}).get("num-clients")
    own = clients.num_clients if isinstance(clients, RealClients) else None
    if setting is not None and not is_integer(setting, 1):
        raise FieldError(f"num-clients must be a whole number of at least 1, got {setting!r}.")
    if None not in (own, setting) and own != setting:
        raise FieldError(f"num-clients must be {own}, as clients.num_clients of the spec, got {setting}.")
    number = own or setting
    return experiment.load().train.num_clients if number is None else int(number)


def refuse_foreign_run(store: RunFolder) -> None:
    """Raise if a folder holds a run that `make_server_app` did not start and cannot continue."""
    if not store.is_free() and not (store.path / MEMBERS).exists():
        raise RunFolderError(
            f"{store.path} holds a run that make_server_app did not start and cannot continue: choose another "
            "folder."
        )


def consistency_of(folder: Path) -> tuple[ConsistencyReport, float]:
    """ω against Ω of a run on Flower, measured and predicted from its folder, and the share that chance misplaces."""
    store = RunFolder(folder)
    clients = store.clients()
    if clients is None or not clients.real:
        raise RunFolderError(f"{folder} holds no run on Flower.")
    evidence = evidence_of_records(
        str(folder), recorded_run(store.records(), store.experiment().algorithm, clients)
    )
    return evidence.consistency, evidence.chance


@dataclass(frozen=True)
class EarlierAttempts:
    """The earlier servers of a run, as its folder records them, and the identity of the next."""

    identity: RunIdentity
    """Of the server that starts now."""
    members: dict[int, Member]
    """The clients that introduced themselves to earlier servers."""
    repeated: tuple[int, ...]
    """Rounds that earlier servers repeated, once per repetition."""
    num_records: int
    """Rounds with a record."""

    @staticmethod
    def of(folder: Path) -> "EarlierAttempts":
        """The earlier attempts at the run in a folder; none for a new run."""
        file, store = folder / MEMBERS, RunFolder(folder)
        if not file.exists():
            refuse_foreign_run(store)
            return EarlierAttempts(RunIdentity(secrets.token_hex(8), 1), {}, (), 0)
        try:
            kept = json.loads(file.read_bytes())
            members = [Member(**each) for each in kept["clients"]]
            identity, repeated = RunIdentity(kept["run"], kept["attempt"] + 1), tuple(kept["repeated"])
        except (ValueError, KeyError, TypeError) as error:
            raise RunFolderError(
                f"{file} is damaged or of another version of fairlead ({type(error).__name__}: {error}): start a new "
                "run in another folder."
            ) from error
        num_records = len(store.log()) if store.rounds_file.exists() else 0
        return EarlierAttempts(identity, {member.client: member for member in members}, repeated, num_records)

    def repeated_from(self, round: int, last: int) -> tuple[int, ...]:
        """Repeated rounds, once per repetition, of a run of `last` rounds that resumes from `round`.

        The previous server ended at the latest in the round after its last record, whose model clients may already
        have evaluated. Earlier rounds are repeated where a damaged checkpoint was skipped.
        """
        if self.identity.attempt == 1:
            return ()
        return (*self.repeated, *range(round, min(self.num_records + 1, last)))


def _write_attempt(folder: Path, identity: RunIdentity, roster: Roster, repeated: Sequence[int]) -> None:
    """Record this server for later ones, before its first round."""
    members = [asdict(roster.members[client]) for client in sorted(roster.members)]
    content = {**identity._asdict(), "repeated": list(repeated), "clients": members}
    folder.mkdir(parents=True, exist_ok=True)
    write_durably(folder / MEMBERS, json.dumps(content, indent=2).encode())


def _secret_seed(folder: Path) -> int:
    """Drawn at the first start of a run and kept in its folder, which is closed to other users."""
    file = folder / "secret-seed"
    if not file.exists():
        folder.mkdir(parents=True, exist_ok=True)
        folder.chmod(0o700)
        write_durably(file, str(secrets.randbits(128)).encode())
    return int(file.read_bytes())
