"""Metrics in evaluations: on a test set, on clients, without a test set, named in specs, compared and refused."""

from __future__ import annotations

import json
import math
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor
from torchmetrics.classification import MulticlassF1Score
from typer.testing import CliRunner

import fairlead as fl
from fairlead.cli import app
from fairlead.errors import DataError, EngineError, FieldError
from fairlead.results.figures import planned_measure
from fairlead.task import AnyMetric

SOURCE = fl.Digits(num_clients=5, partition=fl.DirichletPartitioner(alpha=0.5), holdout=0.3)
KEY = fl.Key.from_seed(0)


def share_of_sevens(outputs: Tensor, targets: Tensor) -> float:
    """A figure of all outputs and targets."""
    return float((outputs.argmax(1) == 7).double().mean() - (targets == 7).double().mean())


class Mistakes:
    """Counts, as an object of torchmetrics would."""

    higher_is_better = False

    def __init__(self) -> None:
        self.count = 0

    def update(self, outputs: Tensor, targets: Tensor) -> None:
        self.count += int((outputs.argmax(1) != targets).sum())

    def compute(self) -> int:
        return self.count


def world_of(*metrics: str | AnyMetric) -> fl.SimulatedWorld:
    data = SOURCE.load(KEY)
    return fl.SimulatedWorld(
        fl.Task(fl.MLP(hidden=(8,)), metrics=metrics), data.train, held_out=data.held_out
    )


def test_a_whole_set_is_one_set_and_each_client_another(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever the size of batches: figures of clients are those of their own examples."""
    theirs = MulticlassF1Score(10, average="micro")
    metrics = ("accuracy", "f1_macro", fl.TopK(3), share_of_sevens, Mistakes(), theirs)
    world = world_of(*metrics)
    params, buffers = world.initial_model(KEY)
    found = world.evaluate(params, buffers, per_client=True)
    monkeypatch.setattr("fairlead.worlds.evaluation._EXAMPLES_AT_ONCE", 7)
    assert world.evaluate(params, buffers, per_client=True).metrics == pytest.approx(found.metrics)
    assert list(found.metrics) == [
        "accuracy", "f1_macro", "top_3_accuracy", "share_of_sevens", "mistakes", "multiclass_f1_score",
    ]  # fmt: skip
    data = world.held_out
    assert data is not None
    with torch.no_grad():
        outputs = world.module(params, buffers)(data.inputs)
    for client in range(-1, 5):
        rows = slice(None) if client < 0 else data.rows_of(client)
        own = found.metrics if client < 0 else {n: v[client] for n, v in found.client_metrics.items()}
        some, targets = outputs[rows], data.targets[rows]
        f1 = fl.F1Score()
        assert own["f1_macro"] == pytest.approx(f1.value(f1.keep(some, targets)))
        assert own["share_of_sevens"] == pytest.approx(share_of_sevens(some, targets))
        assert own["mistakes"] == int((some.argmax(1) != targets).sum())
        assert own["multiclass_f1_score"] == pytest.approx(own["accuracy"], abs=1e-6)
    # Objects are not used up.
    assert theirs.update_count == 0


def test_metrics_change_no_other_figure() -> None:
    """Loss, accuracy and records are bit for bit those of a task with accuracy alone."""
    records = []
    for metrics in (("accuracy",), ("accuracy", "auc", "perplexity", share_of_sevens)):
        task = fl.Task(fl.MLP(hidden=(8,)), metrics=metrics)
        run = fl.Experiment(SOURCE, fl.presets.fedavg(lr=0.1), rounds=2, task=task, evaluate_every=1).build()
        records.append([replace(record, seconds=0.0) for record in run.train()])
    for plain, more in zip(*records, strict=True):
        assert plain.evaluation is not None
        assert more.evaluation is not None
        assert plain.evaluation.loss == more.evaluation.loss
        assert plain.evaluation.metrics["accuracy"] == more.evaluation.metrics["accuracy"]
        assert replace(plain, evaluation=None) == replace(more, evaluation=None)


def test_without_a_test_set_clients_count_by_weight() -> None:
    """Σ ω_i AUC_i over the clients that have one: a client of a single class has none."""
    generator = torch.Generator().manual_seed(0)
    inputs = [torch.randn(size, 3, generator=generator) for size in (10, 20, 30)]
    targets = [torch.arange(10) % 2, torch.zeros(20, dtype=torch.int64), torch.arange(30) % 2]
    data = fl.ClientData.from_lists(inputs, targets)
    world = fl.SimulatedWorld(fl.Task(fl.LogisticRegression(), metrics=("auc",)), data)
    params, buffers = world.initial_model(KEY)
    found = world.evaluate(params, buffers, per_client=True)
    first, second, third = found.client_metrics["auc"]
    assert math.isnan(second)
    assert found.metrics["auc"] == pytest.approx((10 * first + 30 * third) / 40)


def test_a_custom_metric_is_a_part(tmp_path: Path) -> None:
    @dataclass(frozen=True)
    class Brier(fl.Metric):
        """The mean squared error of the probabilities."""

        scale: float = 1.0
        higher_is_better = False
        name = "brier"

        def keep(self, outputs: Tensor, targets: Tensor) -> Tensor:
            chances = outputs.softmax(1)
            return (chances - torch.nn.functional.one_hot(targets, chances.shape[1])).square().sum(1)

        def value(self, kept: Tensor) -> float:
            return self.scale * float(kept.mean())

    experiment = fl.Experiment(
        SOURCE,
        fl.presets.fedavg(lr=0.1),
        rounds=1,
        task=fl.Task(fl.MLP(hidden=(4,)), metrics=[Brier(2.0)]),  # type: ignore[arg-type]
    )
    (record,) = experiment.build().train()
    assert record.evaluation is not None
    assert 0 < record.evaluation.metrics["brier"] < 4
    assert not planned_measure([experiment], None).higher
    assert fl.from_toml(fl.Experiment, fl.to_toml(experiment)) == experiment


def constant(outputs: Tensor, targets: Tensor) -> Tensor:
    return torch.zeros(3, 2)


@pytest.mark.parametrize(
    ("metric", "error", "sentence"),
    [
        ("auk", FieldError, "Task.metrics must be a metric, .* got 'auk'. Did you mean 'auc'"),
        ("r2", DataError, "'r2' needs targets that are real numbers"),
        (fl.TopK(10), DataError, "TopK.k must be below the number of classes, which is 10, got 10"),
        (fl.F1Score("binary"), DataError, "'f1_binary' has no value on the test set, because some targets"),
        (constant, EngineError, "'constant' fails on outputs .* one number per example, .* or one number for all"),
        (MulticlassF1Score, FieldError, "Task.metrics must be a metric"),
        (MulticlassF1Score(4), EngineError, "'multiclass_f1_score' fails on outputs of shape"),
        (lambda outputs, targets: 1.0, FieldError, "a lambda has none, so define a function; got '<lambda>'"),
        (3, FieldError, "Task.metrics must be a metric, .* got 3"),
    ],
)  # fmt: skip
def test_misfits_are_refused_before_training(metric: Any, error: type[Exception], sentence: str) -> None:
    with pytest.raises(error, match=sentence):
        world_of(metric)


def test_a_metric_in_memory_cannot_be_written() -> None:
    experiment = fl.Experiment(
        SOURCE,
        fl.presets.fedavg(lr=0.1),
        rounds=1,
        task=fl.Task(fl.MLP(hidden=(4,)), metrics=(MulticlassF1Score(10),)),
    )
    with pytest.raises(
        FieldError, match=r"task\.metrics\[0\] holds a MulticlassF1Score, which cannot be written"
    ):
        fl.to_toml(experiment)


def test_a_test_set_of_one_class_has_no_auc() -> None:
    inputs = torch.zeros(4, 2)
    data = fl.ClientData.from_lists([inputs], [[0, 1, 0, 1]])
    test = fl.ClientData.from_lists([inputs], [[1, 1, 1, 1]])
    task = fl.Task(fl.LogisticRegression(), metrics=("auc",))
    with pytest.raises(DataError, match="'auc' has no value on the test set, because all targets are of one"):
        fl.SimulatedWorld(task, data, test=test)


SPEC = """
rounds = 3
evaluate_every = 1

[clients]
type = "Digits"
num_clients = 4

[algorithm]
preset = "fedavg"
lr = 0.1
"""


@pytest.fixture
def spec(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.chdir(tmp_path)
    Path("spec.toml").write_text(SPEC)
    return "spec.toml"


def invoked(*arguments: str) -> Any:
    result = CliRunner().invoke(app, [*arguments, "--json"])
    assert result.exit_code == 0, result.output
    return json.loads(result.output)


def test_a_spec_without_a_task_takes_metrics(spec: str) -> None:
    """The rest of the task is the default one of the data."""
    plain = fl.load_experiment(spec)
    metrics = 'task.metrics=["accuracy", "f1_macro", {type = "TopK", k = 3}]'
    found = fl.load_experiment(spec, [metrics])
    named = ("accuracy", "f1_macro", fl.TopK(3))
    assert found.task == replace(plain.clients.default_task(), metrics=named)
    written = fl.from_toml(fl.Experiment, SPEC + f"[task]\n{metrics.removeprefix('task.')}\n")
    assert written == found
    assert fl.from_toml(fl.Experiment, fl.to_toml(found)) == found
    wider = fl.load_experiment(spec, ["task.model.hidden=[5]"])
    assert wider.task is not None
    assert wider.task.model == fl.MLP(hidden=(5,))
    with pytest.raises(FieldError, match=r"task\.metrics\[0\]\.k must be a whole number"):
        fl.load_experiment(spec, ['task.metrics=[{type = "TopK", k = "3"}]'])
    with pytest.raises(FieldError, match=r"task\.metrics\[0\]\.type must be the name of a Metric"):
        fl.load_experiment(spec, ['task.metrics=[{type = "Top", k = 3}]'])


def test_every_command_knows_the_direction(spec: str) -> None:
    chosen = ["--set", 'task.metrics=["accuracy", "f1_macro", "calibration_error"]']
    compared = invoked(
        "compare", spec, "--methods", "fedavg,fednova", "--seeds", "0,1", "-o", "runs", *chosen, "--metric",
        "calibration_error",
    )  # fmt: skip
    assert compared["metric"] == {"name": "calibration_error", "smaller_is_better": True}
    reported = invoked("report", "runs", "--metric", "calibration_error")
    assert reported["metric"]["smaller_is_better"]
    assert not invoked("report", "runs", "--metric", "f1_macro")["metric"]["smaller_is_better"]
    CliRunner().invoke(app, ["report", "runs", "--metric", "f1_macro"])
    page = Path("runs/report.html").read_text(encoding="utf-8")
    assert "F1 macro" in page
    assert "Calibration error" in page
    frame = fl.load_frame("runs")
    assert {"accuracy", "f1_macro", "calibration_error"} <= set(frame.columns)
    swept = invoked(
        "sweep", spec, "--grid", "algorithm.lr=0.01,0.1", *chosen, "--metric", "f1_macro", "-o", "s"
    )
    assert swept["metric"] == {"name": "f1_macro", "smaller_is_better": False}


def test_lists_and_pages() -> None:
    listed = {entry["name"]: entry["summary"] for entry in invoked("list", "metrics")}
    assert {"accuracy", "AUC", "F1Score", "TopK"} <= set(listed)
    assert listed["RootMeanSquaredError"].endswith("In a spec: rmse. Smaller is better.")
    assert [entry["name"] for entry in invoked("list", "losses")] == [
        "cross_entropy", "squared_error", "model_output",
    ]  # fmt: skip
    assert invoked("show", "f1_macro")["name"] == "F1Score"
    assert invoked("show", "cross_entropy")["kind"] == "losses"
    assert invoked("show", "TopK")["parameters"][0]["name"] == "k"
