"""Who takes part: sampling, lost updates and rounds that do not wait."""

from typing import Literal, Unpack

from fairlead.aggregators.weighted import CommunicationAware, FedAU, FedNova, StalenessWeighted, WeightedMean
from fairlead.algorithm import Algorithm
from fairlead.errors import FieldError
from fairlead.optimizers.descent import SGD
from fairlead.presets.table import ClientSide, draws_of, method, sampler_of, solver_of
from fairlead.samplers.adaptive import FedACS, FedACSEstimated, OptimalSampling, PowerOfChoice
from fairlead.samplers.buffered import BufferedSampling
from fairlead.samplers.fixed import FullParticipation, WeightedWithReplacement


@method("weng2025fedacs")
def importance_sampling(**clients: Unpack[ClientSide]) -> Algorithm:
    """Importance sampling (IS of Weng 2025): draws by weight with replacement; lost updates count as zero."""
    sampler = WeightedWithReplacement(draws_of(clients))
    return Algorithm(solver_of(clients), sampler, WeightedMean(over="asked"))


@method("weng2025fedacs")
def uniform_sampling(**clients: Unpack[ClientSide]) -> Algorithm:
    """Uniform sampling (US of Weng 2025): draws without replacement; lost updates count as zero."""
    return Algorithm(solver_of(clients), sampler_of(clients), WeightedMean(over="asked"))


@method("chen2022optimal", "weng2025fedacs")
def optimal_sampling(*, floor: float = 0.1, **clients: Unpack[ClientSide]) -> Algorithm:
    """Optimal sampling (OS of Weng 2025): draws by the norm of the last updates; lost updates count as zero."""
    sampler = OptimalSampling(draws_of(clients), floor)
    return Algorithm(solver_of(clients), sampler, WeightedMean(over="asked"))


@method("cho2022power")
def power_of_choice(*, candidates: int | None = None, **clients: Unpack[ClientSide]) -> Algorithm:
    """Asks `candidates` for their loss, and trains those with the largest (Cho et al. 2022).

    Twice the cohort is asked unless `candidates` is given.
    """
    cohort_size = clients.get("cohort_size")
    if cohort_size is None or clients.get("replacement", False):
        raise FieldError("power_of_choice needs cohort_size, and draws without replacement.")
    return Algorithm(solver_of(clients), PowerOfChoice(cohort_size, candidates), WeightedMean())


@method("weng2025fedacs")
def full_participation(**clients: Unpack[ClientSide]) -> Algorithm:
    """All clients in every round; lost updates count as zero (Weng 2025)."""
    if clients.get("cohort_size") is not None or clients.get("replacement", False):
        raise FieldError(
            "full_participation asks everyone: leave cohort_size and replacement out, or use "
            "uniform_sampling."
        )
    return Algorithm(solver_of(clients), FullParticipation(), WeightedMean(over="asked"))


@method("weng2025fedacs", corrects=("work", "links"))
def fedacs(*, work: Literal["steps", "epochs"] = "steps", **clients: Unpack[ClientSide]) -> Algorithm:
    """Sampling that cancels unequal work and links, both known (Weng et al. 2025).

    `calibrate = "server"` beside the preset makes its steps as long as those of `importance_sampling`.
    """
    return Algorithm(solver_of(clients), FedACS(draws_of(clients), work), WeightedMean(over="asked"))


@method("weng2025fedacs", corrects=("work", "links"))
def fedacs_estimated(
    *, forget: float = 0.0, work_rate: float = 1.0, **clients: Unpack[ClientSide]
) -> Algorithm:
    """FedACS with arrival rates and work estimated online."""
    sampler = FedACSEstimated(draws_of(clients), forget=forget, work_rate=work_rate)
    return Algorithm(solver_of(clients), sampler, WeightedMean(over="asked"))


@method("perazzone2022", "weng2025fedacs", corrects=("links",))
def communication_aware_fedavg(**clients: Unpack[ClientSide]) -> Algorithm:
    """c-a-FedAvg: divides updates by their known arrival rates (Weng 2025 (113))."""
    return Algorithm(solver_of(clients), WeightedWithReplacement(draws_of(clients)), CommunicationAware())


@method("perazzone2022", "wang2021fednova", "weng2025fedacs", corrects=("work", "links"))
def communication_aware_fednova(**clients: Unpack[ClientSide]) -> Algorithm:
    """c-a-FedNova: divides updates by their arrival rates and by their local work."""
    aggregator = CommunicationAware(FedNova("expected", over="asked"))
    return Algorithm(solver_of(clients), WeightedWithReplacement(draws_of(clients)), aggregator)


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
    return Algorithm(solver_of(clients), WeightedWithReplacement(draws_of(clients)), aggregator)


@method("wang2024fedau", corrects=("links",))
def fedau(*, cutoff: int | None = 50, server_lr: float = 1.0, **clients: Unpack[ClientSide]) -> Algorithm:
    """Weights learned from how long clients are absent (Wang & Ji 2024)."""
    return Algorithm(solver_of(clients), sampler_of(clients), FedAU(cutoff), server=SGD(server_lr))


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
    return Algorithm(solver_of(clients), sampler, aggregator, server=SGD(server_lr))
