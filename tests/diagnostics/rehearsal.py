"""Rounds without training: who is asked, who arrives and what the server would do with it."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from itertools import product

import torch
from torch import Tensor

from fairlead.aggregators.base import Aggregator
from fairlead.algorithm import Algorithm
from fairlead.conditions.links import BernoulliLink
from fairlead.diagnostics.measurement import Tally
from fairlead.randomness import Key
from fairlead.records import ClientUpdates, Conditions, Contributions, Population, RoundRecord
from fairlead.samplers.base import Sampler
from fairlead.theory.prediction import weights_under

WEIGHTS = torch.tensor([0.1, 0.2, 0.3, 0.4], dtype=torch.float64)


def expected_shares(weights: Tensor, arrival: Tensor) -> Tensor:
    """E[ω_i/Σ_R ω_j; i ∈ R] over Bernoulli links with the given arrival rates, (N,).

    The mean coefficient of each client under full participation and the mean over arrivals; an empty
    round contributes nothing. All 2^N sets R are enumerated.
    """
    shares = torch.zeros_like(weights)
    for arrives in product((0.0, 1.0), repeat=len(weights)):
        received = torch.tensor(arrives, dtype=weights.dtype)
        chance = torch.where(received > 0, arrival, 1 - arrival).prod()
        if any(arrives):
            shares += chance * received * weights / (received @ weights)
    return shares


@dataclass(frozen=True)
class Setting:
    """How unequal four clients are."""

    steps: tuple[int, ...]
    drop: tuple[float, ...]

    def conditions(self, algorithm: Algorithm, round: int = 0) -> Conditions:
        norms = algorithm.solver.accumulation(torch.tensor(self.steps), 0)
        assert norms is not None
        return self.told(tuple(norms.l1.tolist()), round)

    def told(self, work: tuple[float, ...], round: int) -> Conditions:
        rates = 1 - torch.tensor(self.drop, dtype=torch.float64)
        steps = torch.tensor(work, dtype=torch.float64)
        return Conditions(round, WEIGHTS, lambda: steps, lambda: rates)


SETTINGS = {
    "equal": Setting((3, 3, 3, 3), (0.0, 0.0, 0.0, 0.0)),
    "work": Setting((4, 1, 2, 6), (0.0, 0.0, 0.0, 0.0)),
    "links": Setting((3, 3, 3, 3), (0.0, 0.5, 0.2, 0.6)),
    "both": Setting((4, 1, 2, 6), (0.0, 0.5, 0.2, 0.6)),
}


@cache
def rehearsed(
    sampler: Sampler, aggregator: Aggregator, setting: Setting, work: tuple[float, ...], rounds: int
) -> list[RoundRecord]:
    """Records of rounds whose updates are all zero; only coefficients, arrivals and work mean anything."""
    population = Population(WEIGHTS, {"x": 1}, torch.device("cpu"), torch.float64)
    asking, adding = sampler.init(population), aggregator.init(population)
    key, link, records = Key.from_seed(7), BernoulliLink(setting.drop), []
    for round in range(rounds):
        conditions = setting.told(work, round)
        cohort = sampler.draw(asking, conditions, key.fold("sampler", round))
        arrives = link.arrives(cohort.clients, round, key.fold("link"))
        clients = cohort.clients[arrives]
        nothing = torch.zeros((len(clients), 1), dtype=torch.float64)
        steps = torch.tensor(work, dtype=torch.float64)[clients]
        num_steps = torch.tensor(setting.steps)[clients]
        updates = ClientUpdates.of(cohort, arrives, nothing, num_steps, steps, lr=0.1)
        aggregate = aggregator.aggregate(updates, adding, conditions)
        adding, asking = aggregate.state, sampler.observe(asking, conditions, cohort, updates)
        kept, used = aggregate.remembered, aggregate.coefficients
        records.append(
            RoundRecord(
                round=round,
                asked=tuple(cohort.clients.tolist()),
                multiplicity=tuple(cohort.multiplicity.tolist()),
                arrived=tuple(clients.tolist()),
                num_steps=tuple(updates.num_steps.tolist()),
                effective_steps=tuple(steps.tolist()),
                coefficients=None if used is None else tuple(used.tolist()),
                remembered={}
                if kept is None
                else dict(zip(kept.clients.tolist(), kept.weights.tolist(), strict=True)),
                train_loss=None,
                direction_norm=0.0,
                step_norm=0.0,
                elud=None,
                bytes_down=0,
                bytes_up=0,
            )
        )
    return records


@dataclass(frozen=True, eq=False)
class Measured:
    """Ω over a long rehearsal, with the standard errors that its stretches give."""

    weights: Tensor
    error: Tensor


def long_run(algorithm: Algorithm, setting: Setting, rounds: int, stretches: int = 20) -> Measured:
    """Ω measured over `stretches` stretches of a rehearsal after a first one in which memories fill."""
    work = setting.conditions(algorithm).effective_steps
    assert work is not None
    records = rehearsed(algorithm.sampler, algorithm.aggregator, setting, tuple(work.tolist()), rounds)
    tally, length, sums = Tally(WEIGHTS), len(records) // (stretches + 1), []
    for start in range(0, length * (stretches + 1), length):
        tally.add(records[start : start + length])
        facts = tally.contributions
        assert facts is not None
        sums.append([part * tally.rounds for part in (facts.coefficient, facts.mass, facts.echoed)])

    def between(first: int, last: int) -> Tensor:
        assert facts is not None
        gained = [(late - early) for early, late in zip(sums[first], sums[last], strict=True)]
        coefficient, mass, echoed = (part / (length * (last - first)) for part in gained)
        stretch = Contributions(WEIGHTS, coefficient, mass, facts.work, echoed, facts.steady)
        weights = weights_under(algorithm, stretch).weights
        assert weights is not None
        return weights

    parts = torch.stack([between(place, place + 1) for place in range(stretches)])
    return Measured(between(0, stretches), parts.std(0) / stretches**0.5)
