"""`fairlead --import MODULE`: parts in a file of the user's own, for commands and the processes that they start.

Commands run in processes of their own, as users start them: a part would otherwise stay known to all other tests.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

import fairlead as fl

MODULE = """
import os
from dataclasses import dataclass
from pathlib import Path

import fairlead as fl

Path(f"imported-{os.getpid()}").touch()


@dataclass(frozen=True)
class Half(fl.LinearAggregator):
    \"\"\"Half of the sum of updates.\"\"\"

    share: float = 0.5

    def coefficients(self, updates, conditions):
        return updates.importance * self.share
"""
SCRIPT = """
from fairlead.cli import main

if __name__ == "__main__":
    main()
"""
SPEC = """
rounds = 2
[clients]
type = "Quadratics"
num_clients = 4
[algorithm.solver.optimizer]
type = "SGD"
lr = 0.05
[algorithm.aggregator]
type = "Half"
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "my_parts.py").write_text(MODULE)
    (tmp_path / "spec.toml").write_text(SPEC)
    return tmp_path


def fairlead(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """The command as its console script starts it, which does not look for modules in the working directory."""
    (folder.parent / "script.py").write_text(SCRIPT)
    return subprocess.run(
        [sys.executable, "../script.py", *arguments],
        capture_output=True,
        text=True,
        check=False,
        cwd=folder,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        timeout=120,
    )


def test_a_part_is_unknown_without_its_module(folder: Path) -> None:
    refused = fairlead(folder, "run", "spec.toml")
    assert refused.returncode == 2
    assert "algorithm.aggregator.type must be the name of an Aggregator, got 'Half'" in refused.stderr
    assert refused.stderr.endswith(
        " For a part of your own, import its module: fairlead --import MODULE ...\n"
    )


def test_a_report_on_a_run_with_an_unknown_part_says_so(folder: Path) -> None:
    assert fairlead(folder, "--import", "my_parts", "run", "spec.toml", "-o", "r1", "-q").returncode == 0
    refused = fairlead(folder, "report", "r1")
    assert (refused.returncode, refused.stdout) == (2, "")
    assert refused.stderr == (
        "fairlead: r1 cannot be read: algorithm.aggregator.type must be the name of an Aggregator, got 'Half'. "
        "`fairlead list` shows all. For a part of your own, import its module: fairlead --import MODULE ...\n"
    )
    assert not (folder / "r1" / "report.html").exists()


@pytest.mark.parametrize(
    ("command", "shown"),
    [
        ("show Half", "Half of the sum of updates."),
        ("list aggregators", "Half"),
        ("diagnose spec.toml --quick --rounds 1", "Diagnosis of spec.toml: 4 clients, 1 round"),
    ],
)
def test_commands_know_the_part(folder: Path, command: str, shown: str) -> None:
    done = fairlead(folder, "--import", "my_parts", *command.split())
    assert done.returncode == 0, done.stderr
    assert shown in done.stdout


@pytest.mark.full
def test_a_run_goes_on_and_is_reported(folder: Path) -> None:
    for command in ("run spec.toml -q -o run", "run run --rounds 3 -q", "report run"):
        done = fairlead(folder, "--import", "my_parts", *command.split())
        assert done.returncode == 0, done.stderr
    assert len(fl.load_records(folder / "run")) == 3
    assert list(folder.rglob("report.html"))


@pytest.mark.full
def test_workers_of_a_sweep_know_the_part(folder: Path) -> None:
    """The command and its two workers import the module, each once; half the share is half of the first step.

    From the same start and with the same draws, the direction of the first round is proportional to `share`.
    """
    command = "sweep spec.toml --grid algorithm.aggregator.share=0.25,0.5 --jobs 2 -q -o study"
    done = fairlead(folder, "--import", "my_parts", *command.split())
    assert done.returncode == 0, done.stderr
    assert len(list(folder.glob("imported-*"))) == 3
    runs = sorted(path.parent for path in (folder / "study").rglob("rounds.jsonl"))
    quarter, half = (fl.load_records(run)[0].direction_norm for run in runs)
    assert quarter is not None
    assert half == pytest.approx(2 * quarter)


def test_several_modules(folder: Path) -> None:
    (folder / "more").mkdir()
    (folder / "more" / "parts.py").write_text(MODULE.replace("Half", "Third"))
    done = fairlead(folder, "--import", "my_parts", "--import", "more.parts", "list", "aggregators")
    assert done.returncode == 0, done.stderr
    assert "Half" in done.stdout
    assert "Third" in done.stdout


@pytest.mark.parametrize(
    "name", ["absent", "my_parts.py", "my_parts.absent", "absent.parts", "my-parts", ".parts", ""]
)
def test_a_module_that_is_not_there_is_one_sentence(folder: Path, name: str) -> None:
    refused = fairlead(folder, "--import", name, "list")
    assert (refused.returncode, refused.stdout) == (2, "")
    assert refused.stderr == (
        "fairlead: --import must name an installed module or one of the working directory, as in a Python import, "
        f"got {name!r}.\n"
    )


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("import absent_package", "ModuleNotFoundError: No module named 'absent_package'"),
        ("import my_parts.absent", "ModuleNotFoundError: No module named 'my_parts.absent'; "),
        ("1 / 0", "ZeroDivisionError: division by zero"),
    ],
)
def test_errors_of_the_module_are_its_own(folder: Path, line: str, message: str) -> None:
    (folder / "my_parts.py").write_text(line)
    done = fairlead(folder, "--import", "my_parts", "list")
    assert done.returncode == 1
    assert done.stderr.splitlines()[-1].startswith(message)


def test_deliberate_errors_of_the_module_are_one_sentence(folder: Path) -> None:
    (folder / "my_parts.py").write_text("import fairlead as fl\nfl.SGD(lr=-1)")
    refused = fairlead(folder, "--import", "my_parts", "list")
    assert refused.returncode == 2
    (sentence,) = refused.stderr.splitlines()
    assert sentence.startswith("fairlead: SGD.lr must be")


APP = """
import importlib
import sys

from flwr.app import Context, RecordDict

sys.path[:0] = ["{app}", "{tests}"]
from direct_grid import DirectGrid
from fairlead import load_records

client = importlib.import_module("mine.client_app").app
context = Context(1, 1, {{}}, RecordDict(), {{"folder": "run", "bind-keys": False}})
importlib.import_module("mine.server_app").app(DirectGrid(dict.fromkeys(range(4), client), "memory"), context)
print(*(record.direction_norm for record in load_records("run")))
"""


@pytest.mark.full
def test_an_app_for_flower_brings_the_module(folder: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    """Both ends of the app, elsewhere and without `--import`, give the rounds of the spec in simulation.

    The weights of the run are told where the module is imported.
    """
    (folder / "spec.toml").write_text(SPEC.replace("Quadratics", "Digits"))
    written = fairlead(folder, "--import", "my_parts", "flower", "init", "spec.toml", "mine")
    assert written.returncode == 0, written.stderr
    assert "mine/my_parts.py" in written.stdout.split()
    elsewhere = tmp_path_factory.mktemp("elsewhere")
    code = APP.format(app=folder / "mine", tests=Path(__file__).parents[1] / "flower")
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=False, cwd=elsewhere, timeout=120
    )
    assert done.returncode == 0, done.stderr
    assert fairlead(folder, "--import", "my_parts", "run", "spec.toml", "-o", "simulated").returncode == 0
    expected = [record.direction_norm for record in fl.load_records(folder / "simulated")]
    assert [float(norm) for norm in done.stdout.splitlines()[-1].split()] == pytest.approx(expected)
    run = str(elsewhere / "run")
    told = fairlead(folder, "--import", "my_parts", "flower", "weights", run, "--json")
    assert told.returncode == 0, told.stderr
    assert [row["client"] for row in json.loads(told.stdout)["clients"]] == [0, 1, 2, 3]
    refused = fairlead(folder, "flower", "weights", run)
    assert refused.returncode == 2
    assert "aggregator.type must be the name of an Aggregator, got 'Half'" in refused.stderr


@pytest.mark.full
def test_an_app_that_does_not_import_the_module_is_told_to(folder: Path) -> None:
    (folder / "spec.toml").write_text(SPEC.replace("Quadratics", "Digits"))
    assert fairlead(folder, "--import", "my_parts", "flower", "init", "spec.toml", "mine").returncode == 0
    package = folder / "mine" / "mine"
    (package / "__init__.py").write_text("")
    refused = fairlead(folder, "--import", "my_parts", "flower", "up", "mine")
    assert refused.returncode == 2
    assert "mine/mine/__init__.py must have the line `import my_parts`" in refused.stderr


@pytest.mark.full
def test_an_app_that_brings_the_module_goes_up_without_naming_it(folder: Path) -> None:
    """As far as the number of nodes, of which a spec with four clients has no use for five."""
    (folder / "spec.toml").write_text(SPEC.replace("Quadratics", "Digits"))
    assert fairlead(folder, "--import", "my_parts", "flower", "init", "spec.toml", "mine").returncode == 0
    refused = fairlead(folder, "flower", "up", "mine", "--nodes", "5")
    assert refused.returncode == 2
    assert "--nodes" in refused.stderr


def test_an_app_is_not_called_as_the_module(folder: Path) -> None:
    refused = fairlead(folder, "--import", "my_parts", "flower", "init", "spec.toml", "my_parts")
    assert refused.returncode == 2
    assert "my_parts must have another name than the module my_parts" in refused.stderr
