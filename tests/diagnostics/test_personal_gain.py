"""When one model for all clients is enough: the personal gain in a diagnosis, and personal figures in comparisons."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import nn

import fairlead as fl
from fairlead.diagnostics import Finding
from fairlead.diagnostics.personal import PersonalGain, personal_gain
from fairlead.experiments.method_list import listed_methods, on_client_side
from fairlead.records import Evaluation
from fairlead.results.figures import planned_measure


def federation(
    *, opposed: bool, held: bool = True, algorithm: fl.Algorithm | None = None
) -> tuple[fl.Federation, fl.SimulatedWorld]:
    """Twelve clients that label points by the sign of a coordinate; if opposed, every second one the other way."""
    generator = torch.Generator().manual_seed(0)
    inputs = [torch.randn((80, 3), generator=generator) for _ in range(12)]
    targets = [(x[:, 0] > 0).long() for x in inputs]
    if opposed:
        targets = [1 - y if client % 2 else y for client, y in enumerate(targets)]
    train = fl.ClientData.from_lists([x[:50] for x in inputs], [y[:50] for y in targets])
    test = fl.ClientData.from_lists([x[50:] for x in inputs], [y[50:] for y in targets])
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        task = fl.Task(nn.Sequential(nn.Linear(3, 8), nn.ReLU(), nn.Linear(8, 2)))
    world = fl.SimulatedWorld(task, train, test=test if held else None)
    run = fl.Federation(algorithm or fl.presets.fedavg(lr=0.3, epochs=4, batch_size=10), world)
    list(run.train(10))
    return run, world


def test_opposed_clients_need_models_of_their_own() -> None:
    run, world = federation(opposed=True)
    gain = personal_gain(run, world, 50)
    assert gain is not None
    assert gain.metric == "accuracy"
    assert gain.verdict == "not enough"
    assert gain.mean > 0.3
    said = fl.diagnose(run).finding("personal")
    assert said is not None
    assert "one model for all is not enough; compare with fedavg_finetuned" in said.statement
    assert said.evidence["gain"] == pytest.approx(gain.mean)


def test_clients_alike_need_one_model() -> None:
    run, world = federation(opposed=False)
    gain = personal_gain(run, world, 50)
    assert gain is not None
    assert gain.verdict == "enough"
    before = run.params.clone()
    said = fl.diagnose(run).finding("personal")
    assert said is not None
    assert said.statement.endswith("one model for all is enough.")
    assert torch.equal(run.params, before)


def test_the_mean_model_has_had_the_same_work() -> None:
    """The shared figures are those of x + Σω_iΔ_i, and the own ones those of x + Δ_i."""
    run, world = federation(opposed=True)
    gain = personal_gain(run, world, 50)
    assert gain is not None
    updates = fl.client_updates(run, torch.arange(12))
    held = world.held_out
    assert held is not None
    mean = world.module(run.params + updates.delta.mean(0), run.state.buffers)
    for client in range(12):
        inputs, targets = held.examples_of(client)
        own = world.module(run.params + updates.delta[client], run.state.buffers)
        for model, found in ((mean, gain.shared), (own, gain.own)):
            hits = (model(inputs).argmax(-1) == targets).double().mean()
            assert float(found[client]) == pytest.approx(float(hits), abs=0.04)


def test_nothing_is_said_without_held_out_examples_or_of_a_personal_method() -> None:
    assert personal_gain(*federation(opposed=True, held=False), 50) is None
    run, world = federation(opposed=True, algorithm=fl.presets.ditto(lr=0.3, mu=0.1))
    assert personal_gain(run, world, 50) is None
    assert fl.diagnose(run).finding("personal") is None


def test_a_common_test_set_is_no_measure_of_personal_gain() -> None:
    def found(algorithm: fl.Algorithm, clients: fl.ClientSource) -> Finding | None:
        experiment = fl.Experiment(clients, algorithm, rounds=6)
        return fl.diagnose(experiment, rounds=6, quick=True).finding("personal")

    plain = found(fl.presets.fedavg(lr=0.1), fl.Digits(num_clients=6))
    assert plain is not None
    assert plain.confidence == "none"
    assert "Set clients.holdout = 0.2 to measure whether one model for all is enough." in plain.statement
    assert found(fl.presets.fedavg_finetuned(lr=0.1), fl.Digits(num_clients=6)) is None
    assert found(fl.presets.fedavg(lr=0.1), fl.Quadratics(num_clients=6)) is None


def test_verdicts_by_hand() -> None:
    """Gains of 0.1 ± 2·0.1/√8, then with noise; losses count the other way round."""
    shared = torch.full((8,), 0.5, dtype=torch.float64)
    up = shared + torch.tensor([0.0, 0.2] * 4, dtype=torch.float64)
    sure = PersonalGain("accuracy", shared, up)
    assert sure.mean == pytest.approx(0.1)
    assert sure.margin == pytest.approx(2 * 0.1 * (8 / 7) ** 0.5 / 8**0.5)
    assert sure.verdict == "not enough"
    assert PersonalGain("loss", shared, up).verdict == "enough"
    noisy = shared + torch.tensor([-0.2, 0.25] * 4, dtype=torch.float64)
    assert PersonalGain("accuracy", shared, noisy).verdict == "unknown"


SPEC = """
rounds = 2
per_client = true

[clients]
type = "Digits"
num_clients = 4
holdout = 0.3

[task]
model = { type = "MLP", hidden = [8] }

[algorithm]
preset = "fedavg"
lr = 0.1
batch_size = 7
epochs = 2
"""


def test_a_comparison_keeps_the_steps_of_personal_methods(tmp_path: Path) -> None:
    """The client side of a spec does not replace the optimizer of pFedMe, and personal training takes part in it."""
    spec = tmp_path / "own.toml"
    spec.write_text(SPEC)
    methods = listed_methods(spec, "fedavg,pfedme:mu=2:inner_lr=0.05,per_fedavg,fedavg_finetuned,apfl")
    solvers = {name: method.experiment.algorithm.solver for name, method in methods.items()}
    assert solvers["pfedme:mu=2:inner_lr=0.05"].optimizer == fl.MoreauSGD(0.1, mu=2.0, inner_lr=0.05)
    assert isinstance(solvers["per_fedavg"].optimizer, fl.MetaSGD)
    assert all((solver.batch_size, solver.epochs) == (7, 2) for solver in solvers.values())
    tuned = solvers["fedavg_finetuned"].personal
    assert tuned is not None
    assert (tuned.batch_size, tuned.epochs, tuned.optimizer.lr) == (7, 2, 0.1)
    back, _ = on_client_side("fedavg", methods["per_fedavg"].experiment.algorithm)
    assert back == methods["fedavg"].experiment.algorithm
    own, plain = (methods[name].experiment for name in ("apfl", "fedavg"))
    assert planned_measure([own], None).metric == "personal_accuracy"
    assert planned_measure([plain], None).metric == "accuracy"
    assert planned_measure([plain], "personal_loss").higher is False
    assert planned_measure([plain], "personal_accuracy").kind == "share"


def test_one_model_for_all_is_everyones_own() -> None:
    """Without a personal part the figures of clients are those of the global model, each client alike."""
    found = Evaluation(0.4, {"accuracy": 0.9}, (0.1, 0.3), {"accuracy": (1.0, 0.5)})
    assert found.of_clients("personal_accuracy") == (1.0, 0.5)
    assert found.of_clients("personal_loss") == found.of_clients("loss") == (0.1, 0.3)
    assert found.overall("personal_accuracy") == 0.75
    assert found.overall("accuracy") == 0.9
    assert Evaluation(0.4, {"accuracy": 0.9}).overall("personal_accuracy") is None
