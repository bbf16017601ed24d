"""Settings of Weng 2025: unequal work over unequal links, fixed or varying by round."""

from __future__ import annotations

from dataclasses import replace

from fairlead.clients import DirichletPartitioner, PathologicalPartitioner, Quadratics
from fairlead.conditions import (
    BernoulliLink,
    LadderEpochs,
    LadderSteps,
    TwoGroupEpochs,
    TwoGroupLink,
    TwoGroupSteps,
)
from fairlead.local_solver import LocalSolver
from fairlead.optimizers import SGD
from fairlead.settings.base import Setting, published

_DROPS = tuple((40 - 2 * client) / 100 for client in range(20))


@published("weng2025fedacs")
def fedacs_static(alpha: float = 0.1) -> Setting:
    """20 clients by Dirichlet(α) with 1, 3, ..., 39 epochs and arrival rates 0.60, 0.62, ..., 0.98 (Weng 2025).

    Those who work little also arrive rarely. The table of learning rates and batch sizes leaves open which
    ones go with CIFAR-10; these are those of CINIC-10.
    """
    return Setting(
        20,
        LocalSolver(SGD(0.03), epochs=1, batch_size=1024),
        cohort_size=6,
        rounds=200,
        partition=DirichletPartitioner(alpha),
        work=LadderEpochs(1, 2),
        link=BernoulliLink(_DROPS),
    )


@published("weng2025fedacs")
def fedacs_dynamic(alpha: float = 0.1) -> Setting:
    """20 clients by Dirichlet(α) in two groups whose work and links vary by round (Weng 2025 §I.3.1).

    First half: epochs from U(1, 10) and q from U(0.4, 0.5); second half: U(20, 30) and U(0, 0.1).
    """
    return replace(fedacs_static(alpha), work=TwoGroupEpochs(10), link=TwoGroupLink(10))


@published("weng2025fedacs")
def fedacs_static_one_class() -> Setting:
    """As `fedacs_static`, with one class per client: MNIST in Weng 2025."""
    return _one_class(fedacs_static())


@published("weng2025fedacs")
def fedacs_dynamic_one_class() -> Setting:
    """As `fedacs_dynamic`, with one class per client: MNIST in Weng 2025."""
    return _one_class(fedacs_dynamic())


@published("weng2025fedacs")
def fedacs_quadratics_equal() -> Setting:
    """30 quadratic clients with e_i ~ N(0, I) in 10 dimensions, T = 15 and q = 0.2 (Weng 2025 Fig. 4 left)."""
    solver = LocalSolver(SGD(0.001), steps=15, batch_size=None)
    clients = Quadratics(num_clients=30, dim=10, spread=1.0)
    return Setting(30, solver, cohort_size=15, clients=clients, link=BernoulliLink(0.2))


@published("weng2025fedacs")
def fedacs_quadratics_unequal() -> Setting:
    """As `fedacs_quadratics_equal`, with T from 1 to 30 and q from 0.01 to 0.3 (Weng 2025 Fig. 4 middle).

    The paper does not say how they are paired: T_m = m and q_m = 0.01 m here.
    """
    drops = tuple(client / 100 for client in range(1, 31))
    return replace(fedacs_quadratics_equal(), work=LadderSteps(1, 1), link=BernoulliLink(drops))


@published("weng2025fedacs")
def fedacs_quadratics_varying() -> Setting:
    """As `fedacs_quadratics_equal`, with two groups that vary by round (Weng 2025 Fig. 4 right).

    First half: T from U(1, 10) and q from U(0.2, 0.4); second half: U(20, 30) and U(0, 0.2).
    """
    link = TwoGroupLink(15, first=(0.2, 0.4), second=(0.0, 0.2))
    return replace(fedacs_quadratics_equal(), work=TwoGroupSteps(15), link=link)


@published("weng2025fedacs")
def fedacs_quadratics_static() -> Setting:
    """20 quadratic clients with T = 1, 3, ..., 39 and arrival rates 0.60, ..., 0.98 (Weng 2025 Fig. 7 left)."""
    solver = LocalSolver(SGD(0.002), steps=1, batch_size=None)
    return Setting(
        20,
        solver,
        cohort_size=6,
        clients=Quadratics(num_clients=20, dim=10, spread=1.0),
        work=LadderSteps(1, 2),
        link=BernoulliLink(_DROPS),
    )


@published("weng2025fedacs")
def fedacs_quadratics_dynamic() -> Setting:
    """20 quadratic clients in the two groups of `fedacs_dynamic` (Weng 2025 Fig. 7 right)."""
    return replace(fedacs_quadratics_static(), work=TwoGroupSteps(10), link=TwoGroupLink(10))


def _one_class(setting: Setting) -> Setting:
    return replace(
        setting,
        solver=LocalSolver(SGD(0.02), epochs=1, batch_size=512),
        partition=PathologicalPartitioner(1, "deterministic"),
    )
