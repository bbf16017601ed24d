"""`FlowerStrategy`: the server's half of a method, for Flower apps whose clients keep their own training code."""

from collections.abc import Callable, Iterable, Sequence
from contextlib import ExitStack
from dataclasses import asdict, replace
from functools import partial
from os import PathLike
from pathlib import Path
from time import monotonic, sleep

import torch
from flwr.app import ArrayRecord, ConfigRecord, Message, MessageType, MetricRecord, RecordDict
from flwr.serverapp import Grid
from flwr.serverapp.strategy import FedAvg, Result, Strategy
from torch import Tensor

from fairlead.algorithm import Algorithm
from fairlead.checkpoint.store import save_module
from fairlead.clients.source import RealClients
from fairlead.diagnostics.advice import diagnosis_of
from fairlead.diagnostics.consistency import ConsistencyReport
from fairlead.diagnostics.diagnosis import Diagnosis
from fairlead.errors import (
    ClashError,
    FairleadError,
    FieldError,
    disk_errors,
    require_instance,
    require_integer,
    require_number,
)
from fairlead.experiments.diagnose import evidence_of_federation
from fairlead.experiments.experiment import Experiment
from fairlead.experiments.kept_models import ModelFacts
from fairlead.experiments.provenance import client_facts
from fairlead.experiments.run_folder import RunFolder
from fairlead.experiments.runner import noted, summarize
from fairlead.federation import Federation
from fairlead.flower.monitoring import Watch
from fairlead.flower.requests import log_round, refuse_unsuitable
from fairlead.flower.roster import LOG, warn_of_claims
from fairlead.flower.strategy_world import ArrayLayout, ReportedWeights, StrategyWorld
from fairlead.records import RoundRecord, StoredRecords
from fairlead.reply_checks import ReplyLimits
from fairlead.round import run_round

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

    A round lasts at most the `timeout` of `start`. With fewer than `quorum` updates it is void.

    With a `folder`, the strategy keeps its run there, with the files of any run, and `start` resumes it: `num_rounds`
    are those of the whole run. Without a folder, every `start` begins a new run. `json_log`, `trackers` and
    `metrics_address` watch the run as those of `make_server_app` do; the first two need a folder.
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
        quorum: int = 1,
        limits: ReplyLimits | None = None,
        statistics: tuple[str, ...] = ("running_mean", "running_var"),
        folder: str | PathLike[str] | None = None,
        json_log: bool = False,
        trackers: Sequence[str] = (),
        metrics_address: str = "",
        poll: float = 1.0,
    ) -> None:
        require_instance(self, "algorithm", algorithm, Algorithm)
        self.algorithm, self.num_clients, self.seed, self.quorum = algorithm, num_clients, seed, quorum
        self.start_with = num_clients if start_with is None else start_with
        self.join_seconds, self.fraction_evaluate, self.poll = join_seconds, fraction_evaluate, poll
        require_integer(self, "num_clients", at_least=1)
        require_integer(self, "start_with", "quorum", at_least=1, at_most=num_clients)
        require_number(self, "join_seconds", "poll", above=0)
        require_number(self, "fraction_evaluate", at_least=0, at_most=1)
        if weights not in ("examples", "uniform"):
            raise FieldError(f"FlowerStrategy.weights must be 'examples' or 'uniform', got {weights!r}.")
        refuse_unsuitable(algorithm, weights)
        halves = [type(correction).__name__ for correction in algorithm.solver.corrections]
        halves += ["LocalSolver.personal"] * (algorithm.solver.personal is not None)
        for part, clash in (
            (algorithm.secure_aggregation, "receives single updates, which secure_aggregation would hide"),
            (halves, f"cannot make clients of an existing app use {', '.join(halves)}"),
            (
                algorithm.privacy,
                "learns ω from the clients' reports, which change the weights of other clients, so ClientPrivacy could "
                "guarantee nothing",
            ),
        ):
            if part:
                raise ClashError(
                    f"FlowerStrategy {clash}: build the clients with make_client_app and the server with "
                    "make_server_app, or choose a method without it."
                )
        self._weights, self._statistics = weights, statistics
        self._limits, self._done = limits or ReplyLimits(), 0
        self._store = None if folder is None else RunFolder(Path(folder))
        self._watching = partial(
            Watch, self._store, json_log=json_log, trackers=trackers, address=metrics_address
        )
        self._watch = self._watching()
        self.num_rounds, self._connected = 1, 0
        self._federation: Federation | None = None
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
        central = evaluate_fn and (lambda number, arrays: evaluate_fn(self._done + number, arrays))
        with ExitStack() as stack:
            store, self.num_rounds, self._watch = self._store, num_rounds, self._watching()
            require_integer(self, "num_rounds", at_least=1)
            if store is not None:
                if not store.rounds_file.exists():
                    store.refuse_occupied()
                stack.enter_context(store.claimed())
            stack.enter_context(self._watch.active())
            # An earlier start counts as far as it is in the folder.
            self._federation, self._arrays, self._connected = None, ArrayRecord(), 0
            world, federation = self._begin(initial_arrays)
            if store is not None:
                stack.enter_context(noted(store, federation))
            self._watch.begin(federation, self.algorithm, lambda: self._connected)
            arrays = world.layout.filled(initial_arrays, federation.state)
            left = num_rounds - self._done
            result = super().start(grid, arrays, left, timeout, train_config, evaluate_config, central)
            if not len(result.arrays):
                result.arrays = arrays
            if not any(record.arrived for record in self.records):
                why = " ".join(refusal.sentence for refusal in self.records[-1].refused[:3])
                raise FairleadError(f"No update could be used in {len(self.records)} rounds. {why}".rstrip())
            if store is not None:
                facts = asdict(ModelFacts(len(self.records)))
                with disk_errors(store.model_file, "written"):
                    save_module(result.arrays.to_torch_state_dict(), store.model_file, facts)
                store.conclude(summarize(federation))
        return result

    def configure_train(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        world, federation = self._begin(arrays)
        if not self._arrays:
            self._await(grid, lambda nodes: len(nodes) >= self.start_with, "to start")
        self._arrays = arrays
        # The app may have changed the model between rounds: the round starts from the model that it hands over.
        params, buffers = world.layout.flatten(arrays)
        federation.state = replace(federation.state, params=params, buffers=buffers)
        self._asked = self._sampled(federation)
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
        world, federation = self._begin(self._arrays)
        world.receive(replies, self._asked, self._sent, self.algorithm.solver, federation.state.round)
        # New sizes count in the round that reports them, as in Flower's FedAvg, unless they change the cohort.
        known, world.sizes = world.sizes, world.reported_sizes()
        if not torch.equal(self._sampled(federation), self._asked):
            world.sizes = known
        state, record = run_round(self.algorithm, world, federation.state, federation.key)
        federation.state = replace(state, memory=world.tables)
        self.records.append(record)
        if self._store is not None:
            self._store.save(federation)
            self._store.introduce(client_facts(federation))
        log_round(record)
        self._watch.write(record)
        if self._weights == "examples":
            warn_of_claims(known, world.sizes)
        figures = {"arrived": len(record.arrived), "asked": len(record.asked), "refused": len(record.refused)}
        loss = {} if record.train_loss is None else {"train-loss": record.train_loss}
        arrays = world.layout.filled(self._arrays, state)
        return arrays, MetricRecord({**loss, **figures})

    def configure_evaluate(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        world, federation = self._begin(arrays)
        nodes = list(world.seat(grid.get_node_ids()).values())
        count = min(max(round(self.fraction_evaluate * len(nodes)), 2), len(nodes))
        if self.fraction_evaluate == 0 or not nodes:
            return []
        order = federation.key.fold("evaluation", server_round).generator().permutation(len(nodes))
        content = self._content(arrays, config, server_round)
        return [Message(content, nodes[place], MessageType.EVALUATE) for place in sorted(order[:count])]

    def aggregate_evaluate(self, server_round: int, replies: Iterable[Message]) -> MetricRecord | None:
        return FedAvg().aggregate_evaluate(server_round, replies)

    def summary(self) -> None:
        LOG.info("%r", self.algorithm)

    def consistency(self) -> ConsistencyReport:
        """The weights Ω that the rounds so far really optimized, against ω."""
        return self._trained().consistency()

    def diagnosis(self) -> Diagnosis:
        """The heterogeneity in the rounds so far, the clients it favors, and the method to use."""
        federation = self._trained()
        evidence = evidence_of_federation("the rounds so far", federation, self.records, quick=True)
        return diagnosis_of(evidence)

    @property
    def weights(self) -> Tensor:
        """ω by the reports so far."""
        known = self._federation
        return torch.empty(0, dtype=torch.float64) if known is None else known.world.population.weights

    @property
    def records(self) -> list[RoundRecord] | StoredRecords:
        """The records of all rounds so far."""
        return [] if self._federation is None else self._federation.records

    def _trained(self) -> Federation:
        if self._federation is None or not self.records:
            raise FieldError("FlowerStrategy needs at least one round for this, and there has been none.")
        return self._federation

    def _sampled(self, federation: Federation) -> Tensor:
        """The cohort of the next round: always the same under the same conditions."""
        state, key = federation.state, federation.key.fold("sampler", federation.state.round)
        return self.algorithm.sampler.draw(state.sampler, federation.conditions, key).clients

    def _content(self, arrays: ArrayRecord, config: ConfigRecord, server_round: int) -> RecordDict:
        values = ConfigRecord({**config, "server-round": self._done + server_round})
        return RecordDict({_ARRAYS: arrays, _CONFIG: values})

    def _begin(self, arrays: ArrayRecord) -> tuple[StrategyWorld, Federation]:
        """The world and the federation, at the first call of a new run or of the run in the folder."""
        if self._federation is None:
            layout = ArrayLayout.of(arrays, self._statistics)
            model = layout.flatten(arrays)
            world = StrategyWorld(layout, self.num_clients, model, self._weights, self._limits, self.quorum)
            federation = Federation(self.algorithm, world, self.seed, rounds=self.num_rounds)
            if self._store is not None:
                self._restore(self._store, world, federation)
            self._federation, self._done = federation, federation.state.round
        assert isinstance(self._federation.world, StrategyWorld)
        return self._federation.world, self._federation

    def _restore(self, store: RunFolder, world: StrategyWorld, federation: Federation) -> None:
        """Begin the run in the folder, or take it up where it stopped."""
        experiment = Experiment(
            RealClients(self.num_clients),
            self.algorithm,
            self.num_rounds,
            weights=self._weights,
            seed=self.seed,
            evaluate_every=0,
        )
        if store.is_free():
            federation.records = store.begin(experiment)
            return
        if again := store.restore(federation, experiment, LOG.warning):
            LOG.warning(again)
        world.recall(federation.state.memory, federation.records)

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
