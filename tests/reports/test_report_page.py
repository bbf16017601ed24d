"""What docs/report.md shows really happens, with fewer rounds."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest
from typer.testing import CliRunner

from fairlead.cli import app

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "report.md").read_text(encoding="utf-8")
CONSOLE = re.findall(r"^```console\n(.*?)^```$", PAGE, flags=re.DOTALL | re.MULTILINE)


def test_the_commands_and_the_python_make_the_page(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    (python,) = re.findall(r"^```python\n(.*?)^```$", PAGE, flags=re.DOTALL | re.MULTILINE)
    compare, report, promised = CONSOLE[0].strip().splitlines()
    small = ["--rounds", "1", "--jobs", "1"]
    for arguments in (["init", "study.toml"], [*shlex.split(compare)[2:], *small], shlex.split(report)[2:]):
        result = CliRunner().invoke(app, arguments)
        assert result.exit_code == 0, result.output
    assert result.stdout.splitlines()[-1] == promised
    exec(compile(python, "docs/report.md", "exec"), {})
    assert [line.split()[0] for line in capsys.readouterr().out.splitlines()] == [
        "fedavg",
        "fednova",
        "scaffold",
    ]
    assert "Study 3" in Path("report.html").read_text(encoding="utf-8")


def test_the_runs_beside_the_code_make_a_page(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "reproductions").symlink_to(ROOT / "reproductions")
    (command,) = CONSOLE[1].strip().splitlines()
    result = CliRunner().invoke(app, shlex.split(command)[2:])
    assert result.exit_code == 0, result.output
    assert "Results: Hybrid+" in Path("table_1.html").read_text(encoding="utf-8")
    assert Path("figures/accuracy-rounds-Hybrid+.svg").exists()
