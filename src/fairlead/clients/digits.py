"""The embedded data set: 1,797 real handwritten digits of 8 x 8 pixels."""

from __future__ import annotations

from dataclasses import dataclass
from importlib.resources import files

import numpy as np
import torch

from fairlead.clients.data import ClientData
from fairlead.clients.partition import IID, Partitioner
from fairlead.clients.source import ClientSource, FederatedData
from fairlead.errors import require_integer, require_number
from fairlead.randomness import Key
from fairlead.task import MLP, Task


@dataclass(frozen=True)
class Digits(ClientSource):
    """Handwritten digits (Alpaydin and Kaynak 1998, CC BY 4.0), dealt to `num_clients` clients.

    8 x 8 images with 17 grey levels in 10 classes, scaled to [0, 1]. A share `test_fraction`, the same
    for every seed, is set apart as the common test set.
    """

    num_clients: int = 20
    partition: Partitioner = IID()
    test_fraction: float = 0.2

    references = ("alpaydin1998digits",)

    def __post_init__(self) -> None:
        require_integer(self, "num_clients", at_least=1)
        require_number(self, "test_fraction", at_least=0, below=1)

    def load(self, key: Key) -> FederatedData:
        with (
            files("fairlead.clients").joinpath("digits.npz").open("rb") as file,
            np.load(file, allow_pickle=False) as arrays,
        ):
            inputs = torch.from_numpy(arrays["images"]).to(torch.float32) / 16
            targets = torch.from_numpy(arrays["labels"]).to(torch.int64)
        order = torch.from_numpy(Key.from_seed(0).fold("digits").generator().permutation(len(targets)))
        num_test = round(self.test_fraction * len(targets))
        test, train = order[:num_test], order[num_test:]
        owner = self.partition.deal(targets[train], self.num_clients, key.fold("partition"))
        return FederatedData(
            train=ClientData.from_owners(inputs[train], targets[train], owner, self.num_clients),
            test=ClientData.from_lists([inputs[test]], [targets[test]]) if num_test else None,
        )

    def default_task(self) -> Task:
        return Task(MLP(hidden=(32,)))
