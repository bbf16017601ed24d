"""Which answers count in a round of a real federation, and the updates made of them."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Literal

import torch
from flwr.app import Message, MessageType
from torch import Tensor

from fairlead.aggregators.base import Aggregator, refuse_claimed_weights
from fairlead.corrections.base import Correction
from fairlead.errors import ClashError
from fairlead.flower.messages import refusal_in, unchecked_reply, uploads_in
from fairlead.flower.pending import ClientRequest
from fairlead.local_solver import LocalSolver
from fairlead.records import ClientUpdates, Refusal, WorkOrder
from fairlead.reply_checks import Reason, ReceivedUpdate, ReplyForm, ReplyLimits, validate_reply
from fairlead.worlds.base import Weights


def are_self_reported(weights: Weights | None) -> bool:
    """Whether ω follows the sizes that clients report: the default of a spec."""
    return weights is None or (isinstance(weights, str) and weights == "examples")


def refuse_reported_weights(aggregator: Aggregator, weights: Weights | None) -> None:
    """Raise before the server waits for clients if the first round would refuse the aggregator."""
    if are_self_reported(weights):
        refuse_claimed_weights(aggregator)


def refuse_late_adopters(solver: LocalSolver) -> None:
    """Refuse corrections whose client memory depends on the server's result of a round.

    A client of a real federation learns that its update was used when it is asked again, perhaps many rounds later.
    The model and the direction of that round are then gone.
    """
    for correction in solver.corrections:
        if type(correction).after_round is not Correction.after_round:
            raise ClashError(
                f"{type(correction).__name__} completes client memory with the server's new model or direction, "
                "which clients at Flower nodes do not receive: use ControlVariates or DynamicRegularizer there, or "
                "run it in simulation."
            )


def validate_answer(
    request: ClientRequest, message: Message, form: ReplyForm, late: Literal["discard", "use"]
) -> ReceivedUpdate | Refusal:
    """The update in an answer, or why it does not count in the round of `form`."""
    client = request.client
    if request.kind != MessageType.TRAIN:
        return Refusal(client, "late", f"Client {client} answered a question other than this round's.")
    if request.round != form.round and (late == "discard" or client not in form.asked):
        sentence = f"Client {client} answered round {request.round} in round {form.round}."
        return Refusal(client, "late", sentence)
    if message.has_error():
        return Refusal(client, "failed", f"Client {client} failed: Flower's error {message.error.code}.")
    if message.metadata.src_node_id != request.node:
        return Refusal(client, Reason.WRONG_CLIENT, f"Another node answered for client {client}.")
    refused = refusal_in(message.content)
    if refused is not None:
        return Refusal(client, refused[0], f"Client {client} refused: {refused[1]}")
    limits = ReplyLimits(max_steps=request.num_steps)
    own = replace(form, round=request.round, asked={client}, limits=limits)
    return validate_reply(unchecked_reply(message.content), own, sender=client)


def updates_of(
    order: WorkOrder,
    received: Mapping[int, ReceivedUpdate],
    uploads: Mapping[str, int],
    refused: Sequence[Refusal],
) -> ClientUpdates:
    """The rows of a round in the order of client ids; `uploads` are the lengths of the extra uploads.

    Of client memory the server knows the version alone.
    """
    cohort, solver, anchor = order.cohort, order.solver, order.anchor
    places = torch.tensor([client in received for client in cohort.clients.tolist()], dtype=torch.bool)
    updates = [received[client] for client in cohort.clients[places].tolist()]
    num_steps, num_examples, rounds = (
        torch.tensor([getattr(update, name) for update in updates], dtype=torch.int64)
        for name in ("num_steps", "num_examples", "round")
    )
    extra = [uploads_in(update.arrays) for update in updates]

    def stacked(vectors: Sequence[Tensor], length: int) -> Tensor:
        return torch.stack(list(vectors)) if vectors else anchor.new_zeros((0, length))

    return ClientUpdates.of(
        cohort,
        places,
        stacked([update.arrays["delta"] for update in updates], len(anchor)),
        num_steps,
        _effective_steps(solver, num_steps, rounds, order.round),
        lr=solver.optimizer.lr_at(order.round),
        loss=anchor.new_tensor([update.loss for update in updates]),
        num_examples=num_examples,
        buffers=stacked([update.arrays["buffers"] for update in updates], len(order.buffers)),
        messages={name: stacked([each[name] for each in extra], n) for name, n in uploads.items()},
        memory={"version": rounds[:, None] + 1},
        age=order.round - rounds,
        refused=tuple(sorted(refused, key=lambda each: -1 if each.client is None else each.client)),
    )


def _effective_steps(solver: LocalSolver, num_steps: Tensor, rounds: Tensor, round: int) -> Tensor | None:
    """‖a‖₁ of updates (m,), each with the learning rate of the round in which it was asked for.

    The unit is this round's η, so that delta = −η Σ_j a_j g_j holds for late updates too.
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
