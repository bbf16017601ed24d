"""Quadratic clients: the federation whose every limit point is known in closed form."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated

import torch
from torch import Tensor, nn

from fairlead.clients.data import ClientData, is_moderate
from fairlead.clients.source import ClientSource, FederatedData
from fairlead.component import PositiveCount, RealRange
from fairlead.errors import LARGEST, FieldError, field_error, is_number
from fairlead.memory.budget import require_memory
from fairlead.models.base import ExampleShape, Model, StackableModule
from fairlead.randomness import Key
from fairlead.task import Task

Matrix = tuple[tuple[float, ...], ...]
_COPIES = 4
"""How often the matrices are in memory while they are drawn: frames, factors, products and examples."""
_MOST_WORK = 10**11
"""num_clients·dim³ at most, for rotations that take about half a minute on one core."""


class QuadraticModule(StackableModule):
    """x ↦ ½ x'Hx − e'x for inputs [H | e] of shape (batch, d, d + 1)."""

    def __init__(self, start: Tensor) -> None:
        super().__init__()
        self.x = nn.Parameter(start.clone())

    def forward(self, inputs: Tensor) -> Tensor:
        hessian, linear = inputs[..., :-1], inputs[..., -1]
        return ((0.5 * (hessian @ self.x) - linear) * self.x).sum(-1)

    def forward_stacked(self, params: Tensor, inputs: Tensor) -> Tensor:
        x, hessian, linear = params[:, None, :], inputs[..., :-1], inputs[..., -1]
        return ((0.5 * (hessian @ x[..., None]).squeeze(-1) - linear) * x).sum(-1)


@dataclass(frozen=True)
class QuadraticModel(Model):
    """The parameter vector of a quadratic problem, started at the same `start` in every entry."""

    start: Annotated[float, RealRange(at_least=-LARGEST, at_most=LARGEST)] = 1.0

    def build(self, shape: ExampleShape) -> nn.Module:
        return QuadraticModule(torch.full((shape.inputs[0],), self.start, dtype=torch.float64))


@dataclass(frozen=True, eq=False)
class QuadraticProblem:
    """F_i(x) = ½ x'H_i x − e_i'x with weights ω: (N, d, d), (N, d) and (N,), all float64."""

    hessians: Tensor
    linear: Tensor
    weights: Tensor

    def minimizer(self, weights: Tensor) -> Tensor:
        """argmin Σ w_i F_i for any weights, the surrogate ones included."""
        hessian = torch.einsum("i,ijk->jk", weights, self.hessians)
        solution: Tensor = torch.linalg.solve(hessian, weights @ self.linear)
        return solution

    @property
    def optimum(self) -> Tensor:
        """x* of the requested objective."""
        return self.minimizer(self.weights)

    def gradients(self, x: Tensor) -> Tensor:
        """∇F_i(x) of every client, (N, d)."""
        return self.hessians @ x - self.linear

    def limit(
        self,
        num_steps: Sequence[int],
        lr: float,
        *,
        mu: float = 0.0,
        arrival: Sequence[float] | None = None,
        normalize: bool = False,
    ) -> Tensor:
        """Where averaging converges to when client i takes τ_i exact gradient steps (Wang 2021 (31), Weng 2025 (36)).

            (Σ c_i K_i H_i) x = Σ c_i K_i e_i,   K_i = [I − (I − ημI − ηH_i)^τ_i](H_i + μI)⁻¹
            c_i = ω_i(1 − q_i), divided by ‖a_i‖₁ = Σ_{j<τ_i} (1 − ημ)^j with `normalize` (FedNova)

        Symbols: τ `num_steps`, η `lr`, μ `mu` of a proximal term, 1 − q `arrival` (1 unless given). Exact for
        every η, in the mean over what arrives. The inverse in Weng 2025 (36) is read as in Wang 2021.
        """
        eye = torch.eye(self.hessians.shape[1], dtype=torch.float64)
        left, right = torch.zeros_like(eye), torch.zeros_like(eye[0])
        for client, steps in enumerate(num_steps):
            hessian, linear = self.hessians[client], self.linear[client]
            decay = torch.linalg.matrix_power(eye - lr * (hessian + mu * eye), steps)
            weight = self.weights[client] * (1.0 if arrival is None else arrival[client])
            length = sum((1 - lr * mu) ** step for step in range(steps)) if normalize else 1.0
            reach = weight / length * torch.linalg.solve(hessian + mu * eye, eye - decay)
            left, right = left + reach @ hessian, right + reach @ linear
        solution: Tensor = torch.linalg.solve(left, right)
        return solution

    def data(self) -> ClientData:
        """One example [H_i | e_i] per client, so that every gradient is exact."""
        inputs = torch.cat([self.hessians, self.linear[..., None]], dim=-1)
        num_clients = len(inputs)
        return ClientData(inputs, torch.zeros(num_clients), torch.arange(num_clients + 1))

    @staticmethod
    def task(start: Tensor | float = 1.0) -> Task:
        """The task to run on `data()`, from a given start."""
        model = QuadraticModule(start) if isinstance(start, Tensor) else QuadraticModel(start)
        return Task(model, loss="model_output", metrics=())


@dataclass(frozen=True)
class Quadratics(ClientSource):
    """Clients with F_i(x) = ½ x'H_i x − e_i'x, given or drawn (Wang 2021 §III, Weng 2025 §6).

    Drawn: e_i ~ N(0, `spread`² I); H_i with random eigenvectors and eigenvalues log-uniform between
    1/`conditioning` and 1, so that `conditioning` = 1 means H_i = I. Given: symmetric `hessians` and `linear`
    as nested lists, one entry per client. `weights` are uniform unless given.

    >>> problem = Quadratics(linear=((0.0,), (4.0,)), weights=(0.25, 0.75)).problem(Key.from_seed(0))
    >>> problem.optimum.tolist()
    [3.0]
    """

    num_clients: PositiveCount = 10
    dim: PositiveCount = 5
    spread: Annotated[float, RealRange(at_least=0, at_most=LARGEST)] = 1.0
    conditioning: Annotated[float, RealRange(at_least=1, at_most=LARGEST)] = 1.0
    start: Annotated[float, RealRange(at_least=-LARGEST, at_most=LARGEST)] = 1.0
    linear: Matrix | None = None
    hessians: tuple[Matrix, ...] | None = None
    weights: tuple[float, ...] | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.linear is not None:
            rows_fit = all(
                isinstance(row, tuple) and row and all(map(is_moderate, row)) for row in self.linear
            )
            if not rows_fit or len({len(row) for row in self.linear}) != 1:
                constraint = f"rows of the same length, one per client, of numbers up to {LARGEST:g}"
                raise field_error(self, "linear", constraint, self.linear)
            for field, given in (("num_clients", len(self.linear)), ("dim", len(self.linear[0]))):
                if getattr(self, field) not in (given, getattr(type(self), field)):
                    raise field_error(self, field, f"{given} as in linear, or left out", getattr(self, field))
                object.__setattr__(self, field, given)
        if self.hessians is not None and not self._hessians_fit():
            raise FieldError(
                f"Quadratics.hessians must be {self.num_clients} symmetric matrices of {self.dim} x {self.dim} "
                f"numbers up to {LARGEST:g}, one for each client (num_clients, or the rows of linear)."
            )
        if self.weights is not None and (
            len(self.weights) != self.num_clients
            or not all(is_number(weight) and weight >= 0 for weight in self.weights)
            or not 0 < sum(self.weights) < math.inf
        ):
            raise field_error(
                self,
                "weights",
                f"{self.num_clients} numbers of at least 0, not all 0 and with a finite sum",
                self.weights,
            )

    def _hessians_fit(self) -> bool:
        try:
            hessians = torch.tensor(self.hessians, dtype=torch.float64)
        except (TypeError, ValueError, RuntimeError):
            return False
        # ∇F = Hx − e and every limit point hold for symmetric matrices alone.
        return (
            hessians.shape == (self.num_clients, self.dim, self.dim)
            and bool((hessians.abs() <= LARGEST).all())
            and torch.equal(hessians, hessians.mT)
        )

    def problem(self, key: Key | int) -> QuadraticProblem:
        """The matrices themselves, with the optimum that goes with them."""
        require_memory(
            f"Quadratics with num_clients = {self.num_clients} and dim = {self.dim}",
            _COPIES * 8 * self.num_clients * self.dim * (self.dim + 1),
            "lower one of them",
        )
        turned = self.conditioning > 1 and self.hessians is None
        if turned and self.num_clients * self.dim**3 > _MOST_WORK:
            most = int((_MOST_WORK / self.num_clients) ** (1 / 3))
            raise field_error(self, "dim", f"at most {most} with a conditioning above 1", self.dim)
        generator = Key.of(key).fold("quadratics").generator()
        shape = (self.num_clients, self.dim)
        linear = torch.from_numpy(generator.normal(0.0, abs(self.spread), shape))
        directions = torch.from_numpy(generator.normal(size=(*shape, self.dim)))
        if self.linear is not None:
            linear = torch.tensor(self.linear, dtype=torch.float64)
        if self.hessians is not None:
            hessians = torch.tensor(self.hessians, dtype=torch.float64)
        elif self.conditioning == 1:
            hessians = torch.eye(self.dim, dtype=torch.float64).expand(*shape, self.dim).clone()
        else:
            frames, _ = torch.linalg.qr(directions)
            eigenvalues = torch.from_numpy(self.conditioning ** -generator.random(shape))
            hessians = frames @ torch.diag_embed(eigenvalues) @ frames.mT
        weights = torch.tensor(self.weights or [1.0] * self.num_clients, dtype=torch.float64)
        return QuadraticProblem(hessians, linear, weights / weights.sum())

    def load(self, key: Key | int) -> FederatedData:
        problem = self.problem(key)
        return FederatedData(problem.data(), weights=problem.weights)

    def default_task(self) -> Task:
        return QuadraticProblem.task(self.start)
