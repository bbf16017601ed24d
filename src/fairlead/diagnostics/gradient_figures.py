"""What the clients' full gradients say of a model in training: a pass over all data, so not in every round."""

from __future__ import annotations

import torch
from torch import Tensor

from fairlead.algorithm import Algorithm
from fairlead.diagnostics.stationarity import stationarity
from fairlead.diagnostics.surrogate import Contributions, followed
from fairlead.observation import diversity, length_ratio
from fairlead.records import Conditions, GradientFigures, RoundRecord, ServerState
from fairlead.worlds.simulated import SimulatedWorld


def gradient_figures(
    algorithm: Algorithm,
    world: SimulatedWorld,
    state: ServerState,
    record: RoundRecord,
    conditions: Conditions,
) -> GradientFigures:
    """The figures at the model with which a round ended.

        D = √(Σ ω_i‖∇F_i‖²)/‖Σ ω_i∇F_i‖,   D̃ = √(Σ ω_i‖∇F_i‖²)/‖Σ λ̃_i∇F_i‖   (Zeng 2023 (3), (6))

    Symbols: λ̃ `round_weights`. Every F_i includes the penalty of the clients' weight decay.
    """
    weights = world.population.weights
    applied = round_weights(algorithm, record, conditions)
    found = stationarity(
        world,
        state.params,
        state.buffers,
        weights if applied is None else applied,
        weight_decay=algorithm.solver.optimizer.weight_decay,
    )
    return GradientFigures(
        norm=found.true_gradient,
        diversity=diversity(found.mean_square, found.true_gradient**2),
        surrogate_norm=None if applied is None else found.surrogate_gradient,
        surrogate_diversity=None
        if applied is None
        else length_ratio(found.mean_square, found.surrogate_gradient**2),
    )


def round_weights(algorithm: Algorithm, record: RoundRecord, conditions: Conditions) -> Tensor | None:
    """λ̃: how much each client's gradient counts in the step of one round, to first order in the learning rate, (N,).

        λ̃_i ∝ (coefficient_i + remembered_i)‖a_i‖₁

    A remembered update is taken to have the work behind it that is planned for its client now. ω under
    corrections that restore the weights. None where nothing tells it: nothing arrived, updates are not
    linear in gradients, or other gradients than the clients' own act.
    """
    work, corrections = conditions.effective_steps, algorithm.solver.corrections
    if any(transform.hides_weights for transform in algorithm.transforms):
        return None
    if any(correction.restores_weights for correction in corrections):
        return conditions.weights
    if work is None or (record.coefficients is None and not record.remembered):
        return None
    coefficient = torch.zeros_like(conditions.weights)
    if record.coefficients is not None:
        arrived = torch.tensor(record.arrived, dtype=torch.int64)
        coefficient[arrived] = torch.tensor(record.coefficients, dtype=coefficient.dtype)
    for client, share in record.remembered.items():
        coefficient[client] += share
    mass = coefficient * work
    facts = Contributions(conditions.weights, coefficient, mass, work, echoed=work, steady=True)
    mixed = any(followed(correction, algorithm, facts) is not None for correction in corrections)
    if mixed or bool((mass < 0).any()) or not bool(mass.sum() > 0):
        return None
    return mass / mass.sum()
