"""The consistency report: the weights Ω a run really optimises against the weights ω it was asked to."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from fairlead.records import RoundRecord


@dataclass(frozen=True, eq=False)
class ConsistencyReport:
    """Intended and measured objective weights of a run.

        Ω_i ∝ Σ_rounds (coefficient_i ‖a_i‖₁ + the same for its remembered update, where there is one)

    is the share of all gradient steps that client i contributed (003 (7), 004 §3): to first order in
    the learning rate the run minimises Σ Ω_i F_i instead of Σ ω_i F_i.
    """

    intended: Tensor
    """ω, (N,)."""
    surrogate: Tensor | None
    """Ω, (N,); None where coefficients or effective steps do not exist, or nothing arrived."""
    rounds: int
    restored: bool = False
    """Whether Ω = ω follows from a correction that restores the weights, and was not measured."""

    @property
    def chi_square(self) -> float | None:
        """χ²(ω‖Ω) = Σ (ω_i − Ω_i)²/Ω_i over the clients that have a weight; inf if one is unheard."""
        if self.surrogate is None:
            return None
        gap, used = (self.intended - self.surrogate).square(), self.surrogate > 0
        if bool((gap[~used] > 0).any()):
            return float("inf")
        return float((gap[used] / self.surrogate[used]).sum())

    @property
    def total_variation(self) -> float | None:
        """½ Σ |ω_i − Ω_i|: the share of the objective that went to the wrong clients."""
        if self.surrogate is None:
            return None
        return float((self.intended - self.surrogate).abs().sum() / 2)

    def __str__(self) -> str:
        if self.surrogate is None:
            return "This run has no measurable surrogate weights."
        if self.restored:
            return (
                "The corrections of this method make every client follow the objective's own weights at the "
                "fixed point, whatever work and links are: by design no weight is misplaced."
            )
        ratio = self.surrogate / self.intended
        heard = self.intended > 0
        gained = int(torch.where(heard, ratio, -1.0).argmax())
        lost = int(torch.where(heard, ratio, float("inf")).argmin())
        assert self.total_variation is not None
        return (
            f"Over {self.rounds} rounds, {self.total_variation:.1%} of the objective's weight went to other "
            f"clients than asked (chi-square {self.chi_square:.3g}): client {gained} counted "
            f"{ratio[gained]:.2f} times its weight, client {lost} {ratio[lost]:.2f} times."
        )


def measured_consistency(
    records: Sequence[RoundRecord], weights: Tensor, *, restored: bool = False
) -> ConsistencyReport:
    """Ω from the coefficients really used, round by round.

    `restored` says that a correction makes every client follow Σ ω_i ∇F_i, as control variates do: then
    Ω = ω whatever the coefficients.
    """
    if restored:
        return ConsistencyReport(weights, weights, len(records), restored=True)
    mass, last_work = torch.zeros_like(weights), torch.zeros_like(weights)
    for record in records:
        if record.coefficients is None or record.effective_steps is None:
            return ConsistencyReport(weights, None, len(records))
        # A remembered update carries the work of the round in which it arrived.
        recalled = torch.tensor(list(record.remembered), dtype=torch.int64)
        shares = torch.tensor(list(record.remembered.values()), dtype=weights.dtype)
        mass.index_add_(0, recalled, shares * last_work[recalled])
        arrived = torch.tensor(record.arrived, dtype=torch.int64)
        work = torch.tensor(record.effective_steps, dtype=weights.dtype)
        mass.index_add_(0, arrived, torch.tensor(record.coefficients, dtype=weights.dtype) * work)
        last_work[arrived] = work
    total = mass.sum()
    return ConsistencyReport(weights, mass / total if total > 0 else None, len(records))
