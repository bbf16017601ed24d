"""The work that is timed: what is learned, by whom, and how much of it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch

import fairlead as fl
from fairlead.models.base import Model

SEED = 0
_CLASSES = 10


@dataclass(frozen=True)
class Workload:
    """FedAvg with plain SGD on some clients' data."""

    title: str
    model: Model
    data: Callable[[str | None], fl.FederatedData]
    """Clients' data, read from a folder if one is given."""
    lr: float
    cohort_size: int = 10
    epochs: int = 3
    batch_size: int = 64
    evaluate_every: int = 0
    """Rounds between evaluations on the test set; 0: never."""


def _synthetic_logistic(folder: str | None) -> fl.FederatedData:
    return fl.SyntheticLogistic(num_clients=30, dim=60, test_fraction=0.0).load(fl.Key.from_seed(SEED))


def _gray(folder: str | None) -> fl.FederatedData:
    """28 x 28 gray images by Dirichlet(0.1) to 100 clients."""
    pool = _pixels((1, 28, 28)) if folder is None else fl.MnistFolder(folder).pool()
    return _dealt(pool, fl.DirichletPartitioner(0.1), 100)


def _color(folder: str | None) -> fl.FederatedData:
    """32 x 32 color images by Dirichlet(0.1) to 100 clients."""
    pool = _pixels((3, 32, 32)) if folder is None else fl.CifarFolder(folder).pool()
    return _dealt(pool, fl.DirichletPartitioner(0.1), 100)


def _color_iid(folder: str | None) -> fl.FederatedData:
    """32 x 32 color images, 50 to each of 1000 clients."""
    pool = _pixels((3, 32, 32)) if folder is None else fl.CifarFolder(folder).pool()
    return _dealt(pool, fl.IidPartitioner(), 1000)


def _pixels(shape: tuple[int, ...], train: int = 50_000, test: int = 10_000) -> fl.Pool:
    """Random bytes, equally many of every class: time depends on sizes, and those are as in the real data."""
    generator = np.random.default_rng(SEED)

    def images(count: int) -> torch.Tensor:
        return torch.from_numpy(generator.integers(0, 256, (count, *shape), dtype=np.uint8))

    def classes(count: int) -> torch.Tensor:
        return torch.arange(_CLASSES).repeat_interleave(count // _CLASSES)

    return fl.Pool(images(train), classes(train), test_inputs=images(test), test_targets=classes(test))


def _dealt(pool: fl.Pool, partition: fl.Partitioner, num_clients: int) -> fl.FederatedData:
    train = pool.deal(partition, num_clients, key=fl.Key.from_seed(SEED))
    return fl.FederatedData(train, pool.test_data())


WORKLOADS: dict[str, Workload] = {
    "logistic": Workload(
        "logistic regression, d = 610",
        fl.LogisticRegression(),
        _synthetic_logistic,
        lr=0.01,
        batch_size=20,
    ),
    "mlp": Workload("MLP 784-200-10", fl.MLP(hidden=(200,)), _gray, lr=0.05),
    "cnn": Workload("FedAvg CNN, 32 x 32 color", fl.FedAvgCNN(padding="valid"), _color, lr=0.02),
    "cnn5": Workload("5-layer CNN, 32 x 32 color", fl.FiveLayerCNN(), _color, lr=0.02),
    "resnet18": Workload("ResNet-18 with GroupNorm, 32 x 32 color", fl.ResNet18(), _color, lr=0.02),
    "pfl-cifar10": Workload(
        "pfl's CIFAR-10 benchmark",
        fl.DropoutCNN(),
        _color_iid,
        lr=0.1,
        cohort_size=50,
        epochs=1,
        batch_size=10,
        evaluate_every=10,
    ),
}
