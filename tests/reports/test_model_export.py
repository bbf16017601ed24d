"""Exported models give the outputs of the run's model, and their cards say where they come from."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from safetensors import safe_open
from torch import nn
from typer.testing import CliRunner

import fairlead as fl
from fairlead.cli import app
from fairlead.clients.source import RealClients


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> fl.Run:
    experiment = fl.Experiment(
        fl.Digits(5, fl.DirichletPartitioner(0.5)),
        fl.presets.fednova(lr=0.1),
        rounds=3,
        work=fl.FixedSteps((1, 2, 3, 4, 20)),
        task=fl.Task(fl.MLP((8,)), augment=(fl.Normalize(0.3, 0.5),)),
        evaluate_every=1,
        keep_best="accuracy",
    )
    return fl.run_experiment(experiment, tmp_path_factory.mktemp("runs") / "run")


def test_the_state_dict_loads_into_the_model(run: fl.Run, tmp_path: Path) -> None:
    fl.export_model(run.folder.path, tmp_path / "model.pt")
    module = run.federation.model()
    nn.init.zeros_(next(module.parameters()))
    module.load_state_dict(torch.load(tmp_path / "model.pt"))
    for name, value in run.federation.model().state_dict().items():
        assert torch.equal(module.state_dict()[name], value)


def test_safetensors_hold_names_and_the_card(run: fl.Run, tmp_path: Path) -> None:
    made = fl.export_model(run.folder.path, tmp_path / "new" / "model.safetensors", "best")
    with safe_open(made.file, framework="pt") as file:
        assert set(file.keys()) == set(run.federation.model().state_dict())
        assert json.loads(file.metadata()["fairlead"])["card"] == made.card.read_text()


def test_onnx_gives_the_same_outputs_for_any_batch(run: fl.Run, tmp_path: Path) -> None:
    reference = pytest.importorskip("onnx.reference")
    fl.export_model(run.folder.path, tmp_path / "model.onnx")
    for batch in (1, 7):
        inputs = torch.randn(batch, 8, 8)
        (outputs,) = reference.ReferenceEvaluator(str(tmp_path / "model.onnx")).run(
            None, {"inputs": inputs.numpy()}
        )
        torch.testing.assert_close(torch.from_numpy(outputs), run.federation.model()(inputs).detach())


def test_the_card_says_where_the_model_comes_from(run: fl.Run, tmp_path: Path) -> None:
    card = fl.export_model(run.folder.path, tmp_path / "digits.pt").card.read_text()
    accuracy = run.federation.records[-1].evaluation
    assert accuracy is not None
    for fact in (
        "# digits",
        "The last model, after 3 rounds.",
        "| Model | `MLP(hidden=[8])`, 610 numbers |",
        "Digits(num_clients=5",
        "SGD(lr=0.1)",
        "`FedNova`",
        "| Objective asked for | Σ ω_i F_i over the clients,",
        "| Objective optimized | The run optimized the intended objective.",
        f"| accuracy | {accuracy.metrics['accuracy']:.6g} |",
        f"torch {torch.__version__}",
        "Then apply Normalize(mean=0.3, std=0.5).",
        "| `1.weight` | 8 × 64 | float32 |",
        'type = "FedNova"',
    ):
        assert fact in card


def test_the_card_of_a_table_says_how_to_apply_the_model(tmp_path: Path) -> None:
    rows = "\n".join(f"{'ab'[row % 2]},{['no', 'yes'][row % 3 == 0]},{row},{2 * row}" for row in range(12))
    (tmp_path / "patients.csv").write_text(f"hospital,ill,age,dose\n{rows}\n")
    data = fl.CsvTable(str(tmp_path / "patients.csv"), "ill", "hospital", standardize=True)
    fl.run_experiment(fl.Experiment(data, fl.presets.fedavg(lr=0.1), 1), tmp_path / "run")
    made = [
        fl.export_model(tmp_path / "run", tmp_path / f"model{ending}") for ending in (".safetensors", ".pt")
    ]
    assert [each.card.name for each in made] == ["model.safetensors.md", "model.pt.md"]
    card = made[0].card.read_text()
    ages = torch.arange(12.0)
    assert "Subtract the mean of a feature and divide by its scale." in card
    assert f"| 0 | age | 5.5 | {ages.std(correction=0):.9g} |\n| 1 | dose | 11 | " in card
    assert "| output | class |\n|---|---|\n| 0 | no |\n| 1 | yes |\n" in card
    assert "Pixels" not in card
    (tmp_path / "patients.csv").unlink()
    assert (
        "patients.csv does not exist" in fl.export_model(tmp_path / "run", tmp_path / "m.pt").card.read_text()
    )


def test_the_source_of_an_own_model_is_in_the_card(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source = "from torch import nn\n\ndef build():\n    return nn.Sequential(nn.Flatten(), nn.Linear(64, 10))"
    (tmp_path / "exported_net.py").write_text(source)
    monkeypatch.syspath_prepend(tmp_path)
    task = fl.Task(fl.ImportedModel("exported_net:build"))
    experiment = fl.Experiment(fl.Digits(3, fl.IidPartitioner()), fl.presets.fedavg(lr=0.1), 1, task)
    fl.run_experiment(experiment, tmp_path / "run")
    assert source in fl.export_model(tmp_path / "run", tmp_path / "model.pt").card.read_text()


def test_the_command_writes_the_best_model(run: fl.Run, tmp_path: Path) -> None:
    done = CliRunner().invoke(
        app, ["export", str(run.folder.path), "--best", "-o", str(tmp_path / "best.pt"), "--json"]
    )
    facts = json.loads(done.stdout)
    assert Path(facts["file"]).exists()
    assert "The model with the best accuracy" in Path(facts["card"]).read_text()


def test_a_run_of_real_clients_exports_names_and_with_its_model_onnx(tmp_path: Path, run: fl.Run) -> None:
    """Stands for the folder that a Flower server leaves: clients without data, and no shape of inputs."""
    pytest.importorskip("onnxscript")
    real = fl.Experiment(RealClients(5), fl.presets.fedavg(lr=0.1), 2, evaluate_every=1, keep_best="accuracy")
    federation = run.federation
    world = fl.SimulatedWorld(fl.Task(fl.MLP((8,))), *_data())
    world.__class__ = type("Unseen", (fl.SimulatedWorld,), {"simulation": None})
    fl.run_experiment(
        real,
        tmp_path / "run",
        build=lambda: fl.Federation(real.algorithm, world, 0, rounds=2, evaluate_every=1),
    )
    folder = tmp_path / "run"
    card = fl.export_model(folder, tmp_path / "model.safetensors", "best").card.read_text()
    assert "RealClients(num_clients=5)" in card
    with pytest.raises(fl.errors.FieldError, match="give a module of the same form"):
        fl.export_model(folder, tmp_path / "model.onnx")
    with pytest.raises(fl.errors.FieldError, match="needs the shape of one input"):
        fl.export_model(folder, tmp_path / "model.onnx", module=federation.model())
    made = fl.export_model(folder, tmp_path / "model.onnx", module=federation.model(), input_shape=(8, 8))
    assert made.file.stat().st_size > 0


def _data() -> tuple[fl.ClientData]:
    return (fl.Digits(5, fl.IidPartitioner()).load(fl.Key.from_seed(0)).train,)


def test_other_endings_are_refused(run: fl.Run, tmp_path: Path) -> None:
    with pytest.raises(fl.errors.FieldError, match=r"must end in .safetensors, .pt, .onnx, got '.*model.h5'"):
        fl.export_model(run.folder.path, tmp_path / "model.h5")
    done = CliRunner().invoke(app, ["export", str(run.folder.path), "-o", "a.onnx", "--input-shape", "1,x"])
    assert done.exit_code == 2
    assert "--input-shape must be whole numbers such as 1,28,28, got '1,x'." in done.output
