"""Every published method as a combination of parts, and the table of them by name."""

from collections.abc import Callable
from dataclasses import dataclass, fields, replace
from functools import wraps
from inspect import Parameter, signature
from typing import Any, Literal, ParamSpec, Required, TypedDict, Unpack

from fairlead.aggregators.remembered import MIFA, FedAWARE, FedVARP, RememberedMean, StaleFedVARP
from fairlead.aggregators.robust import CoordinateMedian, GeometricMedian, Krum, NormBoundedMean, TrimmedMean
from fairlead.aggregators.weighted import (
    CommunicationAware,
    FedAU,
    FedDyn,
    FedMGDA,
    FedNova,
    StalenessWeighted,
    WeightedMean,
)
from fairlead.algorithm import Algorithm
from fairlead.corrections.base import Correction
from fairlead.corrections.compression import CompressedUpdate
from fairlead.corrections.drift import VRLSGD, ControlVariates, DynamicRegularizer, Proximal
from fairlead.corrections.past_rounds import ClientMomentum, StaleStart
from fairlead.corrections.personal import OwnParameters
from fairlead.errors import FieldError, did_you_mean
from fairlead.local_solver import LocalSolver
from fairlead.memory.update_memory import UpdateMemory
from fairlead.optimizers.base import Optimizer, Schedule
from fairlead.optimizers.descent import SGD, Adagrad, Adam, AMSGrad, Yogi
from fairlead.optimizers.personal import MetaSGD, MixedSGD, MoreauSGD
from fairlead.samplers.adaptive import FedACS, FedACSEstimated, OptimalSampling, PowerOfChoice, WeightFeedback
from fairlead.samplers.base import Sampler
from fairlead.samplers.buffered import BufferedSampling
from fairlead.samplers.fixed import (
    FullFirstRound,
    FullParticipation,
    UniformWithoutReplacement,
    WeightedWithReplacement,
)
from fairlead.transforms.projections import AwareProjection, Extrapolation


class ClientSide(TypedDict, total=False):
    """Arguments that all presets share: local work, and the number of clients in a cohort."""

    lr: Required[float]
    momentum: float
    nesterov: bool
    dampening: float
    weight_decay: float
    schedule: Schedule
    """Of the learning rate by round; constant if not given."""
    step_schedule: Schedule
    """Of the learning rate by local step; constant if not given."""
    epochs: int | None
    """1 if neither epochs nor steps are given."""
    steps: int | None
    batch_size: int | None
    """Examples a step, 32 if not given; none: all."""
    clip: float | None
    replacement: bool
    """Draw the cohort by weight with replacement instead of uniformly without (Wang 2021, Theorem 3)."""
    cohort_size: int | None
    """Clients asked in a round; all if not given. For methods that draw with replacement, the draws."""


Correctable = Literal["work", "links", "drift"]
_Arguments = ParamSpec("_Arguments")


@dataclass(frozen=True)
class Method:
    """A preset with its papers and claims."""

    name: str
    build: Callable[..., Algorithm]
    corrects: tuple[Correctable, ...]
    """Inequalities that do not bias its limit: work, links, or the drift of heterogeneous clients."""
    references: tuple[str, ...]


METHODS: dict[str, Method] = {}


def method(
    *references: str, corrects: tuple[Correctable, ...] = ()
) -> Callable[[Callable[_Arguments, Algorithm]], Callable[_Arguments, Algorithm]]:
    """Enter a preset into the table of methods."""

    def enter(build: Callable[_Arguments, Algorithm]) -> Callable[_Arguments, Algorithm]:
        name, needed = build.__name__, needed_arguments(build)

        @wraps(build)
        def checked(*args: _Arguments.args, **given: _Arguments.kwargs) -> Algorithm:
            for argument in needed:
                if argument not in given:
                    raise FieldError(f"{name} needs {argument}: write {name}({argument}=0.1).")
            return build(*args, **given)

        METHODS[name] = Method(name, checked, corrects, references)
        return checked

    return enter


def needed_arguments(build: Callable[..., Algorithm]) -> list[str]:
    """The arguments of a preset that have no default, besides those of the client side."""
    return [
        name
        for name, argument in signature(build).parameters.items()
        if argument.default is Parameter.empty and argument.kind is not Parameter.VAR_KEYWORD
    ]


def method_named(name: str) -> Method:
    """The method whose preset is called `name`."""
    if name not in METHODS:
        known = did_you_mean(name, METHODS, otherwise="`fairlead list methods` shows all.")
        raise FieldError(f"{name!r} is not a preset.{known}")
    return METHODS[name]


@method("mcmahan2017fedavg")
def fedavg(**clients: Unpack[ClientSide]) -> Algorithm:
    """Federated averaging: local SGD, then the weighted mean of the received updates (McMahan et al. 2017)."""
    return Algorithm(_solver(clients), _sampler(clients), WeightedMean())


@method("hsu2019")
def fedavgm(
    *, server_momentum: float = 0.9, server_lr: float = 1.0, **clients: Unpack[ClientSide]
) -> Algorithm:
    """FedAvg with momentum on the server (Hsu et al. 2019)."""
    server = SGD(server_lr, momentum=server_momentum)
    return Algorithm(_solver(clients), _sampler(clients), WeightedMean(), server=server)


@method("basu2019qsparse", "karimireddy2019feedback", "stich2018sparsified")
def fedavg_compressed(
    *, share: float = 0.1, bits: int | None = None, **clients: Unpack[ClientSide]
) -> Algorithm:
    """FedAvg with compressed updates and error feedback: Qsparse-local-SGD (Basu et al. 2019).

    Clients send a `share` of the entries of an update, each in so many `bits` if given, and add the rest to the next.
    """
    solver = _solver(clients, CompressedUpdate(share, bits))
    return Algorithm(solver, _sampler(clients), WeightedMean())


@method("li2020fedprox")
def fedprox(*, mu: float, **clients: Unpack[ClientSide]) -> Algorithm:
    """FedAvg with a proximal term in every client's objective (Li et al. 2020)."""
    return Algorithm(_solver(clients, Proximal(mu)), _sampler(clients), WeightedMean())


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
    solver = _solver(clients, *([Proximal(mu)] if mu else []))
    server = SGD(1.0, momentum=server_momentum)
    return Algorithm(solver, _sampler(clients), FedNova(tau_eff), server=server)


@method("wang2021fednova", corrects=("work", "links", "drift"))
def fednova_vr(
    *, tau_eff: Literal["work", "steps"] | float = "work", **clients: Unpack[ClientSide]
) -> Algorithm:
    """FedNova with variance reduction on raw gradients (Wang et al. 2021)."""
    return Algorithm(_solver(clients, ControlVariates()), _sampler(clients), FedNova(tau_eff))


@method("karimireddy2020scaffold", corrects=("work", "links", "drift"))
def scaffold(
    *, estimate: Literal["path", "anchor"] = "path", server_lr: float = 1.0, **clients: Unpack[ClientSide]
) -> Algorithm:
    """Control variates against client drift (Karimireddy et al. 2020)."""
    solver = _solver(clients, ControlVariates(estimate))
    return Algorithm(solver, _sampler(clients), WeightedMean(), server=SGD(server_lr))


@method("liang2019vrlsgd", corrects=("links", "drift"))
def vrlsgd(**clients: Unpack[ClientSide]) -> Algorithm:
    """Local SGD that subtracts each client's deviation from the mean gradient (Liang et al. 2019)."""
    return Algorithm(_solver(clients, VRLSGD()), _sampler(clients), WeightedMean())


@method("acar2021feddyn", corrects=("work", "links", "drift"))
def feddyn(*, alpha: float, **clients: Unpack[ClientSide]) -> Algorithm:
    """A dynamic regularizer that aligns the clients' optima with the global one (Acar et al. 2021)."""
    return Algorithm(_solver(clients, DynamicRegularizer(alpha)), _sampler(clients), FedDyn())


@method("xu2021fedcm")
def fedcm(*, alpha: float = 0.1, server_lr: float = 1.0, **clients: Unpack[ClientSide]) -> Algorithm:
    """Client momentum from the last global step (Xu et al. 2021)."""
    solver = _solver(clients, ClientMomentum(alpha))
    return Algorithm(solver, _sampler(clients), WeightedMean(), server=SGD(server_lr))


@method("xiang2024fedawe", corrects=("links",))
def fedawe(*, echo: float = 1.0, **clients: Unpack[ClientSide]) -> Algorithm:
    """Clients start from their own last model and scale updates by the rounds they missed (Xiang et al. 2024)."""
    return Algorithm(_solver(clients, StaleStart(echo)), _sampler(clients), WeightedMean())


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
    return Algorithm(_solver(clients), _sampler(clients), WeightedMean(), server=server)


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
    return Algorithm(_solver(clients), _sampler(clients), WeightedMean(), server=server)


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
    return Algorithm(_solver(clients), _sampler(clients), WeightedMean(), server=server)


@method("jhunjhunwala2023fedexp")
def fedexp(*, eps: float = 1e-3, **clients: Unpack[ClientSide]) -> Algorithm:
    """FedAvg with a longer server step where the clients' updates point apart (Jhunjhunwala et al. 2023)."""
    return Algorithm(_solver(clients), _sampler(clients), WeightedMean(), (Extrapolation(eps),))


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
    return Algorithm(_solver(clients), _sampler(clients), WeightedMean(), server=server)


@method("weng2025fedacs")
def importance_sampling(**clients: Unpack[ClientSide]) -> Algorithm:
    """Importance sampling (IS of Weng 2025): draws by weight with replacement; lost updates count as zero."""
    sampler = WeightedWithReplacement(_draws(clients))
    return Algorithm(_solver(clients), sampler, WeightedMean(over="asked"))


@method("weng2025fedacs")
def uniform_sampling(**clients: Unpack[ClientSide]) -> Algorithm:
    """Uniform sampling (US of Weng 2025): draws without replacement; lost updates count as zero."""
    return Algorithm(_solver(clients), _sampler(clients), WeightedMean(over="asked"))


@method("chen2022optimal", "weng2025fedacs")
def optimal_sampling(*, floor: float = 0.1, **clients: Unpack[ClientSide]) -> Algorithm:
    """Optimal sampling (OS of Weng 2025): draws by the norm of the last updates; lost updates count as zero."""
    sampler = OptimalSampling(_draws(clients), floor)
    return Algorithm(_solver(clients), sampler, WeightedMean(over="asked"))


@method("cho2022power")
def power_of_choice(*, candidates: int | None = None, **clients: Unpack[ClientSide]) -> Algorithm:
    """Asks `candidates` for their loss, and trains those with the largest (Cho et al. 2022).

    Twice the cohort is asked unless `candidates` is given.
    """
    cohort_size = clients.get("cohort_size")
    if cohort_size is None or clients.get("replacement", False):
        raise FieldError("power_of_choice needs cohort_size, and draws without replacement.")
    return Algorithm(_solver(clients), PowerOfChoice(cohort_size, candidates), WeightedMean())


@method("weng2025fedacs")
def full_participation(**clients: Unpack[ClientSide]) -> Algorithm:
    """All clients in every round; lost updates count as zero (Weng 2025)."""
    if clients.get("cohort_size") is not None or clients.get("replacement", False):
        raise FieldError(
            "full_participation asks everyone: leave cohort_size and replacement out, or use "
            "uniform_sampling."
        )
    return Algorithm(_solver(clients), FullParticipation(), WeightedMean(over="asked"))


@method("weng2025fedacs", corrects=("work", "links"))
def fedacs(*, work: Literal["steps", "epochs"] = "steps", **clients: Unpack[ClientSide]) -> Algorithm:
    """Sampling that cancels unequal work and links, both known (Weng et al. 2025).

    `calibrate = "server"` beside the preset makes its steps as long as those of `importance_sampling`.
    """
    return Algorithm(_solver(clients), FedACS(_draws(clients), work), WeightedMean(over="asked"))


@method("weng2025fedacs", corrects=("work", "links"))
def fedacs_estimated(
    *, forget: float = 0.0, work_rate: float = 1.0, **clients: Unpack[ClientSide]
) -> Algorithm:
    """FedACS with arrival rates and work estimated online."""
    sampler = FedACSEstimated(_draws(clients), forget=forget, work_rate=work_rate)
    return Algorithm(_solver(clients), sampler, WeightedMean(over="asked"))


@method("perazzone2022", "weng2025fedacs", corrects=("links",))
def communication_aware_fedavg(**clients: Unpack[ClientSide]) -> Algorithm:
    """c-a-FedAvg: divides updates by their known arrival rates (Weng 2025 (113))."""
    return Algorithm(_solver(clients), WeightedWithReplacement(_draws(clients)), CommunicationAware())


@method("perazzone2022", "wang2021fednova", "weng2025fedacs", corrects=("work", "links"))
def communication_aware_fednova(**clients: Unpack[ClientSide]) -> Algorithm:
    """c-a-FedNova: divides updates by their arrival rates and by their local work."""
    aggregator = CommunicationAware(FedNova("expected", over="asked"))
    return Algorithm(_solver(clients), WeightedWithReplacement(_draws(clients)), aggregator)


@method("wang2021fednova", "weng2025fedacs", corrects=("work",))
def anonymous_fednova(
    *,
    renormalized: bool = False,
    work: Literal["steps", "epochs"] = "steps",
    **clients: Unpack[ClientSide],
) -> Algorithm:
    """FedNova as the baseline of Weng 2025 (116): lost updates count as zero, τ_eff is its expectation.

    `renormalized` instead scales the weights ω_i/‖a_i‖₁ of the received updates to sum 1, another reading of I.2.
    """
    aggregator = FedNova("harmonic", work=work) if renormalized else FedNova("expected", "asked", work)
    return Algorithm(_solver(clients), WeightedWithReplacement(_draws(clients)), aggregator)


@method("wang2024fedau", corrects=("links",))
def fedau(*, cutoff: int | None = 50, server_lr: float = 1.0, **clients: Unpack[ClientSide]) -> Algorithm:
    """Weights learned from how long clients are absent (Wang & Ji 2024)."""
    return Algorithm(_solver(clients), _sampler(clients), FedAU(cutoff), server=SGD(server_lr))


@method("nguyen2022fedbuff")
def fedbuff(
    *,
    buffer_size: int = 10,
    exponent: float = 0.5,
    max_staleness: int | None = None,
    server_lr: float = 1.0,
    **clients: Unpack[ClientSide],
) -> Algorithm:
    """Asynchronous: the server steps with every `buffer_size` updates, shortened by their age (Nguyen et al. 2022).

    `cohort_size` clients work at the same time, all if it is not given; each starts from the newest model as soon as a
    place is free. `devices` say how long clients take; without them all take equally long.
    """
    if clients.get("replacement", False):
        raise FieldError("fedbuff asks idle clients without replacement: leave the argument replacement out.")
    sampler = BufferedSampling(clients.get("cohort_size"), buffer_size, max_staleness)
    aggregator = StalenessWeighted(exponent=exponent)
    return Algorithm(_solver(clients), sampler, aggregator, server=SGD(server_lr))


@method("jhunjhunwala2022fedvarp", corrects=("links",))
def fedvarp(*, server_lr: float = 1.0, **clients: Unpack[ClientSide]) -> Algorithm:
    """The last update of every client reduces the variance of partial participation (Jhunjhunwala et al. 2022)."""
    return Algorithm(_solver(clients), _sampler(clients), FedVARP(), server=SGD(server_lr))


@method("weng2025fedacs", "jhunjhunwala2022fedvarp", corrects=("links",))
def fedvarp_stale(**clients: Unpack[ClientSide]) -> Algorithm:
    """FedVARP as the baseline of Weng 2025 (114): the client's last update replaces a lost one."""
    return Algorithm(_solver(clients), WeightedWithReplacement(_draws(clients)), StaleFedVARP())


@method("gu2021mifa", corrects=("links",))
def mifa(*, server_lr: float = 1.0, **clients: Unpack[ClientSide]) -> Algorithm:
    """The mean of all clients' last updates (Gu et al. 2021)."""
    return Algorithm(_solver(clients), _sampler(clients), MIFA(), server=SGD(server_lr))


@method("zeng2025fedaware", "zeng2023gradient")
def fedaware(
    *,
    alpha: float | None = None,
    retention: float | None = None,
    start: Literal["seen", "all_seen", "zero", "full_first_round"] = "seen",
    rows: Literal["raw", "unit", "equal"] = "raw",
    first_visit: Literal["update", "scaled"] = "update",
    memory: UpdateMemory | None = None,
    rho: float = 0.0,
    server_lr: float = 1.0,
    **clients: Unpack[ClientSide],
) -> Algorithm:
    """The shortest convex combination of all clients' moving-average updates (Zeng et al. 2025).

    `alpha` as in Zeng 2025, or `retention`, which Zeng 2023 calls α; ½ if neither is given. With raw rows, as the
    papers print it, a step is no longer than the shortest remembered row: clients with few examples hold everyone
    back. `rows="unit"`, `start="all_seen"` and `first_visit="scaled"` are the choices of the released code; `rho`
    regularizes the hull, as in `fedaware_ridge`.
    """
    sampler, opening = _opened(_sampler(clients), start)
    aggregator = FedAWARE(alpha, retention, opening, first_visit, rows, memory or UpdateMemory(), rho)
    return Algorithm(_solver(clients), sampler, aggregator, server=SGD(server_lr))


@method("zeng2023gradient", "zeng2025fedaware")
def fedaware_published(
    *,
    alpha: float = 0.5,
    feedback: bool = True,
    credit: Literal["own", "exchanged"] = "exchanged",
    start: Literal["seen", "all_seen", "zero", "full_first_round"] = "full_first_round",
    server_lr: float = 1.0,
    **clients: Unpack[ClientSide],
) -> Algorithm:
    """FedAWARE as its authors ran it for Zeng et al. 2023, Table 1, which differs from the printed method.

    Rows have unit length. The first round asks all clients; later cohorts are drawn by λ (`feedback`; Zeng et al.
    2025 without). The updates of a round are credited to each other's clients (`credit`): a mistake of the released
    code that regularizes the hull. `fedaware` is the printed method, `fedaware_ridge` has the same effect by design.
    """
    cohort_size = clients.get("cohort_size")
    sampler, opening = _opened(
        WeightFeedback(cohort_size) if feedback and cohort_size is not None else _sampler(clients), start
    )
    aggregator = FedAWARE(
        alpha, start=opening, first_visit="scaled", rows="unit", memory=UpdateMemory(credit=credit)
    )
    return Algorithm(_solver(clients), sampler, aggregator, server=SGD(server_lr))


@method("zeng2025fedaware")
def fedaware_ridge(
    *,
    rho: float = 1.0,
    alpha: float = 0.8,
    rows: Literal["unit", "equal"] = "unit",
    memory: UpdateMemory | None = None,
    server_lr: float = 4.0,
    **clients: Unpack[ClientSide],
) -> Algorithm:
    """FedAWARE on a regularized hull: λ = argmin ‖Σ λ_j u_j‖² + ρ‖λ‖² over unit rows u_j, after a full first round.

    ρ = 0 is FedAWARE with unit rows, ρ → ∞ the mean of unit rows. The step is at most `server_lr` long, whatever the
    size of the model: the default was the best of five for a network of 122,570 parameters on CIFAR-10; smaller models
    need a shorter one. With `rows="equal"` it is at most `server_lr` times the mean length of the remembered updates.
    """
    aggregator = FedAWARE(alpha, rows=rows, memory=memory or UpdateMemory(), rho=rho)
    return Algorithm(_solver(clients), FullFirstRound(_sampler(clients)), aggregator, server=SGD(server_lr))


@method("zeng2025fedaware", corrects=("links",))
def fedaware_na(
    *,
    alpha: float | None = None,
    retention: float | None = None,
    first_visit: Literal["update", "scaled"] = "update",
    memory: UpdateMemory | None = None,
    server_lr: float = 1.0,
    **clients: Unpack[ClientSide],
) -> Algorithm:
    """FedAWARE's memory with static weights, the ablation of Zeng et al. 2025."""
    aggregator = RememberedMean(alpha, retention, first_visit, memory or UpdateMemory())
    return Algorithm(_solver(clients), _sampler(clients), aggregator, server=SGD(server_lr))


@method("hu2022fedmgda")
def fedmgda_plus(*, epsilon: float = 0.1, server_lr: float = 1.0, **clients: Unpack[ClientSide]) -> Algorithm:
    """The shortest convex combination of normalized updates, near the usual weights (Hu et al. 2022)."""
    return Algorithm(_solver(clients), _sampler(clients), FedMGDA(epsilon), server=SGD(server_lr))


@method("yin2018byzantine")
def coordinate_median(*, server_lr: float = 1.0, **clients: Unpack[ClientSide]) -> Algorithm:
    """The median of every coordinate, against hostile or broken clients (Yin et al. 2018)."""
    return Algorithm(_solver(clients), _sampler(clients), CoordinateMedian(), server=SGD(server_lr))


@method("yin2018byzantine")
def trimmed_mean(*, trim: float = 0.2, server_lr: float = 1.0, **clients: Unpack[ClientSide]) -> Algorithm:
    """The mean of every coordinate without its extremes, against hostile or broken clients (Yin et al. 2018)."""
    return Algorithm(_solver(clients), _sampler(clients), TrimmedMean(trim), server=SGD(server_lr))


@method("sun2019backdoor")
def norm_bounded_mean(
    *, bound: Literal["median"] | float = "median", server_lr: float = 1.0, **clients: Unpack[ClientSide]
) -> Algorithm:
    """The mean of updates of bounded length, against hostile or broken clients (Sun et al. 2019)."""
    return Algorithm(_solver(clients), _sampler(clients), NormBoundedMean(bound), server=SGD(server_lr))


@method("blanchard2017krum")
def krum(
    *, hostile: float = 0.2, keep: int | None = 1, server_lr: float = 1.0, **clients: Unpack[ClientSide]
) -> Algorithm:
    """The update closest to most of the others, against hostile or broken clients (Blanchard et al. 2017).

    `keep` updates are averaged. Krum follows one client: where clients differ, prefer `multi_krum`.
    """
    return Algorithm(_solver(clients), _sampler(clients), Krum(hostile, keep), server=SGD(server_lr))


@method("blanchard2017krum")
def multi_krum(*, hostile: float = 0.2, server_lr: float = 1.0, **clients: Unpack[ClientSide]) -> Algorithm:
    """The mean of the updates closest to the others, without a share `hostile` of them (Blanchard et al. 2017)."""
    return Algorithm(_solver(clients), _sampler(clients), Krum(hostile, None), server=SGD(server_lr))


@method("pillutla2022rfa")
def geometric_median(
    *, smoothing: float = 1e-6, server_lr: float = 1.0, **clients: Unpack[ClientSide]
) -> Algorithm:
    """The point of least distance from all updates, against hostile or broken clients (Pillutla et al. 2022)."""
    return Algorithm(_solver(clients), _sampler(clients), GeometricMedian(smoothing), server=SGD(server_lr))


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
    solver = _solver(clients)
    personal = _personal(solver, personal_lr, personal_epochs, personal_steps)
    return Algorithm(replace(solver, personal=personal), _sampler(clients), WeightedMean())


@method("arivazhagan2019fedper")
def fedper(*, own: tuple[str, ...] = ("head",), **clients: Unpack[ClientSide]) -> Algorithm:
    """FedAvg on a shared body; every client keeps the last layers to itself (Arivazhagan et al. 2019)."""
    return Algorithm(_solver(clients, OwnParameters(own)), _sampler(clients), WeightedMean())


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
    solver = _solver(clients, OwnParameters(own, "shared"))
    head = _personal(solver, personal_lr, personal_epochs, personal_steps, OwnParameters(own, "own"))
    return Algorithm(replace(solver, personal=head), _sampler(clients), WeightedMean())


@method("li2021fedbn")
def fedbn(*, own: tuple[str, ...] = ("normalization",), **clients: Unpack[ClientSide]) -> Algorithm:
    """FedAvg with normalization layers, and their statistics, of each client's own (Li et al. 2021)."""
    return Algorithm(_solver(clients, OwnParameters(own)), _sampler(clients), WeightedMean())


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
    solver, whole = _solver(clients), OwnParameters(("*",))
    personal = _personal(solver, personal_lr, personal_epochs, personal_steps, whole, Proximal(mu))
    return Algorithm(replace(solver, personal=personal), _sampler(clients), WeightedMean())


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
    solver = _solver(clients)
    inner_lr = solver.optimizer.lr if inner_lr is None else inner_lr
    update = _following(solver, MoreauSGD, mu=mu, inner_lr=inner_lr, inner_steps=inner_steps)
    personal = _personal(solver, inner_lr, personal_epochs, personal_steps, Proximal(mu))
    solver = replace(update, personal=personal)
    return Algorithm(solver, _sampler(clients), WeightedMean(), server=SGD(server_lr))


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
    solver = _solver(clients)
    inner_lr = solver.optimizer.lr if inner_lr is None else inner_lr
    update = _following(solver, MetaSGD, inner_lr=inner_lr, delta=delta)
    solver = replace(update, personal=_personal(solver, inner_lr, None, personal_steps))
    return Algorithm(solver, _sampler(clients), WeightedMean(), server=SGD(server_lr))


@method("deng2020apfl")
def apfl(*, mix: float = 0.5, adaptive: bool = False, **clients: Unpack[ClientSide]) -> Algorithm:
    """FedAvg, and for every client a model of its own that it uses mixed with the global one (Deng et al. 2020).

    The own model has the share `mix`, from which each client learns its own if `adaptive`.
    """
    solver = _solver(clients)
    own = replace(
        _following(solver, MixedSGD, mix=mix, adaptive=adaptive), corrections=(OwnParameters(("*",)),)
    )
    return Algorithm(replace(solver, personal=own), _sampler(clients), WeightedMean())


def with_aware(
    algorithm: Algorithm,
    *,
    alpha: float | None = None,
    retention: float | None = None,
    start: Literal["seen", "all_seen", "zero", "full_first_round"] = "seen",
    rows: Literal["raw", "unit", "equal"] = "raw",
    first_visit: Literal["update", "scaled"] = "update",
    memory: UpdateMemory | None = None,
    rho: float = 0.0,
) -> Algorithm:
    """Any method with its step projected on FedAWARE's direction ("×AWARE", Zeng et al. 2025).

    Arguments as in `fedaware`.

    >>> with_aware(fedavg(lr=0.1), alpha=0.9).transforms[0].alpha
    0.9
    """
    sampler, opening = _opened(algorithm.sampler, start)
    projection = AwareProjection(alpha, retention, opening, first_visit, rows, memory or UpdateMemory(), rho)
    return replace(algorithm, sampler=sampler, transforms=(*algorithm.transforms, projection))


def _opened(
    sampler: Sampler, start: Literal["seen", "all_seen", "zero", "full_first_round"]
) -> tuple[Sampler, Literal["seen", "all_seen", "zero"]]:
    """The sampler and AWARE's own `start`: the sampler makes the full first round."""
    return (FullFirstRound(sampler), "seen") if start == "full_first_round" else (sampler, start)


def _solver(clients: ClientSide, *corrections: Correction) -> LocalSolver:
    for name in clients:
        if name not in ClientSide.__annotations__:
            known = did_you_mean(name, ClientSide.__annotations__)
            raise FieldError(f"{name!r} is not an argument of this preset.{known}")
    if "lr" not in clients:
        raise FieldError("Presets need lr, the learning rate of the clients.")
    given: dict[str, Any] = {**clients}
    optimizer, solver = (
        {field.name: given[field.name] for field in fields(part) if field.name in given}
        for part in (SGD, LocalSolver)
    )
    return LocalSolver(SGD(**optimizer), corrections=corrections, **solver)


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


def _sampler(clients: ClientSide) -> Sampler:
    cohort_size = clients.get("cohort_size")
    if clients.get("replacement", False):
        return WeightedWithReplacement(_draws(clients))
    return FullParticipation() if cohort_size is None else UniformWithoutReplacement(cohort_size)


def _draws(clients: ClientSide) -> int:
    cohort_size = clients.get("cohort_size")
    if not clients.get("replacement", True):
        raise FieldError("This method draws with replacement: leave the argument replacement out.")
    if cohort_size is None:
        raise FieldError("cohort_size is missing: this method draws with replacement.")
    return cohort_size
