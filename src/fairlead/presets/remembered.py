"""Memories of the last updates of all clients: FedVARP, MIFA and FedAWARE."""

from dataclasses import replace
from typing import Literal, Unpack

from fairlead.aggregators.remembered import MIFA, FedAWARE, FedVARP, RememberedMean, StaleFedVARP
from fairlead.algorithm import Algorithm
from fairlead.memory.update_memory import UpdateMemory
from fairlead.optimizers.descent import SGD
from fairlead.presets.table import ClientSide, draws_of, method, sampler_of, solver_of
from fairlead.samplers.adaptive import WeightFeedback
from fairlead.samplers.base import Sampler
from fairlead.samplers.fixed import FullFirstRound, WeightedWithReplacement
from fairlead.transforms.projections import AwareProjection


@method("jhunjhunwala2022fedvarp", corrects=("links",))
def fedvarp(*, server_lr: float = 1.0, **clients: Unpack[ClientSide]) -> Algorithm:
    """The last update of every client reduces the variance of partial participation (Jhunjhunwala et al. 2022)."""
    return Algorithm(solver_of(clients), sampler_of(clients), FedVARP(), server=SGD(server_lr))


@method("weng2025fedacs", "jhunjhunwala2022fedvarp", corrects=("links",))
def fedvarp_stale(**clients: Unpack[ClientSide]) -> Algorithm:
    """FedVARP as the baseline of Weng 2025 (114): the client's last update replaces a lost one."""
    return Algorithm(solver_of(clients), WeightedWithReplacement(draws_of(clients)), StaleFedVARP())


@method("gu2021mifa", corrects=("links",))
def mifa(*, server_lr: float = 1.0, **clients: Unpack[ClientSide]) -> Algorithm:
    """The mean of all clients' last updates (Gu et al. 2021)."""
    return Algorithm(solver_of(clients), sampler_of(clients), MIFA(), server=SGD(server_lr))


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
    sampler, opening = _opened(sampler_of(clients), start)
    aggregator = FedAWARE(alpha, retention, opening, first_visit, rows, memory or UpdateMemory(), rho)
    return Algorithm(solver_of(clients), sampler, aggregator, server=SGD(server_lr))


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
        WeightFeedback(cohort_size) if feedback and cohort_size is not None else sampler_of(clients), start
    )
    aggregator = FedAWARE(
        alpha, start=opening, first_visit="scaled", rows="unit", memory=UpdateMemory(credit=credit)
    )
    return Algorithm(solver_of(clients), sampler, aggregator, server=SGD(server_lr))


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
    return Algorithm(
        solver_of(clients), FullFirstRound(sampler_of(clients)), aggregator, server=SGD(server_lr)
    )


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
    return Algorithm(solver_of(clients), sampler_of(clients), aggregator, server=SGD(server_lr))


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

    >>> from fairlead.presets import fedavg
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
