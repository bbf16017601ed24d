"""What docs/federations.md shows really runs, and its tables miss nothing."""

from __future__ import annotations

import re
import shlex
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

import fairlead as fl
from fairlead.cli import app
from fairlead.component import Component, parts_of
from fairlead.experiments.catalog import ROLES
from fairlead.settings import SETTINGS, Setting

PAGE = (Path(__file__).parents[1] / "docs" / "federations.md").read_text(encoding="utf-8")


def blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```$", PAGE, flags=re.DOTALL | re.MULTILINE)


FEDERATION, *PARTS, NAMED, WITH_ARGUMENTS = blocks("toml")


@pytest.fixture(autouse=True)
def _own_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def test_the_python_runs_and_says_the_same_as_the_specs(capsys: pytest.CaptureFixture[str]) -> None:
    names: dict[str, Any] = {}
    for block in blocks("python"):
        exec(compile(block, "docs/federations.md", "exec"), names)
    clock, *asynchronous = capsys.readouterr().out.splitlines()
    assert re.fullmatch(r"\d+ virtual seconds, \d+ to an accuracy of 0\.8", clock)
    (shown,) = blocks("text")
    for line, other in zip(asynchronous, shown.splitlines(), strict=True):
        # The clock and the ages follow from the draws; accuracies differ a little between machines.
        (seconds, to_level, staleness, accuracy), kept = (
            [float(number) for number in re.findall(r"(?<=[ :])[\d.]+(?= s|,|$)", text)]
            for text in (line, other)
        )
        assert (seconds, staleness) == (kept[0], kept[2])
        assert to_level == pytest.approx(kept[1], rel=0.3)
        assert accuracy == pytest.approx(kept[3], abs=0.03)
    assert fl.from_toml(fl.Experiment, FEDERATION) == names["experiment"]
    assert fl.from_toml(fl.Experiment, WITH_ARGUMENTS) == names["published"]


def test_the_commands_run() -> None:
    Path("federation.toml").write_text(FEDERATION, encoding="utf-8")
    Path("published.toml").write_text(WITH_ARGUMENTS, encoding="utf-8")
    commands = re.findall(r"^\$ fairlead (.*)$", PAGE, flags=re.MULTILINE)
    assert len(commands) >= 6
    for command in commands:
        result = CliRunner().invoke(app, shlex.split(command))
        assert result.exit_code == 0, result.output


@pytest.mark.parametrize("part", PARTS)
def test_the_parts_fit_into_the_spec(part: str) -> None:
    """Each takes the place of the tables of its names."""
    spec = FEDERATION
    for table in re.findall(r"^\[(\w+)\]", part, flags=re.MULTILINE):
        spec = re.sub(rf"^\[{table}\]\n(?:[^\[\n].*\n)*", "", spec, flags=re.MULTILINE)
    (record,) = fl.from_toml(fl.Experiment, spec + part).build().train(1)
    assert record.virtual_seconds is not None
    assert len(record.arrived) <= 10


def test_a_named_setting_needs_only_data_and_method() -> None:
    assert fl.from_toml(fl.Experiment, NAMED, ["setting.alpha=0.3"]) == fl.from_toml(
        fl.Experiment, WITH_ARGUMENTS
    )


@pytest.mark.parametrize("kind", ["work", "links", "devices"])
def test_every_condition_is_named(kind: str) -> None:
    parts: set[type[Component]] = {cls for role in ROLES[kind] for cls in parts_of(role).values()}
    own = {cls.__name__ for cls in parts if cls.__module__.startswith("fairlead.")}
    assert {name for name in own if f"`{name}`" not in PAGE} == set()


def row(name: str, setting: Setting) -> str:
    solver = setting.solver
    work = f"{solver.epochs} epochs" if solver.steps is None else f"{solver.steps} steps"
    cells = [
        f"`{name}`",
        setting.num_clients or "the data's",
        setting.cohort_size or "all",
        setting.rounds or "–",
        f"{solver.optimizer.lr:g}",
        f"`{type(setting.clients or setting.partition).__name__}`",
        work if setting.work == fl.EqualWork() else f"`{type(setting.work).__name__}`",
        "all arrive" if setting.link == fl.PerfectLink() else f"`{type(setting.link).__name__}`",
    ]
    return "| " + " | ".join(map(str, cells)) + " |\n"


def test_the_table_of_settings_is_complete_and_right() -> None:
    table = "".join(row(name, published.build()) for name, published in SETTINGS.items())
    assert f"|---|---|---|---|---|---|---|---|\n{table}\n" in PAGE, table
