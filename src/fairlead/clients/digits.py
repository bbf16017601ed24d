"""The embedded data set: 1,797 real handwritten digits of 8 x 8 pixels."""

from __future__ import annotations

from dataclasses import dataclass
from importlib.resources import files

import numpy as np
import torch

from fairlead.clients.partitioners.base import Partitioner
from fairlead.clients.partitioners.sizes import IidPartitioner
from fairlead.clients.pool import Pool
from fairlead.clients.pooled import PooledSource
from fairlead.models.dense import MLP
from fairlead.task import Task


@dataclass(frozen=True)
class Digits(PooledSource):
    """Handwritten digits in 10 classes (Alpaydin and Kaynak 1998, CC BY 4.0), embedded in the package.

    1,797 images of 8 x 8 pixels with 17 grey levels, scaled to [0, 1].
    """

    num_clients: int | None = 20
    partition: Partitioner | None = IidPartitioner()

    references = ("alpaydin1998digits",)

    def pool(self) -> Pool:
        with (
            files("fairlead.clients").joinpath("digits.npz").open("rb") as file,
            np.load(file, allow_pickle=False) as arrays,
        ):
            inputs = torch.from_numpy(arrays["images"]).to(torch.float32) / 16
            targets = torch.from_numpy(arrays["labels"]).to(torch.int64)
        return Pool(inputs, targets)

    def default_task(self) -> Task:
        return Task(MLP(hidden=(32,)))
