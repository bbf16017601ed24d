"""Which answers count in a round and why others do not, and the rows that a round aggregates."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

import torch
from flwr.app import Message, MessageType
from torch import Tensor

from fairlead.aggregators.base import Aggregator, refuse_claimed_weights
from fairlead.errors import ClashError
from fairlead.flower.messages import refusal_in, unopened, uploads_in
from fairlead.flower.pending import Letter
from fairlead.local_solver import LocalSolver
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


def updates_of(
    order: WorkOrder, arrivals: Mapping[int, Arrival], uploads: Mapping[str, int], refused: Sequence[Refusal]
) -> ClientUpdates:
    """The rows of a round in the order of client ids; `uploads` are the lengths of the extra uploads.

    Of what clients remember the server knows the version alone.
    """
    cohort, solver, anchor = order.cohort, order.solver, order.anchor
    places = torch.tensor([client in arrivals for client in cohort.clients.tolist()], dtype=torch.bool)
    arrived = [arrivals[client] for client in cohort.clients[places].tolist()]
    updates = [each.update for each in arrived]
    num_steps = torch.tensor([update.num_steps for update in updates], dtype=torch.int64)
    rounds = torch.tensor([each.round for each in arrived], dtype=torch.int64)

    def rows(vectors: Sequence[Tensor], length: int) -> Tensor:
        return torch.stack(list(vectors)) if vectors else anchor.new_zeros((0, length))

    messages = [uploads_in(update.arrays) for update in updates]
    return ClientUpdates.of(
        cohort,
        places,
        rows([update.arrays["delta"] for update in updates], len(anchor)),
        num_steps,
        _effective_steps(solver, num_steps, rounds, order.round),
        lr=solver.optimizer.lr_at(order.round),
        loss=anchor.new_tensor([update.loss for update in updates]),
        num_examples=torch.tensor([update.num_examples for update in updates], dtype=torch.int64),
        buffers=rows([update.arrays["buffers"] for update in updates], len(order.buffers)),
        messages={name: rows([each[name] for each in messages], n) for name, n in uploads.items()},
        memory={"version": rounds[:, None] + 1},
        age=order.round - rounds,
        refused=tuple(sorted(refused, key=lambda each: -1 if each.client is None else each.client)),
    )


def _effective_steps(solver: LocalSolver, num_steps: Tensor, rounds: Tensor, round: int) -> Tensor | None:
    """‖a‖₁ of updates (m,), each with the learning rate η' of the round in which it was asked for.

    It is told in units of this round's η, so that delta = −η Σ_j a_j g_j holds for late updates too.
    """
    if not solver.is_linear:
        return None
    lr = solver.optimizer.lr_at(round)
    steps = torch.zeros(len(num_steps), dtype=torch.float64)
    for asked in set(rounds.tolist()):
        rows = rounds == asked
        own = solver.effective_steps(num_steps[rows], asked)
        assert own is not None
        steps[rows] = own * (solver.optimizer.lr_at(asked) / lr if lr > 0 else 1.0)
    return steps


def refuse_late_adopters(solver: LocalSolver) -> None:
    """Refuse corrections whose memory depends on what the server makes of a round.

    Clients of a real federation learn what became of their update when they are asked again, which may be many
    rounds later; the model and the direction of that round are gone by then.
    """
    for correction in solver.corrections:
        lengths = {name: 2 if extent == "vector" else 1 for name, extent in correction.memory_extent.items()}
        memory = {name: torch.ones(1, length) for name, length in lengths.items()}
        adopted = correction.after_round(memory, torch.full((2,), 3.0), torch.full((2,), 5.0))
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
