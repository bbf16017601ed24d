"""`FlowerStrategy`: the server's half of a method, for Flower apps whose clients keep their own training code."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from math import prod
from time import monotonic, sleep
from typing import Literal, NoReturn

import torch
from flwr.app import Array, ArrayRecord, ConfigRecord, Message, MessageType, MetricRecord, RecordDict
from flwr.serverapp import Grid
from flwr.serverapp.strategy import FedAvg, Result, Strategy
from torch import Tensor

from fairlead.algorithm import Algorithm
from fairlead.diagnostics.advice import diagnosis_of
from fairlead.diagnostics.consistency import ConsistencyReport
from fairlead.diagnostics.diagnosis import Diagnosis
from fairlead.diagnostics.measurement import measured_consistency
from fairlead.errors import (
    ClashError,
    FairleadError,
    FieldError,
    require_instance,
    require_integer,
    require_number,
)
from fairlead.experiments.diagnose import evidence_of_records
from fairlead.experiments.record_io import REAL_CLIENTS, Recorded
from fairlead.flower.messages import packed
from fairlead.flower.requests import log_round, refuse_unsuitable, text_of, updates_of
from fairlead.flower.roster import LOG, Estimates, warn_of_claims
from fairlead.local_solver import LocalSolver
from fairlead.randomness import Key
from fairlead.records import (
    ClientUpdates,
    Conditions,
    Population,
    Refusal,
    RoundRecord,
    ServerState,
    WorkOrder,
)
from fairlead.reply_checks import (
    ClientReply,
    Reason,
    ReceivedUpdate,
    ReplyForm,
    ReplyLimits,
    validate_reply,
)
from fairlead.round import initial_state, run_round
from fairlead.worlds.base import World

_ARRAYS, _CONFIG = "arrays", "config"
ReportedWeights = Literal["examples", "uniform"]


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
        poll: float = 1.0,
    ) -> None:
        require_instance(self, "algorithm", algorithm, Algorithm)
        self.algorithm, self.num_clients, self.records = algorithm, num_clients, list[RoundRecord]()
        self.start_with = num_clients if start_with is None else start_with
        self.join_seconds, self.fraction_evaluate, self.poll = join_seconds, fraction_evaluate, poll
        require_integer(self, "num_clients", at_least=1)
        require_integer(self, "start_with", at_least=1, at_most=num_clients)
        require_number(self, "join_seconds", "poll", above=0)
        require_number(self, "fraction_evaluate", at_least=0, at_most=1)
        if weights not in ("examples", "uniform"):
            raise FieldError(f"FlowerStrategy.weights must be 'examples' or 'uniform', got {weights!r}.")
        refuse_unsuitable(algorithm, weights)
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
        self._limits = limits or ReplyLimits()
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
        result = super().start(
            grid, initial_arrays, num_rounds, timeout, train_config, evaluate_config, evaluate_fn
        )
        if self.records and not any(record.arrived for record in self.records):
            why = " ".join(refusal.sentence for refusal in self.records[-1].refused[:3])
            raise FairleadError(f"No update could be used in {len(self.records)} rounds. {why}".rstrip())
        return result

    def configure_train(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        if self._world is None or self._state is None:
            layout = ArrayLayout.of(arrays, self._statistics)
            self._await(grid, lambda nodes: len(nodes) >= self.start_with, "to start")
            model = layout.flatten(arrays, layout.params), layout.flatten(arrays, layout.buffers)
            self._world = StrategyWorld(layout, self.num_clients, model, self._weights, self._limits)
            self._state = initial_state(self.algorithm, self._world, self._key)
        world = self._world
        self._arrays = arrays
        # The app may have changed the model between rounds: the round starts from the model that it hands over.
        params, buffers = (
            world.layout.flatten(arrays, part) for part in (world.layout.params, world.layout.buffers)
        )
        self._state = replace(self._state, params=params, buffers=buffers)
        self._asked = self._sampled(world, self._state)
        asked = self._asked.tolist()
        # With every client away, as after a failure of the link, the remaining rounds would be over in a moment.
        self._await(
            grid, lambda nodes: not asked or bool(world.seat(nodes).keys() & set(asked)), "for this round"
        )
        seats = world.seat(grid.get_node_ids())
        reached = [client for client in asked if client in seats]
        content = RecordDict(
            {_ARRAYS: arrays, _CONFIG: ConfigRecord({**config, "server-round": server_round})}
        )
        self._sent = {client: Message(content, seats[client], MessageType.TRAIN) for client in reached}
        return list(self._sent.values())

    def aggregate_train(
        self, server_round: int, replies: Iterable[Message]
    ) -> tuple[ArrayRecord | None, MetricRecord | None]:
        world, state = self._world, self._state
        assert world is not None
        assert state is not None
        world.receive(replies, self._asked, self._sent, self.algorithm.solver, state.round)
        # New sizes count in the round that reports them, as in Flower's FedAvg, unless they change the cohort.
        known, world.sizes = world.sizes, world.reported_sizes()
        if not torch.equal(self._sampled(world, state), self._asked):
            world.sizes = known
        self._state, record = run_round(self.algorithm, world, state, self._key)
        self.records.append(record)
        log_round(record)
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
        content = RecordDict(
            {_ARRAYS: arrays, _CONFIG: ConfigRecord({**config, "server-round": server_round})}
        )
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

    def _sampled(self, world: "StrategyWorld", state: ServerState) -> Tensor:
        """The cohort of the next round: always the same under the same conditions."""
        conditions = world.conditions(state.round, self.algorithm.solver, self._key)
        key = self._key.fold("sampler", state.round)
        return self.algorithm.sampler.draw(state.sampler, conditions, key).clients

    def _await(self, grid: Grid, enough: Callable[[list[int]], bool], purpose: str) -> None:
        """Wait for nodes, at most `join_seconds`, with a line in the log whenever their number changes."""
        closing, known = monotonic() + self.join_seconds, -1
        while not enough(nodes := list(grid.get_node_ids())):
            if monotonic() >= closing:
                if self._world is None:
                    raise FairleadError(
                        f"Only {len(nodes)} of {self.start_with} nodes were connected within {self.join_seconds:g} s: "
                        "start the others, or lower FlowerStrategy.start_with."
                    )
                return
            if len(nodes) != known:
                LOG.info("Waiting %s: %d of %d nodes are connected.", purpose, len(nodes), self.num_clients)
                known = len(nodes)
            sleep(self.poll)


Shapes = Mapping[str, tuple[int, ...]]


@dataclass(frozen=True)
class ArrayLayout:
    """The float32 arrays of a model in order; integer arrays, such as counters of batches, are not trained."""

    params: Shapes
    buffers: Shapes
    """Running statistics."""

    @staticmethod
    def of(arrays: ArrayRecord, statistics: tuple[str, ...] = ()) -> "ArrayLayout":
        floats = {name: tuple(a.shape) for name, a in arrays.items() if a.dtype.startswith("float")}
        wrong = [name for name in floats if arrays[name].dtype != "float32"]
        if wrong or not floats:
            raise FieldError(
                f"FlowerStrategy needs a model of float32 arrays, got {wrong[:3] or 'none'}: convert it first."
            )
        buffers = {name: shape for name, shape in floats.items() if name.endswith(statistics)}
        return ArrayLayout({name: floats[name] for name in floats if name not in buffers}, buffers)

    @property
    def sizes(self) -> dict[str, int]:
        return {name: prod(shape) for name, shape in self.params.items()}

    def flatten(self, arrays: ArrayRecord, part: Shapes) -> Tensor:
        """The vector of a part in a record that the server itself made."""
        return self.join({name: torch.from_numpy(arrays[name].numpy().copy()) for name in part}, part)

    def join(self, tensors: Mapping[str, Tensor], part: Shapes) -> Tensor:
        return torch.cat([torch.empty(0), *(tensors[name].reshape(-1) for name in part)])

    def filled(self, arrays: ArrayRecord, params: Tensor, buffers: Tensor) -> ArrayRecord:
        """The record with the numbers of a model."""
        shapes = {**self.params, **self.buffers}
        parts = torch.split(torch.cat([params, buffers]), [prod(shape) for shape in shapes.values()])
        filled = {
            name: Array(part.reshape(shape).numpy())
            for (name, shape), part in zip(shapes.items(), parts, strict=True)
        }
        return ArrayRecord({name: filled.get(name, array) for name, array in arrays.items()})


class StrategyWorld(World):
    """The clients of an existing Flower app: makes the updates of a round from the replies that a strategy gets."""

    def __init__(
        self,
        layout: ArrayLayout,
        num_clients: int,
        model: tuple[Tensor, Tensor],
        weights: ReportedWeights,
        limits: ReplyLimits,
    ) -> None:
        self.layout, self._model, self._weights, self._limits = layout, model, weights, limits
        self.sizes = torch.zeros(num_clients, dtype=torch.float64)
        """Examples of each client, 0 for those without a report."""
        self._nodes: dict[int, int] = {}
        """The latest node of each client that has had one."""
        self._received: dict[int, ReceivedUpdate] = {}
        self._refused: list[Refusal] = []
        self._steps = torch.zeros(num_clients, dtype=torch.int64)
        self._estimates = Estimates(num_clients)

    def seat(self, present: Iterable[int]) -> dict[int, int]:
        """The nodes of the clients that have one now; nodes that are new take the places of those that are gone."""
        present = set(present)
        joined = sorted(present - set(self._nodes.values()))
        vacant = [client for client in range(len(self.sizes)) if self._nodes.get(client) not in present]
        for client, node in zip(vacant, joined, strict=False):
            if client in self._nodes:
                LOG.info("Node %d replaces node %d as client %d.", node, self._nodes[client], client)
            self._nodes[client] = node
        return {
            client: self._nodes[client] for client in sorted(self._nodes) if self._nodes[client] in present
        }

    @property
    def weights(self) -> Tensor:
        """ω (N,): uniform, or by reported examples, with the mean of all for clients without a report."""
        known = self.sizes > 0
        if self._weights == "uniform" or not bool(known.any()):
            return torch.full_like(self.sizes, 1 / len(self.sizes))
        sizes = torch.where(known, self.sizes, self.sizes[known].mean())
        return sizes / sizes.sum()

    @property
    def population(self) -> Population:
        return Population(
            self.weights,
            self.layout.sizes,
            torch.device("cpu"),
            torch.float32,
            self_reported=self._weights == "examples",
        )

    @property
    def description(self) -> str:
        return f"plain Flower {self.layout.sizes!r}"

    def initial_model(self, key: Key) -> tuple[Tensor, Tensor]:
        return self._model

    def conditions(self, round: int, solver: LocalSolver, key: Key) -> Conditions:
        steps, sizes = (values if bool((values > 0).all()) else None for values in (self._steps, self.sizes))

        def work() -> Tensor | None:
            return None if steps is None else solver.effective_steps(steps, round)

        rates = self._estimates.arrival
        return Conditions(
            round, self.weights, work, lambda: rates, forecast_steps=lambda: steps, num_examples=sizes
        )

    def receive(
        self,
        replies: Iterable[Message],
        asked: Tensor,
        sent: Mapping[int, Message],
        solver: LocalSolver,
        round: int,
    ) -> None:
        """Take the replies to the messages that were sent to clients, for the next round to aggregate."""
        self._received, self._refused = {}, []
        # By the message answered, because Flower itself answers for a node that is gone.
        clients = {message.metadata.message_id: client for client, message in sent.items()}
        for message in replies:
            client = clients.get(message.metadata.reply_to_message_id)
            found = self._validated(message, client, sent, solver, round)
            if isinstance(found, Refusal):
                self._refused.append(found)
            else:
                self._received[found.client] = found
        known = self._received.keys() | {refusal.client for refusal in self._refused}
        for client in set(asked.tolist()) - known:
            reason, fault = (
                ("deadline", "did not answer in time") if client in sent else ("away", "is at no node")
            )
            self._refused.append(Refusal(client, reason, f"Client {client} {fault}."))

    def reported_sizes(self) -> Tensor:
        """`sizes` with the reports in the received replies."""
        sizes = self.sizes.clone()
        for client, update in self._received.items():
            sizes[client] = update.num_examples
        return sizes

    def work(self, order: WorkOrder) -> ClientUpdates:
        self.sizes = self.reported_sizes()
        received = {
            client: update._replace(
                arrays={
                    "delta": self.layout.join(update.arrays, self.layout.params) - order.anchor,
                    "buffers": self.layout.join(update.arrays, self.layout.buffers),
                }
            )
            for client, update in self._received.items()
        }
        updates = updates_of(order, received, {}, self._refused)
        self._steps[updates.clients] = updates.num_steps
        self._estimates.count(order.cohort.clients, updates.clients)
        return updates

    def module(self, params: Tensor, buffers: Tensor) -> NoReturn:
        raise FairleadError("The server of an existing Flower app has arrays and no module.")

    def evaluate(self, params: Tensor, buffers: Tensor, *, per_client: bool = False) -> NoReturn:
        raise FairleadError("An existing Flower app evaluates by its own strategy.")

    def _validated(
        self,
        message: Message,
        client: int | None,
        sent: Mapping[int, Message],
        solver: LocalSolver,
        round: int,
    ) -> ReceivedUpdate | Refusal:
        if client is None:
            return Refusal(None, "not asked", "A node answered that was not asked.")
        if message.has_error():
            return Refusal(client, "failed", f"Client {client} failed: {text_of(message.error)}")
        if message.metadata.src_node_id != sent[client].metadata.dst_node_id:
            return Refusal(client, Reason.WRONG_CLIENT, f"Another node answered for client {client}.")
        arrays = next(iter(message.content.array_records.values()), ArrayRecord())
        metrics = next(iter(message.content.metric_records.values()), MetricRecord())
        examples = metrics.get("num-examples")
        planned = solver.count_steps(torch.tensor([examples if isinstance(examples, int) else 0]))
        reply = ClientReply(
            client=client,
            round=round,
            # Integer arrays are not trained: the server's stay.
            arrays={name: packed(array) for name, array in arrays.items() if array.dtype.startswith("float")},
            numbers={
                "num_steps": metrics.get("num-steps", int(planned)),
                "num_examples": examples,
                "loss": metrics.get("train-loss", metrics.get("train_loss", 0.0)),
            },
        )
        shapes = {**self.layout.params, **self.layout.buffers}
        form = ReplyForm(round, len(self.sizes), {client}, shapes, limits=self._limits)
        return validate_reply(reply, form, received=self._received)
