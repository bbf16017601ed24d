"""The `RoundRecord` of a round, and statistics of its updates."""

import math
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from fairlead.client_table import tensor_in
from fairlead.records import Aggregate, ClientUpdates, Poll, RoundRecord, WorkOrder


class UpdateStatistics(NamedTuple):
    """How much the updates of a round agree; None in a round without arrivals."""

    elud: float | None = None
    lud: float | None = None
    consensus: float | None = None
    coherence: float | None = None
    update_norm: float | None = None
    drift_norm: float | None = None


def make_record(
    order: WorkOrder,
    updates: ClientUpdates,
    aggregate: Aggregate,
    statistics: UpdateStatistics,
    *,
    poll: Poll | None,
    direction: Tensor,
    step: Tensor,
    facts: Mapping[str, float],
    seconds: float,
) -> RoundRecord:
    """The record of one round, empty ones included."""
    cohort, item = updates.cohort, order.anchor.element_size()
    sent = len(order.anchor) + len(order.buffers) + sum(v.numel() for v in order.shared.values())
    returned = [updates.buffers, *updates.messages.values()]
    if order.solver.encoder is None:
        returned.append(updates.delta)
    work, held, arrived = updates.effective_steps, aggregate.remembered, updates.clients.tolist()
    remembered = {} if held is None else dict(zip(held.clients.tolist(), held.weights.tolist(), strict=True))
    bytes_down = len(cohort.clients) * sent * item
    bytes_up = updates.masked_bytes
    if bytes_up is None:
        bytes_up = sum(values.nbytes for values in returned)
    virtual_seconds, device_seconds = updates.virtual_seconds, updates.device_seconds
    if poll is not None:
        # The model goes to every candidate, and one number comes back from each that answers.
        bytes_down += len(poll.clients) * (len(order.anchor) + len(order.buffers)) * item
        bytes_up += int((~poll.losses.isnan()).sum()) * item
        if virtual_seconds is not None and device_seconds is not None:
            virtual_seconds += poll.virtual_seconds or 0.0
            device_seconds += poll.device_seconds or 0.0
        facts = {**facts, "polled": float(len(poll.clients))}
    lengths = [torch.linalg.vector_norm(vector, dtype=torch.float64) for vector in (direction, step)]
    # One transfer: each number by itself would wait for the device.
    direction_norm, step_norm, *losses = torch.cat(
        [torch.stack(lengths), updates.loss.to(lengths[0])]
    ).tolist()
    return RoundRecord(
        round=order.round,
        asked=tuple(cohort.clients.tolist()),
        multiplicity=tuple(cohort.multiplicity.tolist()),
        arrived=tuple(arrived),
        num_steps=tuple(updates.num_steps.tolist()),
        effective_steps=None if work is None else tuple(work.tolist()),
        coefficients=None if aggregate.coefficients is None else tuple(aggregate.coefficients.tolist()),
        remembered=remembered,
        train_loss=_weighted_loss(losses, updates.importance.tolist()),
        direction_norm=direction_norm,
        step_norm=step_norm,
        bytes_down=bytes_down,
        bytes_up=bytes_up,
        facts={**aggregate.facts, **_staleness(updates), **facts},
        virtual_seconds=virtual_seconds,
        device_seconds=device_seconds,
        client_lr=updates.lr if len(updates) else None,
        **statistics._asdict(),
        refused=updates.refused,
        late={client: age for client, age in zip(arrived, updates.age.tolist(), strict=True) if age > 0},
        seconds=seconds,
    )


def _staleness(updates: ClientUpdates) -> dict[str, float]:
    """Of asynchronous rounds: mean and largest age of the arrivals, and the clients still at work."""
    if "clients" not in updates.flight:
        return {}
    ages, busy = updates.age.tolist() or [0], tensor_in(updates.flight, "clients") >= 0
    return {
        "staleness": sum(ages) / len(ages),
        "max_staleness": float(max(ages)),
        "in_flight": float(busy.sum()),
    }


def statistics_of(updates: ClientUpdates) -> Callable[[], UpdateStatistics]:
    """The statistics of a round's updates; none where only their sums are known."""
    if updates.masked_bytes is not None:
        return UpdateStatistics
    return update_statistics(updates.delta, updates.importance)


def update_statistics(delta: Tensor, importance: Tensor) -> Callable[[], UpdateStatistics]:
    """All statistics of the (m, d) updates of a round, in three passes over them.

    They are queued on the device at once; the function returned waits for them and reads them.

        G = Σ λ_i g_i,   ρ = ‖G‖²,   LUD = √(Σ λ_i‖g_i‖²/ρ),   e-LUD the same with λ_i = 1/m
        coherence = Σ_{i<j} ⟨u_i, u_j⟩ = (‖Σ u_i‖² − Σ‖u_i‖²)/2,   u_i = g_i/‖g_i‖, 0 for g_i = 0
        drift = (1/m) Σ ‖g_i − ḡ‖,   ‖g_i − ḡ‖² = ‖g_i‖² − 2⟨g_i, ḡ⟩ + ‖ḡ‖²,   ḡ = (1/m) Σ g_i

    Symbols: g `delta` (the sign does not matter), λ `importance` scaled to sum 1, which estimates the
    objective's weights for every sampler. Diversities are inf where the mean is 0 and some update is not.
    """
    if not len(delta):
        return UpdateStatistics
    if delta.dtype.itemsize < 4:
        delta = delta.float()
    size, total = len(delta), float(importance.sum())
    weights = importance / total if total > 0 else torch.full_like(importance, 1 / size)
    norm = torch.linalg.vector_norm(delta, dim=1)
    fixed = torch.stack([torch.full_like(weights, 1 / size), weights]).to(norm, non_blocking=True)
    means = torch.cat([fixed, torch.nan_to_num(1 / norm, posinf=0.0)[None]]) @ delta
    # One transfer: on an accelerator every separate number would wait for all work queued before it.
    sums = torch.cat([norm, delta @ means[0], torch.linalg.vector_norm(means, dim=1)])
    return lambda: _figures(sums, means[0], delta, importance, weights)


def _figures(
    sums: Tensor, mean: Tensor, delta: Tensor, importance: Tensor, weights: Tensor
) -> UpdateStatistics:
    """From ‖g_i‖ and ⟨g_i, ḡ⟩ of all updates, and the lengths of ḡ, G and Σ u_i."""
    size, found = len(delta), sums.tolist()
    norms, products = found[:size], found[size : 2 * size]
    mean_square, rho, unit_square = (value * value for value in found[2 * size :])
    squares = [value * value for value in norms]
    largest = max(squares)
    if delta.dtype != torch.float64 and not _TINY < largest < _HUGE and (largest > 0 or bool(delta.any())):
        return update_statistics(delta.double(), importance)()
    apart = [square - 2 * product + mean_square for square, product in zip(squares, products, strict=True)]
    if min(apart) < _CANCELLED * largest:
        # If clients nearly agree, the difference above is rounding, and the distances themselves are exact.
        drift_norm = sum(float(torch.dist(row, mean)) for row in delta) / size
    else:
        drift_norm = sum(map(math.sqrt, apart)) / size
    return UpdateStatistics(
        elud=diversity(sum(squares) / size, mean_square),
        lud=diversity(sum(w * s for w, s in zip(weights.tolist(), squares, strict=True)), rho),
        consensus=rho,
        coherence=(unit_square - sum(square > 0 for square in squares)) / 2,
        update_norm=sum(norms) / size,
        drift_norm=drift_norm,
    )


_TINY, _HUGE = 1e-30, 1e30
"""Squared lengths outside of which single precision loses the squares of entries."""
_CANCELLED = 1e-4
"""Squared distance from the mean, relative to the squared length, that single precision loses."""


def diversity(mean_of_squares: float, square_of_mean: float) -> float:
    """√(mean of squares / square of mean): inf where only the mean vanishes, 1 where everything does."""
    # Jensen's inequality in rounded numbers may miss its limit by a few bits.
    return max(length_ratio(mean_of_squares, square_of_mean), 1.0)


def length_ratio(square: float, other_square: float) -> float:
    """√(square / other square): inf where only the other vanishes, 1 where both do."""
    if other_square == 0.0:
        return math.inf if square > 0 else 1.0
    return math.sqrt(square / other_square)


def _weighted_loss(losses: Sequence[float], importance: Sequence[float]) -> float | None:
    if not losses:
        return None
    total = sum(importance)
    if total <= 0:
        return sum(losses) / len(losses)
    return sum(weight * loss for weight, loss in zip(importance, losses, strict=True)) / total
