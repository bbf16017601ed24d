"""Averages of the updates: FedAvg, corrections of local steps, and optimizers on the server."""

from typing import Literal, Unpack

from fairlead.aggregators.weighted import FedDyn, FedNova, WeightedMean
from fairlead.algorithm import Algorithm
from fairlead.corrections.compression import CompressedUpdate
from fairlead.corrections.drift import VRLSGD, ControlVariates, DynamicRegularizer, Proximal
from fairlead.corrections.past_rounds import ClientMomentum, StaleStart
from fairlead.errors import FieldError
from fairlead.optimizers.descent import SGD, Adagrad, Adam, AMSGrad, Yogi
from fairlead.presets.table import ClientSide, method, sampler_of, solver_of
from fairlead.transforms.projections import Extrapolation


@method("mcmahan2017fedavg")
def fedavg(**clients: Unpack[ClientSide]) -> Algorithm:
    """Federated averaging: local SGD, then the weighted mean of the received updates (McMahan et al. 2017)."""
    return Algorithm(solver_of(clients), sampler_of(clients), WeightedMean())


@method("hsu2019")
def fedavgm(
    *, server_momentum: float = 0.9, server_lr: float = 1.0, **clients: Unpack[ClientSide]
) -> Algorithm:
    """FedAvg with momentum on the server (Hsu et al. 2019)."""
    server = SGD(server_lr, momentum=server_momentum)
    return Algorithm(solver_of(clients), sampler_of(clients), WeightedMean(), server=server)


@method("basu2019qsparse", "karimireddy2019feedback", "stich2018sparsified")
def fedavg_compressed(
    *, share: float = 0.1, bits: int | None = None, **clients: Unpack[ClientSide]
) -> Algorithm:
    """FedAvg with compressed updates and error feedback: Qsparse-local-SGD (Basu et al. 2019).

    Clients send a `share` of the entries of an update, each in so many `bits` if given, and add the rest to the next.
    """
    solver = solver_of(clients, CompressedUpdate(share, bits))
    return Algorithm(solver, sampler_of(clients), WeightedMean())


@method("li2020fedprox")
def fedprox(*, mu: float, **clients: Unpack[ClientSide]) -> Algorithm:
    """FedAvg with a proximal term in every client's objective (Li et al. 2020)."""
    return Algorithm(solver_of(clients, Proximal(mu)), sampler_of(clients), WeightedMean())


@method("wang2021fednova", corrects=("work",))
def fednova(
    *,
    tau_eff: Literal["work", "steps"] | float = "work",
    mu: float = 0.0,
    server_momentum: float = 0.0,
    **clients: Unpack[ClientSide],
) -> Algorithm:
    """Normalized averaging, which removes the bias of unequal local work (Wang et al. 2021).

    Momentum on the clients, on the server or on both ("hybrid", 0.9 each in the paper); `mu` for
    proximal clients.
    """
    solver = solver_of(clients, *([Proximal(mu)] if mu else []))
    server = SGD(1.0, momentum=server_momentum)
    return Algorithm(solver, sampler_of(clients), FedNova(tau_eff), server=server)


@method("wang2021fednova", corrects=("work", "links", "drift"))
def fednova_vr(
    *, tau_eff: Literal["work", "steps"] | float = "work", **clients: Unpack[ClientSide]
) -> Algorithm:
    """FedNova with variance reduction on raw gradients (Wang et al. 2021)."""
    return Algorithm(solver_of(clients, ControlVariates()), sampler_of(clients), FedNova(tau_eff))


@method("karimireddy2020scaffold", corrects=("work", "links", "drift"))
def scaffold(
    *, estimate: Literal["path", "anchor"] = "path", server_lr: float = 1.0, **clients: Unpack[ClientSide]
) -> Algorithm:
    """Control variates against client drift (Karimireddy et al. 2020)."""
    solver = solver_of(clients, ControlVariates(estimate))
    return Algorithm(solver, sampler_of(clients), WeightedMean(), server=SGD(server_lr))


@method("liang2019vrlsgd", corrects=("links", "drift"))
def vrlsgd(**clients: Unpack[ClientSide]) -> Algorithm:
    """Local SGD that subtracts each client's deviation from the mean gradient (Liang et al. 2019)."""
    return Algorithm(solver_of(clients, VRLSGD()), sampler_of(clients), WeightedMean())


@method("acar2021feddyn", corrects=("work", "links", "drift"))
def feddyn(*, alpha: float, **clients: Unpack[ClientSide]) -> Algorithm:
    """A dynamic regularizer that aligns the clients' optima with the global one (Acar et al. 2021)."""
    return Algorithm(solver_of(clients, DynamicRegularizer(alpha)), sampler_of(clients), FedDyn())


@method("xu2021fedcm")
def fedcm(*, alpha: float = 0.1, server_lr: float = 1.0, **clients: Unpack[ClientSide]) -> Algorithm:
    """Client momentum from the last global step (Xu et al. 2021)."""
    solver = solver_of(clients, ClientMomentum(alpha))
    return Algorithm(solver, sampler_of(clients), WeightedMean(), server=SGD(server_lr))


@method("xiang2024fedawe", corrects=("links",))
def fedawe(*, echo: float = 1.0, **clients: Unpack[ClientSide]) -> Algorithm:
    """Clients start from their own last model and scale updates by the rounds they missed (Xiang et al. 2024)."""
    return Algorithm(solver_of(clients, StaleStart(echo)), sampler_of(clients), WeightedMean())


@method("reddi2021")
def fedadam(
    *,
    server_lr: float = 0.01,
    beta1: float = 0.9,
    beta2: float = 0.99,
    eps: float = 1e-4,
    initial_v: float = 0.0,
    **clients: Unpack[ClientSide],
) -> Algorithm:
    """Adam on the server, without bias correction (Reddi et al. 2021).

    v starts at `initial_v`: the paper asks for at least eps², released code has 0.
    """
    server = Adam(server_lr, beta1=beta1, beta2=beta2, eps=eps, initial_v=initial_v, bias_correction=False)
    return Algorithm(solver_of(clients), sampler_of(clients), WeightedMean(), server=server)


@method("reddi2021")
def fedyogi(
    *,
    server_lr: float = 0.01,
    beta1: float = 0.9,
    beta2: float = 0.99,
    eps: float = 1e-4,
    initial_v: float = 0.0,
    **clients: Unpack[ClientSide],
) -> Algorithm:
    """Yogi on the server, with the initial v of `fedadam` (Reddi et al. 2021)."""
    server = Yogi(server_lr, beta1=beta1, beta2=beta2, eps=eps, initial_v=initial_v)
    return Algorithm(solver_of(clients), sampler_of(clients), WeightedMean(), server=server)


@method("reddi2021")
def fedadagrad(
    *,
    server_lr: float = 0.01,
    beta1: float = 0.0,
    eps: float = 1e-4,
    initial_v: float = 0.0,
    **clients: Unpack[ClientSide],
) -> Algorithm:
    """Adagrad on the server, with the initial v of `fedadam` (Reddi et al. 2021)."""
    server = Adagrad(server_lr, beta1=beta1, eps=eps, initial_v=initial_v)
    return Algorithm(solver_of(clients), sampler_of(clients), WeightedMean(), server=server)


@method("jhunjhunwala2023fedexp")
def fedexp(*, eps: float = 1e-3, **clients: Unpack[ClientSide]) -> Algorithm:
    """FedAvg with a longer server step where the clients' updates point apart (Jhunjhunwala et al. 2023)."""
    return Algorithm(solver_of(clients), sampler_of(clients), WeightedMean(), (Extrapolation(eps),))


@method("wang2022fedams")
def fedams(
    *,
    option: Literal[1, 2] = 1,
    server_lr: float = 0.01,
    beta1: float = 0.9,
    beta2: float = 0.99,
    eps: float = 1e-8,
    **clients: Unpack[ClientSide],
) -> Algorithm:
    """AMSGrad on the server: option 1 FedAMS, option 2 FedAMSGrad (Wang, Lin and Chen 2022)."""
    floors: dict[int, Literal["square", "root"]] = {1: "square", 2: "root"}
    if option not in floors:
        raise FieldError(f"fedams.option must be 1 or 2, got {option!r}.")
    server = AMSGrad(server_lr, beta1=beta1, beta2=beta2, eps=eps, floor=floors[option])
    return Algorithm(solver_of(clients), sampler_of(clients), WeightedMean(), server=server)
