"""The clients of a plain Flower app as a `World`: they train in their own way and reply with a model."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import prod
from typing import Literal, NoReturn

import torch
from flwr.app import Array, ArrayRecord, Message, MetricRecord
from torch import Tensor

from fairlead.client_table import PartState
from fairlead.errors import FairleadError, FieldError
from fairlead.flower.messages import packed
from fairlead.flower.roster import Estimates
from fairlead.local_solver import LocalSolver
from fairlead.randomness import Key
from fairlead.records import ClientUpdates, Conditions, Population, Refusal, WorkOrder
from fairlead.reply_checks import ClientReply, ReceivedUpdate, ReplyForm, validate_reply
from fairlead.worlds.base import World


@dataclass(frozen=True)
class ArrayLayout:
    """The float32 arrays of a model in their order; whole numbers, such as counters of batches, are not learnt."""

    shapes: Mapping[str, tuple[int, ...]]

    @staticmethod
    def of(arrays: ArrayRecord) -> ArrayLayout:
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

    def renewed(self, arrays: ArrayRecord, vector: Tensor) -> ArrayRecord:
        """The record with the numbers of a vector in place of its own."""
        parts = dict(zip(self.shapes, torch.split(vector, list(self.sizes.values())), strict=True))
        return ArrayRecord(
            {
                name: Array(parts[name].reshape(self.shapes[name]).numpy()) if name in parts else array
                for name, array in arrays.items()
            }
        )


class PlainWorld(World):
    """Turns replies that a strategy was handed into the updates of a round."""

    def __init__(
        self,
        layout: ArrayLayout,
        nodes: Sequence[int],
        params: Tensor,
        weights: Literal["examples", "uniform"] = "examples",
    ) -> None:
        self.layout, self.nodes, self._params = layout, tuple(nodes), params
        self._weights = weights
        self.sizes = torch.zeros(len(self.nodes), dtype=torch.float64)
        """Examples of each client, 0 for those not yet heard."""
        self._came: dict[int, ReceivedUpdate] = {}
        self._refused: list[Refusal] = []
        self._steps = torch.zeros(len(self.nodes), dtype=torch.int64)
        self._estimates = Estimates(len(self.nodes))

    @property
    def weights(self) -> Tensor:
        """ω (N,): uniform, or by examples reported, the mean of all for those not yet heard."""
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

    def initial_memory(self, solver: LocalSolver) -> PartState:
        return {}

    def conditions(self, round: int, solver: LocalSolver, key: Key) -> Conditions:
        def work() -> Tensor | None:
            return solver.effective_steps(self._steps, round) if bool((self._steps > 0).all()) else None

        return Conditions(round, self.weights, work, lambda: self._estimates.arrival)

    def receive(self, replies: Iterable[Message], asked: Tensor, solver: LocalSolver, round: int) -> None:
        """Take in what came back from the clients asked, for the round that is about to be aggregated."""
        self._came, self._refused = {}, []
        for message in replies:
            told = self._judged(message, set(asked.tolist()), solver, round)
            if isinstance(told, Refusal):
                self._refused.append(told)
            else:
                self._came[told.client] = told

    def reported_sizes(self) -> Tensor:
        """`sizes` as they are once the replies taken in are believed."""
        sizes = self.sizes.clone()
        for client, told in self._came.items():
            sizes[client] = told.num_examples
        return sizes

    def work(self, order: WorkOrder) -> ClientUpdates:
        came, self.sizes = self._came, self.reported_sizes()
        places = torch.tensor([client in came for client in order.cohort.clients.tolist()], dtype=torch.bool)
        clients = order.cohort.clients[places]
        rows = [came[client] for client in clients.tolist()]
        num_steps = torch.tensor([row.num_steps for row in rows], dtype=torch.int64)
        num_examples = torch.tensor([row.num_examples for row in rows], dtype=torch.int64)
        self._steps[clients] = num_steps
        self._estimates.count(order.cohort.clients, clients)
        local = [self.layout.join(row.arrays) for row in rows]
        empty = order.anchor.new_zeros((0, len(order.anchor)))
        return ClientUpdates.of(
            order.cohort,
            places,
            torch.stack(local) - order.anchor if local else empty,
            num_steps,
            order.solver.effective_steps(num_steps, order.round),
            lr=order.solver.optimizer.lr_at(order.round),
            loss=order.anchor.new_tensor([row.loss for row in rows]),
            num_examples=num_examples,
            refused=tuple(self._refused),
        )

    def commit(
        self,
        memory: PartState,
        updates: ClientUpdates,
        solver: LocalSolver,
        params: Tensor,
        direction: Tensor,
    ) -> PartState:
        return memory

    def module(self, params: Tensor, buffers: Tensor) -> NoReturn:
        raise FairleadError("The server of a plain Flower app has arrays and no module.")

    def evaluate(self, params: Tensor, buffers: Tensor, *, per_client: bool = False) -> NoReturn:
        raise FairleadError("A plain Flower app evaluates by its own strategy.")

    def _judged(
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
            # Whole numbers are not learnt, and stay what the server has.
            arrays={name: packed(array) for name, array in arrays.items() if array.dtype.startswith("float")},
            numbers={
                "num_steps": metrics.get("num-steps", int(planned)),
                "num_examples": examples,
                "loss": metrics.get("train-loss", metrics.get("train_loss", 0.0)),
            },
        )
        form = ReplyForm(round, len(self.nodes), asked, dict(self.layout.shapes))
        return validate_reply(reply, form, sender=client, received=self._came)
