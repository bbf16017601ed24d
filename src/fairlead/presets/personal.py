"""A model for each client."""

from dataclasses import replace
from typing import Any, Unpack

from fairlead.aggregators.weighted import WeightedMean
from fairlead.algorithm import Algorithm
from fairlead.corrections.base import Correction
from fairlead.corrections.drift import Proximal
from fairlead.corrections.personal import OwnParameters
from fairlead.errors import FieldError
from fairlead.local_solver import LocalSolver
from fairlead.optimizers.base import Optimizer
from fairlead.optimizers.descent import SGD
from fairlead.optimizers.personal import MetaSGD, MixedSGD, MoreauSGD
from fairlead.presets.table import ClientSide, method, sampler_of, solver_of


@method("mcmahan2017fedavg", "yu2020salvaging")
def fedavg_finetuned(
    *,
    personal_lr: float | None = None,
    personal_epochs: int | None = None,
    personal_steps: int | None = None,
    **clients: Unpack[ClientSide],
) -> Algorithm:
    """FedAvg, whose model every client trains further on its own data before it uses it (Yu et al. 2020).

    Training is that of FedAvg; each evaluation trains a copy of the model for every client.
    """
    solver = solver_of(clients)
    personal = _personal(solver, personal_lr, personal_epochs, personal_steps)
    return Algorithm(replace(solver, personal=personal), sampler_of(clients), WeightedMean())


@method("arivazhagan2019fedper")
def fedper(*, own: tuple[str, ...] = ("head",), **clients: Unpack[ClientSide]) -> Algorithm:
    """FedAvg on a shared body; every client keeps the last layers to itself (Arivazhagan et al. 2019)."""
    return Algorithm(solver_of(clients, OwnParameters(own)), sampler_of(clients), WeightedMean())


@method("collins2021fedrep")
def fedrep(
    *,
    own: tuple[str, ...] = ("head",),
    personal_lr: float | None = None,
    personal_epochs: int | None = None,
    personal_steps: int | None = None,
    **clients: Unpack[ClientSide],
) -> Algorithm:
    """Clients train their own head on the shared body, then the body under this head (Collins et al. 2021)."""
    solver = solver_of(clients, OwnParameters(own, "shared"))
    head = _personal(solver, personal_lr, personal_epochs, personal_steps, OwnParameters(own, "own"))
    return Algorithm(replace(solver, personal=head), sampler_of(clients), WeightedMean())


@method("li2021fedbn")
def fedbn(*, own: tuple[str, ...] = ("normalization",), **clients: Unpack[ClientSide]) -> Algorithm:
    """FedAvg with normalization layers, and their statistics, of each client's own (Li et al. 2021)."""
    return Algorithm(solver_of(clients, OwnParameters(own)), sampler_of(clients), WeightedMean())


@method("li2021ditto")
def ditto(
    *,
    mu: float,
    personal_lr: float | None = None,
    personal_epochs: int | None = None,
    personal_steps: int | None = None,
    **clients: Unpack[ClientSide],
) -> Algorithm:
    """FedAvg, and for every client a model of its own that is pulled to the global one (Li et al. 2021).

        v_i ← v_i − η (∇F_i(v_i) + μ (v_i − x))

    Symbols: v_i the client's own model, x the global model that it received, μ `mu` (the paper's λ).

    Differs from the paper: v_i starts at the first global model that the client receives, not at the initial one.
    """
    solver, whole = solver_of(clients), OwnParameters(("*",))
    personal = _personal(solver, personal_lr, personal_epochs, personal_steps, whole, Proximal(mu))
    return Algorithm(replace(solver, personal=personal), sampler_of(clients), WeightedMean())


@method("dinh2020pfedme")
def pfedme(
    *,
    mu: float = 15.0,
    inner_lr: float | None = None,
    inner_steps: int = 5,
    server_lr: float = 1.0,
    personal_epochs: int | None = None,
    personal_steps: int | None = None,
    **clients: Unpack[ClientSide],
) -> Algorithm:
    """Clients descend the Moreau envelope of their loss, whose minimizer is their own model (T. Dinh et al. 2020).

    `lr` times `mu` is the length of a step and must be below 1; `server_lr` is the paper's β. Evaluation trains each
    client's own model θ_i(x) by steps along ∇F_i(θ) + μ(θ − x) from x.
    """
    solver = solver_of(clients)
    inner_lr = solver.optimizer.lr if inner_lr is None else inner_lr
    update = _following(solver, MoreauSGD, mu=mu, inner_lr=inner_lr, inner_steps=inner_steps)
    personal = _personal(solver, inner_lr, personal_epochs, personal_steps, Proximal(mu))
    solver = replace(update, personal=personal)
    return Algorithm(solver, sampler_of(clients), WeightedMean(), server=SGD(server_lr))


@method("fallah2020perfedavg")
def per_fedavg(
    *,
    inner_lr: float | None = None,
    delta: float | None = None,
    server_lr: float = 1.0,
    personal_steps: int = 1,
    **clients: Unpack[ClientSide],
) -> Algorithm:
    """A model from which one step on a client's data leads far: meta-learning (Fallah et al. 2020).

    First order, or Hessian-free with the given `delta`. Evaluation takes `personal_steps` of `inner_lr` on each client.
    """
    solver = solver_of(clients)
    inner_lr = solver.optimizer.lr if inner_lr is None else inner_lr
    update = _following(solver, MetaSGD, inner_lr=inner_lr, delta=delta)
    solver = replace(update, personal=_personal(solver, inner_lr, None, personal_steps))
    return Algorithm(solver, sampler_of(clients), WeightedMean(), server=SGD(server_lr))


@method("deng2020apfl")
def apfl(*, mix: float = 0.5, adaptive: bool = False, **clients: Unpack[ClientSide]) -> Algorithm:
    """FedAvg, and for every client a model of its own that it uses mixed with the global one (Deng et al. 2020).

    The own model has the share `mix`, from which each client learns its own if `adaptive`.
    """
    solver = solver_of(clients)
    own = replace(
        _following(solver, MixedSGD, mix=mix, adaptive=adaptive), corrections=(OwnParameters(("*",)),)
    )
    return Algorithm(replace(solver, personal=own), sampler_of(clients), WeightedMean())


def _personal(
    solver: LocalSolver, lr: float | None, epochs: int | None, steps: int | None, *corrections: Correction
) -> LocalSolver:
    """A solver for personal training, as that of the update unless another learning rate or length is given."""
    optimizer = solver.optimizer if lr is None else replace(solver.optimizer, lr=lr)
    if epochs is None and steps is None:
        epochs, steps = solver.epochs, solver.steps
    return replace(solver, optimizer=optimizer, epochs=epochs, steps=steps, corrections=corrections)


def _following(solver: LocalSolver, optimizer: type[Optimizer], **fields: float | None) -> LocalSolver:
    """The solver with another optimizer of the same learning rate; one without momentum."""
    given = solver.optimizer
    if isinstance(given, SGD) and given.momentum:
        raise FieldError(f"{optimizer.__name__} has no momentum: leave the argument momentum out.")
    plain: dict[str, Any] = {"schedule": given.schedule, "weight_decay": given.weight_decay, **fields}
    return replace(solver, optimizer=optimizer(given.lr, **plain))
