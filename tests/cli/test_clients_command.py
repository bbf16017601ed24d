"""`fairlead clients` on a table with names, gaps and too many clients to list."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from fairlead.cli import app

SPEC = """
rounds = 2
[clients]
type = "CsvTable"
path = "patients.csv"
target = "ill"
client = "hospital"
features = "age"
missing = "drop"
test_fraction = 0.0
[algorithm]
preset = "fedavg"
lr = 0.01
"""
LONG = "Allgemeines Krankenhaus der Stadt am Meer, Haus 7"


@pytest.fixture(autouse=True)
def _in_a_folder_with_patients(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    rows = [f'"{LONG}",50,1', f'"{LONG}",60,0', "Ulm,40,1", "Ulm,,0", "Ulm,NA,0"]
    Path("patients.csv").write_text("\n".join(["hospital,age,ill", *rows]))
    Path("spec.toml").write_text(SPEC)


def output(*arguments: str) -> str:
    result = CliRunner().invoke(app, ["clients", "spec.toml", *arguments])
    assert result.exit_code == 0, result.output
    return result.stdout


def test_people_read_numbers_and_short_names() -> None:
    lines = [line.split() for line in output().splitlines()]
    assert lines[0][:3] == ["client", "name", "examples"]
    assert lines[1][:6] == ["0", "Allgemeines", "Krank…er,", "Haus", "7", "2"]
    assert lines[2][:3] == ["1", "Ulm", "1"]


def test_programs_read_whole_names() -> None:
    found = json.loads(output("--json"))
    assert found["names"] == [LONG, "Ulm"]
    assert found["examples"] == [2, 1]


def test_rows_left_out_are_told() -> None:
    assert '2 rows of the data lack a value and were dropped (missing = "drop").' in output()
    assert json.loads(output("--json"))["num_dropped"] == 2
    Path("patients.csv").write_text("hospital,age,ill\nUlm,50,1\nBonn,60,0\n")
    assert "left out" not in output()


def test_features_and_classes_are_named() -> None:
    said = output()
    assert "Features (1): age." in said
    assert "labels: a bar for each of 0, 1, by number of examples." in said
    names = [f"measurement {place}" for place in range(10)]
    rows = [",".join(["Ulm", *"0123456789", sickness]) for sickness in ("1001", "2002", "45000")]
    Path("patients.csv").write_text("\n".join([",".join(["hospital", *names, "ill"]), *rows]))
    Path("spec.toml").write_text(SPEC.replace('features = "age"\n', ""))
    said = output()
    assert "Features (10): measurement 0, " in said
    assert ", measurement 7 and 2 more." in said
    assert "labels: a bar for each of 1001, 2002, 45000, by number" in said
    found = json.loads(output("--json"))
    assert found["features"] == names
    assert found["class_names"] == ["1001", "2002", "45000"]


def test_held_out_examples_are_counted() -> None:
    """A quarter of 8 and of 4 examples is 2 and 1."""
    rows = [f"{'Bonn' if age < 8 else 'Ulm'},{age},{age % 2}" for age in range(12)]
    Path("patients.csv").write_text("\n".join(["hospital,age,ill", *rows]))
    assert "No examples are held out, so the model is tested on the training data." in output()
    held_out = ["--set", "clients.test_fraction=0.25"]
    said = output(*held_out)
    lines = [line.split() for line in said.splitlines()]
    assert lines[0][:4] == ["client", "name", "examples", "test"]
    assert [line[1:4] for line in lines[1:3]] == [["Bonn", "6", "2"], ["Ulm", "3", "1"]]
    assert "Held out for testing: 3 examples, a test set for each client." in said
    found = json.loads(output(*held_out, "--json"))
    assert (found["test"], found["num_test"]) == ([2, 1], 3)
    dealt = [*held_out, "--set", "clients.num_clients=2", "--set", "clients.partition.type=IidPartitioner"]
    said = output(*dealt)
    assert "Held out for testing: 3 examples, one common test set." in said
    assert "test" not in said.splitlines()[0]
    found = json.loads(output(*dealt, "--json"))
    assert found["num_test"] == 3
    assert "test" not in found


def test_columns_are_explained() -> None:
    said = output()
    for meaning in (
        "work: effective local steps in a round;",
        "arrival: probability that an update arrives;",
        "pull: Ω/ω of a client under plain averaging;",
    ):
        assert meaning in said


def test_the_plot_shows_them() -> None:
    output("--plot", "clients.svg")
    drawn = Path("clients.svg").read_text()
    assert "<!-- Ulm -->" in drawn
    assert "<!-- Allgemeines Krank…er, Haus 7 -->" in drawn


@pytest.mark.parametrize("name", ["clients.gif", "clients", "absent/clients.svgz"])
def test_a_plot_of_another_format_is_refused_before_the_spec_is_read(name: str) -> None:
    ended = CliRunner().invoke(app, ["clients", "absent.toml", "--plot", name])
    said = f"fairlead: --plot must be a .svg, .png or .pdf file, got {name!r}.\n"
    assert (ended.exit_code, ended.stdout, ended.stderr) == (2, "", said)


def test_clients_dealt_anew_have_numbers_alone() -> None:
    anew = ["--set", "clients.num_clients=2", "--set", "clients.partition.type=IidPartitioner"]
    assert output(*anew).splitlines()[0].split()[:2] == ["client", "examples"]
    assert json.loads(output(*anew, "--json"))["names"] is None


DIGITS = """
rounds = 2
[clients]
type = "Digits"
num_clients = 60
partition = { type = "ShardPartitioner", num_shards_per_partition = 1 }
[algorithm]
preset = "fedavg"
lr = 0.01
"""


class TestConditions:
    """What is said of digits dealt to many clients, or over links of several kinds."""

    @pytest.fixture(autouse=True)
    def _spec(self, _in_a_folder_with_patients: None) -> None:
        Path("spec.toml").write_text(DIGITS)

    def test_labels_of_many_clients(self) -> None:
        """1,438 sorted examples in 60 shards of 24: one label each, and two in the nine where a label ends."""
        lines = {line.split("  ")[0]: line.split() for line in output().splitlines()}
        assert lines["of all clients"][-3:] == ["labels", "top", "label"]
        assert "labels: distinct labels of a client; top label: share of its most frequent one." in output()
        assert lines["median"][-2:] == ["1", "1"]
        assert lines["most"][-2:] == ["2", "1"]
        assert 0.5 <= float(lines["least"][-1]) < 1

    def test_rates_that_no_link_defines(self) -> None:
        said = output("--set", "link.type=ScriptedLink", "--set", "link.arrivals=[[0]]")
        assert "1438 examples; work averaged over 20 rounds." in said
        assert "Arrival rates are not shown, because the link defines none" in said

    def test_work_that_cannot_be_measured(self) -> None:
        said = output(
            "--set", "algorithm.solver.optimizer.type=Adam", "--set", "algorithm.solver.optimizer.lr=0.1"
        )
        assert "1438 examples; arrival averaged over 20 rounds." in said
        assert "Work is not shown" in said

    def test_a_link_that_loses_everything(self) -> None:
        said = output("--set", "link.type=BernoulliLink", "--set", "link.drop=1.0")
        assert "pull" not in said
        assert "not shown" not in said

    def test_clients_without_examples(self) -> None:
        many = ["--set", "clients.num_clients=1500", "--set", "clients.partition.type=IidPartitioner"]
        assert "62 clients have no examples and never reply." in output(*many)
        assert "never answer" not in output()
