"""Synthetic clients: linear regression with one p(y | x), and Synthetic(α, β) of FedProx."""

from dataclasses import dataclass
from functools import cached_property
from typing import Annotated

import numpy as np
import torch
from torch import Tensor, nn

from fairlead.clients.data import ClientData, is_moderate
from fairlead.clients.source import ClientSource, FederatedData
from fairlead.component import BelowOne, PositiveCount, RealRange, UnitInterval, WholeRange
from fairlead.errors import LARGEST, field_error
from fairlead.memory.budget import require_memory
from fairlead.models.base import ExampleShape, LogisticRegression, Model
from fairlead.randomness import Key
from fairlead.task import Task

_COPIES = 4
"""How often the examples are in memory while they are drawn and scaled."""


class LinearModule(nn.Module):
    """x ↦ ⟨w, x⟩."""

    def __init__(self, start: Tensor) -> None:
        super().__init__()
        self.w = nn.Parameter(start.clone())

    def forward(self, inputs: Tensor) -> Tensor:
        return inputs @ self.w


@dataclass(frozen=True)
class LinearModel(Model):
    """A linear map to one number without a constant, started at the same `start` in every entry."""

    start: Annotated[float, RealRange(at_least=-LARGEST, at_most=LARGEST)] = 0.0

    def build(self, shape: ExampleShape) -> nn.Module:
        return LinearModule(torch.full((shape.inputs[0],), self.start, dtype=torch.float64))


@dataclass(frozen=True, eq=False)
class LinearRegressionProblem:
    """y_ci = ⟨w*, x_ci⟩ + ε_ci with F_c(w) = (1/n) Σ_i ½(y_ci − ⟨w, x_ci⟩)², everything known (Wang 2024 §5.1).

        F_c(w) = ½(w − w*)'A_c(w − w*) − b_c'(w − w*) + const
        A_c = (1/n) Σ_i x_ci x_ci',   b_c = (1/n) Σ_i ε_ci x_ci

    Symbols: `inputs` x (N, n, d), `targets` y (N, n), `truth` w* (d,), `weights` ω (N,) behind every E_c, all
    float64. w* minimizes the objective only in expectation; `optimum` is the minimizer for the data at
    hand.
    """

    inputs: Tensor
    targets: Tensor
    truth: Tensor
    weights: Tensor

    @cached_property
    def curvatures(self) -> Tensor:
        """A_c, (N, d, d)."""
        return self.inputs.mT @ self.inputs / self.inputs.shape[1]

    @cached_property
    def noise(self) -> Tensor:
        """b_c, (N, d)."""
        errors = self.targets - self.inputs @ self.truth
        return torch.einsum("cn,cnd->cd", errors, self.inputs) / self.inputs.shape[1]

    @property
    def optimum(self) -> Tensor:
        """w* + (E_c A_c)⁻¹ E_c b_c, the minimizer of the empirical objective."""
        solution: Tensor = torch.linalg.solve(self._mean(self.curvatures), self.weights @ self.noise)
        return self.truth + solution

    def gradients(self, w: Tensor) -> Tensor:
        """∇F_c(w) = A_c(w − w*) − b_c of every client, (N, d)."""
        return self.curvatures @ (w - self.truth) - self.noise

    def pseudo_gradients(self, w: Tensor, lr: float, steps: int) -> Tensor:
        """G_c(w) = (w − w_c after H steps)/(ηH) of every client, (N, d).

            G_c(w) = (1/H) Σ_{h<H} (I − ηA_c)^h [A_c(w − w*) − b_c]

        Symbols: η `lr`, H `steps` of gradient descent. Reduces to `gradients` for H = 1.
        """
        eigenvalues, frames = torch.linalg.eigh(self.curvatures)
        factors = 1 - lr * eigenvalues
        # A sum of powers rather than (1 − rᴴ)/(1 − r), which is 0/0 for directions without data.
        mean_power = (factors[..., None] ** torch.arange(steps)).mean(-1)
        seen = frames.mT @ self.gradients(w)[..., None]
        averaged: Tensor = (frames @ (mean_power[..., None] * seen)).squeeze(-1)
        return averaged

    def drift(self, lr: float, steps: int, at: Tensor | None = None) -> float:
        """ρ = ‖E_c G_c‖ at the empirical optimum, or at another point: 0 is client consensus (Wang 2024 (5)).

        At w* it vanishes as 1/√N, however different the clients are.
        """
        w = self.optimum if at is None else at
        return float(torch.linalg.vector_norm(self.weights @ self.pseudo_gradients(w, lr, steps)))

    def contraction(self, lr: float, steps: int) -> Tensor:
        """P = E_c(I − ηA_c)^H, by which a round of Local GD shrinks w − w* (Wang 2024 Theorem 3), (d, d)."""
        eye = torch.eye(len(self.truth), dtype=torch.float64)
        return self._mean(torch.linalg.matrix_power(eye - lr * self.curvatures, steps))

    def local_gd(self, w: Tensor, lr: float, steps: int, rounds: int = 1) -> Tensor:
        """The model after `rounds` of Local GD with all clients: w ← w − ηH E_c G_c(w)."""
        for _ in range(rounds):
            w = w - lr * steps * (self.weights @ self.pseudo_gradients(w, lr, steps))
        return w

    def data(self) -> ClientData:
        """The examples as a world takes them."""
        num_clients, size, dim = self.inputs.shape
        offsets = torch.arange(num_clients + 1) * size
        return ClientData(self.inputs.reshape(-1, dim), self.targets.reshape(-1), offsets)

    @staticmethod
    def task(start: Tensor | float = 0.0) -> Task:
        """The task to run on `data()`, from a given start."""
        model = LinearModule(start) if isinstance(start, Tensor) else LinearModel(start)
        return Task(model, loss="squared_error", metrics=())

    def _mean(self, matrices: Tensor) -> Tensor:
        return torch.einsum("c,cij->ij", self.weights, matrices)


@dataclass(frozen=True)
class SyntheticRegression(ClientSource):
    """Clients with different inputs and the same p(y | x): y = ⟨w*, x⟩ + ε (Wang 2024 §5.1).

        x_ci = r_c (μ_c + z_ci)/‖μ_c + z_ci‖,   μ_c ~ N(0, shift² I),   r_c ~ U(min_length, 1),
        z_ci ~ N(0, I),   ε_ci ~ N(0, noise²),   w* ~ N(0, I)

    Every client has `num_examples` of them and all count the same. `truth` gives w* instead of drawing it.
    The paper leaves p_c(x) open beyond a bounded ‖x‖: here each client prefers some directions, the
    more so the larger `shift`, and ‖x‖ ≤ 1, so that I − ηA_c is positive semi-definite for every η ≤ 1, as
    Theorem 3 wants it.

    >>> problem = SyntheticRegression(truth=(1.0, -2.0), noise=0.0).problem(Key.from_seed(0))
    >>> [round(value, 6) for value in problem.optimum.tolist()]
    [1.0, -2.0]
    """

    num_clients: PositiveCount = 100
    num_examples: PositiveCount = 5
    dim: PositiveCount = 10
    noise: Annotated[float, RealRange(at_least=0, at_most=LARGEST)] = 1.0
    shift: Annotated[float, RealRange(at_least=0, at_most=LARGEST)] = 1.0
    min_length: UnitInterval = 0.5
    start: Annotated[float, RealRange(at_least=-LARGEST, at_most=LARGEST)] = 0.0
    truth: tuple[float, ...] | None = None

    references = ("wang2024unreasonable",)

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.truth is not None:
            if not isinstance(self.truth, tuple) or not self.truth or not all(map(is_moderate, self.truth)):
                raise field_error(self, "truth", f"one or more numbers up to {LARGEST:g}", self.truth)
            if self.dim not in (len(self.truth), type(self).dim):
                raise field_error(self, "dim", f"{len(self.truth)} as in truth, or left out", self.dim)
            object.__setattr__(self, "dim", len(self.truth))

    def problem(self, key: Key | int) -> LinearRegressionProblem:
        """The data themselves, with all that is known about them."""
        require_memory(
            f"SyntheticRegression with num_clients = {self.num_clients}, num_examples = {self.num_examples} and "
            f"dim = {self.dim}",
            _COPIES * 8 * self.num_clients * (self.num_examples + 1) * self.dim,
            "lower one of them",
        )
        generator = Key.of(key).fold("linear regression").generator()
        clients, size, dim = self.num_clients, self.num_examples, self.dim
        truth = torch.from_numpy(generator.normal(size=dim))
        if self.truth is not None:
            truth = torch.tensor(self.truth, dtype=torch.float64)
        means = torch.from_numpy(generator.normal(0.0, abs(self.shift), (clients, 1, dim)))
        lengths = torch.from_numpy(generator.uniform(self.min_length, 1.0, (clients, 1, 1)))
        directions = means + torch.from_numpy(generator.normal(size=(clients, size, dim)))
        inputs = lengths * directions / torch.linalg.vector_norm(directions, dim=-1, keepdim=True)
        targets = inputs @ truth + torch.from_numpy(generator.normal(0.0, abs(self.noise), (clients, size)))
        weights = torch.full((clients,), 1.0 / clients, dtype=torch.float64)
        return LinearRegressionProblem(inputs, targets, truth, weights)

    def load(self, key: Key | int) -> FederatedData:
        problem = self.problem(key)
        return FederatedData(problem.data(), weights=problem.weights)

    def default_task(self) -> Task:
        return LinearRegressionProblem.task(self.start)


_MEAN_EXAMPLES = 453
"""E⌊exp(4 + 2z)⌋ + 50 of a client, about."""
_MOST_CLIENTS = 10**5
"""Each client draws from a stream of its own, some thousands in a second."""
_LOGISTIC_COPIES = 2
"""How often the examples are in memory while they are drawn."""


@dataclass(frozen=True, eq=False)
class SyntheticLogisticProblem:
    """Clients' examples with the models that labeled them."""

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

    alpha: Annotated[float, RealRange(at_least=0, at_most=LARGEST)] = 1.0
    beta: Annotated[float, RealRange(at_least=0, at_most=LARGEST)] = 1.0
    num_clients: Annotated[int, WholeRange(1, _MOST_CLIENTS)] = 30
    dim: PositiveCount = 60
    num_classes: Annotated[int, WholeRange(2)] = 10
    max_examples: PositiveCount | None = None
    iid: bool = False
    test_fraction: BelowOne = 0.1

    references = ("li2020fedprox",)

    def problem(self, key: Key | int) -> SyntheticLogisticProblem:
        """The data themselves, with the clients' own models."""
        examples = self.max_examples if self.max_examples is not None else _MEAN_EXAMPLES
        a_client = self.num_classes * (self.dim + 1) + min(examples, _MEAN_EXAMPLES) * self.dim
        require_memory(
            f"SyntheticLogistic with num_clients = {self.num_clients}, num_classes = {self.num_classes} and dim = "
            f"{self.dim}",
            _LOGISTIC_COPIES * 8 * self.num_clients * a_client,
            "lower one of them",
        )
        key = Key.of(key).fold("synthetic logistic")
        generator = key.generator()
        clients, dim, classes = self.num_clients, self.dim, self.num_classes
        sizes = np.floor(generator.lognormal(4.0, 2.0, clients)).astype(np.int64) + 50
        if self.max_examples is not None:
            sizes = np.minimum(sizes, self.max_examples)
        models = generator.normal(0.0, abs(self.alpha), (clients, 1, 1)) + generator.normal(
            size=(clients, classes, dim + 1)
        )
        centers = generator.normal(0.0, abs(self.beta), (clients, 1)) + generator.normal(size=(clients, dim))
        if self.iid:
            models[:] = generator.normal(size=(classes, dim + 1))
            centers[:] = 0.0
        spread = np.arange(1, dim + 1) ** -0.6
        matrices, constants = torch.from_numpy(models[..., :dim]), torch.from_numpy(models[..., dim])
        train: list[tuple[Tensor, Tensor]] = []
        test: list[tuple[Tensor, Tensor]] = []
        for client in range(clients):
            # A stream for each client, so that its examples do not depend on how many others have.
            draws = key.fold("inputs", client).generator().normal(size=(int(sizes[client]), dim))
            own = torch.from_numpy(centers[client] + spread * draws)
            labels = (own @ matrices[client].T + constants[client]).argmax(1)
            held_out = round(self.test_fraction * len(own))
            train.append((own[held_out:], labels[held_out:]))
            test.append((own[:held_out], labels[:held_out]))
        has_test = any(len(labels) for _, labels in test)
        return SyntheticLogisticProblem(
            matrices,
            constants,
            ClientData.from_lists(*zip(*train, strict=True)),
            ClientData.from_lists(*zip(*test, strict=True)) if has_test else None,
        )

    def load(self, key: Key | int) -> FederatedData:
        problem = self.problem(key)
        return FederatedData(problem.train, problem.test)

    def default_task(self) -> Task:
        return Task(LogisticRegression())
