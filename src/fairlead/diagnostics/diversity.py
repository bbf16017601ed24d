"""Diversity of gradients and updates, cosines, and consensus over a run.

The cheap figures of a round are on its `RoundRecord` (`elud`, `lud`, `consensus`, `coherence`, `update_norm`,
`drift_norm`), and those of full gradients too if `Federation.train` was asked for them (`gradients`). The functions
here take rows (`client_gradients`, `client_updates` or any others) and records of a whole run.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from fairlead.conditions.links import PerfectLink
from fairlead.diagnostics.gradients import choose_clients
from fairlead.errors import FieldError
from fairlead.federation import Federation
from fairlead.numerics.rows import inner_products
from fairlead.records import ClientUpdates, Cohort, RoundRecord, WorkOrder
from fairlead.round_record import diversity, length_ratio


def gradient_diversity(gradients: Tensor, weights: Tensor | None = None) -> float:
    """D = √(Σ λ_i‖∇f_i‖²)/‖Σ λ_i∇f_i‖ (Zeng 2023 (3)), at least 1, and 1 exactly where all gradients are equal.

        D² = 1 + Σ λ_i‖∇f_i − ∇f‖²/‖∇f‖²

    Symbols: ∇f_i a row of `gradients` (N, d), λ `weights`, uniform unless given. inf where only the mean
    is 0.
    """
    weights = _weights(gradients, weights)
    return diversity(mean_square(gradients, weights), _square_of_mean(gradients, weights))


def surrogate_diversity(gradients: Tensor, weights: Tensor, surrogate_weights: Tensor) -> float:
    """D̃ = √(Σ λ_i‖∇f_i‖²)/‖Σ λ̃_i∇f_i‖ (Zeng 2023 (6)).

    Symbols: λ `weights`, λ̃ `surrogate_weights`. *Reduces to* `gradient_diversity` for λ̃ = λ. *Differs from
    the paper*, which claims D̃ ≥ 1 for every λ̃: it holds where ‖Σ λ̃_i∇f_i‖² ≤ Σ λ_i‖∇f_i‖², as for
    the weights of the shortest vector in the hull, and fails in general.
    """
    top = mean_square(gradients, _weights(gradients, weights))
    bottom = _square_of_mean(gradients, _weights(gradients, surrogate_weights))
    return length_ratio(top, bottom)


def local_update_diversity(updates: Tensor, weights: Tensor | None = None) -> float:
    """LUD = √(Σ λ_i E‖g_i‖² / E‖Σ λ_i g_i‖²) (Zeng 2025 (5)), at least 1.

        E‖G‖² = V(G) + ‖E G‖²,   LUD² = 1 + E Σ λ_i‖g_i − G‖²/E‖G‖²,   G = Σ λ_i g_i

    Symbols: g `updates` (N, d), or (draws, N, d) whose mean over draws estimates E; λ `weights`, uniform
    unless given, which makes it the e-LUD of one draw.
    """
    draws = updates if updates.ndim == 3 else updates[None]
    weights = _weights(draws[0], weights)
    top = sum(mean_square(rows, weights) for rows in draws)
    return diversity(top, sum(_square_of_mean(rows, weights) for rows in draws))


def running_elud(records: Sequence[RoundRecord]) -> list[float]:
    """e-LUDD after each round: the mean of e-LUD over rounds 0 to t (Zeng 2025), without rounds without arrivals.

    The last entry is the e-LUDD of the run. NaN before the first arrival; inf from a round on whose updates
    canceled exactly.
    """
    means, total, count = [], 0.0, 0
    for record in records:
        if record.elud is not None:
            total, count = total + record.elud, count + 1
        means.append(total / count if count else math.nan)
    return means


def client_updates(federation: Federation, clients: Sequence[int] | Tensor | None = None) -> ClientUpdates:
    """The updates that clients would send in the coming round over perfect links; the federation stays as it is.

    All clients that have weight unless given. `importance` is ω.

    >>> import fairlead as fl
    >>> problem = fl.Quadratics(linear=((0.0,), (4.0,))).problem(fl.Key.from_seed(0))
    >>> world = fl.SimulatedWorld(problem.task(), problem.data())
    >>> run = fl.Federation(fl.presets.fedavg(lr=0.5, steps=1), world)
    >>> client_updates(run).delta.tolist()
    [[-0.5], [1.5]]
    """
    world, state, solver = federation.world.simulation, federation.state, federation.algorithm.solver
    if world is None:
        raise FieldError("client_updates needs the clients' data: only a simulated world has them.")
    chosen = choose_clients(world, clients)
    cohort = Cohort(chosen, torch.ones_like(chosen), world.population.weights[chosen])
    sent = (state.round, solver, state.params, state.buffers, state.shared)
    return world.over(PerfectLink()).work(WorkOrder(*sent, cohort, state.memory, federation.key))


def cosine_matrix(rows: Tensor) -> Tensor:
    """C_ij = ⟨g_i, g_j⟩/(‖g_i‖‖g_j‖) of all pairs, (m, m) float64; 0 where a row is zero."""
    gram = inner_products(rows, torch.arange(len(rows))).cpu()
    norms = gram.diagonal().sqrt()
    lengths = torch.outer(norms, norms)
    cosines = torch.where(lengths > 0, gram / lengths, 0.0).clamp(-1.0, 1.0)
    return cosines.fill_diagonal_(1.0) * (norms > 0).outer(norms > 0)


def client_coherence(rows: Tensor) -> float:
    """Σ_{i<j} C_ij (Zeng 2025): from −m/2 where updates cancel to m(m − 1)/2 where all point the same way."""
    return float(cosine_matrix(rows).triu(1).sum())


@dataclass(frozen=True)
class ConsensusDynamics:
    """Client consensus dynamics of a run (Zeng 2025 Property 4.1), from one draw of every round.

    Symbols: ρᵗ(λ) = ‖E Σ λ_i g_i‖² with the objective's weights λ as sampled, ρᵗ(λ̃) with the weights of the
    aggregator, that is ‖direction‖²; η_l the clients' learning rate, K their mean number of steps (Zeng 2025 leaves
    unequal K open). Rounds without arrivals do not count. A single draw of ρᵗ exceeds it by the variance of
    the mean update.
    """

    rho: tuple[float, ...]
    """ρᵗ(λ) of each round with arrivals."""
    applied: tuple[float, ...]
    """ρᵗ(λ̃) of each round with arrivals."""
    psi: float
    """Ψ = (1/T) Σ ρᵗ(λ)/(η_l²K)."""
    psi_applied: float
    """(1/T) Σ ρᵗ(λ̃)/(η_l²K), to which both readings of Ψ̃ are proportional."""

    def psi_as_printed(self, chi_square: float) -> float:
        """Ψ̃ = χ²·(1/T) Σ ρᵗ(λ̃)/(η_l²K) as Corollary 4.1 prints it: 0 for λ̃ = λ, which cannot be meant.

        `chi_square` is Zeng 2025's Σ (λ_i − λ̃_i)²/λ_i.
        """
        return chi_square * self.psi_applied

    def psi_as_proved(
        self, chi_square: float, *, smoothness: float, gamma: float, lr: float, server_lr: float, steps: float
    ) -> float:
        """(1 + Lγ/(2η_g) + 2χ²γ/(ηKL))·(1/T) Σ ρᵗ(λ̃)/(η_l²K), the factor at the end of Zeng 2025's appendix.

        Symbols: L `smoothness`, γ `gamma` of ‖g_i‖² ≤ γ‖G‖², η_l `lr`, η_g `server_lr`, η = η_gη_l, K
        `steps`. For λ̃ = λ the factor is at least 1, as it must be.
        """
        own = smoothness * gamma / (2 * server_lr)
        misplaced = 2 * chi_square * gamma / (server_lr * lr * steps * smoothness)
        return (1 + own + misplaced) * self.psi_applied


def consensus_dynamics(records: Sequence[RoundRecord]) -> ConsensusDynamics:
    """ρᵗ and Ψ of a run from the records of its rounds."""
    rho, applied, scales = [], [], []
    for record in records:
        if record.consensus is not None and record.client_lr:
            rho.append(record.consensus)
            applied.append(record.direction_norm**2)
            scales.append(record.client_lr**2 * sum(record.num_steps) / len(record.num_steps))
    if not rho:
        raise FieldError(
            "consensus_dynamics needs a record of a round in which something arrived and the clients' "
            f"learning rate was not 0, got none among {len(records)}."
        )
    psi, psi_applied = (
        sum(value / scale for value, scale in zip(values, scales, strict=True)) / len(rho)
        for values in (rho, applied)
    )
    return ConsensusDynamics(tuple(rho), tuple(applied), psi, psi_applied)


def _weights(rows: Tensor, weights: Tensor | None) -> Tensor:
    """λ as float64 on the CPU with sum 1."""
    if weights is None:
        return torch.full((len(rows),), 1 / len(rows), dtype=torch.float64)
    if len(weights) != len(rows):
        raise FieldError(f"weights must have one number per row ({len(rows)}), got {len(weights)} numbers.")
    values = weights.to("cpu", torch.float64)
    if bool((values < 0).any()) or not float(values.sum()) > 0:
        raise FieldError("weights must be at least 0 and not all 0.")
    return values / values.sum()


def mean_square(rows: Tensor, weights: Tensor) -> float:
    """Σ λ_i‖row_i‖²."""
    return float(weights @ torch.linalg.vector_norm(rows, dim=1).double().square().cpu())


def _square_of_mean(rows: Tensor, weights: Tensor) -> float:
    return float(torch.linalg.vector_norm(weights.to(rows) @ rows)) ** 2
