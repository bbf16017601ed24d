"""What each part becomes when nothing differs or nothing is lost, as its docstring says."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from fairlead import presets
from fairlead.aggregators.base import Aggregator
from fairlead.aggregators.remembered import MIFA, FedVARP, StaleFedVARP
from fairlead.aggregators.weighted import CommunicationAware, FedAU, FedNova, WeightedMean
from fairlead.clients.quadratics import Quadratics
from fairlead.conditions.links import BernoulliLink, LinkModel, PerfectLink
from fairlead.conditions.work import FixedSteps
from fairlead.errors import FieldError
from fairlead.federation import Federation
from fairlead.randomness import Key
from fairlead.samplers.adaptive import OptimalSampling
from fairlead.samplers.base import Sampler
from fairlead.samplers.fixed import FullParticipation, UniformWithoutReplacement, WeightedWithReplacement
from fairlead.worlds.simulated import SimulatedWorld

PROBLEM = Quadratics(num_clients=5, dim=3, conditioning=3.0).problem(Key.from_seed(2))
WEIGHTS = [0.1, 0.15, 0.2, 0.25, 0.3]


def final_model(
    sampler: Sampler,
    aggregator: Aggregator,
    *,
    link: LinkModel | None = None,
    steps: tuple[int, ...] = (1, 2, 3, 4, 5),
    rounds: int = 6,
) -> torch.Tensor:
    world = SimulatedWorld(
        PROBLEM.task(),
        PROBLEM.data(),
        work=FixedSteps(steps),
        link=link or PerfectLink(),
        weights=WEIGHTS,
        dtype=torch.float64,
    )
    algorithm = replace(presets.fedavg(lr=0.1, steps=1), sampler=sampler, aggregator=aggregator)
    run = Federation(algorithm, world)
    for _ in run.train(rounds):
        pass
    return run.params


@pytest.mark.parametrize("aggregator", [FedAU(), FedVARP(), MIFA()], ids=lambda a: type(a).__name__)
def test_everyone_arriving_makes_it_the_weighted_mean(aggregator: Aggregator) -> None:
    expected = final_model(FullParticipation(), WeightedMean())
    torch.testing.assert_close(final_model(FullParticipation(), aggregator), expected, rtol=0, atol=1e-14)


def test_fedvarp_starts_as_the_weighted_mean_of_the_arrivals() -> None:
    link = BernoulliLink(0.4)
    own = final_model(WeightedWithReplacement(4), FedVARP(), link=link, rounds=1)
    expected = final_model(WeightedWithReplacement(4), WeightedMean(), link=link, rounds=1)
    torch.testing.assert_close(own, expected, rtol=0, atol=1e-14)


@pytest.mark.parametrize(
    ("aggregator", "inner"),
    [
        (StaleFedVARP(), WeightedMean(over="asked")),
        (CommunicationAware(), WeightedMean(over="asked")),
        (CommunicationAware(WeightedMean()), WeightedMean()),
        (CommunicationAware(FedNova("expected", "asked")), FedNova("expected", "asked")),
    ],
)
def test_perfect_links_leave_nothing_to_correct(aggregator: Aggregator, inner: Aggregator) -> None:
    sampler = WeightedWithReplacement(3)
    assert torch.equal(final_model(sampler, aggregator), final_model(sampler, inner))


@pytest.mark.parametrize("tau_eff", ["work", "steps", "expected"])
def test_equal_work_makes_fednova_the_anonymous_mean(tau_eff: str) -> None:
    sampler, link = WeightedWithReplacement(3), BernoulliLink((0.1, 0.2, 0.3, 0.4, 0.5))
    nova = FedNova(tau_eff, over="asked")  # type: ignore[arg-type]
    own = final_model(sampler, nova, link=link, steps=(3,) * 5)
    expected = final_model(sampler, WeightedMean(over="asked"), link=link, steps=(3,) * 5)
    torch.testing.assert_close(own, expected, rtol=0, atol=1e-14)


def test_optimal_sampling_with_a_floor_of_one_is_weighted_sampling() -> None:
    own = final_model(OptimalSampling(3, floor=1.0), WeightedMean(over="asked"))
    expected = final_model(WeightedWithReplacement(3), WeightedMean(over="asked"))
    torch.testing.assert_close(own, expected, rtol=0, atol=1e-14)


def test_uniform_sampling_of_everyone_is_full_participation() -> None:
    link = BernoulliLink(0.3)
    own = final_model(UniformWithoutReplacement(5), WeightedMean(over="asked"), link=link)
    expected = final_model(FullParticipation(), WeightedMean(over="asked"), link=link)
    assert torch.equal(own, expected)


def test_any_preset_can_draw_its_cohort_by_weight_with_replacement() -> None:
    algorithm = presets.fednova(lr=0.1, cohort_size=4, replacement=True)
    assert algorithm.sampler == WeightedWithReplacement(4)
    with pytest.raises(FieldError, match="leave the argument replacement out"):
        presets.fedacs(lr=0.1, cohort_size=4, replacement=False)
    with pytest.raises(FieldError, match="cohort_size is missing"):
        presets.fedavg(lr=0.1, replacement=True)
