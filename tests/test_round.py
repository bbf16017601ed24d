"""The round: what changes when something arrives, and what stays when nothing does."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import fairlead as fl
from fairlead.client_table import table_in
from fairlead.corrections.base import Correction, LocalOutcome, LocalResult
from fairlead.errors import NonFiniteError, StaleStateError
from fairlead.records import Vectors
from fairlead.round import initial_state

PROBLEM = fl.Quadratics(num_clients=4, dim=3, conditioning=3.0, weights=(1.0, 2.0, 3.0, 4.0)).problem(
    fl.Key.from_seed(0)
)


def world(link: fl.LinkModel | None = None, **more: Any) -> fl.SimulatedWorld:
    return fl.SimulatedWorld(
        PROBLEM.task(),
        PROBLEM.data(),
        weights=PROBLEM.weights,
        work=fl.FixedSteps((1, 2, 3, 4)),
        link=link,
        dtype=torch.float64,
        **more,
    )


STATEFUL = fl.Algorithm(
    fl.LocalSolver(fl.SGD(0.1), corrections=(fl.ControlVariates(),)),
    transforms=(fl.Clip(0.5),),
    server=fl.Adam(0.1),
)


def flat(state: fl.ServerState) -> list[Tensor]:
    """Every tensor of a state."""
    parts = (state.shared, state.sampler, state.aggregator, *state.transforms, state.server, state.memory)
    found = [state.params, state.buffers]
    for part in parts:
        for value in part.values():
            found += [value] if isinstance(value, Tensor) else [value.clients.clone(), value.rows.clone()]
    return found


def test_an_empty_round_changes_nothing_but_its_number() -> None:
    """Arrivals in rounds 0 and 2 only: Adam's moments, the control variates and the model wait in round 1."""
    here = world(fl.ScriptedLink(((0, 1, 2, 3), ())))
    key = fl.Key.from_seed(0)
    first, _ = fl.run_round(STATEFUL, here, initial_state(STATEFUL, here, key), key)
    before = [tensor.clone() for tensor in flat(first)]
    second, record = fl.run_round(STATEFUL, here, first, key)
    assert second.round == 2
    assert all(torch.equal(old, new) for old, new in zip(before, flat(second), strict=True))
    assert (record.arrived, record.asked) == ((), (0, 1, 2, 3))
    assert (record.train_loss, record.elud, record.step_norm, record.direction_norm) == (None, None, 0.0, 0.0)
    assert record.bytes_up == 0
    assert record.bytes_down > 0
    third, _ = fl.run_round(STATEFUL, here, second, key)
    assert not torch.equal(third.params, second.params)


def test_nobody_asked_is_an_empty_round_too() -> None:
    algorithm = fl.Algorithm(fl.LocalSolver(fl.SGD(0.1)), fl.ScriptedSampler(((), (1,))))
    federation = fl.Federation(algorithm, world())
    first, second = federation.train(2)
    assert (first.asked, first.bytes_down, first.coefficients) == ((), 0, ())
    assert second.coefficients == (1.0,)


def test_lost_updates_roll_client_memory_back() -> None:
    """Σ ω_i c_i = c after every round of SCAFFOLD, whoever is lost; a lost client keeps its old c_i."""
    here = world(fl.BernoulliLink(0.5))
    algorithm = fl.Algorithm(fl.LocalSolver(fl.SGD(0.1), corrections=(fl.ControlVariates(),)))
    federation = fl.Federation(algorithm, here)
    everyone = torch.arange(4)
    before = torch.zeros((4, 3), dtype=torch.float64)
    lost_someone = False
    for record in federation.train(12):
        controls = table_in(federation.state.memory, "control").read(everyone)
        shared = federation.state.shared["control_mean"]
        assert torch.allclose(PROBLEM.weights @ controls, shared, atol=1e-14)
        lost = [client for client in range(4) if client not in record.arrived]
        lost_someone |= 0 < len(lost) < 4
        assert torch.equal(controls[lost], before[lost])
        before = controls
    assert lost_someone


def test_an_old_state_cannot_be_used_again() -> None:
    """Client rows have moved on: going back needs a checkpoint, and says so."""
    here, key = world(), fl.Key.from_seed(0)
    first = initial_state(STATEFUL, here, key)
    fl.run_round(STATEFUL, here, first, key)
    with pytest.raises(StaleStateError, match="continue from the newest state"):
        fl.run_round(STATEFUL, here, first, key)


def test_a_stateless_round_can_be_repeated() -> None:
    here, key = world(), fl.Key.from_seed(0)
    algorithm = fl.presets.fedavg(lr=0.1)
    state = initial_state(algorithm, here, key)
    one, other = (fl.run_round(algorithm, here, state, key) for _ in range(2))
    assert torch.equal(one[0].params, other[0].params)
    assert one[1] == other[1]


def test_updates_that_are_not_finite_name_their_clients() -> None:
    """Clients 1 and 3 overflow at a learning rate of 1e30 within a dozen steps, which clients 0 and 2 do not take."""
    here = fl.SimulatedWorld(
        PROBLEM.task(), PROBLEM.data(), work=fl.FixedSteps((1, 14, 1, 15)), dtype=torch.float64
    )
    federation = fl.Federation(fl.presets.fedavg(lr=1e30), here)
    with pytest.raises(NonFiniteError, match=r"In round 1 the updates of clients \[1, 3\] are not finite"):
        next(federation.train(1))
    assert federation.state.round == 0
    assert bool(torch.isfinite(federation.params).all())


def test_a_server_step_that_is_not_finite_is_the_servers_fault() -> None:
    algorithm = fl.Algorithm(fl.LocalSolver(fl.SGD(0.1)), server=fl.SGD(1e30, momentum=0.9))
    federation = fl.Federation(algorithm, world())
    with pytest.raises(NonFiniteError, match=r"the server's step is not finite although every update is"):
        list(federation.train(20))


@pytest.mark.parametrize("server", [fl.Adagrad(0.1), fl.Adam(0.1), fl.Yogi(0.1), fl.AMSGrad(0.1)])
def test_a_second_moment_that_overflows_is_refused(server: fl.Optimizer) -> None:
    """Updates of 1e180 are finite and their squares are not: m/√v = 0 would look like a model at rest."""
    here = fl.SimulatedWorld(PROBLEM.task(), PROBLEM.data(), weights=PROBLEM.weights, dtype=torch.float64)
    federation = fl.Federation(fl.Algorithm(fl.LocalSolver(fl.SGD(1e30), steps=6), server=server), here)
    with pytest.raises(NonFiniteError, match=r"the server's step is not finite although every update is"):
        next(federation.train(1))


@dataclass(frozen=True)
class _BadMessage(Correction):
    """Uploads infinity beside the update of the client that took two steps."""

    def correct(
        self, gradient: Tensor, local: Tensor, anchor: Tensor, memory: Vectors, shared: Vectors
    ) -> Tensor:
        return gradient

    def after_steps(self, outcome: LocalOutcome, memory: Vectors, shared: Vectors) -> LocalResult:
        return LocalResult(outcome.delta, {}, {"note": 1.0 / (outcome.num_steps - 2.0)})


def test_messages_that_are_not_finite_are_refused() -> None:
    """An update may be finite while what is uploaded beside it is not: it would reach the broadcast."""
    algorithm = fl.Algorithm(fl.LocalSolver(fl.SGD(0.1), corrections=(_BadMessage(),)))
    with pytest.raises(NonFiniteError, match=r"updates of clients \[1\] are not finite"):
        list(fl.Federation(algorithm, world()).train(1))


def test_a_learning_rate_of_zero_does_nothing_at_all() -> None:
    """Also not to control variates, which would divide by it; schedules may end at 0."""
    algorithm = fl.Algorithm(
        fl.LocalSolver(fl.SGD(0.1, schedule=fl.Cosine(2)), corrections=(fl.ControlVariates(),))
    )
    federation = fl.Federation(algorithm, world())
    list(federation.train(2))
    before = [tensor.clone() for tensor in flat(federation.state)]
    (record,) = federation.train(1)
    assert record.step_norm == 0.0
    assert all(torch.equal(old, new) for old, new in zip(before, flat(federation.state), strict=True))


def test_the_record_tells_the_facts_of_the_round() -> None:
    """Four clients with ω = (.1, .2, .3, .4) and 1 to 4 steps; 3 numbers down and 3 up, 8 bytes each."""
    federation = fl.Federation(fl.presets.fednova(lr=0.1), world(fl.ScriptedLink(((0, 2, 3),))))
    (record,) = federation.train(1)
    assert record.asked == (0, 1, 2, 3)
    assert record.multiplicity == (1, 1, 1, 1)
    assert record.arrived == (0, 2, 3)
    assert record.num_steps == (1, 3, 4)
    assert record.effective_steps == (1.0, 3.0, 4.0)
    share = torch.tensor([0.1, 0.3, 0.4], dtype=torch.float64) / 0.8
    tau = share @ torch.tensor([1.0, 3.0, 4.0], dtype=torch.float64)
    expected = tau * share / torch.tensor([1.0, 3.0, 4.0], dtype=torch.float64)
    assert record.coefficients == pytest.approx(expected.tolist())
    assert record.bytes_down == 4 * 3 * 8
    assert record.bytes_up == 3 * 3 * 8
    assert record.step_norm == pytest.approx(record.direction_norm)
    assert record.elud is not None
    assert record.elud >= 1.0


def test_broadcasts_and_messages_count_as_bytes() -> None:
    federation = fl.Federation(fl.presets.scaffold(lr=0.1), world())
    (record,) = federation.train(1)
    assert (record.bytes_down, record.bytes_up) == (4 * 6 * 8, 4 * 6 * 8)


def test_update_diversity_by_hand() -> None:
    """e-LUD = √(mean‖g‖²/‖mean g‖²): equal rows 1, orthogonal unit rows √2, opposite rows infinite."""
    from fairlead.round_record import update_statistics

    def update_diversity(delta: torch.Tensor) -> float | None:
        return update_statistics(delta, torch.ones(len(delta), dtype=torch.float64))().elud

    assert update_diversity(torch.tensor([[1.0, 2.0], [1.0, 2.0]])) == pytest.approx(1.0)
    assert update_diversity(torch.tensor([[1.0, 0.0], [0.0, 1.0]])) == pytest.approx(math.sqrt(2))
    assert update_diversity(torch.tensor([[1.0], [-1.0]])) == math.inf
    assert update_diversity(torch.zeros(2, 2)) == 1.0


def test_transforms_work_before_and_after_the_server() -> None:
    """A clip of the aggregate bounds the direction; the step is what the server makes of it."""
    algorithm = fl.Algorithm(fl.LocalSolver(fl.SGD(0.5)), transforms=(fl.Clip(0.01),), server=fl.SGD(2.0))
    (record,) = fl.Federation(algorithm, world()).train(1)
    assert record.direction_norm == pytest.approx(0.01)
    assert record.step_norm == pytest.approx(0.02)
    assert record.facts["clip_factor"] < 1.0


def test_the_server_follows_its_own_schedule() -> None:
    """lr 1, then 0.1 from round 2 on; clients take one plain step, so steps shrink by ten."""
    algorithm = fl.Algorithm(
        fl.LocalSolver(fl.SGD(0.1), steps=1), server=fl.SGD(1.0, schedule=fl.Milestones((2,), gamma=0.1))
    )
    records = list(fl.Federation(algorithm, world()).train(3))
    ratios = [record.step_norm / record.direction_norm for record in records]
    assert ratios == pytest.approx([1.0, 1.0, 0.1])


def test_constant_buffers_keep_every_bit() -> None:
    """Averaging with float32 weights that do not sum to exactly 1 would let them drift."""

    class Positions(nn.Module):
        table: Tensor

        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("table", torch.linspace(0.1, 0.7, 4))
            self.out = nn.Linear(4, 3)

        def forward(self, inputs: Tensor) -> Tensor:
            scores: Tensor = self.out(inputs + self.table)
            return scores

    sizes = (3, 5, 7, 11, 13)
    data = fl.ClientData.from_lists(
        [torch.randn(n, 4) for n in sizes], [torch.zeros(n, dtype=torch.int64) for n in sizes]
    )
    federation = fl.Federation(fl.presets.fedavg(lr=0.1), fl.SimulatedWorld(fl.Task(Positions()), data))
    list(federation.train(20))
    assert torch.equal(federation.state.buffers, torch.linspace(0.1, 0.7, 4))
