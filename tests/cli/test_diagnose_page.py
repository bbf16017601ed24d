"""docs/diagnose.md shows what really happens."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from typer.testing import CliRunner

import fairlead as fl
from fairlead.cli import app
from fairlead.diagnostics.advice import RULES, Rule

PAGE = (Path(__file__).parents[2] / "docs" / "diagnose.md").read_text(encoding="utf-8")
NUMBER = re.compile(r"\d+(?:\.\d+)?(?:e[-+]\d+)?")


def blocks(language: str) -> list[str]:
    return re.findall(
        rf"^```{language}(?: title=\"[^\"]+\")?\n(.*?)^```$", PAGE, flags=re.DOTALL | re.MULTILINE
    )


def test_the_example_prints_what_the_page_shows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Word for word; numbers may differ in their last digit, since processors round differently."""
    monkeypatch.chdir(tmp_path)
    (spec,) = blocks("toml")
    Path("unequal.toml").write_text(spec)
    command, shown = blocks("console")[1].split("\n", 1)
    result = CliRunner().invoke(app, command.removeprefix("$ fairlead ").split())
    assert result.exit_code == 0, result.output
    assert NUMBER.sub("#", result.stdout) == NUMBER.sub("#", shown)
    said, promised = (list(map(float, NUMBER.findall(text))) for text in (result.stdout, shown))
    assert said == pytest.approx(promised, rel=0.03, abs=0.02)


def test_specs_runs_and_records_can_be_diagnosed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The commands at the top of the page, with a short probe."""
    monkeypatch.chdir(tmp_path)
    experiment = fl.Experiment(fl.Quadratics(num_clients=3), fl.presets.fedavg(lr=0.1), rounds=6)
    Path("spec.toml").write_text(fl.to_toml(experiment))
    fl.run_experiment(experiment, Path("runs/first"))
    Path("records.jsonl").write_text(blocks("json")[0])
    commands = [line.split("#")[0].split() for line in blocks("console")[0].splitlines()]
    assert [command[3] for command in commands] == ["spec.toml", "runs/first", "records.jsonl"]
    for _, _, *arguments in commands:
        result = CliRunner().invoke(app, [*arguments, *(["--quick"] if "spec.toml" in arguments else [])])
        assert result.exit_code == 0, result.output
        assert "Advice" in result.stdout


def test_the_records_can_be_read(tmp_path: Path) -> None:
    (records,) = blocks("json")
    assert all(json.loads(line) for line in records.splitlines())
    (tmp_path / "records.jsonl").write_text(records)
    found = fl.diagnose(tmp_path / "records.jsonl")
    assert (found.clients, found.rounds, found.advice.preset) == (3, 2, None)


COLUMNS = [
    "work",
    "links",
    "drift",
    "rates",
    "solver",
    "reach",
    "length",
    "clients",
    "returns",
    "bias",
    "trouble",
]
"""Facts of a situation, as the page has them."""


def shown_rule(rule: Rule) -> str:
    """A row of the page's table: blank where a rule asks for nothing in particular."""
    cells = [str(rule.when.get(name, "")) for name in COLUMNS]
    preset = "no advice" if rule.preset is None else f"`{rule.preset}`"
    return " | ".join(["", *cells, preset, ""]).strip()


def test_the_table_is_that_of_the_rules() -> None:
    table = [line for line in PAGE.splitlines() if re.search(r"\| (no advice|`fed\w+`|`scaffold`) \|$", line)]
    assert [re.sub(" +", " ", line) for line in table] == [
        re.sub(" +", " ", shown_rule(rule)) for rule in RULES
    ]
