"""The models that clients use themselves: against transcriptions, by hand, in lanes, after a resume, and refused."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from transcriptions import TRANSCRIPTIONS, Script

import fairlead as fl
from fairlead.records import ServerState

CLIENTS, DIM = 4, 3
COHORTS = ((0, 1, 2), (1, 3), (0, 2), (0, 1, 2, 3), (1,), (0, 2, 3))
ARRIVALS = ((0, 2), (1, 3), (0, 2), (0, 1, 3), (1,), (2,))
STEPS = tuple(tuple(1 + (2 * r + i) % 4 for i in range(CLIENTS)) for r in range(len(COHORTS)))


class Split(nn.Module):
    """x ↦ ½ x'Hx − e'x, with the last coordinate of x in a parameter of its own."""

    def __init__(self, start: Tensor) -> None:
        super().__init__()
        self.body, self.tail = nn.Parameter(start[:-1].clone()), nn.Parameter(start[-1:].clone())

    def forward(self, inputs: Tensor) -> Tensor:
        x, hessian, linear = torch.cat([self.body, self.tail]), inputs[..., :-1], inputs[..., -1]
        return ((0.5 * (hessian @ x) - linear) * x).sum(-1)


def problem() -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Hessians, linear terms, weights and start."""
    generator = torch.Generator().manual_seed(2)
    factors = torch.rand((CLIENTS, DIM, DIM), generator=generator, dtype=torch.float64)
    hessians = 0.2 * factors @ factors.mT + 0.3 * torch.eye(DIM, dtype=torch.float64)
    linear = torch.randn((CLIENTS, DIM), generator=generator, dtype=torch.float64)
    weights = torch.tensor([0.1, 0.4, 0.2, 0.3], dtype=torch.float64)
    return hessians, linear, weights, torch.randn(DIM, generator=generator, dtype=torch.float64)


def federation(algorithm: fl.Algorithm, engine: Any = "loop", seed: int = 3) -> fl.Federation:
    hessians, linear, weights, start = problem()
    inputs = torch.cat([hessians, linear[..., None]], -1)[:, None]
    data = fl.ClientData.from_lists(list(inputs), [torch.zeros(1)] * CLIENTS)
    world = fl.SimulatedWorld(
        fl.Task(Split(start), loss="model_output", metrics=()),
        data,
        weights=weights.tolist(),
        work=fl.ScriptedWork(STEPS),
        link=fl.ScriptedLink(ARRIVALS),
        engine=engine,
        lanes=2,
        dtype=torch.float64,
    )
    sampler = fl.ScriptedSampler(COHORTS, importance="weights")
    return fl.Federation(replace(algorithm, sampler=sampler), world, seed)


def own_models(run: fl.Federation) -> np.ndarray[Any, Any]:
    found = run.world.personal_models(run.algorithm.solver, run.state, run.key)
    return np.array([params.numpy() for _, params, _ in found])


CASES: list[tuple[str, dict[str, Any]]] = [
    ("fedavg_finetuned", {"personal_steps": 3, "personal_lr": 0.1}),
    ("fedper", {"own": (2,)}),
    ("fedper", {"own": (0, 1, 2)}),
    ("fedbn", {"own": (2,)}),
    ("fedrep", {"own": (2,), "personal_steps": 4, "personal_lr": 0.2}),
    ("ditto", {"mu": 0.7, "personal_steps": 3, "personal_lr": 0.1}),
    ("pfedme", {"mu": 2.0, "inner_lr": 0.2, "inner_steps": 3, "personal_steps": 4}),
    ("per_fedavg", {"inner_lr": 0.4, "personal_steps": 2}),
    ("per_fedavg", {"inner_lr": 0.4, "delta": 0.1}),
    ("apfl", {"mix": 0.3, "steps": 4}),
    ("apfl", {"mix": 1.0}),
    ("apfl", {"mix": 0.3, "steps": 4, "adaptive": True}),
    ("apfl", {"mix": 0.9, "adaptive": True}),
]
NAMES = {(): (), (2,): ("tail",), (0, 1, 2): ("*",)}


def build(name: str, given: dict[str, Any]) -> fl.Algorithm:
    named = {**given, "own": NAMES[given["own"]]} if "own" in given else given
    return fl.presets.METHODS[name].build(lr=0.3, **named)


@pytest.mark.parametrize("engine", ["loop", "batched"])
@pytest.mark.parametrize(("name", "given"), CASES, ids=str)
def test_model_and_own_models_match_the_transcription(name: str, given: dict[str, Any], engine: str) -> None:
    """Six rounds with uneven steps and losses; a client whose update is lost keeps what it had."""
    run = federation(build(name, given), engine)
    path = np.array([run.params.numpy() for _ in run.train(len(COHORTS))])
    hessians, linear, weights, start = (part.numpy() for part in problem())
    script = Script(hessians, linear, weights, start, COHORTS, STEPS, ARRIVALS, importance="weights")
    models: dict[int, Any] = {}
    expected = TRANSCRIPTIONS[name](script, lr=0.3, models=models, **given)
    np.testing.assert_allclose(path, expected, rtol=0, atol=1e-12)
    np.testing.assert_allclose(own_models(run), [models[i] for i in range(CLIENTS)], rtol=0, atol=1e-12)


@pytest.mark.parametrize(("name", "given"), CASES, ids=str)
def test_a_resumed_run_keeps_the_models_of_clients(name: str, given: dict[str, Any], tmp_path: Path) -> None:
    whole = federation(build(name, given))
    list(whole.train(3))
    whole.save(tmp_path)
    list(whole.train(3))
    resumed = federation(build(name, given))
    resumed.resume(tmp_path)
    last = list(resumed.train(3, evaluate_every=3))[-1]
    assert torch.equal(resumed.params, whole.params)
    assert np.array_equal(own_models(resumed), own_models(whole))
    assert last.evaluation == whole.evaluate(per_client=True)


def test_two_clients_by_hand() -> None:
    """F_i(x) = ½(x − c_i)², c = (0, 4), η = ½, x⁰ = 0, one step each.

    FedAvg: y = (0, 2), x¹ = 1; then y = (½, 2½), x² = 1½. Ditto with μ = 1: v_i ← v_i − ½((v_i − c_i) + (v_i − x)) is
    (c_i + x)/2: (0, 2) after round 1 and (½, 2½) after round 2. FedPer that keeps all: y stays on the client, (0, 2),
    then (0, 3), and x stays 0. Fine-tuning by one step from x² = 1½ gives (¾, 2¾). Adaptive APFL from α = ½: v = (0, 1)
    after round 1, in which v = w leaves α alone; in round 2, α₀ = ½ − ½(0 − 1)½ = ¾, α₁ = ½ since v = x = 1, and
    v = (−⅛, 1¾).
    """
    data = fl.ClientData.from_lists(
        [torch.tensor([[[1.0, center]]]) for center in (0.0, 4.0)], [torch.zeros(1)] * 2
    )

    def models(algorithm: fl.Algorithm) -> tuple[float, list[float]]:
        task = fl.Task(Split(torch.zeros(1, dtype=torch.float64)), loss="model_output", metrics=())
        run = fl.Federation(algorithm, fl.SimulatedWorld(task, data, dtype=torch.float64))
        list(run.train(2))
        return float(run.params), own_models(run)[:, 0].tolist()

    assert models(fl.presets.ditto(lr=0.5, mu=1.0)) == (1.5, [0.5, 2.5])
    assert models(fl.presets.fedper(lr=0.5, own=("*",))) == (0.0, [0.0, 3.0])
    assert models(fl.presets.fedavg_finetuned(lr=0.5)) == (1.5, [0.75, 2.75])
    mixed = [0.75 * -0.125 + 0.25 * 1.5, 0.5 * 1.75 + 0.5 * 1.5]
    assert models(fl.presets.apfl(lr=0.5, mix=0.5, adaptive=True)) == (1.5, mixed)


def network(norm: nn.Module | None = None) -> fl.SimulatedWorld:
    generator = torch.Generator().manual_seed(1)
    inputs = [torch.randn((12, 4), generator=generator) * (1 + i) + i for i in range(3)]
    targets = [torch.randint(0, 3, (12,), generator=generator) for _ in range(3)]
    held = [torch.randn((5, 4), generator=generator) * (1 + i) + i for i in range(3)]
    answers = [torch.randint(0, 3, (5,), generator=generator) for _ in range(3)]
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        module = nn.Sequential(nn.Linear(4, 5), norm or nn.Identity(), nn.ReLU(), nn.Linear(5, 3))
    return fl.SimulatedWorld(
        fl.Task(module),
        fl.ClientData.from_lists(inputs, targets),
        test=fl.ClientData.from_lists(held, answers),
    )


def test_own_heads_never_reach_the_server() -> None:
    run = fl.Federation(fl.presets.fedper(lr=0.1, batch_size=4), network())
    start = run.params.clone()
    list(run.train(4))
    head = 5 * 3 + 3
    assert torch.equal(run.params[-head:], start[-head:])
    assert not torch.equal(run.params[:-head], start[:-head])


def test_batch_normalization_of_each_client() -> None:
    """Statistics of clients stay apart under FedBN, the server's stay as they began; FedAvg averages them."""
    run = fl.Federation(fl.presets.fedbn(lr=0.1, batch_size=4, epochs=2), network(nn.BatchNorm1d(5)))
    before = run.state.buffers.clone()
    list(run.train(5))
    assert torch.equal(run.state.buffers, before)
    models = run.world.personal_models(run.algorithm.solver, run.state, run.key)
    statistics = [buffers for _, _, buffers in models]
    layer = nn.BatchNorm1d(5)
    assert all(not torch.equal(own, before) for own in statistics)
    assert not torch.allclose(statistics[0], statistics[2])
    assert len(before) == len(layer.running_mean) * 2  # type: ignore[arg-type]
    plain = fl.Federation(fl.presets.fedavg(lr=0.1, batch_size=4), network(nn.BatchNorm1d(5)))
    list(plain.train(2))
    assert not torch.equal(plain.state.buffers, before)


def test_statistics_of_one_client_by_hand() -> None:
    """With one client FedBN is FedAvg with one client: same statistics, kept by the client instead of the server."""

    def alone(algorithm: fl.Algorithm) -> fl.Federation:
        data = network().clients
        one = fl.ClientData(data.inputs[:12], data.targets[:12], torch.tensor([0, 12]))
        world = fl.SimulatedWorld(fl.Task(network(nn.BatchNorm1d(5)).objective.model.module), one)
        run = fl.Federation(algorithm, world)
        list(run.train(3))
        return run

    shared, own = alone(fl.presets.fedavg(lr=0.1)), alone(fl.presets.fedbn(lr=0.1))
    ((_, params, buffers),) = own.world.personal_models(own.algorithm.solver, own.state, own.key)
    torch.testing.assert_close(params, shared.params, rtol=0, atol=1e-6)
    torch.testing.assert_close(buffers, shared.state.buffers, rtol=0, atol=1e-6)


@pytest.mark.parametrize("name", ["fedavg_finetuned", "fedper", "fedrep", "ditto"])
def test_evaluation_before_and_after(name: str) -> None:
    """Each client's own model on its own test examples, beside the global one; every client counts alike."""
    given = {"mu": 0.1} if name == "ditto" else {}
    algorithm = fl.presets.METHODS[name].build(lr=0.2, batch_size=4, epochs=3, **given)
    run = fl.Federation(algorithm, network())
    record = list(run.train(6, evaluate_every=6))[-1]
    found = record.evaluation
    assert found is not None
    world = run.world.simulation
    assert world is not None
    test = world.test
    assert test is not None
    for client in range(3):
        inputs, targets = test.examples_of(client)
        hits = run.personal_model(client)(inputs).argmax(-1) == targets
        assert found.client_metrics["personal_accuracy"][client] == pytest.approx(float(hits.double().mean()))
    mean = float(np.mean(found.client_metrics["personal_accuracy"]))
    assert found.metrics["personal_accuracy"] == pytest.approx(mean)
    assert len(found.client_metrics["accuracy"]) == 3
    assert found.metrics["personal_loss"] != pytest.approx(found.loss)


def test_evaluating_changes_nothing() -> None:
    runs = [fl.Federation(fl.presets.ditto(lr=0.1, mu=0.5), network()) for _ in range(2)]
    list(runs[0].train(3))
    list(runs[1].train(3, evaluate_every=1))
    assert torch.equal(runs[0].params, runs[1].params)
    assert memory(runs[0].state) == memory(runs[1].state)


def memory(state: ServerState) -> dict[str, Any]:
    return {name: table.rows.tolist() for name, table in state.memory.items()}  # type: ignore[union-attr]


@pytest.mark.parametrize(
    ("build", "told"),
    [
        (lambda: fl.Federation(fl.presets.fedper(lr=0.1, own=("fc",)), network()), r"\(0.weight, .*got 'fc'"),
        (
            lambda: fl.Federation(fl.presets.fedbn(lr=0.1), network()),
            "got 'normalization', of which this model has none",
        ),
        (lambda: fl.OwnParameters(("",)), "must be a list of names of parameters"),
        (
            lambda: fl.LocalSolver(
                fl.SGD(0.1), corrections=(fl.OwnParameters(), fl.ControlVariates()), epochs=1
            ),
            "do not combine",
        ),
        (
            lambda: replace(fl.presets.fedper(lr=0.1).solver, personal=fl.LocalSolver(fl.SGD(0.1), epochs=1)),
            "give OwnParameters with the same parameters to both",
        ),
        (
            lambda: fl.LocalSolver(
                fl.SGD(0.1), personal=fl.LocalSolver(fl.SGD(0.1), corrections=(fl.ControlVariates(),))
            ),
            "only for updates that reach the server",
        ),
    ],
    ids=range(6),
)
def test_refused(build: Any, told: str) -> None:
    with pytest.raises(fl.errors.FairleadError, match=told):
        build()


def test_head_of_a_model_with_one_layer_is_refused() -> None:
    data = network().clients
    with pytest.raises(fl.errors.FieldError, match="'head' is all of a model with one layer"):
        fl.Federation(fl.presets.fedper(lr=0.1), fl.SimulatedWorld(fl.Task(nn.Linear(4, 3)), data))


def test_consistency_claims_no_objective_for_own_parameters() -> None:
    """FedPer has no weights Ω; those of Ditto's global model are FedAvg's."""
    run = fl.Federation(fl.presets.fedper(lr=0.1), network())
    list(run.train(2))
    assert run.consistency().surrogate is None
    pair = [fl.presets.ditto(lr=0.1, mu=0.5), fl.presets.fedavg(lr=0.1)]
    weights = []
    for algorithm in pair:
        run = fl.Federation(algorithm, network())
        list(run.train(2))
        weights.append(run.consistency().surrogate)
    assert weights[0] is not None
    assert weights[1] is not None
    assert torch.equal(weights[0], weights[1])
