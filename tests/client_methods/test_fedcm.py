"""FedCM: momentum from the server in every local step."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from scripted_quadratics import LOSSY, PROBLEM, federation, run, vectors

from fairlead.clients.quadratics import QuadraticProblem
from fairlead.conditions.work import FixedSteps
from fairlead.corrections.past_rounds import ClientMomentum
from fairlead.errors import ClashError, FieldError
from fairlead.local_solver import LocalSolver
from fairlead.optimizers.descent import SGD, Adam
from fairlead.presets import fedavg, fedcm
from fairlead.samplers.fixed import ScriptedSampler


def test_two_rounds_by_hand() -> None:
    """F_1 = ½x², F_2 = ½(x − 4)², η = ½, α = ½, steps (1, 2), x⁰ = 0, uniform weights.

    Round 1, Δ = 0: client 1 stays; client 2 follows −½·4 = −2 to 1, then −½·3 to 7/4. x = 7/8 and
    Δ = −½·(7/4)/(½·2) = −7/8.
    Round 2: ½Δ = −7/16. Client 1: ½·7/8 − 7/16 = 0, stays. Client 2: ½(7/8 − 4) − 7/16 = −2, to 15/8;
    ½(15/8 − 4) − 7/16 = −3/2, to 21/8. x = ½(7/8 + 21/8) = 7/4, Δ = −½·(7/4) = −7/8.
    """
    problem = QuadraticProblem(
        torch.ones((2, 1, 1), dtype=torch.float64),
        vectors([[0.0], [4.0]]),
        torch.tensor([0.5, 0.5], dtype=torch.float64),
    )
    training = federation(fedcm(alpha=0.5, lr=0.5), problem=problem, work=FixedSteps((1, 2)))
    assert run(training, 1).tolist() == [0.875]
    assert training.state.shared["momentum"].tolist() == [-0.875]
    assert run(training, 1).tolist() == [1.75]
    assert training.state.shared["momentum"].tolist() == [-0.875]


def test_a_round_of_clients_without_weight_teaches_nothing() -> None:
    """Only client 2 of weight 0 arrives in round 1: Σ_R p̂_i is not defined, and Δ stays as it was."""
    weightless = replace(PROBLEM, weights=torch.tensor([0.6, 0.4, 0.0], dtype=torch.float64))
    sampler = ScriptedSampler(((0, 1), (2,), (0, 1)), importance="weights")
    training = federation(replace(fedcm(lr=0.2), sampler=sampler), problem=weightless)
    run(training, 1)
    before = training.state.shared["momentum"]
    run(training, 1)
    assert torch.equal(training.state.shared["momentum"], before)


def test_alpha_of_one_is_fedavg() -> None:
    plain = run(federation(fedavg(lr=0.2), link=LOSSY), 9)
    mixed = run(federation(fedcm(alpha=1.0, lr=0.2), link=LOSSY), 9)
    torch.testing.assert_close(mixed, plain, rtol=0, atol=1e-14)


@pytest.mark.parametrize("alpha", [0.2, 0.7])
def test_bias_of_unequal_work_shrinks_by_alpha(alpha: float) -> None:
    """Ω = α·(τ-weighted) + (1 − α)·ω as η → 0 (here η = 10⁻³, with large server steps to get there)."""
    steps = torch.tensor([1.0, 3.0, 6.0], dtype=torch.float64)
    by_work = PROBLEM.weights * steps / (PROBLEM.weights @ steps)
    surrogate = alpha * by_work + (1 - alpha) * PROBLEM.weights
    end = run(federation(fedcm(alpha=alpha, server_lr=100.0, lr=1e-3)), 250)
    torch.testing.assert_close(end, PROBLEM.minimizer(surrogate), rtol=0, atol=5e-3)


def test_momentum_clients_do_not_inflate_the_broadcast() -> None:
    """Where all gradients are the same constant g, Δ = g after a round with α = 1, for any linear solver.

    With local momentum a client moves ‖a‖₁ > τ steps; dividing by τ would make Δ several times g and let
    it grow from round to round.
    """
    flat = QuadraticProblem(
        torch.zeros((2, 1, 1), dtype=torch.float64),
        vectors([[-3.0], [-3.0]]),
        torch.tensor([0.5, 0.5], dtype=torch.float64),
    )
    for alpha in (1.0, 0.3):
        training = federation(fedcm(alpha=alpha, lr=0.1, momentum=0.9), problem=flat, work=FixedSteps((2, 9)))
        run(training, 60)
        torch.testing.assert_close(training.state.shared["momentum"], vectors([[3.0]])[0], rtol=1e-8, atol=0)


def test_empty_round_keeps_the_momentum() -> None:
    """Round 4 of the script loses everything."""
    training = federation(fedcm(lr=0.2), link=LOSSY)
    run(training, 4)
    before = training.state.shared["momentum"]
    run(training, 1)
    assert torch.equal(training.state.shared["momentum"], before)
    assert before.abs().min() > 1e-3


def test_refusals() -> None:
    with pytest.raises(FieldError, match=r"ClientMomentum.alpha must be .* above 0 and at most 1, got 1.5"):
        ClientMomentum(1.5)
    with pytest.raises(ClashError, match="ClientMomentum needs the effective number of local steps"):
        LocalSolver(Adam(0.1), corrections=(ClientMomentum(0.1),))
    assert ClientMomentum(0.1) in LocalSolver(SGD(0.1), corrections=(ClientMomentum(0.1),)).corrections


def test_consistency_report_mixes_weights_by_work_with_weights_without() -> None:
    """Ω = α·(shares of coefficient × work) + (1 − α)·(shares of the coefficients), counted over the records."""
    alpha = 0.3
    training = federation(fedcm(lr=0.1, alpha=alpha))
    run(training, 2)
    by_work, alike = torch.zeros(3, dtype=torch.float64), torch.zeros(3, dtype=torch.float64)
    for record in training.records:
        assert record.coefficients is not None
        for client, coefficient, steps in zip(
            record.arrived, record.coefficients, record.num_steps, strict=True
        ):
            by_work[client] += coefficient * steps
            alike[client] += coefficient
    expected = alpha * by_work / by_work.sum() + (1 - alpha) * alike / alike.sum()
    surrogate = training.consistency().surrogate
    assert surrogate is not None
    torch.testing.assert_close(surrogate, expected)
