"""While a device computes a round, the host draws the batches of the next: the same bits, and nothing drawn twice."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any
from weakref import ref

import pytest
import torch
from torch import nn

import fairlead as fl
from fairlead.errors import FieldError, NonFiniteError
from fairlead.worlds import executor
from fairlead.worlds.engines.base import AsyncEngine, LocalJobs, LocalReturns, LocalSteps, Objective
from fairlead.worlds.engines.loop import LoopEngine

ROUNDS = 5
SOME = fl.UniformWithoutReplacement(6)
UNEQUAL = {"work": fl.RandomEpochs(1, 3), "link": fl.BernoulliLink(0.3)}


class EarlyLoop(AsyncEngine):
    """The loop engine, taken for one that returns before its work is done."""

    def run(self, objective: Objective, jobs: LocalJobs) -> LocalReturns:
        return LoopEngine().run(objective, jobs)

    def prepare(self, objective: Objective, steps: LocalSteps) -> None:
        """There is nothing to prepare."""


@dataclass(frozen=True)
class Refusing(fl.MemorylessSampler):
    """Asks everyone until a round in which it refuses to."""

    until: int

    def check(self, population: fl.Population) -> None:
        """Every population will do."""

    def draw(self, state: Any, conditions: fl.Conditions, key: fl.Key) -> fl.Cohort:
        if conditions.round >= self.until:
            raise FieldError(f"Refusing.until must be above {conditions.round}, got {self.until}.")
        return fl.FullParticipation().draw(state, conditions, key)


def world(*, early: bool, **more: Any) -> fl.SimulatedWorld:
    """Twelve clients with 5 to 60 examples, and a network with dropout."""
    data = fl.SyntheticLogistic(num_clients=12, max_examples=60).load(fl.Key.from_seed(0)).train
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(60, 8), nn.ReLU(), nn.Dropout(0.3), nn.Linear(8, 10))
    here = fl.SimulatedWorld(fl.Task(model), data, engine="loop", **more)
    if early:
        here.executor.engine = EarlyLoop()
    return here


def federation(
    sampler: fl.Sampler, here: fl.SimulatedWorld, *, seed: int = 0, lr: float = 0.05
) -> fl.Federation:
    solver = fl.LocalSolver(fl.SGD(lr), epochs=1, batch_size=8)
    return fl.Federation(fl.Algorithm(solver=solver, sampler=sampler), here, seed=seed)


def trained(sampler: fl.Sampler, here: fl.SimulatedWorld, *, seed: int = 0) -> fl.Federation:
    done = federation(sampler, here, seed=seed)
    list(done.train(ROUNDS))
    return done


class Draws:
    """Counts how often batches were drawn by the end of each round."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.count, original = 0, executor.draw_batches

        def counted(*arguments: Any) -> torch.Tensor:
            self.count += 1
            return original(*arguments)

        patch.setattr(executor, "draw_batches", counted)

    def by_round(self, federation: fl.Federation) -> tuple[list[int], list[int]]:
        """Draws and arrivals, added up over the rounds so far."""
        drawn, arrived = [], [0]
        for record in federation.train(ROUNDS):
            drawn.append(self.count)
            arrived.append(arrived[-1] + len(record.arrived))
        return drawn, arrived[1:]


def test_batches_of_the_next_round_are_drawn_during_this_one(monkeypatch: pytest.MonkeyPatch) -> None:
    alone = trained(SOME, world(early=False, **UNEQUAL))
    ahead = federation(SOME, world(early=True, **UNEQUAL))
    drawn, arrived = Draws(monkeypatch).by_round(ahead)
    assert drawn == [*arrived[1:], arrived[-1]]
    assert torch.equal(ahead.params, alone.params)


def test_no_more_is_drawn_ahead_than_trains_together(monkeypatch: pytest.MonkeyPatch) -> None:
    """In blocks of five two of twelve clients are left, and five are drawn before their round."""
    alone = trained(fl.FullParticipation(), world(early=False, block=5))
    ahead = federation(fl.FullParticipation(), world(early=True, block=5))
    drawn, arrived = Draws(monkeypatch).by_round(ahead)
    assert drawn == [*(so_far + 5 for so_far in arrived[:-1]), arrived[-1]]
    assert torch.equal(ahead.params, alone.params)


@pytest.mark.parametrize(
    ("sampler", "more"),
    [
        (fl.FullFirstRound(SOME), {}),
        (fl.FedACS(6), {"link": fl.BernoulliLink(0.3)}),
        (SOME, {"data_on": "host"}),
    ],
)
def test_what_is_not_known_yet_is_drawn_when_it_is(
    monkeypatch: pytest.MonkeyPatch, sampler: fl.Sampler, more: dict[str, Any]
) -> None:
    """A sampler may remember or look at rates of a million clients, and examples on the host have no place yet."""
    alone = trained(sampler, world(early=False, **more))
    early = federation(sampler, world(early=True, **more))
    drawn, arrived = Draws(monkeypatch).by_round(early)
    assert drawn == arrived
    assert torch.equal(early.params, alone.params)


def test_two_runs_in_one_world_use_no_batches_of_each_other() -> None:
    """The same clients do the same work in every round, so that only seeds and rounds tell batches apart."""
    shared, everyone = world(early=True), fl.FullParticipation()
    runs = [federation(everyone, shared, seed=seed) for seed in (0, 1)]
    for _ in zip(*(run.train(ROUNDS) for run in runs), strict=True):
        pass
    for seed, run in enumerate(runs):
        assert torch.equal(run.params, trained(everyone, world(early=False), seed=seed).params)


def test_batches_left_over_are_used_in_no_other_round() -> None:
    left, plain = (federation(fl.FullParticipation(), world(early=early)) for early in (True, False))
    next(left.train(ROUNDS))
    later = replace(left.state, round=7)
    after, _ = fl.run_round(left.algorithm, left.world, later, left.key)
    expected, _ = fl.run_round(plain.algorithm, plain.world, later, plain.key)
    assert torch.equal(after.params, expected.params)


@pytest.mark.parametrize("early", [False, True])
def test_errors_come_in_their_own_round(early: bool) -> None:
    """What the sampler refuses for round 3 costs none of the three before, and hides no error of theirs."""
    run = federation(Refusing(3), world(early=early))
    with pytest.raises(FieldError, match="must be above 3"):
        list(run.train(ROUNDS))
    assert [record.round for record in run.records] == [0, 1, 2]
    lost = federation(Refusing(1), world(early=early), lr=1e30)
    with pytest.raises(NonFiniteError, match="In round 1 the updates"):
        list(lost.train(ROUNDS))


def test_foreseen_answers_are_those_to_the_same_question_alone() -> None:
    """Responders found ahead are used as they are; to any other query, and over other links, clients answer anew."""
    here, plain = world(early=True, **UNEQUAL), world(early=False, **UNEQUAL)
    solver, key = fl.LocalSolver(fl.SGD(lr=0.05)), fl.Key.from_seed(3)

    def cohort(*clients: int) -> fl.Cohort:
        asked = torch.tensor(clients)
        return fl.Cohort(asked, torch.ones_like(asked), torch.ones(len(asked), dtype=torch.float64))

    some, others = cohort(*range(6)), cohort(*range(4, 12))
    here.prefetch(7, solver, key, some)
    foreseen = here._responders(some, solver, 7, key)
    assert here._responders(some, solver, 7, key) is foreseen
    longer = replace(solver, epochs=5)
    for query in (
        (others, solver, 7, key),
        (some, solver, 8, key),
        (some, longer, 7, key),
        (some, solver, 7, fl.Key.from_seed(4)),
    ):
        found, expected = here._responders(*query), plain._responders(*query)
        assert found is not foreseen
        assert found.places.tolist() == expected.places.tolist()
        assert found.block.num_steps.tolist() == expected.block.num_steps.tolist()
    assert len(here.over(fl.PerfectLink())._responders(some, solver, 7, key).places) == 6


def test_a_world_that_nobody_holds_is_gone() -> None:
    """Without a collector: a study's next run needs the memory of the last one's data."""
    here = ref(world(early=False))
    assert here() is None
