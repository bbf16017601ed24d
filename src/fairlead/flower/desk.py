"""Where answers are judged: which count in a round, and why others do not."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

import torch
from flwr.app import Message, MessageType

from fairlead.flower.mailbox import Letter
from fairlead.flower.messages import refusal_in, unopened
from fairlead.receiving import Reason, ReceivedUpdate, ReplyForm, ReplyLimits, examine
from fairlead.records import Refusal


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
        return examine(unopened(message.content), form, sender=client)
