"""`StrategyWorld`: the clients of an existing Flower app, and the model that its arrays hold."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from math import prod
from typing import Literal, NoReturn

import torch
from flwr.app import Array, ArrayRecord, Message, MessageType, MetricRecord
from torch import Tensor

from fairlead.client_table import PartState, tensor_in
from fairlead.errors import FairleadError, FieldError
from fairlead.flower.messages import packed
from fairlead.flower.requests import ClientRequest, fault_of, updates_of
from fairlead.flower.roster import LOG, Estimates
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
from fairlead.reply_checks import ClientReply, ReceivedUpdate, ReplyForm, ReplyLimits, validate_reply
from fairlead.worlds.base import World

ReportedWeights = Literal["examples", "uniform"]
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

    def flatten(self, arrays: ArrayRecord) -> tuple[Tensor, Tensor]:
        """Parameters and running statistics in a record that the server itself made."""
        names = (*self.params, *self.buffers)
        tensors = {name: torch.from_numpy(arrays[name].numpy().copy()) for name in names}
        return self.join(tensors, self.params), self.join(tensors, self.buffers)

    def join(self, tensors: Mapping[str, Tensor], part: Shapes) -> Tensor:
        return torch.cat([torch.empty(0), *(tensors[name].reshape(-1) for name in part)])

    def filled(self, arrays: ArrayRecord, state: ServerState) -> ArrayRecord:
        """The record with the numbers of the model in a state."""
        shapes = {**self.params, **self.buffers}
        parts = torch.split(
            torch.cat([state.params, state.buffers]), [prod(shape) for shape in shapes.values()]
        )
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
        quorum: int,
    ) -> None:
        self.layout, self._model, self._weights = layout, model, weights
        self._limits, self._quorum = limits, quorum
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
    def tables(self) -> PartState:
        """The sizes and nodes of clients, which records lack; ids of nodes are unsigned, and 0 stands for none."""
        nodes = [self._nodes.get(client, 0) for client in range(len(self.sizes))]
        return {
            "sizes": self.sizes,
            "nodes": torch.tensor([node - 2**64 * (node >= 2**63) for node in nodes]),
        }

    def recall(self, tables: PartState, records: Iterable[RoundRecord]) -> None:
        """Continue a run with these tables and records."""
        nodes = enumerate(tensor_in(tables, "nodes").tolist())
        self._nodes = {client: node % 2**64 for client, node in nodes if node}
        self.sizes = tensor_in(tables, "sizes")
        for record in records:
            arrived = torch.tensor(record.arrived, dtype=torch.int64)
            self._steps[arrived] = torch.tensor(record.num_steps, dtype=torch.int64)
            self._estimates.count(torch.tensor(record.asked, dtype=torch.int64), arrived)

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
        return f"plain Flower {len(self.sizes)} {self._weights} {self.layout!r}"

    def initial_model(self, key: Key) -> tuple[Tensor, Tensor]:
        return self._model

    def initial_memory(self, solver: LocalSolver) -> PartState:
        return self.tables

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
        updates = updates_of(order, received, {}, self._refused, quorum=self._quorum)
        self._steps[updates.clients] = updates.num_steps
        self._estimates.count(order.cohort.clients, updates.clients)
        return updates

    def module(self, params: Tensor, buffers: Tensor) -> NoReturn:
        raise FairleadError("The server of an existing Flower app has arrays and no module.")

    def evaluate(self, params: Tensor, buffers: Tensor, *, per_client: bool = False) -> NoReturn:
        raise FairleadError("An existing Flower app evaluates by its own strategy.")

    def objective_at(self, params: Tensor, buffers: Tensor) -> float:
        """Unknown, because clients are not asked for it."""
        return float("nan")

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
        request = ClientRequest(client, sent[client].metadata.dst_node_id, round, MessageType.TRAIN, 0)
        if (fault := fault_of(request, message)) is not None:
            return fault
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
