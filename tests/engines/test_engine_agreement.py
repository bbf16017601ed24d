"""Both engines give the same numbers, for every part and every kind of model, on ragged clients."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import torch
from part_examples import examples
from torch import Tensor, nn
from torch.nn import functional as F

import fairlead as fl
from fairlead.component import Component, parts_of
from fairlead.task import PerExample

SIZES = (7, 1, 0, 4, 10, 3, 2)
WORK = fl.FixedSteps((5, 3, 1, 6, 2, 4, 1))


def every_example(role: Any) -> list[Any]:
    """Examples of every part of a role that comes with the library."""
    found: list[type[Component]] = [*parts_of(role).values()]
    return [part for cls in found if cls.__module__.startswith("fairlead.") for part in examples(cls)]


def classes(inputs: tuple[int, ...], num_classes: int = 3) -> fl.ClientData:
    """Clients with 7, 1, 0, 4, 10, 3 and 2 examples of a given shape."""
    draw = torch.Generator().manual_seed(0)
    return fl.ClientData.from_lists(
        [torch.randn((n, *inputs), generator=draw, dtype=torch.float64) for n in SIZES],
        [torch.randint(0, num_classes, (n,), generator=draw) for n in SIZES],
    )


def tokens(length: int = 5, vocabulary: int = 6) -> fl.ClientData:
    """Sequences with the next token as target; the last has none (-100)."""
    draw = torch.Generator().manual_seed(1)
    inputs = [torch.randint(0, vocabulary, (n, length), generator=draw) for n in SIZES]
    ends = [torch.full((n, 1), -100) for n in SIZES]
    return fl.ClientData.from_lists(
        inputs, [torch.cat([own[:, 1:], end], 1) for own, end in zip(inputs, ends, strict=True)]
    )


def run(
    engine: Any,
    algorithm: fl.Algorithm,
    task: fl.Task,
    data: fl.ClientData,
    device: torch.device,
    lanes: int = 3,
) -> fl.Federation:
    world = fl.SimulatedWorld(
        task, data, work=WORK, engine=engine, lanes=lanes, device=device, dtype=torch.float64
    )
    federation = fl.Federation(algorithm, world)
    list(federation.train(2))
    return federation


def assert_agreement(
    algorithm: fl.Algorithm, task: fl.Task, data: fl.ClientData, device: torch.device
) -> None:
    """Parameters, what clients remember and what is broadcast agree to 1e-12; the model has moved."""
    for engine in ("batched", "branches"):
        assert_agreement_with_loop(engine, algorithm, task, data, device)


def assert_agreement_with_loop(
    engine: str, algorithm: fl.Algorithm, task: fl.Task, data: fl.ClientData, device: torch.device
) -> None:
    loop, batched = (run(name, algorithm, task, data, device) for name in ("loop", engine))
    start, _ = loop.world.initial_model(loop.key)
    assert float((loop.params - start).abs().max()) > 1e-4
    assert torch.allclose(loop.params, batched.params, rtol=1e-12, atol=1e-12)
    for name, vector in loop.state.shared.items():
        assert torch.allclose(vector, batched.state.shared[name], rtol=1e-12, atol=1e-12)
    everyone = torch.arange(len(SIZES))
    for name, table in loop.state.memory.items():
        other = batched.state.memory[name]
        assert isinstance(table, fl.ClientTable)
        assert isinstance(other, fl.ClientTable)
        assert torch.allclose(table.read(everyone), other.read(everyone), rtol=1e-12, atol=1e-11)
    losses = [[record.train_loss for record in one.records] for one in (loop, batched)]
    assert losses[0] == pytest.approx(losses[1], rel=1e-12)


DENSE = fl.Task(fl.MLP(hidden=(5,)))


@pytest.mark.parametrize("optimizer", every_example(fl.Optimizer), ids=repr)
def test_every_optimizer(optimizer: fl.Optimizer, device: torch.device) -> None:
    solver = fl.LocalSolver(optimizer, batch_size=3)
    assert_agreement(fl.Algorithm(solver), DENSE, classes((4,)), device)


@pytest.mark.parametrize("correction", every_example(fl.Correction), ids=repr)
def test_every_correction(correction: fl.Correction, device: torch.device) -> None:
    """With momentum, so that a lane's state must be renewed for its next client."""
    solver = fl.LocalSolver(fl.SGD(0.1, momentum=0.5), batch_size=3, corrections=(correction,))
    if isinstance(correction, fl.OwnParameters) and correction.train == "own":
        body = replace(correction, train="shared")
        solver = replace(solver, corrections=(body,), personal=solver)
    wanted = correction.needs_aggregator or "WeightedMean"
    aggregator = next(part for part in every_example(fl.Aggregator) if type(part).__name__ == wanted)
    assert_agreement(fl.Algorithm(solver, aggregator=aggregator), DENSE, classes((4,)), device)


def test_what_an_optimizer_keeps_between_rounds(device: torch.device) -> None:
    """The share of its own model that each client learns; in its first round it has none to learn from."""
    apfl = fl.presets.apfl(lr=0.3, batch_size=3, adaptive=True)
    assert_agreement(apfl, DENSE, classes((4,)), device)


@pytest.mark.parametrize("schedule", every_example(fl.Schedule), ids=repr)
def test_every_schedule_by_step_and_by_round(schedule: fl.Schedule, device: torch.device) -> None:
    solver = fl.LocalSolver(fl.SGD(0.1, schedule=schedule), batch_size=3, step_schedule=schedule)
    assert_agreement(fl.Algorithm(solver), DENSE, classes((4,)), device)


@pytest.mark.parametrize("batch_size", [1, 3, 4, None])
def test_clipping_and_batch_sizes(batch_size: int | None, device: torch.device) -> None:
    solver = fl.LocalSolver(fl.SGD(0.5), batch_size=batch_size, clip=0.3)
    assert_agreement(fl.Algorithm(solver), DENSE, classes((4,)), device)


class Attention(nn.Module):
    """One head over the input's entries as tokens, with the fused product."""

    def __init__(self) -> None:
        super().__init__()
        self.embed, self.project = nn.Linear(1, 6), nn.Linear(6, 18)
        self.norm, self.out = nn.LayerNorm(6), nn.Linear(6, 3)

    def forward(self, inputs: Tensor) -> Tensor:
        hidden = self.embed(inputs[..., None])
        query, key, value = self.project(self.norm(hidden)).chunk(3, dim=-1)
        mixed: Tensor = self.out((hidden + F.scaled_dot_product_attention(query, key, value)).mean(1))
        return mixed


class FunctionalDropout(nn.Module):
    """Dropout by the function, twice in a pass, once over whole channels."""

    def __init__(self) -> None:
        super().__init__()
        self.conv, self.out = nn.Conv1d(1, 4, 2), nn.Linear(12, 3)

    def forward(self, inputs: Tensor) -> Tensor:
        hidden = F.dropout1d(self.conv(inputs[:, None]).relu(), 0.4, self.training)
        dropped: Tensor = self.out(F.dropout(hidden.flatten(1), p=0.3, training=self.training))
        return dropped


class LanguageModel(nn.Module):
    """Next-token scores (batch, time, vocabulary) with tied embeddings and a buffer of positions."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(6, 4)
        self.mix = nn.Linear(4, 4)
        self.score = nn.Linear(4, 6, bias=False)
        self.score.weight = self.embed.weight
        self.register_buffer("positions", torch.randn(5, 4))

    def forward(self, inputs: Tensor) -> Tensor:
        hidden = self.embed(inputs) + self.positions
        scores: Tensor = self.score(hidden + self.mix(hidden.cumsum(1)).tanh())
        return scores


class Frozen(nn.Module):
    """Random features that are not trained, and a head that is."""

    def __init__(self) -> None:
        super().__init__()
        self.features = nn.Linear(4, 8).requires_grad_(False)
        self.head = nn.Linear(8, 3)

    def forward(self, inputs: Tensor) -> Tensor:
        scores: Tensor = self.head(self.features(inputs).relu())
        return scores


class Doubled(nn.Linear):
    """A subclass of a known layer that computes something else."""

    def forward(self, input: Tensor) -> Tensor:
        return 2.0 * super().forward(input)


def shared_weights() -> nn.Module:
    model = nn.Sequential(nn.Linear(4, 4), nn.Tanh(), nn.Linear(4, 4), nn.Linear(4, 3))
    model[2].weight = model[0].weight
    return model


def shared_activation() -> nn.Module:
    act = nn.Tanh()
    return nn.Sequential(nn.Linear(4, 5), act, nn.Linear(5, 4), act, nn.Linear(4, 3))


MODELS: dict[str, Callable[[], nn.Module]] = {
    "one linear layer": lambda: nn.Linear(4, 3),
    "plain stack": lambda: nn.Sequential(nn.Linear(4, 5), nn.GELU(), nn.Linear(5, 3, bias=False)),
    "in-place activation": lambda: nn.Sequential(nn.ReLU(inplace=True), nn.Linear(4, 3)),
    "module dropout": lambda: nn.Sequential(nn.Linear(4, 8), nn.Dropout(0.4), nn.ReLU(), nn.Linear(8, 3)),
    "functional dropout": FunctionalDropout,
    "attention": Attention,
    "group norm": lambda: nn.Sequential(nn.Linear(4, 6), nn.GroupNorm(2, 6), nn.Linear(6, 3)),
    "frozen features": Frozen,
    "subclassed layer": lambda: nn.Sequential(Doubled(4, 3)),
    "shared weights": shared_weights,
    "shared activation": shared_activation,
    "named layers": lambda: nn.Sequential(
        OrderedDict(first=nn.Linear(4, 5), act=nn.ReLU(), second=nn.Linear(5, 3))
    ),
}


@pytest.mark.parametrize("name", MODELS)
def test_every_kind_of_model(name: str, device: torch.device) -> None:
    torch.manual_seed(3)
    solver = fl.LocalSolver(fl.SGD(0.2, momentum=0.5), batch_size=3)
    assert_agreement(fl.Algorithm(solver), fl.Task(MODELS[name]().double()), classes((4,)), device)


def test_convolutions(device: torch.device) -> None:
    torch.manual_seed(3)
    model = nn.Sequential(
        nn.Conv2d(1, 3, 3), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(12, 3)
    ).double()
    solver = fl.LocalSolver(fl.SGD(0.2), batch_size=3)
    assert_agreement(fl.Algorithm(solver), fl.Task(model), classes((1, 6, 6)), device)


def test_language_modeling(device: torch.device) -> None:
    torch.manual_seed(3)
    solver = fl.LocalSolver(fl.SGD(0.2), batch_size=3)
    assert_agreement(fl.Algorithm(solver), fl.Task(LanguageModel().double()), tokens(), device)


def test_sequences_through_a_plain_stack(device: torch.device) -> None:
    """Linear layers act on the last axis of (batch, time, features): not the stacked path's business."""
    torch.manual_seed(3)

    def mean_over_time(outputs: Tensor, targets: Tensor) -> Tensor:
        return F.cross_entropy(outputs.mean(1), targets, reduction="none")

    model = nn.Sequential(nn.Linear(4, 6), nn.Tanh(), nn.Linear(6, 3)).double()
    solver = fl.LocalSolver(fl.SGD(0.2), batch_size=3)
    task = fl.Task(model, loss=mean_over_time, metrics=())
    assert_agreement(fl.Algorithm(solver), task, classes((5, 4)), device)


def test_regression(device: torch.device) -> None:
    draw = torch.Generator().manual_seed(2)
    data = fl.ClientData.from_lists(
        [torch.randn((n, 4), generator=draw, dtype=torch.float64) for n in SIZES],
        [torch.randn((n, 2), generator=draw, dtype=torch.float64) for n in SIZES],
    )
    solver = fl.LocalSolver(fl.SGD(0.2), batch_size=3)
    task = fl.Task(fl.MLP(hidden=(5,)), loss="squared_error", metrics=("mean_squared_error",))
    assert_agreement(fl.Algorithm(solver), task, data, device)


def smooth_hinge(margin: float) -> PerExample:
    def loss(outputs: Tensor, targets: Tensor) -> Tensor:
        right = outputs.gather(1, targets[:, None])
        return F.softplus(margin - right + outputs).sum(1)

    return loss


def test_a_custom_loss_closure(device: torch.device) -> None:
    solver = fl.LocalSolver(fl.SGD(0.2), batch_size=3)
    task = fl.Task(fl.MLP(hidden=(5,)), loss=smooth_hinge(0.5))
    assert_agreement(fl.Algorithm(solver), task, classes((4,)), device)


@pytest.mark.parametrize("lanes", [1, 2, 3, 16])
def test_any_number_of_lanes(lanes: int, device: torch.device) -> None:
    """Lanes decide who runs beside whom, and nothing else."""
    solver = fl.LocalSolver(fl.SGD(0.2, momentum=0.5), batch_size=3, corrections=(fl.ControlVariates(),))
    task = fl.Task(fl.MLP(hidden=(5,), dropout=0.3))
    reference = run("loop", fl.Algorithm(solver), task, classes((4,)), device)
    batched = run("batched", fl.Algorithm(solver), task, classes((4,)), device, lanes=lanes)
    assert torch.allclose(batched.params, reference.params, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("engine", ["loop", "batched"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_a_rerun_repeats_every_bit(engine: Any, dtype: torch.dtype, device: torch.device) -> None:
    def once() -> fl.Federation:
        world = fl.SimulatedWorld(
            fl.Task(fl.MLP(hidden=(8,), dropout=0.2)),
            classes((4,)),
            work=fl.RandomSteps(1, 6),
            link=fl.BernoulliLink(0.3),
            engine=engine,
            device=device,
            dtype=dtype,
        )
        federation = fl.Federation(fl.presets.scaffold(lr=0.1, batch_size=3, cohort_size=4), world, seed=3)
        list(federation.train(4, evaluate_every=2))
        return federation

    first, again = once(), once()
    assert torch.equal(first.params, again.params)
    assert first.records == again.records


def test_both_engines_meet_the_same_federation(device: torch.device) -> None:
    """Cohorts, arrivals, work and batches come from keys, so that only the arithmetic may differ."""

    def records(engine: Any) -> list[fl.RoundRecord]:
        world = fl.SimulatedWorld(
            DENSE,
            classes((4,)),
            work=fl.RandomSteps(1, 6),
            link=fl.BernoulliLink(0.4),
            engine=engine,
            device=device,
            dtype=torch.float64,
        )
        federation = fl.Federation(fl.presets.fedavg(lr=0.1, batch_size=3, cohort_size=4), world, seed=1)
        return list(federation.train(6))

    for one, other in zip(records("loop"), records("batched"), strict=True):
        assert (one.asked, one.arrived, one.num_steps) == (other.asked, other.arrived, other.num_steps)
        assert one.train_loss == pytest.approx(other.train_loss, rel=1e-12)


@pytest.mark.parametrize("threads", [1, 2])
def test_a_layer_that_is_used_twice_is_one_layer(threads: int) -> None:
    """Under two names in the module and under one in its parameters, however many cores train it."""
    torch.manual_seed(0)
    again = nn.Conv2d(4, 4, 3, padding=1)
    module = nn.Sequential(
        nn.Conv2d(3, 4, 3),
        nn.ReLU(),
        again,
        nn.ReLU(),
        nn.MaxPool2d(2),
        again,
        nn.Flatten(),
        nn.Linear(100, 3),
    )
    draw = torch.Generator().manual_seed(0)
    images, classes = torch.randn((24, 3, 12, 12), generator=draw), torch.arange(24) % 3
    data = fl.ClientData(images, classes, torch.tensor([0, 10, 24]))
    found, cores = [], torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        for engine in ("loop", "auto"):
            world = fl.SimulatedWorld(fl.Task(module), data, engine=engine)
            run = fl.Federation(fl.presets.fedavg(lr=0.1, steps=3, batch_size=4), world, seed=0)
            list(run.train(2))
            found.append(run.params)
            layers = dict(run.model().named_modules(remove_duplicate=False))
            assert layers["2"] is layers["5"]
            assert torch.equal(run.model().get_parameter("2.weight").flatten(), run.params[112:256])
    finally:
        torch.set_num_threads(cores)
    assert torch.allclose(found[0], found[1], atol=1e-6)
