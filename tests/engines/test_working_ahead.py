"""While a device computes a round, the host draws the batches of the next: the same bits, and nothing drawn twice."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn

import fairlead as fl
from fairlead.worlds import batches
from fairlead.worlds.engines.loop import LoopEngine

ROUNDS = 5


class EarlyEngine(LoopEngine):
    """The loop engine, taken for one that returns before its work is done."""

    returns_early = True


def federation(sampler: fl.Sampler, *, early: bool, **more: Any) -> fl.Federation:
    """Twelve clients with 5 to 60 examples, of which work and arrivals differ from round to round."""
    data = fl.SyntheticLogistic(num_clients=12, max_examples=60).load(fl.Key.from_seed(0)).train
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(60, 8), nn.ReLU(), nn.Dropout(0.3), nn.Linear(8, 10))
    world = fl.SimulatedWorld(
        fl.Task(model),
        data,
        work=fl.RandomEpochs(1, 3),
        link=fl.BernoulliLink(0.3),
        engine="loop",
        **more,
    )
    if early:
        world.workforce.engine = EarlyEngine()
    solver = fl.LocalSolver(fl.SGD(0.05), epochs=1, batch_size=8)
    return fl.Federation(fl.Algorithm(solver=solver, sampler=sampler), world)


class Draws:
    """Counts how often batches were drawn by the end of each round."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.count, original = 0, batches.draw_batches

        def counted(*arguments: Any) -> torch.Tensor:
            self.count += 1
            return original(*arguments)

        patch.setattr(batches, "draw_batches", counted)

    def by_round(self, federation: fl.Federation) -> tuple[list[int], list[int]]:
        """Draws and arrivals, added up over the rounds so far."""
        drawn, arrived = [], [0]
        for record in federation.train(ROUNDS):
            drawn.append(self.count)
            arrived.append(arrived[-1] + len(record.arrived))
        return drawn, arrived[1:]


@pytest.mark.parametrize("more", [{}, {"block": 2}])
def test_batches_of_the_next_round_are_drawn_during_this_one(
    monkeypatch: pytest.MonkeyPatch, more: dict[str, Any]
) -> None:
    sampler = fl.UniformWithoutReplacement(6)
    plain = federation(sampler, early=False, **more)
    list(plain.train(ROUNDS))
    ahead = federation(sampler, early=True, **more)
    drawn, arrived = Draws(monkeypatch).by_round(ahead)
    assert drawn == [*arrived[1:], arrived[-1]]
    assert torch.equal(ahead.params, plain.params)


@pytest.mark.parametrize(
    ("sampler", "more"),
    [
        (fl.FullFirstRound(fl.UniformWithoutReplacement(6)), {}),
        (fl.UniformWithoutReplacement(6), {"data_on": "host"}),
    ],
)
def test_what_is_not_known_yet_is_drawn_when_it_is(
    monkeypatch: pytest.MonkeyPatch, sampler: fl.Sampler, more: dict[str, Any]
) -> None:
    """A sampler that remembers may ask others after this round, and examples on the host have no place yet."""
    plain = federation(sampler, early=False, **more)
    list(plain.train(ROUNDS))
    early = federation(sampler, early=True, **more)
    drawn, arrived = Draws(monkeypatch).by_round(early)
    assert drawn == arrived
    assert torch.equal(early.params, plain.params)


def test_batches_drawn_for_another_run_are_not_used() -> None:
    """Of two federations in one world each has its own."""
    first = federation(fl.UniformWithoutReplacement(6), early=True)
    second = fl.Federation(first.algorithm, first.world, seed=1)
    alone = federation(fl.UniformWithoutReplacement(6), early=False)
    for _ in zip(first.train(ROUNDS), second.train(ROUNDS), strict=True):
        pass
    list(alone.train(ROUNDS))
    assert torch.equal(first.params, alone.params)
