"""Every published method as a combination of parts.

All presets take the same client-side arguments (`ClientSide`) beside their own.

>>> fednova(lr=0.05, momentum=0.9, epochs=2, cohort_size=10).aggregator
FedNova(tau_eff='work')
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, ParamSpec, Required, TypedDict, Unpack

from fairlead.aggregators import FedNova, WeightedMean
from fairlead.algorithm import Algorithm
from fairlead.corrections import ControlVariates, Correction, Proximal
from fairlead.errors import FieldError, did_you_mean
from fairlead.local_solver import LocalSolver
from fairlead.optimizers import SGD, Adagrad, Adam, Yogi
from fairlead.samplers import FullParticipation, Sampler, UniformWithoutReplacement


class ClientSide(TypedDict, total=False):
    """What clients do, and how many are asked."""

    lr: Required[float]
    momentum: float
    nesterov: bool
    weight_decay: float
    epochs: int | None
    steps: int | None
    batch_size: int | None
    clip: float | None
    cohort_size: int | None
    """Clients asked in a round, without replacement; all if not given."""


Cause = Literal["work", "links", "drift"]
Arguments = ParamSpec("Arguments")


@dataclass(frozen=True)
class Method:
    """A preset with what is known of it."""

    name: str
    build: Callable[..., Algorithm]
    corrects: tuple[Cause, ...]
    """What cannot move its limit: unequal work, unequal links, the drift of heterogeneous clients."""
    references: tuple[str, ...]


METHODS: dict[str, Method] = {}


def method(
    *references: str, corrects: tuple[Cause, ...] = ()
) -> Callable[[Callable[Arguments, Algorithm]], Callable[Arguments, Algorithm]]:
    """Enter a preset into the table of methods."""

    def enter(build: Callable[Arguments, Algorithm]) -> Callable[Arguments, Algorithm]:
        METHODS[build.__name__] = Method(build.__name__, build, corrects, references)
        return build

    return enter


def method_named(name: str) -> Method:
    """The method whose preset is called `name`."""
    if name not in METHODS:
        raise FieldError(f"{name!r} is not a preset." + did_you_mean(name, METHODS))
    return METHODS[name]


@method("mcmahan2017fedavg")
def fedavg(**clients: Unpack[ClientSide]) -> Algorithm:
    """Federated averaging: local SGD, then the mean of what arrives (McMahan et al. 2017)."""
    return Algorithm(_solver(clients), _sampler(clients), WeightedMean())


@method("hsu2019")
def fedavgm(
    *, server_momentum: float = 0.9, server_lr: float = 1.0, **clients: Unpack[ClientSide]
) -> Algorithm:
    """FedAvg with momentum on the server (Hsu et al. 2019)."""
    server = SGD(server_lr, momentum=server_momentum)
    return Algorithm(_solver(clients), _sampler(clients), WeightedMean(), server=server)


@method("li2020fedprox")
def fedprox(*, mu: float, **clients: Unpack[ClientSide]) -> Algorithm:
    """FedAvg with a proximal term in every client's objective (Li et al. 2020)."""
    return Algorithm(_solver(clients, Proximal(mu)), _sampler(clients), WeightedMean())


@method("wang2021fednova", corrects=("work",))
def fednova(
    *,
    tau_eff: Literal["work", "steps"] | float = "work",
    server_momentum: float = 0.0,
    **clients: Unpack[ClientSide],
) -> Algorithm:
    """Normalised averaging: unequal work does not move the limit (Wang et al. 2021)."""
    server = SGD(1.0, momentum=server_momentum)
    return Algorithm(_solver(clients), _sampler(clients), FedNova(tau_eff), server=server)


@method("karimireddy2020scaffold", corrects=("work", "links", "drift"))
def scaffold(
    *,
    estimate: Literal["path", "anchor"] = "path",
    server_lr: float = 1.0,
    **clients: Unpack[ClientSide],
) -> Algorithm:
    """Control variates against client drift (Karimireddy et al. 2020)."""
    solver = _solver(clients, ControlVariates(estimate))
    return Algorithm(solver, _sampler(clients), WeightedMean(), server=SGD(server_lr))


@method("reddi2021")
def fedadam(
    *,
    server_lr: float = 0.01,
    beta1: float = 0.9,
    beta2: float = 0.99,
    eps: float = 1e-4,
    **clients: Unpack[ClientSide],
) -> Algorithm:
    """Adam on the server, without bias correction (Reddi et al. 2021)."""
    server = Adam(server_lr, beta1=beta1, beta2=beta2, eps=eps, bias_correction=False)
    return Algorithm(_solver(clients), _sampler(clients), WeightedMean(), server=server)


@method("reddi2021")
def fedyogi(
    *,
    server_lr: float = 0.01,
    beta1: float = 0.9,
    beta2: float = 0.99,
    eps: float = 1e-4,
    **clients: Unpack[ClientSide],
) -> Algorithm:
    """Yogi on the server (Reddi et al. 2021)."""
    server = Yogi(server_lr, beta1=beta1, beta2=beta2, eps=eps)
    return Algorithm(_solver(clients), _sampler(clients), WeightedMean(), server=server)


@method("reddi2021")
def fedadagrad(*, server_lr: float = 0.01, eps: float = 1e-4, **clients: Unpack[ClientSide]) -> Algorithm:
    """Adagrad on the server (Reddi et al. 2021)."""
    server = Adagrad(server_lr, eps=eps)
    return Algorithm(_solver(clients), _sampler(clients), WeightedMean(), server=server)


def _solver(clients: ClientSide, *corrections: Correction) -> LocalSolver:
    optimizer = SGD(
        clients["lr"],
        momentum=clients.get("momentum", 0.0),
        nesterov=clients.get("nesterov", False),
        weight_decay=clients.get("weight_decay", 0.0),
    )
    return LocalSolver(
        optimizer,
        epochs=clients.get("epochs"),
        steps=clients.get("steps"),
        batch_size=clients.get("batch_size", 32),
        corrections=corrections,
        clip=clients.get("clip"),
    )


def _sampler(clients: ClientSide) -> Sampler:
    cohort_size = clients.get("cohort_size")
    return FullParticipation() if cohort_size is None else UniformWithoutReplacement(cohort_size)
