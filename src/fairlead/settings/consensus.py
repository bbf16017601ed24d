"""Settings of Wang 2024 Table 3: local gradient descent by many clients of a natural split.

The paper trains a model, lets clients work from it and compares their mean update with the gradient. It draws
this for a growing number of local `steps` without saying which; ten is ours.
"""

from __future__ import annotations

from fairlead.clients import NaturalIdPartitioner
from fairlead.local_solver import LocalSolver
from fairlead.optimizers import SGD
from fairlead.settings.base import Setting, published


@published("wang2024unreasonable")
def consensus_femnist(steps: int = 10) -> Setting:
    """500 of the writers of FEMNIST take full-batch steps of 0.1 (Wang 2024 Table 3)."""
    return _natural(asked=500, lr=0.1, steps=steps)


@published("wang2024unreasonable")
def consensus_stackoverflow(steps: int = 10) -> Setting:
    """1,000 of the users of Stack Overflow take full-batch steps of 0.5 (Wang 2024 Table 3)."""
    return _natural(asked=1000, lr=0.5, steps=steps)


@published("wang2024unreasonable")
def consensus_cifar100(steps: int = 10) -> Setting:
    """200 of the clients of a CIFAR-100 that names them take full-batch steps of 0.5 (Wang 2024 Table 3)."""
    return _natural(asked=200, lr=0.5, steps=steps)


def _natural(asked: int, lr: float, steps: int) -> Setting:
    solver = LocalSolver(SGD(lr), steps=steps, batch_size=None)
    return Setting(None, solver, cohort_size=asked, partition=NaturalIdPartitioner())
