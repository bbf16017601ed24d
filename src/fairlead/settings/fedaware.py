"""Settings of Zeng 2023 and Zeng 2025: 100 clients, of which ten are asked in a round."""

from __future__ import annotations

from dataclasses import replace

from fairlead.clients import DirichletPartitioner, LabelBlocksPartitioner, ShardPartitioner
from fairlead.conditions import RandomEpochsAndBatches
from fairlead.local_solver import LocalSolver
from fairlead.optimizers import SGD
from fairlead.settings.base import Setting, published


@published("zeng2023gradient", "mcmahan2017fedavg")
def statistical_only() -> Setting:
    """Labels differ, work does not: 200 label-sorted shards, two for each of 100 clients (Zeng 2023)."""
    return Setting(100, _solver(), cohort_size=10, partition=ShardPartitioner(2))


@published("zeng2023gradient")
def hybrid(alpha: float = 0.1) -> Setting:
    """Labels and sizes differ, and with them the local steps: Dirichlet(α) over 100 clients (Zeng 2023)."""
    return Setting(100, _solver(), cohort_size=10, partition=DirichletPartitioner(alpha))


@published("zeng2023gradient")
def hybrid_plus(alpha: float = 0.1) -> Setting:
    """As `hybrid`, with epochs from U(2, 5) and batch sizes from U(10, n_i) in every round (Zeng 2023)."""
    return replace(hybrid(alpha), work=RandomEpochsAndBatches(2, 5, min_batch_size=10))


@published("zeng2025fedaware")
def fedaware_cifar10(alpha: float = 0.1) -> Setting:
    """100 clients by Dirichlet(α), three epochs each, for 500 rounds: CIFAR-10 in Zeng 2025 Table 2.

    Figure 7 has α = 0.1, 0.5, 1 and 10.
    """
    return replace(hybrid(alpha), rounds=500)


@published("zeng2025fedaware")
def fedaware_cifar100() -> Setting:
    """As `fedaware_cifar10`, for 600 rounds: CIFAR-100 in Zeng 2025 Table 2."""
    return replace(hybrid(), rounds=600)


@published("zeng2025fedaware")
def fedaware_agnews() -> Setting:
    """As `fedaware_cifar10`, for 300 rounds with a learning rate of 0.0001: AG News in Zeng 2025 Table 2."""
    return replace(hybrid(), solver=_solver(lr=1e-4), rounds=300)


@published("zeng2025fedaware")
def label_blocks() -> Setting:
    """20 clients, of which ten have balanced labels and ten do not; all are asked (Zeng 2025 Fig. 6)."""
    return Setting(20, _solver(), rounds=150, partition=LabelBlocksPartitioner(10))


def _solver(lr: float = 0.01) -> LocalSolver:
    return LocalSolver(SGD(lr), epochs=3, batch_size=64)
