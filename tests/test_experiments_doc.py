"""What docs/experiments.md shows really runs."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest
from typer.testing import CliRunner

import fairlead as fl
from fairlead.cli import app

PAGE = (Path(__file__).parents[1] / "docs" / "experiments.md").read_text(encoding="utf-8")


def test_the_commands_run_and_leave_what_the_page_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    commands = re.findall(r"^\$ fairlead (.*)$", PAGE, flags=re.MULTILINE)
    assert [command.split()[0] for command in commands] == [
        "init", "run", "run", "compare", "compare", "sweep", "sweep", "run", "export", "export",
    ]  # fmt: skip
    for command in commands:
        # Worker processes have their own tests; starting them takes longer than these runs.
        alone = ["--jobs", "1"] if command.startswith(("compare", "sweep")) else []
        result = CliRunner().invoke(app, [*shlex.split(command), *alone])
        assert result.exit_code == 0, result.output
    named = set(re.findall(r"^\| `([\w.]+)/?` \|", PAGE, flags=re.MULTILINE))
    figures = {"last5", "final", "best"}
    assert {path.name for path in Path("runs/kept").iterdir()} == named - figures
    assert len(fl.load_records("runs/first")) == 30
    study = fl.StudyFolder(Path("runs/study-compare-10-rounds"))
    assert [run.outcome for run in study.runs()] == ["finished"] * 9
    pytest.importorskip("pandas")
    pytest.importorskip("matplotlib")
    scope: dict[str, object] = {}
    for block in re.findall(r"^```python\n(.*?)^```$", PAGE, flags=re.DOTALL | re.MULTILINE):
        exec(block, scope)
