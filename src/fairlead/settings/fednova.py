"""Settings of Wang 2021: unequal epochs on CIFAR-10, Synthetic(1, 1) and quadratics."""

from __future__ import annotations

from dataclasses import replace
from statistics import NormalDist

from fairlead.clients import DirichletPartitioner, Quadratics, SyntheticLogistic
from fairlead.conditions import FixedSteps, NormalSteps, RandomEpochs
from fairlead.local_solver import LocalSolver
from fairlead.optimizers import SGD, Milestones
from fairlead.settings.base import Setting, published


@published("wang2021fednova")
def fednova_equal_epochs() -> Setting:
    """16 clients by Dirichlet(0.1), two epochs each, all of them asked for 100 rounds (Wang 2021 Table I).

    The learning rate is 0.05 and a tenth of it after 50 and 75 rounds, the factor being the released code's;
    the paper starts from 0.02 where clients have momentum, and the released code has a weight decay of 0.0001.
    """
    optimizer = SGD(0.05, schedule=Milestones((50, 75), gamma=0.1))
    solver = LocalSolver(optimizer, epochs=2, batch_size=32)
    return Setting(16, solver, rounds=100, partition=DirichletPartitioner(0.1))


@published("wang2021fednova")
def fednova_random_epochs() -> Setting:
    """As `fednova_equal_epochs`, with epochs from U(2, 5) for every client and round (Wang 2021 Table I)."""
    return replace(fednova_equal_epochs(), work=RandomEpochs(2, 5))


@published("wang2021fednova", "li2020fedprox")
def fednova_synthetic() -> Setting:
    """Synthetic(1, 1) over 30 clients, five epochs each, all asked (Wang 2021 Fig. 5 left; rounds are ours)."""
    solver = LocalSolver(SGD(0.02), epochs=5, batch_size=20)
    return Setting(30, solver, rounds=200, clients=SyntheticLogistic(1.0, 1.0, num_clients=30))


@published("wang2021fednova", "li2020fedprox")
def fednova_synthetic_partial() -> Setting:
    """As `fednova_synthetic`, with 30 % of the clients asked (Wang 2021 Fig. 5 middle)."""
    return replace(fednova_synthetic(), cohort_size=9)


@published("wang2021fednova", "li2020fedprox")
def fednova_synthetic_random() -> Setting:
    """As `fednova_synthetic_partial`, with epochs from U(1, 5) (Wang 2021 Fig. 5 right)."""
    return replace(fednova_synthetic_partial(), work=RandomEpochs(1, 5))


@published("wang2021fednova")
def fednova_quadratics_equal() -> Setting:
    """30 quadratic clients with e_i ~ N(0, 0.01 I), 30 steps each (Wang 2021 Fig. 2a).

    The paper does not say dimension, start and number of rounds: 10, 1 and 1,200 here.
    """
    optimizer = SGD(0.05, schedule=Milestones((600, 900), gamma=0.2))
    solver = LocalSolver(optimizer, steps=30, batch_size=None)
    clients = Quadratics(num_clients=30, dim=10, spread=0.1, start=1.0)
    return Setting(30, solver, rounds=1200, clients=clients)


@published("wang2021fednova")
def fednova_quadratics_random() -> Setting:
    """As `fednova_quadratics_equal`, with normal steps of mean 30 in [1, 96] (Wang 2021 Fig. 2b)."""
    return replace(fednova_quadratics_equal(), work=NormalSteps(30.0, 16.0, low=1, high=96))


@published("wang2021fednova")
def fednova_quadratics_fixed() -> Setting:
    """As `fednova_quadratics_equal`, with steps spread as N(20, 20) and then fixed (Wang 2021 Fig. 4).

        τ_i = max(1, round(20 + 20 Φ⁻¹((i + ½)/30))),   i = 0, ..., 29

    The figure needs no data, so those of Fig. 2 stand in. The paper does not say which steps were drawn, here
    quantiles, nor whether the second 20 is the variance: only as a standard deviation does it give a bias
    worth a figure (χ² = 4.0 for FedAvg).
    """
    normal = NormalDist(20, 20)
    steps = tuple(max(1, round(normal.inv_cdf((client + 0.5) / 30))) for client in range(30))
    return replace(fednova_quadratics_equal(), work=FixedSteps(steps))
