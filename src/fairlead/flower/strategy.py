"""`FlowerStrategy`: the server's half of a method, for Flower apps whose clients keep their own training code."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from logging import getLogger
from math import prod
from time import sleep
from typing import Literal, NoReturn

import torch
from flwr.app import Array, ArrayRecord, ConfigRecord, Message, MessageType, MetricRecord, RecordDict
from flwr.serverapp import Grid
from flwr.serverapp.strategy import FedAvg, Strategy
from torch import Tensor

from fairlead.algorithm import Algorithm
from fairlead.diagnostics.advice import diagnosis_of
from fairlead.diagnostics.consistency import ConsistencyReport
from fairlead.diagnostics.diagnosis import Diagnosis
from fairlead.diagnostics.measurement import measured_consistency
from fairlead.errors import ClashError, FairleadError, FieldError, require_instance, require_integer
from fairlead.experiments.diagnose import evidence_of_records
from fairlead.experiments.record_io import REAL_CLIENTS, Recorded
from fairlead.flower.messages import packed
from fairlead.flower.requests import refuse_reported_weights, updates_of
from fairlead.flower.roster import Estimates
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
from fairlead.reply_checks import ClientReply, ReceivedUpdate, ReplyForm, validate_reply
from fairlead.round import initial_state, run_round
from fairlead.worlds.base import World

_log = getLogger("flwr")
_ARRAYS, _CONFIG = "arrays", "config"
ReportedWeights = Literal["examples", "uniform"]


class FlowerStrategy(Strategy):
    """Sampler, aggregator, transforms and server optimizer of an algorithm, as a strategy of Flower.

    For existing apps: clients keep their own training code and reply with their model and the metric `num-examples`,
    as for Flower's own strategies. The algorithm's solver only describes their training (optimizer, epochs, batch
    size), for methods that count local work; the metric `num-steps` of a client takes precedence. Methods with a half
    on the clients, such as SCAFFOLD, need `make_client_app`.

    `num_clients` is the number of nodes to wait for. These are the clients from then on, in the order of their node
    ids. ω_i is proportional to the examples that clients report, with the mean of all for clients that have not
    reported yet, or uniform under `weights` = "uniform".
    """

    def __init__(
        self,
        algorithm: Algorithm,
        num_clients: int,
        *,
        weights: ReportedWeights = "examples",
        seed: int = 0,
        fraction_evaluate: float = 1.0,
        poll: float = 1.0,
    ) -> None:
        require_instance(self, "algorithm", algorithm, Algorithm)
        self.algorithm, self.num_clients, self.records = algorithm, num_clients, list[RoundRecord]()
        require_integer(self, "num_clients", at_least=1)
        if weights not in ("examples", "uniform"):
            raise FieldError(f"FlowerStrategy.weights must be 'examples' or 'uniform', got {weights!r}.")
        refuse_reported_weights(algorithm.aggregator, weights)
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
        self._key, self._poll, self._weights = Key.from_seed(seed), poll, weights
        self._evaluation = FedAvg(fraction_evaluate=fraction_evaluate, min_available_nodes=num_clients)
        self._world: StrategyWorld | None = None
        self._state: ServerState | None = None
        self._arrays = ArrayRecord()
        self._asked = torch.empty(0, dtype=torch.int64)

    def configure_train(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        if self._world is None or self._state is None:
            layout = ArrayLayout.of(arrays)
            nodes = self._await_nodes(grid)
            self._world = StrategyWorld(layout, nodes, layout.flatten(arrays), self._weights)
            self._state = initial_state(self.algorithm, self._world, self._key)
        self._arrays = arrays
        # The app may have changed the model between rounds: the round starts from the model that it hands over.
        self._state = replace(self._state, params=self._world.layout.flatten(arrays))
        self._asked = self._sampled(self._world, self._state)
        values = ConfigRecord({**config, "server-round": server_round})
        asked = [self._world.nodes[client] for client in self._asked.tolist()]
        return [Message(RecordDict({_ARRAYS: arrays, _CONFIG: values}), n, MessageType.TRAIN) for n in asked]

    def aggregate_train(
        self, server_round: int, replies: Iterable[Message]
    ) -> tuple[ArrayRecord | None, MetricRecord | None]:
        world, state = self._world, self._state
        assert world is not None
        assert state is not None
        world.receive(replies, self._asked, self.algorithm.solver, state.round)
        # New sizes count in the round that reports them, as in Flower's FedAvg, unless they change the cohort.
        known, world.sizes = world.sizes, world.reported_sizes()
        if not torch.equal(self._sampled(world, state), self._asked):
            world.sizes = known
        self._state, record = run_round(self.algorithm, world, state, self._key)
        self.records.append(record)
        if record.train_loss is None:
            return None, None
        figures = {"arrived": len(record.arrived), "asked": len(record.asked), "refused": len(record.refused)}
        return world.layout.filled(self._arrays, self._state.params), MetricRecord(
            {"train-loss": record.train_loss, **figures}
        )

    def configure_evaluate(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        return self._evaluation.configure_evaluate(server_round, arrays, config, grid)

    def aggregate_evaluate(self, server_round: int, replies: Iterable[Message]) -> MetricRecord | None:
        return self._evaluation.aggregate_evaluate(server_round, replies)

    def summary(self) -> None:
        _log.info("%r", self.algorithm)

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

    def _await_nodes(self, grid: Grid) -> tuple[int, ...]:
        while len(nodes := sorted(grid.get_node_ids())) < self.num_clients:
            sleep(self._poll)
        return tuple(nodes[: self.num_clients])


@dataclass(frozen=True)
class ArrayLayout:
    """The float32 arrays of a model in order; integer arrays, such as counters of batches, are not trained."""

    shapes: Mapping[str, tuple[int, ...]]

    @staticmethod
    def of(arrays: ArrayRecord) -> "ArrayLayout":
        floats = {name: array for name, array in arrays.items() if array.dtype.startswith("float")}
        wrong = [name for name, array in floats.items() if array.dtype != "float32"]
        if wrong or not floats:
            raise FieldError(
                f"FlowerStrategy needs a model of float32 arrays, got {wrong[:3] or 'none'}: convert it first."
            )
        return ArrayLayout({name: tuple(array.shape) for name, array in floats.items()})

    @property
    def sizes(self) -> dict[str, int]:
        return {name: prod(shape) for name, shape in self.shapes.items()}

    def flatten(self, arrays: ArrayRecord) -> Tensor:
        """The vector in a record that the server itself made."""
        return self.join({name: torch.from_numpy(arrays[name].numpy().copy()) for name in self.shapes})

    def join(self, tensors: Mapping[str, Tensor]) -> Tensor:
        return torch.cat([tensors[name].reshape(-1) for name in self.shapes])

    def filled(self, arrays: ArrayRecord, vector: Tensor) -> ArrayRecord:
        """The record with the numbers of a vector."""
        parts = dict(zip(self.shapes, torch.split(vector, list(self.sizes.values())), strict=True))
        return ArrayRecord(
            {
                name: Array(parts[name].reshape(self.shapes[name]).numpy()) if name in parts else array
                for name, array in arrays.items()
            }
        )


class StrategyWorld(World):
    """The clients of an existing Flower app: makes the updates of a round from the replies that a strategy gets."""

    def __init__(
        self, layout: ArrayLayout, nodes: tuple[int, ...], params: Tensor, weights: ReportedWeights
    ) -> None:
        self.layout, self.nodes, self._params, self._weights = layout, nodes, params, weights
        self.sizes = torch.zeros(len(self.nodes), dtype=torch.float64)
        """Examples of each client, 0 for those without a report."""
        self._received: dict[int, ReceivedUpdate] = {}
        self._refused: list[Refusal] = []
        self._steps = torch.zeros(len(self.nodes), dtype=torch.int64)
        self._estimates = Estimates(len(self.nodes))

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
        return self._params, self._params.new_zeros(0)

    def conditions(self, round: int, solver: LocalSolver, key: Key) -> Conditions:
        steps, sizes = (values if bool((values > 0).all()) else None for values in (self._steps, self.sizes))

        def work() -> Tensor | None:
            return None if steps is None else solver.effective_steps(steps, round)

        rates = self._estimates.arrival
        return Conditions(
            round, self.weights, work, lambda: rates, forecast_steps=lambda: steps, num_examples=sizes
        )

    def receive(self, replies: Iterable[Message], asked: Tensor, solver: LocalSolver, round: int) -> None:
        """Take the replies of the clients asked, for the next round to aggregate."""
        self._received, self._refused = {}, []
        for message in replies:
            found = self._validated(message, set(asked.tolist()), solver, round)
            if isinstance(found, Refusal):
                self._refused.append(found)
            else:
                self._received[found.client] = found

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
                arrays={"delta": self.layout.join(update.arrays) - order.anchor, "buffers": order.buffers}
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
        self, message: Message, asked: set[int], solver: LocalSolver, round: int
    ) -> ReceivedUpdate | Refusal:
        node = message.metadata.src_node_id
        client = self.nodes.index(node) if node in self.nodes else None
        if message.has_error() or client is None:
            return Refusal(client, "failed", "A node failed, or one answered that was not asked.")
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
        form = ReplyForm(round, len(self.nodes), asked, dict(self.layout.shapes))
        return validate_reply(reply, form, sender=client, received=self._received)
