"""Every block of code and every command on a page is run, here or by the page's own test, or says why not."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from page_blocks import ROOT, Block, blocks, pages
from typer.testing import CliRunner

import fairlead as fl
from fairlead.cli import app

OWN_TESTS = {
    "CONTRIBUTING.md": "tests/test_contributing.py",
    "README.md": "tests/test_readme.py",
    "docs/data.md": "tests/clients/test_data_page.py",
    "docs/diagnose.md": "tests/cli/test_diagnose_page.py",
    "docs/engines.md": "tests/engines/test_engines_page.py",
    "docs/experiments.md": "tests/test_experiments_doc.py",
    "docs/federations.md": "tests/test_federations_page.py",
    "docs/flower.md": "tests/flower/test_flower_page.py",
    "docs/privacy.md": "tests/privacy/test_privacy_page.py",
    "docs/ray.md": "tests/ray/test_ray_world.py",
    "docs/report.md": "tests/reports/test_report_page.py",
}
"""Pages whose blocks need surroundings of their own, or whose output is compared with what is shown."""
SILENT = {"", "json", "text"}
"""Languages of blocks that show something instead of telling what to do."""


def small_world() -> dict[str, Any]:
    """What docs/consensus.md takes for granted."""
    data = fl.Digits(num_clients=4).load(fl.Key.from_seed(0))
    return {"world": fl.SimulatedWorld(fl.Task(fl.LogisticRegression()), data.train)}


GIVEN: dict[str, Callable[[], dict[str, Any]]] = {"docs/consensus.md": small_world}
FOLDERS = {"examples/README.md": "examples/own_table", "docs/reproducing.md": "reproductions"}
"""Whose files a page takes for granted."""
IN_A_PROCESS_OF_ITS_OWN = {"docs/own_parts.md"}
"""Pages that define parts, which other tests would find."""


def runnable(page: str) -> list[Block]:
    return [block for block in blocks(page) if block.excuse is None and block.language not in SILENT]


HERE = [page for page in pages() if page not in OWN_TESTS and runnable(page)]


@pytest.mark.parametrize("page", HERE)
def test_the_blocks_of_a_page_run_one_after_another(
    page: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    for file in (ROOT / FOLDERS[page]).glob("*") if page in FOLDERS else ():
        (tmp_path / file.name).write_bytes(file.read_bytes())
    modules = set(sys.modules)
    if page in IN_A_PROCESS_OF_ITS_OWN:
        run_as_script(page)
    else:
        names = GIVEN.get(page, dict)()
        for block in runnable(page):
            run(block, names, page)
    for name in set(sys.modules) - modules:
        if (tmp_path / f"{name}.py").exists():
            del sys.modules[name]


def run(block: Block, names: dict[str, Any], page: str) -> None:
    if block.title is not None:
        Path(block.title).write_text(block.text, encoding="utf-8")
    elif block.language == "python":
        exec(compile(block.text, page, "exec"), names)
    elif block.language == "console":
        for line in block.text.splitlines():
            if line.startswith("$ "):
                run_command(line.removeprefix("$ "))
    else:
        pytest.fail(f"{page} has a block of {block.language} that is neither a file nor excused")


def run_command(line: str) -> None:
    program, *arguments = shlex.split(line, comments=True)
    assert program == "fairlead", f"{line!r} is no command of fairlead: say above the block why it is not run"
    result = CliRunner().invoke(app, arguments)
    assert result.exit_code == 0, f"{line}\n{result.output}"


def run_as_script(page: str) -> None:
    """Write the files of a page, then run its Python in one process and each of its commands in another."""
    python, commands = [], []
    for block in runnable(page):
        if block.title is not None:
            Path(block.title).write_text(block.text, encoding="utf-8")
        elif block.language == "python":
            python.append(block.text)
        else:
            assert block.language == "console"
            lines = (line for line in block.text.splitlines() if line.startswith("$ "))
            commands += [shlex.split(line.removeprefix("$ "), comments=True) for line in lines]
    Path("page.py").write_text("\n".join(python), encoding="utf-8")
    run_in_a_process("page.py")
    for program, *arguments in commands:
        assert program == "fairlead"
        run_in_a_process("-c", "from fairlead.cli import main; main()", *arguments)


def run_in_a_process(*arguments: str) -> None:
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        [sys.executable, *arguments], capture_output=True, text=True, check=False, env=environment
    )
    assert done.returncode == 0, done.stderr


def test_own_tests_exist_and_read_their_page() -> None:
    for page, test in OWN_TESTS.items():
        assert Path(page).name in (ROOT / test).read_text(encoding="utf-8")


def test_excuses_are_sentences() -> None:
    """`<!-- not run -->` alone would hide a block; so would a mark that is not right above it."""
    for page in pages():
        marks = (ROOT / page).read_text(encoding="utf-8").count("<!-- not run")
        excuses = [block.excuse for block in blocks(page) if block.excuse]
        assert len(excuses) == marks, page
        assert all(len(excuse.split()) > 3 for excuse in excuses)
