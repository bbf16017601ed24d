"""`FlowerStrategy`: the server's half of a method, for Flower apps whose clients keep their own training code."""

from collections.abc import Callable, Iterable, Sequence
from contextlib import nullcontext
from dataclasses import replace
from hashlib import sha256
from os import PathLike
from pathlib import Path
from time import monotonic, sleep

import torch
from flwr.app import ArrayRecord, ConfigRecord, Message, MessageType, MetricRecord, RecordDict
from flwr.serverapp import Grid
from flwr.serverapp.strategy import FedAvg, Result, Strategy
from safetensors.torch import save
from torch import Tensor

from fairlead.algorithm import Algorithm
from fairlead.checkpoint.durable_files import write_durably
from fairlead.checkpoint.store import has_checkpoint, load_state, save_state
from fairlead.diagnostics.advice import diagnosis_of
from fairlead.diagnostics.consistency import ConsistencyReport
from fairlead.diagnostics.diagnosis import Diagnosis
from fairlead.diagnostics.measurement import measured_consistency
from fairlead.errors import (
    ClashError,
    FairleadError,
    FieldError,
    disk_errors,
    require_instance,
    require_integer,
    require_number,
)
from fairlead.experiments.diagnose import evidence_of_records
from fairlead.experiments.record_io import REAL_CLIENTS, Recorded
from fairlead.experiments.run_folder import RunFolder
from fairlead.experiments.tracking import Tracker, tracker_named
from fairlead.flower.monitoring import ServerFigures, ServerNow, watched
from fairlead.flower.requests import log_round, refuse_unsuitable
from fairlead.flower.roster import LOG, warn_of_claims
from fairlead.flower.strategy_world import ArrayLayout, ReportedWeights, StrategyWorld
from fairlead.randomness import Key
from fairlead.records import RoundRecord, ServerState, StoredRecords
from fairlead.reply_checks import ReplyLimits
from fairlead.round import initial_state, run_round

_ARRAYS, _CONFIG = "arrays", "config"


class FlowerStrategy(Strategy):
    """Sampler, aggregator, transforms and server optimizer of an algorithm, as a strategy of Flower.

    For existing apps: clients keep their own training code and reply with their model and the metric `num-examples`,
    as for Flower's own strategies. The algorithm's solver only describes their training (optimizer, epochs, batch
    size), for methods that count local work; the metric `num-steps` of a client takes precedence. Methods with a half
    on the clients, such as SCAFFOLD, need `make_client_app`.

    `num_clients` is the number of clients. The strategy waits until `start_with` nodes are connected (default: all),
    at most `join_seconds`. They are the clients from then on, in the order of their node ids. A node that joins later
    becomes a client without a node: one that never had any, or whose node is gone, as after a restart without a key.
    ω_i is proportional to the examples that clients report, with the mean of all for clients that have not reported
    yet, or uniform under `weights` = "uniform"; `limits` bound what a reply may claim.

    Arrays whose name ends in one of `statistics` are running statistics, which are averaged and never extrapolated.

    With a `folder`, the strategy keeps records, checkpoints and the final model there, and `start` resumes the run in
    it: `num_rounds` are those of the whole run. `json_log`, `trackers` and `metrics_address` watch the run as those of
    `make_server_app` do; the first two need a folder.
    """

    def __init__(
        self,
        algorithm: Algorithm,
        num_clients: int,
        *,
        weights: ReportedWeights = "examples",
        seed: int = 0,
        fraction_evaluate: float = 1.0,
        start_with: int | None = None,
        join_seconds: float = 600.0,
        limits: ReplyLimits | None = None,
        statistics: tuple[str, ...] = ("running_mean", "running_var"),
        folder: str | PathLike[str] | None = None,
        json_log: bool = False,
        trackers: Sequence[str] = (),
        metrics_address: str = "",
        poll: float = 1.0,
    ) -> None:
        require_instance(self, "algorithm", algorithm, Algorithm)
        self.algorithm, self.num_clients = algorithm, num_clients
        self.records: list[RoundRecord] | StoredRecords = []
        self.start_with = num_clients if start_with is None else start_with
        self.join_seconds, self.fraction_evaluate, self.poll = join_seconds, fraction_evaluate, poll
        require_integer(self, "num_clients", at_least=1)
        require_integer(self, "start_with", at_least=1, at_most=num_clients)
        require_number(self, "join_seconds", "poll", above=0)
        require_number(self, "fraction_evaluate", at_least=0, at_most=1)
        if weights not in ("examples", "uniform"):
            raise FieldError(f"FlowerStrategy.weights must be 'examples' or 'uniform', got {weights!r}.")
        refuse_unsuitable(algorithm, weights)
        if algorithm.secure_aggregation:
            raise ClashError(
                "Algorithm.secure_aggregation hides updates from the server, and a Flower strategy receives each of "
                "them by itself: use make_server_app, or set it to false if clients trust the server."
            )
        if algorithm.solver.corrections:
            names = ", ".join(type(correction).__name__ for correction in algorithm.solver.corrections)
            raise ClashError(
                f"FlowerStrategy cannot make clients of an existing app use {names}: build the clients with "
                "make_client_app and the server with make_server_app, or choose a method without corrections."
            )
        if algorithm.privacy is not None:
            raise ClashError(
                "FlowerStrategy learns ω from the clients' reports, which change the weights of the other clients, so "
                "ClientPrivacy could guarantee nothing: build the clients with make_client_app and the server with "
                "make_server_app."
            )
        self._key, self._weights, self._statistics = Key.from_seed(seed), weights, statistics
        self._limits, self._done = limits or ReplyLimits(), 0
        self._store = None if folder is None else RunFolder(Path(folder))
        self._opening = [tracker_named(name, "FlowerStrategy.trackers") for name in trackers]
        if self._opening and folder is None:
            raise FieldError("FlowerStrategy.trackers need the folder of the run: give `folder` too.")
        self._figures, self._address, self._json_log = ServerFigures(self._now), metrics_address, json_log
        self._following: list[Tracker] = []
        self._planned, self._connected = 0, 0
        self._world: StrategyWorld | None = None
        self._state: ServerState | None = None
        self._arrays = ArrayRecord()
        self._asked = torch.empty(0, dtype=torch.int64)
        self._sent: dict[int, Message] = {}

    def start(
        self,
        grid: Grid,
        initial_arrays: ArrayRecord,
        num_rounds: int = 3,
        timeout: float = 3600,
        train_config: ConfigRecord | None = None,
        evaluate_config: ConfigRecord | None = None,
        evaluate_fn: Callable[[int, ArrayRecord], MetricRecord | None] | None = None,
    ) -> Result:
        """Run the rounds; a run in which no update could be used fails with the last reasons."""

        def evaluate(number: int, arrays: ArrayRecord) -> MetricRecord | None:
            return None if evaluate_fn is None else evaluate_fn(self._done + number, arrays)

        with (
            nullcontext() if self._store is None else self._store.claimed(),
            watched(self._store, self._figures, self._address, json_log=self._json_log) as self._following,
        ):
            world, state = self._begin(initial_arrays)
            self._planned = num_rounds
            if self._store is not None:
                self._following += [
                    opened(self._store, self.algorithm, self._done) for opened in self._opening
                ]
            if self._address:
                self._figures.count(self.records)
            arrays = world.layout.filled(initial_arrays, state.params, state.buffers)
            left, central = max(num_rounds - self._done, 0), evaluate if evaluate_fn else None
            result = super().start(grid, arrays, left, timeout, train_config, evaluate_config, central)
            if not len(result.arrays):
                result.arrays = arrays
            if self.records and not any(record.arrived for record in self.records):
                why = " ".join(refusal.sentence for refusal in self.records[-1].refused[:3])
                raise FairleadError(f"No update could be used in {len(self.records)} rounds. {why}".rstrip())
            if self._store is not None:
                with disk_errors(self._store.model_file, "written"):
                    write_durably(self._store.model_file, save(result.arrays.to_torch_state_dict()))
        return result

    def configure_train(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        world, state = self._begin(arrays)
        if not self._arrays:
            self._await(grid, lambda nodes: len(nodes) >= self.start_with, "to start")
        self._arrays = arrays
        # The app may have changed the model between rounds: the round starts from the model that it hands over.
        params, buffers = world.layout.flatten(arrays)
        self._state = replace(state, params=params, buffers=buffers)
        self._asked = self._sampled(world, self._state)
        asked = self._asked.tolist()
        # With every client away, as after a failure of the link, the remaining rounds would be over in a moment.
        self._await(
            grid, lambda nodes: not asked or bool(world.seat(nodes).keys() & set(asked)), "for this round"
        )
        seats = world.seat(grid.get_node_ids())
        self._connected = len(seats)
        reached = [client for client in asked if client in seats]
        content = self._content(arrays, config, server_round)
        self._sent = {client: Message(content, seats[client], MessageType.TRAIN) for client in reached}
        return list(self._sent.values())

    def aggregate_train(
        self, server_round: int, replies: Iterable[Message]
    ) -> tuple[ArrayRecord | None, MetricRecord | None]:
        world, state = self._begin(self._arrays)
        world.receive(replies, self._asked, self._sent, self.algorithm.solver, state.round)
        # New sizes count in the round that reports them, as in Flower's FedAvg, unless they change the cohort.
        known, world.sizes = world.sizes, world.reported_sizes()
        if not torch.equal(self._sampled(world, state), self._asked):
            world.sizes = known
        self._state, record = run_round(self.algorithm, world, state, self._key)
        self.records.append(record)
        if self._store is not None:
            self._store.sync_rounds()
            save_state(
                replace(self._state, memory=world.tables), self._store.checkpoint, self._fingerprint(world)
            )
        log_round(record)
        for tracker in self._following:
            tracker.write(record)
        if self._weights == "examples":
            warn_of_claims(known, world.sizes)
        figures = {"arrived": len(record.arrived), "asked": len(record.asked), "refused": len(record.refused)}
        loss = {} if record.train_loss is None else {"train-loss": record.train_loss}
        arrays = world.layout.filled(self._arrays, self._state.params, self._state.buffers)
        return arrays, MetricRecord({**loss, **figures})

    def configure_evaluate(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        assert self._world is not None
        nodes = list(self._world.seat(grid.get_node_ids()).values())
        count = min(max(round(self.fraction_evaluate * len(nodes)), 2), len(nodes))
        if self.fraction_evaluate == 0 or not nodes:
            return []
        order = self._key.fold("evaluation", server_round).generator().permutation(len(nodes))
        content = self._content(arrays, config, server_round)
        return [Message(content, nodes[place], MessageType.EVALUATE) for place in sorted(order[:count])]

    def aggregate_evaluate(self, server_round: int, replies: Iterable[Message]) -> MetricRecord | None:
        return FedAvg().aggregate_evaluate(server_round, replies)

    def summary(self) -> None:
        LOG.info("%r", self.algorithm)

    def consistency(self) -> ConsistencyReport:
        """The weights Ω that the rounds so far really optimized, against ω."""
        assert self._world is not None
        return measured_consistency(self.records, self._world.weights, algorithm=self.algorithm)

    def diagnosis(self) -> Diagnosis:
        """The heterogeneity in the rounds so far, the clients it favors, and the method to use."""
        if not self.records:
            raise FieldError("FlowerStrategy.diagnosis needs at least one round, and there has been none.")
        rounds = Recorded(
            tuple(self.records), self.weights, None, algorithm=self.algorithm, no_data=REAL_CLIENTS
        )
        return diagnosis_of(evidence_of_records("the rounds so far", rounds))

    @property
    def weights(self) -> Tensor:
        """ω by the reports so far."""
        return self._world.weights if self._world is not None else torch.empty(0, dtype=torch.float64)

    def _now(self) -> ServerNow:
        world, state = self._begin(self._arrays)
        conditions = world.conditions(state.round, self.algorithm.solver, self._key)
        return ServerNow(conditions, self.consistency(), self._planned, self._connected)

    def _sampled(self, world: StrategyWorld, state: ServerState) -> Tensor:
        """The cohort of the next round: always the same under the same conditions."""
        conditions = world.conditions(state.round, self.algorithm.solver, self._key)
        key = self._key.fold("sampler", state.round)
        return self.algorithm.sampler.draw(state.sampler, conditions, key).clients

    def _content(self, arrays: ArrayRecord, config: ConfigRecord, server_round: int) -> RecordDict:
        values = ConfigRecord({**config, "server-round": self._done + server_round})
        return RecordDict({_ARRAYS: arrays, _CONFIG: values})

    def _begin(self, arrays: ArrayRecord) -> tuple[StrategyWorld, ServerState]:
        """The world and the state, at the first call of a new run or of the run in the folder."""
        if self._world is not None and self._state is not None:
            return self._world, self._state
        layout = ArrayLayout.of(arrays, self._statistics)
        model = layout.flatten(arrays)
        world = StrategyWorld(layout, self.num_clients, model, self._weights, self._limits)
        state = initial_state(self.algorithm, world, self._key)
        if self._store is not None:
            if has_checkpoint(self._store.checkpoint):
                like = replace(state, memory=world.tables)
                state = load_state(like, self._store.checkpoint, self._fingerprint(world), LOG.warning)
            else:
                self._store.refuse_occupied()
            log = self._store.log()
            log.cut(state.round)
            self.records, self._done = log, state.round
            world.recall(state.memory, log)
        self._world, self._state = world, state
        return world, state

    def _fingerprint(self, world: StrategyWorld) -> str:
        facts = (
            f"{self.algorithm!r} {self._key.name.hex()} {self.num_clients} {self._weights} {world.layout!r}"
        )
        return sha256(facts.encode()).hexdigest()[:16]

    def _await(self, grid: Grid, enough: Callable[[list[int]], bool], purpose: str) -> None:
        """Wait for nodes, at most `join_seconds`, with a line in the log whenever their number changes."""
        closing, known = monotonic() + self.join_seconds, -1
        while not enough(nodes := list(grid.get_node_ids())):
            if monotonic() >= closing:
                if not self._arrays:
                    raise FairleadError(
                        f"Only {len(nodes)} of {self.start_with} nodes were connected within {self.join_seconds:g} s: "
                        "start the others, or lower FlowerStrategy.start_with."
                    )
                return
            if len(nodes) != known:
                LOG.info("Waiting %s: %d of %d nodes are connected.", purpose, len(nodes), self.num_clients)
                known = len(nodes)
            sleep(self.poll)
