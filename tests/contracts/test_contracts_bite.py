"""The contract checks catch the mistakes that they are for: each broken part here must be refused."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np
import pytest
import torch
from part_examples import examples
from torch import Tensor

import fairlead as fl
from fairlead.aggregators.base import weighted_sum
from fairlead.client_table import PartState, table_in, tensor_in
from fairlead.component import Component
from fairlead.conditions.devices import DeviceProfile
from fairlead.corrections.base import Correction, LocalOutcome, LocalResult
from fairlead.optimizers.base import OptimizerState
from fairlead.records import Aggregate, Transformed, Vectors
from fairlead.testing import (
    check_aggregator,
    check_correction,
    check_limit,
    check_link,
    check_optimizer,
    check_part,
    check_partitioner,
    check_sampler,
    check_schedule,
    check_transform,
    check_work,
)


@dataclass(frozen=True)
class _Broken(fl.LinearAggregator):
    """A weighted mean with one mistake, chosen by name."""

    mistake: str

    def coefficients(self, updates: fl.ClientUpdates, conditions: fl.Conditions) -> Tensor:
        share = updates.importance / updates.importance.sum()
        if self.mistake == "order":
            return share * torch.arange(1, len(share) + 1)
        if self.mistake == "sum":
            return 2 * share
        if self.mistake == "mutates":
            updates.delta.mul_(1.0001)
        if self.mistake == "random":
            return share + 1e-6 * torch.rand(())
        if self.mistake == "dtype":
            return share.float()
        if self.mistake == "nan":
            return share / (len(share) - 1)
        return share


@pytest.mark.parametrize(
    ("mistake", "sentence"),
    [
        ("order", "must not depend on the numbering of clients"),
        ("sum", "must return a row that all clients sent after equal work"),
        ("mutates", "must not change the updates"),
        ("random", "must give the same direction for the same updates"),
        ("dtype", "must return one float64 coefficient per row"),
        ("nan", "must give a finite direction for 1 finite rows"),
    ],
)
def test_broken_aggregators(mistake: str, sentence: str) -> None:
    check_aggregator(_Broken("none"))
    with pytest.raises(AssertionError, match=sentence):
        check_aggregator(_Broken(mistake))


@dataclass(frozen=True)
class _Reading(fl.LinearAggregator):
    """Coefficients from facts of a round other than importance and work."""

    fact: str
    exemptions = {"identical rows": "lost updates count as zero"}

    def coefficients(self, updates: fl.ClientUpdates, conditions: fl.Conditions) -> Tensor:
        asked = updates.cohort
        if self.fact == "cohort size":
            return updates.importance * len(updates) / len(asked.clients)
        if self.fact == "draws":
            return asked.multiplicity[torch.isin(asked.clients, updates.clients)] / asked.importance.sum()
        counts = {"examples": updates.num_examples, "steps": updates.num_steps}.get(
            self.fact, torch.ones_like(updates.clients)
        )
        return counts.to(torch.float64) / counts.sum()


@dataclass(frozen=True)
class _Overclaiming(_Reading):
    """The same with a theory that forgets the links."""

    def mean_coefficients(self, expected: fl.ExpectedRound) -> fl.MeanCoefficients:
        return fl.MeanCoefficients(expected.participation.importance, "exact")


@pytest.mark.parametrize("fact", ["examples", "steps", "number", "draws", "cohort size"])
def test_mean_coefficients_are_those_of_real_rounds(fact: str) -> None:
    check_aggregator(_Reading(fact))
    with pytest.raises(AssertionError, match="must claim its mean coefficients"):
        check_aggregator(_Overclaiming(fact))


@dataclass(frozen=True)
class _Remembering(fl.Aggregator):
    """Follows the updates with a memory, and handles empty rounds or checkpoints wrongly."""

    mistake: str
    needs_effective_steps: ClassVar[bool] = False
    needs_arrival: ClassVar[bool] = False
    hidden: ClassVar[dict[str, Tensor]] = {}

    def init(self, population: fl.Population) -> PartState:
        shape = (population.num_parameters,)
        table = fl.ClientTable.create(population.num_clients, *shape, dtype=population.dtype)
        return {"mean": torch.zeros(shape, dtype=population.dtype), "last": table}

    def aggregate(self, updates: fl.ClientUpdates, state: PartState, conditions: fl.Conditions) -> Aggregate:
        mean, table = tensor_in(state, "mean"), table_in(state, "last")
        if not len(updates):
            if self.mistake == "decays":
                mean = 0.5 * mean
            if self.mistake == "forgets":
                table = table.write(table.clients, torch.zeros_like(table.rows))
            return Aggregate(mean, {"mean": mean, "last": table}, None)
        share = updates.importance / updates.importance.sum()
        fresh = weighted_sum(share, updates.delta)
        if self.mistake == "hides":
            mean = self.hidden.get(str(updates.delta.dtype), mean) if len(table.clients) else mean
            self.hidden[str(updates.delta.dtype)] = fresh + torch.rand_like(fresh) * len(self.hidden)
        direction = fresh + 0.5 * mean
        return Aggregate(
            direction, {"mean": fresh, "last": table.write(updates.clients, updates.delta)}, None
        )


@pytest.mark.parametrize(
    ("mistake", "sentence"),
    [
        ("decays", "must leave its state alone in an empty round after a round, .* changes mean"),
        ("forgets", "must leave its state alone in an empty round after a round, .* changes last/rows"),
        ("hides", "must give the same direction for the same updates"),
    ],
)
def test_broken_memories(mistake: str, sentence: str) -> None:
    check_aggregator(_Remembering("none"))
    with pytest.raises(AssertionError, match=sentence):
        check_aggregator(_Remembering(mistake))


@dataclass(frozen=True)
class _BrokenSampler(fl.MemorylessSampler):
    mistake: str

    def check(self, population: fl.Population) -> None:
        pass

    def draw(self, state: PartState, conditions: fl.Conditions, key: fl.Key) -> fl.Cohort:
        cohort = fl.UniformWithoutReplacement(3).draw(state, conditions, key)
        if self.mistake == "unsorted":
            return replace(cohort, clients=cohort.clients.flip(0))
        if self.mistake == "biased":
            return replace(cohort, importance=conditions.weights[cohort.clients])
        if self.mistake == "constant":
            return fl.FullParticipation().draw(state, conditions, key)
        if self.mistake == "outside":
            return replace(cohort, clients=cohort.clients + 5)
        if self.mistake == "global":
            return fl.UniformWithoutReplacement(3).draw(state, conditions, key.fold(_Counter.next()))
        if self.mistake == "negative":
            return replace(cohort, importance=-cohort.importance)
        return cohort


class _Counter:
    value = 0

    @classmethod
    def next(cls) -> int:
        cls.value += 1
        return cls.value


@pytest.mark.parametrize(
    ("mistake", "sentence"),
    [
        ("unsorted", "distinct clients in ascending order"),
        ("biased", "instead of its weight"),
        ("constant", "it must use the key"),
        ("outside", "must sample clients from 0 to 6"),
        ("global", "must draw the same cohort for the same key"),
        ("negative", "importance of at least 0"),
    ],
)
def test_broken_samplers(mistake: str, sentence: str) -> None:
    check_sampler(_BrokenSampler("none"))
    with pytest.raises(AssertionError, match=sentence):
        check_sampler(_BrokenSampler(mistake))


@dataclass(frozen=True)
class _BrokenOptimizer(fl.Optimizer):
    mistake: str = "none"
    linear: ClassVar[bool] = True

    def init(self, params: Tensor) -> OptimizerState:
        return {"velocity": torch.zeros_like(params)}

    def step(
        self, params: Tensor, gradient: Tensor, state: OptimizerState, lr: Tensor
    ) -> tuple[Tensor, OptimizerState]:
        velocity = 0.5 * state["velocity"] + gradient
        if self.mistake == "mixes":
            velocity = velocity / velocity.norm()
        if self.mistake == "in place":
            state["velocity"].copy_(velocity)
        if self.mistake == "ascends":
            velocity = -velocity
        if self.mistake == "clipped":
            velocity = velocity.clamp(-0.5, 0.5)
        if self.mistake == "ignores lr":
            return params - 0.1 * velocity, {"velocity": velocity}
        if self.mistake == "drifts":
            velocity = velocity + 0.01
        if self.mistake == "upcasts":
            return (params.double() - lr * velocity), {"velocity": velocity}
        if self.mistake == "forgets":
            return params - lr * velocity, {}
        return params - lr * velocity, {"velocity": velocity}


@pytest.mark.parametrize(
    ("mistake", "sentence"),
    [
        ("mixes", "must move rows side by side as it moves each alone"),
        ("in place", "must not change parameters, gradient, state"),
        ("ascends", "first step down the gradient"),
        ("clipped", "claims to be linear in the gradients and is not"),
        ("ignores lr", "must not move with a learning rate of 0"),
        ("drifts", "must not move without a gradient"),
        ("upcasts", "must keep parameters in torch.float32"),
        ("forgets", "must keep the names, shapes and dtypes of its state"),
    ],
)
def test_broken_optimizers(mistake: str, sentence: str) -> None:
    check_optimizer(_BrokenOptimizer(0.1))
    with pytest.raises(AssertionError, match=sentence):
        check_optimizer(_BrokenOptimizer(0.1, mistake=mistake))


@dataclass(frozen=True)
class _BrokenCorrection(Correction):
    mistake: str

    def correct(
        self, gradient: Tensor, local: Tensor, anchor: Tensor, memory: Vectors, shared: Vectors
    ) -> Tensor:
        if self.mistake == "squares":
            return gradient + 0.1 * gradient.square()
        if self.mistake == "scales":
            return 0.5 * gradient
        if self.mistake == "mixes":
            return gradient + (local - anchor).mean()
        if self.mistake == "in place":
            return gradient.add_(local - anchor)
        return gradient + (local - anchor)

    def after_steps(self, outcome: LocalOutcome, memory: Vectors, shared: Vectors) -> LocalResult:
        if self.mistake == "divides":
            return LocalResult(outcome.delta / outcome.lr, {}, {})
        if self.mistake == "undeclared":
            return LocalResult(outcome.delta, {"surprise": outcome.delta}, {})
        return LocalResult(outcome.delta, {}, {})


@pytest.mark.parametrize(
    ("mistake", "sentence"),
    [
        ("squares", "must correct gradients by an affine map"),
        ("scales", "must return the raw gradient"),
        ("mixes", "must treat clients side by side as each alone, but correct differs"),
        ("in place", "must not change its arguments in place"),
        ("divides", "must keep everything finite, but delta is not at a learning rate of 0.0"),
        ("undeclared", "declares a memory of {}"),
    ],
)
def test_broken_corrections(mistake: str, sentence: str) -> None:
    check_correction(_BrokenCorrection("none"))
    with pytest.raises(AssertionError, match=sentence):
        check_correction(_BrokenCorrection(mistake))


@dataclass(frozen=True)
class _BrokenTransform(fl.DirectionTransform):
    mistake: str
    stage = "aggregate"

    def init(self, population: fl.Population) -> PartState:
        return {}

    def transform(
        self, direction: Tensor, updates: fl.ClientUpdates, state: PartState, conditions: fl.Conditions
    ) -> Transformed:
        if self.mistake == "in place":
            return Transformed(direction.mul_(2.0), state)
        if self.mistake == "unit":
            return Transformed(direction / direction.norm(), state)
        if self.mistake == "noise":
            return Transformed(direction + 0.1 * torch.randn_like(direction), state)
        if self.mistake == "double":
            return Transformed(direction.double(), state)
        return Transformed(direction, state, {"factor": 1.0})


@pytest.mark.parametrize(
    ("mistake", "sentence"),
    [
        ("in place", "must not change the direction"),
        ("unit", "must leave a zero direction zero"),
        ("noise", "must transform the same direction in the same way"),
        ("double", "must keep shape, dtype and device"),
    ],
)
def test_broken_transforms(mistake: str, sentence: str) -> None:
    check_transform(_BrokenTransform("none"))
    with pytest.raises(AssertionError, match=sentence):
        check_transform(_BrokenTransform(mistake))


@dataclass(frozen=True)
class _BrokenLink(fl.LinkModel):
    mistake: str

    def arrival(self, clients: Tensor, round: int, key: fl.Key, durations: Tensor | None = None) -> Tensor:
        rates = torch.full((len(clients),), 0.7, dtype=torch.float64)
        return rates + 0.5 if self.mistake == "above one" else rates

    def arrives(self, clients: Tensor, round: int, key: fl.Key, durations: Tensor | None = None) -> Tensor:
        if self.mistake == "by place":
            return key.fold(round).uniform(torch.arange(len(clients))) < 0.7
        if self.mistake == "lies":
            return key.fold(round).uniform(clients) < 0.5
        return key.fold(round).uniform(clients) < 0.7


@pytest.mark.parametrize(
    ("mistake", "sentence"),
    [
        ("above one", "must give arrival rates from 0 to 1"),
        ("by place", "must not let an arrival depend on the rest of the cohort"),
        ("lies", "arrive at another rate than it claims"),
    ],
)
def test_broken_links(mistake: str, sentence: str) -> None:
    check_link(_BrokenLink("none"))
    with pytest.raises(AssertionError, match=sentence):
        check_link(_BrokenLink(mistake))


@dataclass(frozen=True)
class _BrokenWork(fl.WorkModel):
    mistake: str

    def workload(
        self,
        clients: Tensor,
        sizes: Tensor,
        solver: fl.LocalSolver,
        round: int,
        key: fl.Key,
        devices: DeviceProfile | None = None,
    ) -> fl.Workload:
        steps, batches = solver.count_steps(sizes), solver.batches(sizes)
        if self.mistake == "works without data":
            return fl.Workload(steps + 1, batches)
        if self.mistake == "too large":
            return fl.Workload(steps, torch.full_like(batches, 50))
        if self.mistake == "by place":
            return fl.Workload(torch.where(steps > 0, torch.arange(len(clients)) + 1, 0), batches)
        return fl.Workload(steps, batches)


@pytest.mark.parametrize(
    ("mistake", "sentence"),
    [
        ("works without data", "none to one without"),
        ("too large", "must keep batches between 1 and the examples"),
        ("by place", "must not let a client's work depend on the rest of the cohort"),
    ],
)
def test_broken_work(mistake: str, sentence: str) -> None:
    check_work(_BrokenWork("none"))
    with pytest.raises(AssertionError, match=sentence):
        check_work(_BrokenWork(mistake))


@dataclass(frozen=True)
class _BrokenPartitioner(fl.Partitioner):
    mistake: str

    def owners(self, labels: Any, num_clients: int, key: fl.Key, natural: Any) -> Any:
        owner = key.generator().integers(0, num_clients, len(labels))
        if self.mistake == "outside":
            return owner + 1
        if self.mistake == "constant":
            return np.arange(len(labels)) % num_clients
        if self.mistake == "short":
            return owner[1:]
        return owner


@pytest.mark.parametrize(
    ("mistake", "sentence"),
    [
        ("outside", "must deal to clients from 0 to 6"),
        ("constant", "it must use the key"),
        ("short", "must name one owner per example"),
    ],
)
def test_broken_partitioners(mistake: str, sentence: str) -> None:
    check_partitioner(_BrokenPartitioner("none"))
    with pytest.raises(AssertionError, match=sentence):
        check_partitioner(_BrokenPartitioner(mistake))


@dataclass(frozen=True)
class _BrokenSchedule(fl.Schedule):
    def factor(self, time: int) -> float:
        return math.inf if time > 100 else 1.0


def test_broken_schedules() -> None:
    with pytest.raises(AssertionError, match="finite factor of at least 0 at time 1000, got inf"):
        check_schedule(_BrokenSchedule())


def test_a_wrong_limit_is_refused() -> None:
    """FedAvg with unequal steps does not reach the optimum, and the check must see that."""
    from fairlead.testing.run_checks import standard_problem

    with pytest.raises(AssertionError, match="must converge to"):
        check_limit(fl.presets.fedavg(lr=0.3), standard_problem().optimum, max_rounds=60)


@dataclass(frozen=True)
class _Exempt(fl.LinearAggregator):
    """Twice the mean, by intention."""

    exemptions: ClassVar[dict[str, str]] = {"identical rows": "it takes double steps"}

    def coefficients(self, updates: fl.ClientUpdates, conditions: fl.Conditions) -> Tensor:
        return 2 * updates.importance / updates.importance.sum()


def test_an_exemption_with_a_reason_is_respected() -> None:
    check_aggregator(_Exempt())


@dataclass(frozen=True)
class MisspeltExemption(fl.LinearAggregator):
    """Exempts itself from a contract that does not exist."""

    exemptions: ClassVar[dict[str, str]] = {"identical row": "it takes double steps"}

    def coefficients(self, updates: fl.ClientUpdates, conditions: fl.Conditions) -> Tensor:
        return updates.importance


def test_an_exemption_from_nothing_is_refused() -> None:
    with pytest.raises(AssertionError, match=r"exemptions must give a reason for one of .*'identical rows'"):
        check_part(MisspeltExemption())


def test_a_part_without_a_role_is_refused() -> None:
    @dataclass(frozen=True)
    class Nothing(Component):
        pass

    with pytest.raises(AssertionError, match="Nothing has no role with a contract"):
        check_part(Nothing())


def test_a_part_of_which_no_example_can_be_made_says_so() -> None:
    @dataclass(frozen=True)
    class _Named(fl.Schedule):
        name: str

        def factor(self, time: int) -> float:
            return 1.0

    with pytest.raises(AssertionError, match="No example of _Named can be made from its fields"):
        examples(_Named)
