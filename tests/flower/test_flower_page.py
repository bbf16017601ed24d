"""What docs/flower.md shows is what fairlead takes."""

from __future__ import annotations

import re
import tomllib
from importlib.resources import files
from pathlib import Path

import pytest

import fairlead as fl
from fairlead.errors import ClashError
from fairlead.flower import FlowerStrategy
from fairlead.flower.requests import refuse_late_adopters

PAGE = (Path(__file__).parents[2] / "docs" / "flower.md").read_text(encoding="utf-8")


def blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```$", PAGE, flags=re.DOTALL | re.MULTILINE)


def test_the_spec_is_one() -> None:
    spec, *_ = blocks("toml")
    experiment = fl.from_toml(fl.Experiment, spec)
    assert experiment.clients == fl.RealClients(3)
    assert isinstance(experiment.algorithm.sampler, fl.FedACS)


def test_the_settings_are_those_that_an_app_of_init_has() -> None:
    """`fairlead flower up` sets both, and Flower refuses a setting that an app does not name."""
    _, shown, _ = blocks("toml")
    template = files("fairlead.flower").joinpath("template/pyproject.toml.jinja").read_text(encoding="utf-8")
    written = tomllib.loads(template.replace("{{ clients }}", "3"))["tool"]["flwr"]["app"]["config"]
    assert tomllib.loads(shown)["tool"]["flwr"]["app"]["config"].items() <= written.items()
    assert {"folder", "bind-keys"} <= tomllib.loads(shown)["tool"]["flwr"]["app"]["config"].keys()
    for name in written:
        assert f"`{name}`" in PAGE


def test_the_preprocessing_is_one() -> None:
    spec, _, table = blocks("toml")
    experiment = fl.from_toml(fl.Experiment, spec + table)
    assert experiment.preprocessing == fl.Preprocessing(standardize=True, classes="union")


def test_the_python_is_complete() -> None:
    """Blocks name nothing of fairlead that does not exist, and take arguments that do."""
    client, server, strategy = blocks("python")
    for block in (client, server, strategy):
        compile(block, "docs/flower.md", "exec")
    imports = re.findall(r"^from fairlead.*$", PAGE, flags=re.MULTILINE)
    for line in imports:
        exec(line, {})
    assert len(imports) == 4
    algorithm = fl.presets.fednova(lr=0.05, epochs=2, batch_size=32)
    assert FlowerStrategy(algorithm, num_clients=3).num_clients == 3


@pytest.mark.parametrize("name", ["vrlsgd", "fedawe"])
def test_methods_that_the_page_says_are_refused(name: str) -> None:
    assert f"`{name}`" in PAGE
    with pytest.raises(ClashError, match="completes client memory"):
        refuse_late_adopters(getattr(fl.presets, name)(lr=0.1).solver)
