"""Diverging and hostile clients: what reaches the model, and what robust aggregators make of the rest.

Twenty clients hold handwritten digits in unequal shares of the classes (Dirichlet 1), and train a penalized
softmax regression, so that runs end at a minimum and a slower one is not taken for a worse one. Hostile clients
do their work and send its opposite, a million times too much of it, or no numbers at all. The loss is that of
all clients' data, to be compared with plain averaging of honest clients.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache

import pytest
import torch
from fault_runs import FULL
from hostile_world import ATTACKS, HostileWorld

import fairlead as fl
from fairlead.errors import ClashError, NonFiniteError
from fairlead.presets import ClientSide
from fairlead.reply_checks import Reason

NUM_CLIENTS, ROUNDS = 20, 100 if FULL else 50
SHARES = (0.1, 0.2, 0.3) if FULL else (0.3,)
SIDE: ClientSide = {"lr": 0.5, "steps": 4, "batch_size": None, "weight_decay": 0.02}
ROBUST: dict[str, fl.Algorithm] = {
    "CoordinateMedian": fl.presets.coordinate_median(**SIDE),
    "TrimmedMean": fl.presets.trimmed_mean(trim=0.3, **SIDE),
    "NormBoundedMean": fl.presets.norm_bounded_mean(**SIDE),
    "Krum": fl.presets.krum(hostile=0.3, **SIDE),
    "MultiKrum": fl.presets.multi_krum(hostile=0.3, **SIDE),
    "GeometricMedian": fl.presets.geometric_median(**SIDE),
}
PLAIN = fl.presets.fedavg(**SIDE)
WORST = 1.5
"""Loss under attack over the loss of honest clients, at most."""


@cache
def simulated() -> fl.SimulatedWorld:
    spread = fl.DirichletPartitioner(1.0, min_partition_size=20)
    experiment = fl.Experiment(
        fl.Digits(NUM_CLIENTS, spread), PLAIN, rounds=1, task=fl.Task(fl.LogisticRegression())
    )
    world = experiment.build().world
    assert isinstance(world, fl.SimulatedWorld)
    return world


def hostile_world(attack: str, share: float, *, by_message: bool = False) -> HostileWorld:
    honest = simulated()
    return HostileWorld(
        honest.task,
        honest.clients,
        weights="uniform",
        hostile=range(round(share * NUM_CLIENTS)),
        attack=ATTACKS[attack],
        by_message=by_message,
    )


def trained(algorithm: fl.Algorithm, world: HostileWorld, rounds: int = ROUNDS) -> float:
    federation = fl.Federation(algorithm, world)
    for _ in federation.train(rounds):
        assert bool(torch.isfinite(federation.params).all())
    return world.objective_at(federation.params, federation.state.buffers)


@cache
def honest_loss() -> float:
    return trained(PLAIN, hostile_world("NaN", 0.0))


@pytest.mark.parametrize("name", ROBUST)
@pytest.mark.parametrize("attack", ATTACKS)
def test_robust_aggregators_hold_the_loss(attack: str, name: str, figure: Callable[[str], None]) -> None:
    ratios = {share: trained(ROBUST[name], hostile_world(attack, share)) / honest_loss() for share in SHARES}
    told = ", ".join(f"{ratio:.2f} at {share:.0%}" for share, ratio in ratios.items())
    figure(f"hostile clients: {name} under {attack}: loss {told} of the clean one ({ROUNDS} rounds)")
    assert max(ratios.values()) < WORST


def test_the_bound_is_not_one_that_anything_would_hold(figure: Callable[[str], None]) -> None:
    """The model at the start, and a plain mean whose clients are a tenth hostile at scale, are far beyond it."""
    world = hostile_world("negative scale", 0.1)
    start = world.objective_at(*world.initial_model(fl.Key.from_seed(0)))
    lost = trained(PLAIN, world, rounds=2)
    figure(
        f"hostile clients: plain mean under 10% negative scale: loss {lost / honest_loss():.3g} of the clean one"
    )
    assert min(start, lost) > 2 * honest_loss()


@pytest.mark.parametrize("attack", ["NaN", "one infinity"])
def test_plain_means_refuse_rows_that_are_not_finite_and_say_whose(attack: str) -> None:
    federation = fl.Federation(PLAIN, hostile_world(attack, 0.1))
    before = federation.params.clone()
    with pytest.raises(NonFiniteError, match=r"In round 1 the updates of clients \[0, 1\] are not finite"):
        next(federation.train(1))
    assert torch.equal(federation.params, before)


@pytest.mark.parametrize("algorithm", [PLAIN, *ROBUST.values()], ids=["WeightedMean", *ROBUST])
@pytest.mark.parametrize("attack", ["NaN", "one infinity"])
def test_messages_that_are_not_finite_become_absent_rows(attack: str, algorithm: fl.Algorithm) -> None:
    """At the door of messages every method goes on without them, exactly as if they had been lost."""
    world = hostile_world(attack, 0.2, by_message=True)
    honest = simulated()
    lossy = fl.SimulatedWorld(
        honest.task, honest.clients, weights="uniform", link=fl.ScriptedLink((tuple(range(4, NUM_CLIENTS)),))
    )
    refusing, losing = fl.Federation(algorithm, world), fl.Federation(algorithm, lossy)
    for refused, lost in zip(refusing.train(3), losing.train(3), strict=True):
        assert refused.arrived == lost.arrived == tuple(range(4, NUM_CLIENTS))
        assert [refusal.client for refusal in refused.refused] == [0, 1, 2, 3]
        assert {refusal.reason for refusal in refused.refused} == {Reason.NOT_FINITE}
        assert lost.refused == ()
    assert torch.equal(refusing.params, losing.params)


@pytest.mark.parametrize("name", ROBUST)
def test_robust_aggregators_leave_bad_rows_out_of_a_simulation_too(name: str) -> None:
    """No message, no door: the round itself leaves them out and names them."""
    by_round, by_message = (hostile_world("NaN", 0.2, by_message=by) for by in (False, True))
    one, other = fl.Federation(ROBUST[name], by_round), fl.Federation(ROBUST[name], by_message)
    for left_out, refused in zip(one.train(3), other.train(3), strict=True):
        assert left_out.arrived == refused.arrived
        assert [refusal.client for refusal in left_out.refused] == [0, 1, 2, 3]
        assert (left_out.elud, left_out.drift_norm) == (refused.elud, refused.drift_norm)
    assert torch.equal(one.params, other.params)


def test_nobody_can_go_around_a_robust_aggregator() -> None:
    """A broadcast of control variates is a plain sum of uploads: one client would move it anywhere."""
    solver = fl.LocalSolver(fl.SGD(0.1), corrections=(fl.ControlVariates(),))
    with pytest.raises(ClashError, match="CoordinateMedian would protect nothing"):
        fl.Algorithm(solver, aggregator=fl.CoordinateMedian())
