"""Aggregates that limit the pull of a single client."""

from typing import Literal, Unpack

from fairlead.aggregators.robust import CoordinateMedian, GeometricMedian, Krum, NormBoundedMean, TrimmedMean
from fairlead.aggregators.weighted import FedMGDA
from fairlead.algorithm import Algorithm
from fairlead.optimizers.descent import SGD
from fairlead.presets.table import ClientSide, method, sampler_of, solver_of


@method("hu2022fedmgda")
def fedmgda_plus(*, epsilon: float = 0.1, server_lr: float = 1.0, **clients: Unpack[ClientSide]) -> Algorithm:
    """The shortest convex combination of normalized updates, near the usual weights (Hu et al. 2022)."""
    return Algorithm(solver_of(clients), sampler_of(clients), FedMGDA(epsilon), server=SGD(server_lr))


@method("yin2018byzantine")
def coordinate_median(*, server_lr: float = 1.0, **clients: Unpack[ClientSide]) -> Algorithm:
    """The median of every coordinate, against hostile or broken clients (Yin et al. 2018)."""
    return Algorithm(solver_of(clients), sampler_of(clients), CoordinateMedian(), server=SGD(server_lr))


@method("yin2018byzantine")
def trimmed_mean(*, trim: float = 0.2, server_lr: float = 1.0, **clients: Unpack[ClientSide]) -> Algorithm:
    """The mean of every coordinate without its extremes, against hostile or broken clients (Yin et al. 2018)."""
    return Algorithm(solver_of(clients), sampler_of(clients), TrimmedMean(trim), server=SGD(server_lr))


@method("sun2019backdoor")
def norm_bounded_mean(
    *, bound: Literal["median"] | float = "median", server_lr: float = 1.0, **clients: Unpack[ClientSide]
) -> Algorithm:
    """The mean of updates of bounded length, against hostile or broken clients (Sun et al. 2019)."""
    return Algorithm(solver_of(clients), sampler_of(clients), NormBoundedMean(bound), server=SGD(server_lr))


@method("blanchard2017krum")
def krum(
    *, hostile: float = 0.2, keep: int | None = 1, server_lr: float = 1.0, **clients: Unpack[ClientSide]
) -> Algorithm:
    """The update closest to most of the others, against hostile or broken clients (Blanchard et al. 2017).

    `keep` updates are averaged. Krum follows one client: where clients differ, prefer `multi_krum`.
    """
    return Algorithm(solver_of(clients), sampler_of(clients), Krum(hostile, keep), server=SGD(server_lr))


@method("blanchard2017krum")
def multi_krum(*, hostile: float = 0.2, server_lr: float = 1.0, **clients: Unpack[ClientSide]) -> Algorithm:
    """The mean of the updates closest to the others, without a share `hostile` of them (Blanchard et al. 2017)."""
    return Algorithm(solver_of(clients), sampler_of(clients), Krum(hostile, None), server=SGD(server_lr))


@method("pillutla2022rfa")
def geometric_median(
    *, smoothing: float = 1e-6, server_lr: float = 1.0, **clients: Unpack[ClientSide]
) -> Algorithm:
    """The point of least distance from all updates, against hostile or broken clients (Pillutla et al. 2022)."""
    return Algorithm(
        solver_of(clients), sampler_of(clients), GeometricMedian(smoothing), server=SGD(server_lr)
    )
