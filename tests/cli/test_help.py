"""What `--help` shows."""

from __future__ import annotations

import subprocess
import sys

import pytest
from click import Command, Group
from typer.main import get_command
from typer.testing import CliRunner

from fairlead import __version__
from fairlead.cli import app


def help_of(*command: str) -> str:
    result = CliRunner().invoke(app, [*command, "--help"], env={"COLUMNS": "120"})
    assert result.exit_code == 0
    return result.stdout


@pytest.mark.parametrize("command", [(), ("run",), ("compare",), ("report",), ("diagnose",)])
def test_flags_have_no_type(command: tuple[str, ...]) -> None:
    shown = help_of(*command)
    assert "--help" in shown
    assert "bool" not in shown


@pytest.mark.parametrize(("command", "argument"), [("run", "SPEC"), ("report", "RUNS...")])
def test_usage_names_arguments_plainly(command: str, argument: str) -> None:
    (usage,) = (line for line in help_of(command).splitlines() if "Usage:" in line)
    assert usage.split()[-3:] == [command, "[OPTIONS]", argument]


def test_the_short_option_and_the_module_show_the_same_help() -> None:
    runner = CliRunner()
    assert runner.invoke(app, ["run", "-h"]).stdout == runner.invoke(app, ["run", "--help"]).stdout
    command = [sys.executable, "-m", "fairlead", "--version"]
    assert subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip() == __version__


def test_a_default_that_depends_on_another_option_is_shown() -> None:
    """Rich takes words in brackets for markup, unless they are escaped."""
    shown = " ".join(help_of("diagnose").replace("│", " ").split())
    assert "[default: 20, or 10 with --quick]" in shown


@pytest.mark.parametrize("command", ["run", "report", "compare", "diagnose"])
def test_arguments_have_a_help_text(command: str) -> None:
    """Some versions of click hide it: the bounds in pyproject.toml keep them out."""
    shown = help_of(command).split("Arguments")[1].split("Options")[0]
    words = [word for word in shown.split() if word.isalpha() and word.islower()]
    assert len(words) > 3


def test_every_argument_and_option_has_a_help_text() -> None:
    """That of a command's own ones is in its docstring, below "Options:"."""

    def mute(command: Command) -> list[str]:
        if isinstance(command, Group):
            return [name for inner in command.commands.values() for name in mute(inner)]
        params = command.params
        return [f"{command.name} {param.name}" for param in params if not getattr(param, "help", None)]

    assert mute(get_command(app)) == []
    assert "Options:" not in str(get_command(app).commands["compare"].help)  # type: ignore[attr-defined]
