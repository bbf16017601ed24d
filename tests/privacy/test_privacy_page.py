"""What docs/privacy.md shows is what the library does."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import pytest
import torch

import fairlead as fl
from fairlead.errors import ClashError
from fairlead.experiments.spec import from_toml

PAGE = (Path(__file__).parents[2] / "docs" / "privacy.md").read_text(encoding="utf-8")


def shown_algorithm() -> fl.Algorithm:
    found = re.search(r"```toml\n(.*?)```", PAGE, re.DOTALL)
    assert found is not None
    text = found[1].replace("[algorithm]\n", "").replace("[algorithm.", "[")
    return from_toml(fl.Algorithm, text)


def test_the_spec_gives_the_statement_of_the_page() -> None:
    """1,000 clients of equal weight; quoted lines are joined."""
    algorithm = shown_algorithm()
    assert algorithm.privacy is not None
    after = fl.Conditions(200, torch.full((1000,), 1e-3, dtype=torch.float64))
    said = str(algorithm.privacy.statement(algorithm.sampler, after))
    quoted = " ".join(line[2:] for line in PAGE.splitlines() if line.startswith("> "))
    assert said == quoted
    repeating = algorithm.privacy.statement(algorithm.sampler, replace(after, repeated=(7,)))
    assert f'"{str(repeating).partition(" of ")[2].partition(" are")[0]}"' in PAGE
    fixed = algorithm.privacy.statement(fl.UniformWithoutReplacement(50), after)
    assert f"ε = {fixed.epsilon:.1f}" in PAGE


def test_the_error_of_the_page_is_the_one_that_is_raised() -> None:
    shown = re.search(r"# ClashError: (.*?): \.\.\.", PAGE)
    assert shown is not None
    with pytest.raises(ClashError, match=re.escape(shown[1])):
        fl.Algorithm(fl.LocalSolver(fl.SGD(0.1)), aggregator=fl.FedAWARE(), secure_aggregation=True)
