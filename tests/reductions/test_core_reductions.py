"""*Reduces to …*: each claim in a docstring of the core, one test each."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

import fairlead as fl
from fairlead.component import Component, parts_of
from fairlead.testing.run_checks import standard_problem


def ends(
    algorithm: fl.Algorithm,
    work: fl.WorkModel | None = None,
    link: fl.LinkModel | None = None,
    weights: Any = None,
    rounds: int = 6,
) -> Tensor:
    """The model after every round on the standard quadratics, (rounds, d)."""
    problem = standard_problem()
    world = fl.SimulatedWorld(
        problem.task(),
        problem.data(),
        weights=problem.weights if weights is None else weights,
        work=work or fl.FixedSteps((1, 2, 4, 3)),
        link=link,
        dtype=torch.float64,
    )
    federation = fl.Federation(algorithm, world)
    return torch.stack([federation.params for _ in federation.train(rounds)])


@pytest.mark.parametrize("build", [fl.presets.fedper, fl.presets.fedbn])
def test_nothing_of_its_own_is_fedavg(build: Callable[..., fl.Algorithm]) -> None:
    """`OwnParameters`: "Reduces to no correction if `parameters` is empty and all are trained.\""""
    clients: dict[str, Any] = {"lr": 0.1, "momentum": 0.5, "steps": 3}
    assert torch.equal(ends(build(own=(), **clients)), ends(fl.presets.fedavg(**clients)))


@pytest.mark.parametrize(
    "personal",
    [
        fl.presets.fedavg_finetuned(lr=0.1, steps=3, personal_lr=0.3, personal_steps=2),
        fl.presets.ditto(lr=0.1, steps=3, mu=0.7, personal_lr=0.3, personal_steps=2),
        fl.presets.apfl(lr=0.1, steps=3, mix=0.3),
    ],
    ids=["fedavg_finetuned", "ditto", "apfl"],
)
def test_a_second_model_leaves_the_global_one_alone(personal: fl.Algorithm) -> None:
    """Fine-tuning, Ditto and APFL train the global model of FedAvg, whatever the personal training is."""
    assert torch.equal(ends(personal), ends(fl.presets.fedavg(lr=0.1, steps=3)))


def own_models(algorithm: fl.Algorithm, rounds: int = 4) -> tuple[Tensor, Tensor]:
    """The global model and those of all clients after some rounds on the standard quadratics."""
    problem = standard_problem()
    world = fl.SimulatedWorld(problem.task(), problem.data(), weights=problem.weights, dtype=torch.float64)
    run = fl.Federation(algorithm, world)
    list(run.train(rounds))
    found = world.personal_models(algorithm.solver, run.state, run.key)
    return run.params, torch.stack([params for _, params, _ in found])


def test_mixture_without_a_share_is_the_global_model() -> None:
    """`MixedSGD`: "Reduces to the global model for α = 0.\" Ditto's pull does the same as μ → ∞."""
    x, own = own_models(fl.presets.apfl(lr=0.1, steps=3, mix=0.0))
    assert torch.equal(own, x.expand_as(own))
    # ημ = 1: the pull leads back to the anchor in one step, and a gradient from there is η long.
    received, _ = own_models(fl.presets.fedavg(lr=1e-7, steps=3), rounds=3)
    _, own = own_models(fl.presets.ditto(lr=1e-7, steps=3, mu=1e7), rounds=4)
    assert torch.allclose(own, received.expand_as(own), atol=1e-5)


def test_mixture_with_all_of_it_is_local_training() -> None:
    """`MixedSGD`: "For α = 1, v is trained on the client's data alone.\""""
    _, own = own_models(fl.presets.apfl(lr=0.1, steps=3, mix=1.0))
    _, alone = own_models(fl.presets.fedper(lr=0.1, steps=3, own=("*",)))
    assert torch.allclose(own, alone, atol=1e-14)


def test_meta_sgd_without_adaptation_is_sgd() -> None:
    """`MetaSGD`: "Reduces to `SGD` for α = 0 in the first order, on every second batch.\""""
    equal = fl.FixedSteps((6, 2, 4, 8))
    plain = ends(fl.presets.fedavg(lr=0.1), work=fl.FixedSteps((3, 1, 2, 4)))
    assert torch.allclose(ends(fl.presets.per_fedavg(lr=0.1, inner_lr=0.0), work=equal), plain, atol=1e-14)


def test_pfedme_with_one_local_round_is_fedprox() -> None:
    """One batch, K steps along ∇F + μ(θ − x), and w − x = ημ(θ − x): FedProx with the server's learning rate ημ."""
    one = fl.FixedSteps((1, 1, 1, 1))
    moreau = ends(fl.presets.pfedme(lr=0.2, mu=1.5, inner_lr=0.1, inner_steps=4), work=one)
    prox = replace(fl.presets.fedprox(lr=0.1, mu=1.5, steps=4), server=fl.SGD(0.2 * 1.5))
    assert torch.allclose(moreau, ends(prox, work=fl.EqualWork()), atol=1e-14)


def test_weighted_mean_is_the_plain_mean_for_equal_importance() -> None:
    """`WeightedMean`: "Reduces to the plain mean for equal importance.\""""
    problem = standard_problem()
    world = fl.SimulatedWorld(problem.task(), problem.data(), weights="uniform", dtype=torch.float64)
    federation = fl.Federation(fl.presets.fedavg(lr=0.2, steps=3), world)
    start = federation.params
    list(federation.train(1))
    deltas = []
    for hessian, linear in zip(problem.hessians, problem.linear, strict=True):
        local = start
        for _ in range(3):
            local = local - 0.2 * (hessian @ local - linear)
        deltas.append(local - start)
    assert torch.allclose(federation.params, start + torch.stack(deltas).mean(0), atol=1e-14)


@pytest.mark.parametrize("tau_eff", ["work", "steps"])
def test_fednova_is_the_weighted_mean_for_equal_work(tau_eff: Any) -> None:
    """`FedNova`: "Reduces to `WeightedMean` when all clients do the same work.\""""
    solver = fl.LocalSolver(fl.SGD(0.1), steps=3)
    link = fl.BernoulliLink(0.4)
    nova = ends(fl.Algorithm(solver, aggregator=fl.FedNova(tau_eff)), fl.EqualWork(), link)
    mean = ends(fl.Algorithm(solver, aggregator=fl.WeightedMean()), fl.EqualWork(), link)
    assert torch.allclose(nova, mean, atol=1e-13)


def test_uniform_sampling_of_everyone_is_full_participation() -> None:
    """`UniformWithoutReplacement`: "Reduces to `FullParticipation` for K = N.\""""
    solver = fl.LocalSolver(fl.SGD(0.1))
    for over in ("received", "asked"):
        mean = fl.WeightedMean(over)
        link = fl.BernoulliLink(0.4)
        uniform = ends(fl.Algorithm(solver, fl.UniformWithoutReplacement(4), mean), link=link)
        assert torch.equal(uniform, ends(fl.Algorithm(solver, fl.FullParticipation(), mean), link=link))


def test_momentum_of_zero_is_plain_descent() -> None:
    """`SGD`: "Reduces to plain descent for ρ = 0.\""""
    solver = fl.LocalSolver(fl.SGD(0.1, momentum=1e-300))
    assert torch.equal(ends(fl.Algorithm(solver)), ends(fl.Algorithm(fl.LocalSolver(fl.SGD(0.1)))))


def walk(
    make: Callable[[list[Tensor]], torch.optim.Optimizer], optimizer: fl.Optimizer
) -> tuple[Tensor, Tensor]:
    """Ten steps of torch's optimizer and of ours along the same gradients."""
    draw = torch.Generator().manual_seed(0)
    gradients = torch.randn((10, 5), generator=draw, dtype=torch.float64)
    theirs = torch.ones(5, dtype=torch.float64, requires_grad=True)
    reference = make([theirs])
    ours = torch.ones(5, dtype=torch.float64)
    state = optimizer.init(ours)
    for gradient in gradients:
        theirs.grad = gradient.clone()
        reference.step()
        ours, state = optimizer.step(ours, gradient, state, ours.new_tensor([optimizer.lr]))
    return ours, theirs.detach()


@pytest.mark.parametrize("weight_decay", [0.0, 0.3])
def test_adam_is_that_of_torch(weight_decay: float) -> None:
    """`Adam`: "Reduces to torch.optim.Adam with bias correction and `initial_v` = 0.\""""
    ours, theirs = walk(
        lambda p: torch.optim.Adam(p, lr=0.1, betas=(0.8, 0.95), eps=1e-3, weight_decay=weight_decay),
        fl.Adam(0.1, beta1=0.8, beta2=0.95, eps=1e-3, weight_decay=weight_decay),
    )
    assert torch.allclose(ours, theirs, rtol=1e-12)


@pytest.mark.parametrize("nesterov", [False, True])
def test_sgd_is_that_of_torch_without_dampening(nesterov: bool) -> None:
    """`SGD`: "without dampening the two agree.\""""
    ours, theirs = walk(
        lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.7, nesterov=nesterov, weight_decay=0.2),
        fl.SGD(0.1, momentum=0.7, nesterov=nesterov, weight_decay=0.2),
    )
    assert torch.allclose(ours, theirs, rtol=1e-12)


def test_adagrad_is_that_of_torch() -> None:
    ours, theirs = walk(
        lambda p: torch.optim.Adagrad(p, lr=0.1, eps=1e-3, initial_accumulator_value=0.5),
        fl.Adagrad(0.1, eps=1e-3, initial_v=0.5),
    )
    assert torch.allclose(ours, theirs, rtol=1e-12)


def test_a_proximal_term_of_zero_is_none() -> None:
    """`Proximal`: "Reduces to no correction for μ = 0.\""""
    plain = fl.LocalSolver(fl.SGD(0.1, momentum=0.5))
    proximal = replace(plain, corrections=(fl.Proximal(0.0),))
    assert torch.equal(ends(fl.Algorithm(proximal)), ends(fl.Algorithm(plain)))


def scaffold_as_printed(rounds: int, steps: tuple[int, ...], lr: float) -> Tensor:
    """Option II of the paper for plain SGD: c_i⁺ = c_i − c + (x − y_i)/(τ_iη), c ← c + (1/N)Σ(c_i⁺ − c_i)."""
    problem = standard_problem()
    x = torch.ones(3, dtype=torch.float64)
    controls, mean = torch.zeros((4, 3), dtype=torch.float64), torch.zeros(3, dtype=torch.float64)
    path = []
    for _ in range(rounds):
        new, locals_ = controls.clone(), []
        for i, tau in enumerate(steps):
            y = x
            for _ in range(tau):
                y = y - lr * (problem.hessians[i] @ y - problem.linear[i] - controls[i] + mean)
            new[i] = controls[i] - mean + (x - y) / (tau * lr)
            locals_.append(y)
        x = torch.stack(locals_).mean(0)
        mean = mean + (new - controls).mean(0)
        controls = new
        path.append(x)
    return torch.stack(path)


def test_control_variates_are_scaffold_for_plain_descent_and_uniform_weights() -> None:
    """`ControlVariates`: "Reduces to SCAFFOLD's printed option II for plain SGD … for uniform weights.\""""
    ours = ends(fl.presets.scaffold(lr=0.1), weights="uniform")
    assert torch.allclose(ours, scaffold_as_printed(6, (1, 2, 4, 3), 0.1), atol=1e-13)


def test_control_variates_under_fednova_are_fednova_vr() -> None:
    """`ControlVariates`: "With the aggregator `FedNova` it is FedNova-VR (Wang 2021), read with raw gradients".

    d_i is the mean raw gradient of a client's last round (0 at first); local steps follow
    g + Σ_j p_j d_j − d_i, and the server adds τ_eff Σ p_i Δ_i/τ_i.
    """
    problem, steps, lr = standard_problem(), (1, 2, 4, 3), 0.1
    x = torch.ones(3, dtype=torch.float64)
    means = torch.zeros((4, 3), dtype=torch.float64)
    path = []
    for _ in range(6):
        shift = problem.weights @ means
        new, direction = means.clone(), torch.zeros(3, dtype=torch.float64)
        for i, tau in enumerate(steps):
            y, raw = x, torch.zeros(3, dtype=torch.float64)
            for _ in range(tau):
                gradient = problem.hessians[i] @ y - problem.linear[i]
                raw = raw + gradient / tau
                y = y - lr * (gradient + shift - means[i])
            new[i] = raw
            direction = direction + problem.weights[i] * (y - x) / tau
        x = x + float(problem.weights @ torch.tensor(steps, dtype=torch.float64)) * direction
        means = new
        path.append(x)
    solver = fl.LocalSolver(fl.SGD(lr), corrections=(fl.ControlVariates(),))
    assert torch.allclose(ends(fl.Algorithm(solver, aggregator=fl.FedNova())), torch.stack(path), atol=1e-13)


def test_a_clip_above_the_norm_changes_nothing() -> None:
    """`Clip`: "Reduces to no change while ‖d‖ ≤ `bound`.\""""
    plain = fl.Algorithm(fl.LocalSolver(fl.SGD(0.1)))
    assert torch.equal(ends(replace(plain, transforms=(fl.Clip(1e9),))), ends(plain))


def test_extrapolation_of_clients_that_agree_changes_nothing() -> None:
    """`Extrapolation`: "Reduces to no change while the updates agree ... and for large ε.\""""
    plain = fl.Algorithm(fl.LocalSolver(fl.SGD(0.1)))
    assert torch.equal(ends(replace(plain, transforms=(fl.Extrapolation(1e9),))), ends(plain))
    alike = fl.Quadratics(num_clients=3, linear=((1.0,), (1.0,), (1.0,))).problem(fl.Key.from_seed(0))
    runs = [
        fl.Federation(replace(plain, transforms=chosen), fl.SimulatedWorld(alike.task(), alike.data()))
        for chosen in ((fl.Extrapolation(),), ())
    ]
    factors = [record.facts["extrapolation"] for record in runs[0].train(3)]
    list(runs[1].train(3))
    assert factors == [1.0, 1.0, 1.0]
    assert torch.equal(runs[0].params, runs[1].params)


@pytest.mark.parametrize("skewed", [fl.LogNormalPartitioner(0.0), fl.PowerLawPartitioner(0.0)], ids=repr)
def test_sizes_without_skew_are_iid(skewed: fl.Partitioner) -> None:
    """`LogNormalPartitioner` for σ = 0 and `PowerLawPartitioner` for exponent 0: equal sizes up to one."""
    labels = np.arange(103) % 5
    key = fl.Key.from_seed(0)
    sizes = [
        np.sort(np.bincount(part.deal(labels, 10, key), minlength=10)).tolist()
        for part in (skewed, fl.IidPartitioner())
    ]
    assert sizes[0] == sizes[1] == [10] * 7 + [11] * 3


def test_an_exponent_of_one_is_no_schedule() -> None:
    plain = fl.Algorithm(fl.LocalSolver(fl.SGD(0.1)))
    steady = fl.Algorithm(fl.LocalSolver(fl.SGD(0.1), step_schedule=fl.Exponential(1.0)))
    assert torch.equal(ends(steady), ends(plain))


def test_every_claim_has_a_test() -> None:
    """Each part whose docstring says "Reduces to" is at least named in a test beside the general ones."""
    tests = Path(__file__).parents[1]
    text = "\n".join(path.read_text(encoding="utf-8") for path in tests.rglob("test_*.py"))
    claims = [
        name
        for name, cls in parts_of(Component).items()
        if cls.__module__.startswith("fairlead.") and "reduces to" in (cls.__doc__ or "").lower()
    ]
    assert len(claims) >= 10
    assert [name for name in claims if name not in text] == []
