"""Experiments on data, modules and functions that only a Python program holds."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from small_runs import KilledError, kill_after
from torch import Tensor, nn
from torch.utils.data import TensorDataset
from typer.testing import CliRunner

import fairlead as fl
from fairlead.cli import app
from fairlead.results.comparison import summarize_runs

DRAWS = np.random.default_rng(0)
INPUTS, LABELS = DRAWS.normal(size=(90, 4)), DRAWS.integers(0, 3, 90)
OWNERS = np.repeat(["Ulm", "Bonn", "Kiel"], [20, 30, 40])
FEDAVG = fl.presets.fedavg(lr=0.1)


def smooth(outputs: Tensor, targets: Tensor) -> Tensor:
    return nn.functional.cross_entropy(outputs, targets, label_smoothing=0.1, reduction="none")


class Own(nn.Module):
    def __init__(self, scale: float = 1.0) -> None:
        super().__init__()
        self.layer = nn.Linear(4, 3)
        nn.init.constant_(self.layer.weight, scale)
        nn.init.zeros_(self.layer.bias)

    def forward(self, inputs: Tensor) -> Tensor:
        outputs: Tensor = self.layer(inputs)
        return outputs


def experiment(rounds: int = 4) -> fl.Experiment:
    return fl.Experiment(
        fl.InMemory((INPUTS, LABELS, OWNERS)), FEDAVG, rounds, fl.Task(Own(), loss=smooth), evaluate_every=1
    )


def test_every_form_of_the_same_data_gives_the_same_run() -> None:
    inputs, labels = torch.tensor(INPUTS, dtype=torch.float32), torch.tensor(LABELS)
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame(INPUTS.astype("float32"), columns=list("abcd"))
    frame["y"], frame["who"] = LABELS, OWNERS
    pool = fl.Pool.from_arrays(inputs, labels, OWNERS)
    forms = (
        pool,
        (inputs, labels, OWNERS),
        (INPUTS, LABELS, OWNERS.tolist()),
        fl.Pool.from_dataset(TensorDataset(inputs, labels), OWNERS),
        fl.Pool.from_table(frame, "y", client="who"),
        pool.deal(),
    )
    sources = [fl.InMemory(form, test_fraction=0) for form in forms]
    records = [list(fl.Experiment(source, FEDAVG, 2).build().train()) for source in sources]
    assert all(each == records[0] for each in records)
    direct = fl.Experiment(pool, FEDAVG, 2)  # type: ignore[arg-type]
    assert direct.clients == fl.InMemory(pool)


def test_a_data_set_alone_is_dealt_by_a_partitioner() -> None:
    data = TensorDataset(torch.tensor(INPUTS), torch.tensor(LABELS))
    source = fl.InMemory(data, num_clients=6, partition=fl.IidPartitioner(), test_fraction=0)
    assert fl.Experiment(source, FEDAVG, 1).load().train.sizes.tolist() == [15] * 6
    with pytest.raises(fl.errors.FieldError) as refused:
        fl.Experiment(data, FEDAVG, 1)  # type: ignore[arg-type]
    assert str(refused.value) == (
        "The data name no clients: give the client of each example, or deal the examples, for example by "
        "fl.InMemory(..., num_clients=10, partition=fl.IidPartitioner())."
    )


def test_a_test_set_in_memory_is_shared_or_belongs_to_its_clients() -> None:
    shared = fl.InMemory((INPUTS, LABELS, OWNERS), test=(INPUTS[:7], LABELS[:7])).load(fl.Key.from_seed(0))
    assert shared.train.sizes.tolist() == [30, 40, 20]
    assert shared.test is not None
    assert shared.test.sizes.tolist() == [7]
    test = (INPUTS[15:25], LABELS[15:25], OWNERS[15:25])
    own = fl.InMemory((INPUTS, LABELS, OWNERS), test=test).load(fl.Key.from_seed(0)).test
    assert own is not None
    assert own.sizes.tolist() == [5, 0, 5]


def test_a_table_has_the_test_set_of_another_table() -> None:
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame({"x": INPUTS[:, 0], "y": np.array(["a", "b", "c"])[LABELS], "who": OWNERS})
    train, test = frame[:60], frame[frame.y == "c"][:5]
    pool = fl.Pool.from_table(train, "y", client="who", test=test)
    assert (len(pool), pool.class_names) == (60, ("a", "b", "c"))
    assert pool.test_targets is not None
    assert pool.test_targets.tolist() == [2] * 5


def test_a_folder_says_plainly_that_no_spec_holds_the_run(tmp_path: Path) -> None:
    fl.run_experiment(experiment(), tmp_path / "run")
    text = (tmp_path / "run" / "spec.toml").read_text()
    assert text.startswith("# Data, model or functions of this run were in the memory of a Python program.")
    assert 'digest = "90 examples of 4 numbers, sha256 ' in text
    assert 'loss = "in-memory:smooth"' in text
    done = CliRunner().invoke(app, ["run", str(tmp_path / "run" / "spec.toml"), "-o", str(tmp_path / "new")])
    assert done.exit_code == 2
    assert "These data were in the memory of a Python program (90 examples" in done.output
    named = replace(experiment(), clients=fl.Digits(3), task=None)
    fl.run_experiment(named, tmp_path / "named")
    assert not (tmp_path / "named" / "spec.toml").read_text().startswith("#")


def test_it_resumes_with_the_same_data_and_refuses_others(tmp_path: Path) -> None:
    whole = fl.run_experiment(experiment(), tmp_path / "whole")
    with pytest.raises(KilledError):
        fl.run_experiment(experiment(), tmp_path / "cut", checkpoint_every=2, on_round=kill_after(3))
    other = replace(experiment(), clients=fl.InMemory((INPUTS + 1, LABELS, OWNERS)))
    with pytest.raises(fl.errors.RunFolderError, match="another experiment, with a different clients"):
        fl.run_experiment(other, tmp_path / "cut", resume=True)
    changed = replace(experiment(), task=fl.Task(Own(2.0), loss=smooth))
    with pytest.raises(fl.errors.RunFolderError, match="another experiment, with a different task"):
        fl.run_experiment(changed, tmp_path / "cut", resume=True)
    fl.run_experiment(experiment(), tmp_path / "cut", resume=True)
    assert fl.load_records(tmp_path / "cut") == list(whole.federation.records)


def test_reports_diagnoses_and_models_need_no_data(tmp_path: Path) -> None:
    run = fl.run_experiment(experiment(), tmp_path)
    summary = summarize_runs([tmp_path])
    assert summary.methods[0].value is not None
    assert "in the memory of a Python program" in str(fl.diagnose(tmp_path, quick=True))
    assert fl.diagnose(experiment(), rounds=5, quick=True).advice.decision != "undecided"
    with pytest.raises(
        fl.errors.DataError, match=r"The model Own was in the memory .* load_model\(folder, module"
    ):
        fl.load_model(tmp_path)
    own = fl.load_model(tmp_path, module=Own())
    assert torch.equal(own.state_dict()["layer.bias"], run.federation.model().state_dict()["layer.bias"])


def test_the_default_task_follows_the_targets(tmp_path: Path) -> None:
    quantities = fl.Experiment(fl.InMemory((INPUTS, INPUTS[:, 0], OWNERS)), FEDAVG, 1)
    assert quantities.learning_task.loss == "squared_error"
    tokens = fl.Experiment(fl.InMemory((DRAWS.integers(0, 9, (90, 5)), LABELS, OWNERS)), FEDAVG, 1)
    fl.run_experiment(tokens, tmp_path)
    assert fl.RunFolder(tmp_path).experiment().task == tokens.learning_task


@pytest.mark.parametrize("wrong", [3, "a.csv", [1, 2, 3, 4], (INPUTS,)])
def test_other_values_are_refused_in_a_sentence(wrong: object) -> None:
    with pytest.raises(
        fl.errors.FieldError, match=r"InMemory.data must be a Pool, ClientData, .* a table becomes"
    ):
        fl.InMemory(wrong)


def test_a_data_frame_without_columns_is_refused_with_the_cure() -> None:
    pandas = pytest.importorskip("pandas")
    with pytest.raises(
        fl.errors.FieldError,
        match=r"Experiment.clients must be a source of clients or their data, .* a table becomes a Pool by",
    ):
        fl.Experiment(pandas.DataFrame({"a": [1]}), FEDAVG, 1)
