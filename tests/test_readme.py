"""What README.md shows really runs."""

from __future__ import annotations

import re
import shlex
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from fairlead.cli import app

README = (Path(__file__).parents[1] / "README.md").read_text(encoding="utf-8")


def blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```$", README, flags=re.DOTALL | re.MULTILINE)


def test_the_examples_run_one_after_another(capsys: pytest.CaptureFixture[str]) -> None:
    names: dict[str, Any] = {}
    first, second = blocks("python")
    exec(compile(first, "README.md", "exec"), names)
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines[:3]] == ["10", "20", "30"]
    assert len(lines) > 3
    exec(compile(second, "README.md", "exec"), names)
    assert "SCAFFOLD optimized the intended objective" in capsys.readouterr().out


def test_the_commands_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    commands = re.findall(r"^\$ fairlead (.*)$", README, flags=re.MULTILINE)
    assert len(commands) >= 5
    for command in commands:
        result = CliRunner().invoke(app, shlex.split(command, comments=True))
        assert result.exit_code == 0, result.output
    assert (tmp_path / "runs" / "first" / "spec.toml").exists()


def test_the_table_of_clients_can_be_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (table,) = blocks("toml")
    rows = [f"{age},{age % 2},{'north' if age < 50 else 'south'}" for age in range(30, 70)]
    (tmp_path / "patients.csv").write_text("\n".join(["age,diagnosis,hospital", *rows]))
    (tmp_path / "own.toml").write_text(table)
    result = CliRunner().invoke(app, ["run", "own.toml", "--rounds", "2", "--json"])
    assert result.exit_code == 0, result.output
