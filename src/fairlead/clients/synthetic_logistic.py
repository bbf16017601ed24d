"""Synthetic(α, β): logistic regression whose clients disagree by two knobs (FedProx)."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from fairlead.clients.data import ClientData
from fairlead.clients.source import LARGEST, ClientSource, FederatedData
from fairlead.errors import require_integer, require_number
from fairlead.memory_budget import require_memory
from fairlead.models.dense import LogisticRegression
from fairlead.randomness import Key
from fairlead.task import Task

_MEAN_EXAMPLES = 453
"""E⌊exp(4 + 2z)⌋ + 50 of a client, about."""
_LOGISTIC_COPIES = 2
"""How often the examples are in memory while they are drawn."""


@dataclass(frozen=True, eq=False)
class SyntheticLogisticProblem:
    """Clients' examples with the models that labelled them."""

    matrices: Tensor
    """W_k, (N, classes, d)."""
    constants: Tensor
    """b_k, (N, classes)."""
    train: ClientData
    test: ClientData | None
    """One client per client of `train`."""

    def labels(self, client: int, inputs: Tensor) -> Tensor:
        """What a client would call the given inputs, (examples,)."""
        return (inputs @ self.matrices[client].T + self.constants[client]).argmax(1)


@dataclass(frozen=True)
class SyntheticLogistic(ClientSource):
    """Synthetic(α, β): clients whose models and inputs both differ (Li et al. 2020, used in Wang 2021 Fig. 5).

        y = argmax(W_k x + b_k),   W_k, b_k ~ N(u_k, 1),   u_k ~ N(0, α²)
        x ~ N(v_k, Σ),   v_k ~ N(B_k, I),   B_k ~ N(0, β²),   Σ = diag(j^−1.2)

    Symbols: α `alpha` says how much models differ, β `beta` how much inputs do; `num_classes` labels, j = 1
    ... `dim`. Sizes are n_k = ⌊exp(4 + 2z)⌋ + 50 with z ~ N(0, 1), a heavy tail that `max_examples` cuts.
    With `iid` all clients share W, b ~ N(0, 1) and v = 0. A `test_fraction` of each client's examples is held
    out.

    Differs from the released files: the same recipe with draws of its own. α and β are standard deviations,
    as in the released code; the paper writes them as variances, the same for the usual 0 and 1.
    """

    alpha: float = 1.0
    beta: float = 1.0
    num_clients: int = 30
    dim: int = 60
    num_classes: int = 10
    max_examples: int | None = None
    iid: bool = False
    test_fraction: float = 0.1

    references = ("li2020fedprox",)

    def __post_init__(self) -> None:
        require_number(self, "alpha", at_least=0, at_most=LARGEST)
        require_number(self, "beta", at_least=0, at_most=LARGEST)
        for field in ("num_clients", "dim"):
            require_integer(self, field, at_least=1)
        require_integer(self, "num_classes", at_least=2)
        if self.max_examples is not None:
            require_integer(self, "max_examples", at_least=1)
        require_number(self, "test_fraction", at_least=0, below=1)

    def problem(self, key: Key) -> SyntheticLogisticProblem:
        """The data themselves, with the clients' own models."""
        examples = self.max_examples if self.max_examples is not None else _MEAN_EXAMPLES
        a_client = self.num_classes * (self.dim + 1) + min(examples, _MEAN_EXAMPLES) * self.dim
        require_memory(
            f"SyntheticLogistic with num_clients = {self.num_clients}, num_classes = {self.num_classes} and dim = "
            f"{self.dim}",
            _LOGISTIC_COPIES * 8 * self.num_clients * a_client,
            "lower one of them",
        )
        key = key.fold("synthetic logistic")
        generator = key.generator()
        clients, dim, classes = self.num_clients, self.dim, self.num_classes
        sizes = np.floor(generator.lognormal(4.0, 2.0, clients)).astype(np.int64) + 50
        if self.max_examples is not None:
            sizes = np.minimum(sizes, self.max_examples)
        models = generator.normal(0.0, self.alpha, (clients, 1, 1)) + generator.normal(
            size=(clients, classes, dim + 1)
        )
        centres = generator.normal(0.0, self.beta, (clients, 1)) + generator.normal(size=(clients, dim))
        if self.iid:
            models[:] = generator.normal(size=(classes, dim + 1))
            centres[:] = 0.0
        spread = np.arange(1, dim + 1) ** -0.6
        matrices, constants = torch.from_numpy(models[..., :dim]), torch.from_numpy(models[..., dim])
        inputs, targets = [], []
        for client in range(clients):
            # A stream for each client, so that its examples do not depend on how many others have.
            draws = key.fold("inputs", client).generator().normal(size=(int(sizes[client]), dim))
            own = torch.from_numpy(centres[client] + spread * draws)
            inputs.append(own)
            targets.append((own @ matrices[client].T + constants[client]).argmax(1))
        held_out = [round(self.test_fraction * len(own)) for own in inputs]
        train = ClientData.from_lists(
            [own[out:] for own, out in zip(inputs, held_out, strict=True)],
            [own[out:] for own, out in zip(targets, held_out, strict=True)],
        )
        test = ClientData.from_lists(
            [own[:out] for own, out in zip(inputs, held_out, strict=True)],
            [own[:out] for own, out in zip(targets, held_out, strict=True)],
        )
        has_test = sum(held_out) > 0
        return SyntheticLogisticProblem(matrices, constants, train, test if has_test else None)

    def load(self, key: Key) -> FederatedData:
        problem = self.problem(key)
        return FederatedData(problem.train, problem.test)

    def default_task(self) -> Task:
        return Task(LogisticRegression())
