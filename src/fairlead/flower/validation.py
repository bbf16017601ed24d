"""Which answers count in a round and why others do not, and the rows that a round aggregates."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

import torch
from flwr.app import Message, MessageType
from torch import Tensor

from fairlead.aggregators.base import Aggregator, refuse_claimed_weights
from fairlead.corrections.base import LocalOutcome
from fairlead.errors import ClashError
from fairlead.flower.messages import message_name, refusal_in, unopened
from fairlead.flower.pending import Letter
from fairlead.local_solver import Accumulation, LocalSolver
from fairlead.records import ClientUpdates, Refusal, WorkOrder
from fairlead.reply_checks import Reason, ReceivedUpdate, ReplyForm, ReplyLimits, validate_reply
from fairlead.worlds.base import Weights


def are_self_reported(weights: Weights | None) -> bool:
    """Whether ω follows the sizes that clients report, which it does unless a spec says otherwise."""
    return weights is None or (isinstance(weights, str) and weights == "examples")


def refuse_reported_weights(aggregator: Aggregator, weights: Weights | None) -> None:
    """Refuse before any client is waited for what the first round would refuse."""
    if are_self_reported(weights):
        refuse_claimed_weights(aggregator)


class Arrival(NamedTuple):
    """An update that counts in a round."""

    round: int
    """The round in which it was asked for: an earlier one for a late answer."""
    update: ReceivedUpdate


def assembled(order: WorkOrder, arrivals: Mapping[int, Arrival], refused: Sequence[Refusal]) -> ClientUpdates:
    """The rows of a round in the order of client ids; what clients keep is told by its version alone."""
    present = [place for place, client in enumerate(order.cohort.clients.tolist()) if client in arrivals]
    clients = order.cohort.clients[present]
    came = [arrivals[client] for client in clients.tolist()]
    num_steps = torch.tensor([each.update.num_steps for each in came], dtype=torch.int64)
    rounds = torch.tensor([each.round for each in came], dtype=torch.int64)
    norms = _work_of(order.solver, num_steps, rounds, order.round)
    uploads = upload_lengths(order.solver, order.anchor)
    lengths = {"delta": len(order.anchor), "buffers": len(order.buffers), **uploads}

    def rows(array: str) -> Tensor:
        if not came:
            return order.anchor.new_zeros((0, lengths[array]))
        return torch.stack([_array(each.update, array) for each in came])

    return ClientUpdates(
        cohort=order.cohort,
        clients=clients,
        importance=order.cohort.importance[present],
        delta=rows("delta"),
        num_steps=num_steps,
        effective_steps=None if norms is None else norms.l1,
        a2=None if norms is None else norms.l2,
        loss=order.anchor.new_tensor([each.update.loss for each in came]),
        num_examples=torch.tensor([each.update.num_examples for each in came], dtype=torch.int64),
        messages={name: rows(name) for name in uploads},
        memory={"version": rounds[:, None] + 1},
        buffers=rows("buffers"),
        age=order.round - rounds,
        lr=order.solver.optimizer.lr_at(order.round),
        refused=tuple(
            sorted(refused, key=lambda refusal: refusal.client if refusal.client is not None else -1)
        ),
    )


def _work_of(solver: LocalSolver, num_steps: Tensor, rounds: Tensor, round: int) -> Accumulation | None:
    """‖a‖ of updates (m,), each with the learning rate η' of the round in which it was asked for.

    It is told in units of this round's η, so that delta = −η Σ_j a_j g_j holds for late updates too.
    """
    if not solver.is_linear:
        return None
    lr = solver.optimizer.lr_at(round)
    l1, l2 = torch.zeros(2, len(num_steps), dtype=torch.float64)
    for asked in set(rounds.tolist()):
        rows = rounds == asked
        norms = solver.accumulation(num_steps[rows], asked)
        assert norms is not None
        scale = solver.optimizer.lr_at(asked) / lr if lr > 0 else 1.0
        l1[rows], l2[rows] = scale * norms.l1, scale * norms.l2
    return Accumulation(l1, l2)


def _array(update: ReceivedUpdate, name: str) -> Tensor:
    return next(values for array, values in update.arrays.items() if message_name(array) == name)


def upload_lengths(solver: LocalSolver, params: Tensor) -> dict[str, int]:
    """How many numbers each extra upload of a solver's corrections has."""
    # Tensors without content: only shapes matter.
    row = torch.zeros((1, len(params)), dtype=params.dtype, device="meta")
    shared = {n: v for c in solver.corrections for n, v in c.initial_shared(row[0]).items()}
    memory = {name: row.new_zeros((1, solver.memory_dim(name, len(params)))) for name in solver.memory_names}
    one = row.new_ones((1, 1))
    outcome = LocalOutcome(0, row[0], row, one, one if solver.is_linear else None, 1.0, row)
    messages = solver.settle(outcome, memory, shared).message
    return {name: message.shape[1] for name, message in messages.items()}


def refuse_late_adopters(solver: LocalSolver) -> None:
    """Refuse corrections whose memory depends on what the server makes of a round.

    Clients of a real federation learn what became of their update when they are asked again, which may be many
    rounds later; the model and the direction of that round are gone by then.
    """
    for correction in solver.corrections:
        lengths = {name: 2 if extent == "vector" else 1 for name, extent in correction.memory_extent.items()}
        memory = {name: torch.ones(1, length) for name, length in lengths.items()}
        adopted = correction.adopt(memory, torch.full((2,), 3.0), torch.full((2,), 5.0))
        if any(not torch.equal(adopted[name], kept) for name, kept in memory.items()):
            raise ClashError(
                f"{type(correction).__name__} completes what clients remember with the server's new model or "
                "direction, which clients at Flower nodes are not sent: use ControlVariates or "
                "DynamicRegularizer there, or run it in simulation."
            )


@dataclass(frozen=True)
class Desk:
    """What answers of a round must be like."""

    round: int
    asked: frozenset[int]
    num_clients: int
    shapes: Mapping[str, tuple[int, ...]]
    dtype: torch.dtype
    late: Literal["discard", "use"]

    def judged(self, letter: Letter, message: Message) -> ReceivedUpdate | Refusal:
        """The update in an answer, or why it does not count."""
        client = letter.client
        if letter.kind != MessageType.TRAIN:
            return Refusal(client, "late", f"Client {client} answered a question other than this round's.")
        if letter.round != self.round and (self.late == "discard" or client not in self.asked):
            sentence = f"Client {client} answered round {letter.round} in round {self.round}."
            return Refusal(client, "late", sentence)
        if message.has_error():
            return Refusal(client, "failed", f"Client {client} failed: Flower's error {message.error.code}.")
        if message.metadata.src_node_id != letter.node:
            return Refusal(client, Reason.WRONG_CLIENT, f"Another node answered for client {client}.")
        said_no = refusal_in(message.content)
        if said_no is not None:
            return Refusal(client, said_no[0], f"Client {client} refused: {said_no[1]}")
        form = ReplyForm(
            round=letter.round,
            num_clients=self.num_clients,
            asked={client},
            arrays=self.shapes,
            dtype=self.dtype,
            limits=ReplyLimits(max_steps=letter.num_steps),
        )
        return validate_reply(unopened(message.content), form, sender=client)
