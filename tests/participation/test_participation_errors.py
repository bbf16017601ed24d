"""Settings and combinations that cannot work are refused with cause and cure."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
import torch
from lossy_quadratics import ClosedFormWorld, Links

from fairlead import presets
from fairlead.aggregators.base import Aggregator
from fairlead.aggregators.remembered import MIFA, FedVARP, RememberedMean
from fairlead.aggregators.weighted import CommunicationAware, FedAU, FedNova, WeightedMean
from fairlead.algorithm import Algorithm
from fairlead.conditions.links import BernoulliLink
from fairlead.corrections.drift import ControlVariates
from fairlead.errors import ClashError, ConsistencyWarning, FieldError
from fairlead.federation import Federation
from fairlead.local_solver import LocalSolver
from fairlead.optimizers.descent import SGD, Adam
from fairlead.randomness import Key
from fairlead.records import Conditions
from fairlead.samplers.adaptive import FedACS, FedACSEstimated, OptimalSampling
from fairlead.samplers.base import Sampler
from fairlead.samplers.fixed import FullFirstRound, WeightedWithReplacement

WEIGHTS = torch.tensor([0.5, 0.3, 0.2], dtype=torch.float64)


def world(link: Links | None = None, *, secretive: bool = False) -> ClosedFormWorld:
    centers, steps = torch.eye(3, dtype=torch.float64), torch.tensor([1, 2, 3])
    return ClosedFormWorld(centers, WEIGHTS, steps, link, secretive=secretive)


@pytest.mark.parametrize(
    ("name", "part", "cure"),
    [
        ("fedacs", "FedACS", "FedACSEstimated"),
        ("communication_aware_fedavg", "CommunicationAware", "FedAU"),
        ("anonymous_fednova", "FedNova", "FedAU"),
    ],
)
def test_unknown_arrival_rates_are_refused_at_construction(name: str, part: str, cure: str) -> None:
    algorithm = presets.method_named(name).build(lr=0.1, steps=1, cohort_size=2)
    with pytest.raises(ClashError, match=f"^{part} needs the arrival rates.*{cure}"):
        Federation(algorithm, world(secretive=True))


@pytest.mark.parametrize("name", ["fedacs_estimated", "fedau", "fedvarp", "fedvarp_stale", "mifa"])
def test_methods_that_learn_run_in_a_secretive_world(name: str) -> None:
    algorithm = presets.method_named(name).build(lr=0.1, steps=1, cohort_size=2)
    run = Federation(algorithm, world(BernoulliLink(0.3), secretive=True))
    assert len(list(run.train(3))) == 3


def test_fedacs_names_clients_that_can_never_arrive() -> None:
    run = Federation(presets.fedacs(lr=0.1, steps=1, cohort_size=2), world(BernoulliLink((0.0, 1.0, 1.0))))
    with pytest.raises(FieldError, match=r"got 0 for clients \[1, 2\] in round 1: give them weight 0"):
        next(run.train(1))


def test_fedacs_leaves_dead_clients_of_weight_zero_alone() -> None:
    arrival = torch.tensor([0.0, 1.0, 0.5], dtype=torch.float64)
    conditions = Conditions(
        0,
        torch.tensor([0.0, 0.5, 0.5], dtype=torch.float64),
        forecast_work=lambda: torch.tensor([0.0, 1.0, 1.0], dtype=torch.float64),
        forecast_arrival=lambda: arrival,
    )
    cohort = FedACS(50).draw({}, conditions, Key.from_seed(0))
    assert cohort.clients.tolist() == [1, 2]


def test_fedacs_without_planned_work_is_refused() -> None:
    conditions = Conditions(0, WEIGHTS, forecast_arrival=lambda: torch.ones_like(WEIGHTS))
    with pytest.raises(ClashError, match="use FedACSEstimated"):
        FedACS(2).draw({}, conditions, Key.from_seed(0))


@pytest.mark.parametrize("sampler", [FedACS(2), FedACSEstimated(2)])
def test_work_aware_sampling_needs_a_linear_solver(sampler: FedACS | FedACSEstimated) -> None:
    with pytest.raises(ClashError, match="Adam"):
        Algorithm(LocalSolver(Adam(lr=0.1), steps=1), sampler=sampler)


def test_wrapped_fednova_needs_a_linear_solver() -> None:
    with pytest.raises(ClashError, match="CommunicationAware needs the effective number of local steps"):
        Algorithm(LocalSolver(Adam(lr=0.1), steps=1), aggregator=CommunicationAware(FedNova()))


def test_links_are_not_corrected_twice() -> None:
    with pytest.raises(ClashError, match="second time"):
        CommunicationAware(CommunicationAware())


def test_impossible_arrival_is_reported() -> None:
    class Wrong(ClosedFormWorld):
        def conditions(self, round: int, solver: LocalSolver, key: Key) -> Conditions:
            honest = super().conditions(round, solver, key)
            return replace(honest, forecast_arrival=lambda: torch.zeros_like(WEIGHTS))

    wrong = Wrong(torch.eye(3, dtype=torch.float64), WEIGHTS, torch.tensor([1, 2, 3]))
    run = Federation(presets.communication_aware_fedavg(lr=0.1, steps=1, cohort_size=2), wrong)
    with pytest.raises(ClashError, match="whose updates arrived"):
        next(run.train(1))


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: FedACS(0), "FedACS.cohort_size must be a whole number of at least 1, got 0"),
        (lambda: FedACSEstimated(2, forget=1.0), "FedACSEstimated.forget must be a finite number"),
        (lambda: FedACSEstimated(2, work_rate=0.0), "FedACSEstimated.work_rate must be"),
        (lambda: FedACSEstimated(2, prior_arrived=0.0), "FedACSEstimated.prior_arrived must be"),
        (lambda: FedACSEstimated(2, min_arrival=0.0), "FedACSEstimated.min_arrival must be"),
        (lambda: OptimalSampling(2, floor=1.5), "OptimalSampling.floor must be"),
        (lambda: FedAU(0), "FedAU.cutoff must be a whole number of at least 1, got 0"),
        (lambda: FedNova("mean"), "FedNova.tau_eff must be one of 'work', 'steps', 'harmonic', 'expected'"),  # type: ignore[arg-type]
        (lambda: FedNova(over="all"), "FedNova.over must be one of"),  # type: ignore[arg-type]
        (lambda: FedNova(work="rows"), "FedNova.work must be one of 'steps', 'epochs', got 'rows'"),  # type: ignore[arg-type]
        (
            lambda: FedNova("steps", work="epochs"),
            "FedNova.tau_eff must be one of 'work', 'harmonic', 'expected', got 'steps'",
        ),
        (lambda: FedACS(2, "rows"), "FedACS.work must be one of 'steps', 'epochs', got 'rows'"),  # type: ignore[arg-type]
        (lambda: presets.fedacs(lr=0.1, steps=1), "cohort_size is missing"),
        (
            lambda: presets.full_participation(lr=0.1, steps=1, cohort_size=2),
            "full_participation asks everyone",
        ),
    ],
)
def test_wrong_settings_are_refused(make: Callable[[], object], message: str) -> None:
    with pytest.raises(FieldError, match=message.replace("(", r"\(")):
        make()


@pytest.mark.parametrize("sampler", [FedACS(2), FedACSEstimated(2), FullFirstRound(FedACS(2))])
@pytest.mark.parametrize(
    ("aggregator", "by"),
    [
        (FedNova(), "work"),
        (FedNova("expected", over="asked"), "work"),
        (CommunicationAware(), "arrival rates"),
        (CommunicationAware(FedNova()), "arrival rates"),
    ],
)
def test_nothing_is_divided_out_twice(sampler: Sampler, aggregator: Aggregator, by: str) -> None:
    """FedACS corrects work and links by its draws; both ways out are named."""
    solver = LocalSolver(SGD(0.1), steps=1)
    with pytest.raises(ClashError, match=f"would divide by the {by} again") as caught:
        Algorithm(solver, sampler, aggregator)
    assert "aggregator=WeightedMean(over='asked')" in str(caught.value)
    assert "sampler=WeightedWithReplacement" in str(caught.value)
    Algorithm(solver, sampler, WeightedMean(over="asked"))
    Algorithm(solver, WeightedWithReplacement(2), aggregator)


@pytest.mark.parametrize("aggregator", [FedAU(), MIFA(), FedVARP(), RememberedMean()], ids=repr)
def test_aggregators_that_undo_the_draws_of_fedacs_are_announced(aggregator: Aggregator) -> None:
    """They weigh clients by ω whatever the importance, so Ω ∝ ω‖a‖₁ with ‖a‖₁ = (1, 2, 3), as a long run shows."""
    mass = WEIGHTS.numpy() * np.array([1.0, 2.0, 3.0])
    share = np.abs(mass / mass.sum() - WEIGHTS.numpy()).sum() / 2
    algorithm = Algorithm(LocalSolver(SGD(0.1), steps=1), FedACS(2), aggregator)
    with pytest.warns(
        ConsistencyWarning, match=f"^Theory predicts that {share:.0%} of the weight will be misplaced"
    ):
        run = Federation(algorithm, world(BernoulliLink((0.1, 0.4, 0.2))))
    list(run.train(600))
    assert run.consistency().total_variation == pytest.approx(share, abs=0.02)


def test_equal_work_and_control_variates_need_no_warning() -> None:
    """Without unequal work there is nothing to undo, and control variates restore the weights in any case."""
    centers, steps = torch.eye(3, dtype=torch.float64), torch.tensor([2, 2, 2])
    solver = LocalSolver(SGD(0.1), steps=1)
    Federation(Algorithm(solver, FedACS(2), MIFA()), ClosedFormWorld(centers, WEIGHTS, steps, None))
    corrected = replace(solver, corrections=(ControlVariates(),))
    Federation(Algorithm(corrected, FedACS(2), MIFA()), world(BernoulliLink(0.3)))
    Federation(Algorithm(solver, FedACS(2)), world(BernoulliLink((0.1, 0.4, 0.2))))
