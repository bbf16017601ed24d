"""What people want to know about a round, gathered in a `RoundRecord`."""

from __future__ import annotations

import math
from collections.abc import Mapping

import torch
from torch import Tensor

from fairlead.records import Aggregate, ClientUpdates, RoundRecord, WorkOrder


def describe_round(
    order: WorkOrder,
    updates: ClientUpdates,
    aggregate: Aggregate,
    *,
    direction: Tensor,
    step: Tensor,
    facts: Mapping[str, float],
    seconds: float,
) -> RoundRecord:
    """The record of one round, empty ones included."""
    cohort, item = order.cohort, order.anchor.element_size()
    sent = len(order.anchor) + len(order.buffers) + sum(v.numel() for v in order.shared.values())
    returned = [updates.delta, updates.buffers, *updates.messages.values()]
    work, remembered = updates.effective_steps, aggregate.remembered
    return RoundRecord(
        round=order.round,
        asked=tuple(cohort.clients.tolist()),
        multiplicity=tuple(cohort.multiplicity.tolist()),
        arrived=tuple(updates.clients.tolist()),
        num_steps=tuple(updates.num_steps.tolist()),
        effective_steps=None if work is None else tuple(work.tolist()),
        coefficients=None if aggregate.coefficients is None else tuple(aggregate.coefficients.tolist()),
        remembered={}
        if remembered is None
        else dict(zip(remembered.clients.tolist(), remembered.weights.tolist(), strict=True)),
        train_loss=_weighted_loss(updates),
        direction_norm=float(torch.linalg.vector_norm(direction)),
        step_norm=float(torch.linalg.vector_norm(step)),
        elud=update_diversity(updates.delta) if len(updates) else None,
        bytes_down=len(cohort.clients) * sent * item,
        bytes_up=sum(values.numel() for values in returned) * item,
        facts={**aggregate.facts, **facts},
        virtual_seconds=updates.virtual_seconds,
        device_seconds=updates.device_seconds,
        seconds=seconds,
    )


def update_diversity(delta: Tensor) -> float:
    """e-LUD (001): √( mean ‖g_i‖² / ‖mean g_i‖² ) of the received updates, at least 1."""
    squares = torch.linalg.vector_norm(delta, dim=1).double().square()
    mean_square = float(torch.linalg.vector_norm(delta.mean(0)).double().square())
    if mean_square == 0.0:
        return math.inf if bool(squares.any()) else 1.0
    return math.sqrt(float(squares.mean()) / mean_square)


def _weighted_loss(updates: ClientUpdates) -> float | None:
    if not len(updates):
        return None
    losses = updates.loss.to("cpu", torch.float64)
    total = updates.importance.sum()
    return float(updates.importance @ losses / total) if total > 0 else float(losses.mean())
