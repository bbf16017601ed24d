"""A world some of whose clients lie about their updates, to the round itself or in messages."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from fairlead.records import ClientUpdates, Refusal, WorkOrder
from fairlead.reply_checks import (
    ClientReply,
    PackedArray,
    Reason,
    ReceivedUpdate,
    ReplyForm,
    leave_out,
    validate_reply,
)
from fairlead.worlds.simulated import SimulatedWorld

Attack = Callable[[Tensor], Tensor]
ATTACKS: Mapping[str, Attack] = {
    "sign flip": torch.neg,
    "scale": lambda delta: 1e6 * delta,
    "negative scale": lambda delta: -1e6 * delta,
    "NaN": lambda delta: torch.full_like(delta, float("nan")),
    "one infinity": lambda delta: delta.index_fill(1, torch.tensor([0]), float("inf")),
}
"""What hostile clients send in the place of their updates."""


class HostileWorld(SimulatedWorld):
    """Clients of which those in `hostile` send `attack(delta)`; with `by_message`, through the door of messages."""

    def __init__(
        self, *args: Any, hostile: range, attack: Attack, by_message: bool = False, **more: Any
    ) -> None:
        super().__init__(*args, **more)
        self.hostile, self.attack, self.by_message = torch.tensor(hostile), attack, by_message

    def work(self, order: WorkOrder) -> ClientUpdates:
        updates = super().work(order)
        lies = torch.isin(updates.clients, self.hostile)
        delta = torch.where(lies[:, None], self.attack(updates.delta), updates.delta)
        updates = replace(updates, delta=delta)
        return self._received(updates, order) if self.by_message else updates

    def _received(self, updates: ClientUpdates, order: WorkOrder) -> ClientUpdates:
        """The same updates as they come out of one message each."""
        form = ReplyForm(
            order.round,
            self.population.num_clients,
            order.cohort.clients.tolist(),
            {"delta": tuple(order.anchor.shape)},
            self.dtype,
        )
        refused = []
        for row, client in enumerate(updates.clients.tolist()):
            data = PackedArray("float32", form.arrays["delta"], updates.delta[row].numpy().tobytes())
            numbers = {
                "num_steps": int(updates.num_steps[row]),
                "num_examples": int(updates.num_examples[row]),
                "loss": float(updates.loss[row]),
            }
            answer = validate_reply(ClientReply(client, order.round, {"delta": data}, numbers), form)
            if isinstance(answer, Refusal):
                refused.append(answer)
            else:
                assert isinstance(answer, ReceivedUpdate)
                assert torch.equal(answer.arrays["delta"], updates.delta[row])
        if not refused:
            return updates
        bad = torch.isin(updates.clients, torch.tensor([refusal.client for refusal in refused]))
        return replace(leave_out(updates, bad, Reason.NOT_FINITE, ""), refused=tuple(refused))
