"""`FlowerStrategy` inside a plain Flower app, whose clients know nothing of fairlead."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from direct_grid import DirectGrid
from flwr.app import Array, ArrayRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp.strategy import FedAvg, Strategy
from small_federation import SIZES, build_model, examples_of, simulated
from torch import Tensor, nn

import fairlead as fl
from fairlead.errors import FieldError
from fairlead.flower import FlowerStrategy
from fairlead.parameters import FlatModule

STEPS = (2, 5, 3)
"""Local steps of the clients, over all their examples each."""


def plain_app() -> ClientApp:
    """What a user of Flower has: torch's own SGD, a state_dict and the usual metrics."""
    app = ClientApp()

    @app.train()
    def train(message: Message, context: Context) -> Message:
        client = int(str(context.node_config["client-id"]))
        model = build_model()
        model.load_state_dict(message.content.array_records["arrays"].to_torch_state_dict())
        inputs, targets = examples_of(client)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        losses = []
        for _ in range(STEPS[client]):
            optimizer.zero_grad()
            loss = nn.functional.cross_entropy(model(inputs), targets)
            loss.backward()  # type: ignore[no-untyped-call]
            optimizer.step()
            losses.append(float(loss.detach()))
        metrics = MetricRecord({"num-examples": len(inputs), "num-steps": STEPS[client]})
        metrics["train-loss"] = sum(losses) / len(losses)
        content = RecordDict({"arrays": ArrayRecord(model.state_dict()), "metrics": metrics})
        return Message(content, reply_to=message)

    @app.evaluate()
    def evaluate(message: Message, context: Context) -> Message:
        client = int(str(context.node_config["client-id"]))
        metrics = MetricRecord({"num-examples": SIZES[client], "mark": float(client)})
        return Message(RecordDict({"metrics": metrics}), reply_to=message)

    return app


def initial_arrays(seed: int = 3) -> ArrayRecord:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(fl.Key.from_seed(seed).fold("init").torch_seed())
        return ArrayRecord(build_model().state_dict())


def trained(
    strategy: Strategy,
    folder: Path,
    rounds: int,
    fate: Callable[[int, Message], str] = lambda client, message: "answered",
    tamper: Callable[[int, Message], Message] = lambda client, reply: reply,
) -> Tensor:
    grid = DirectGrid(dict.fromkeys(range(len(SIZES)), plain_app()), folder, fate, tamper)
    result = strategy.start(grid=grid, initial_arrays=initial_arrays(), num_rounds=rounds, timeout=1.0)
    model = build_model()
    model.load_state_dict(result.arrays.to_torch_state_dict())
    return FlatModule(model).initial_params()


def plan(preset: Callable[..., fl.Algorithm]) -> fl.Algorithm:
    """Full batches, as the app's clients use them."""
    return preset(lr=0.1, batch_size=None)


PRESETS = ("fednova", "fedaware", "fedvarp", "fedadam", "fedmgda_plus", "mifa")


@pytest.mark.parametrize("name", PRESETS)
def test_the_numbers_of_the_simulation(name: str, tmp_path: Path) -> None:
    """The same method, work and data in simulation: equal up to the rounding of torch's own optimizer."""
    algorithm = plan(getattr(fl.presets, name))
    strategy = FlowerStrategy(algorithm, len(SIZES), seed=3)
    twin = simulated(algorithm, work=fl.FixedSteps(STEPS))
    list(twin.train(4))
    assert torch.allclose(trained(strategy, tmp_path, 4), twin.params, atol=2e-6)
    assert [record.arrived for record in strategy.records] == [(0, 1, 2)] * 4


def test_fedavg_is_that_of_flower(tmp_path: Path) -> None:
    own = FlowerStrategy(plan(fl.presets.fedavg), len(SIZES))
    theirs = FedAvg(min_available_nodes=3, min_train_nodes=3)
    assert torch.allclose(trained(own, tmp_path, 3), trained(theirs, tmp_path, 3), atol=1e-6)


def test_weights_are_learned_from_replies(tmp_path: Path) -> None:
    strategy = FlowerStrategy(plan(fl.presets.fednova), len(SIZES))
    trained(strategy, tmp_path, 2)
    assert strategy.weights.tolist() == pytest.approx([size / sum(SIZES) for size in SIZES])
    report = strategy.consistency()
    assert report.surrogate is not None


def test_its_rounds_can_be_diagnosed(tmp_path: Path) -> None:
    """FedAvg gives Ω ∝ ωτ with τ = 2, 5 and 3 steps over 12, 7 and 20 examples."""
    strategy = FlowerStrategy(plan(fl.presets.fedavg), len(SIZES))
    with pytest.raises(FieldError, match="needs at least one round"):
        strategy.diagnosis()
    trained(strategy, tmp_path, 30)
    found = strategy.diagnosis()
    assert (found.rounds, found.advice.preset) == (30, "fednova")
    omega = torch.tensor(SIZES, dtype=torch.float64) / sum(SIZES)
    surrogate = omega * torch.tensor(STEPS) / (omega @ torch.tensor(STEPS, dtype=torch.float64))
    measured = found.finding("measured")
    assert measured is not None
    assert measured.evidence["misplaced_weight"] == pytest.approx(float((omega - surrogate).abs().sum() / 2))


def test_a_bad_reply_and_a_dead_node_are_absent(tmp_path: Path) -> None:
    """Under Flower's FedAvg the same NaN would reach the model without a word."""

    def tamper(client: int, reply: Message) -> Message:
        if client == 1 and reply.metadata.message_type == "train":
            reply.content.array_records["arrays"]["0.bias"] = Array(torch.full((6,), float("nan")))
        return reply

    strategy = FlowerStrategy(plan(fl.presets.fedavg), len(SIZES))
    fate = lambda client, message: "failed" if client == 2 else "answered"  # noqa: E731
    params = trained(strategy, tmp_path, 1, fate, tamper)
    twin = simulated(plan(fl.presets.fedavg), work=fl.FixedSteps(STEPS), link=fl.ScriptedLink(((0,),)))
    list(twin.train(1))
    assert torch.allclose(params, twin.params, atol=1e-6)
    (record,) = strategy.records
    assert {refusal.client: str(refusal.reason) for refusal in record.refused} == {
        1: "not finite",
        2: "failed",
    }


def test_methods_with_a_half_on_the_clients_are_refused() -> None:
    with pytest.raises(
        fl.errors.ClashError, match="use ControlVariates: build the clients with make_client_app"
    ):
        FlowerStrategy(fl.presets.scaffold(lr=0.1), 3)


def test_privacy_is_refused_where_weights_are_learned_from_replies() -> None:
    private = fl.Algorithm(
        fl.LocalSolver(fl.SGD(0.1)),
        aggregator=fl.WeightedMean(over="asked"),
        privacy=fl.ClientPrivacy(clip=1.0, noise_multiplier=1.0, delta=1e-3),
    )
    with pytest.raises(fl.errors.ClashError, match="so ClientPrivacy could guarantee nothing"):
        FlowerStrategy(private, 3)
