"""The aggregator that CONTRIBUTING.md adds really is found, written, run and checked."""

from __future__ import annotations

import gc
import re
import sys
from collections.abc import Iterator
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path

import pytest
import torch

import fairlead as fl
from fairlead.component import parts_of
from fairlead.plain_data import from_plain, to_plain
from fairlead.testing import check_aggregator, check_part, examples

CONTRIBUTING = Path(__file__).parents[1] / "CONTRIBUTING.md"


def first_example(heading: str) -> str:
    """The first block of Python after a heading."""
    section = CONTRIBUTING.read_text(encoding="utf-8").split(f"\n## {heading}\n", maxsplit=1)[1]
    block = re.search(r"^```python\n(.*?)^```$", section, flags=re.DOTALL | re.MULTILINE)
    assert block is not None
    return block.group(1)


@pytest.fixture(scope="module")
def added(tmp_path_factory: pytest.TempPathFactory) -> Iterator[type[fl.Aggregator]]:
    """The class of the example, imported as a module of its own and forgotten afterwards."""
    known = set(parts_of(fl.Aggregator))  # type: ignore[type-abstract]
    path = tmp_path_factory.mktemp("contributing") / "added_aggregator.py"
    path.write_text(first_example("Add an aggregator"), encoding="utf-8")
    spec = spec_from_file_location("added_aggregator", path)
    assert spec is not None
    assert spec.loader is not None
    module = module_from_spec(spec)
    sys.modules["added_aggregator"] = module
    spec.loader.exec_module(module)
    now = parts_of(fl.Aggregator)  # type: ignore[type-abstract]
    (name,) = set(now) - known
    yield now.pop(name)
    # Other tests list all parts: what remembers the class must forget it.
    del sys.modules["added_aggregator"], module, now
    gc.collect()


def test_the_example_is_found_by_its_name_and_survives_a_spec(added: type[fl.Aggregator]) -> None:
    part = added(q=2.0)  # type: ignore[call-arg]
    algorithm = fl.Algorithm(fl.LocalSolver(fl.SGD(0.1)), aggregator=part)
    plain = to_plain(algorithm, fl.Algorithm)
    assert plain["aggregator"] == {"type": added.__name__, "q": 2.0}
    assert from_plain(fl.Algorithm, plain) == algorithm


def test_the_example_keeps_its_contract(added: type[fl.Aggregator]) -> None:
    for part in examples(added):
        check_part(part)
        check_aggregator(part)


def test_the_example_reduces_to_the_weighted_mean_as_it_says(added: type[fl.Aggregator]) -> None:
    problem = fl.Quadratics(num_clients=3, dim=2).problem(fl.Key.from_seed(0))
    world = fl.SimulatedWorld(problem.task(), problem.data(), dtype=torch.float64)
    ends = []
    for aggregator in (added(q=0.0), fl.WeightedMean()):  # type: ignore[call-arg]
        federation = fl.Federation(
            fl.Algorithm(fl.LocalSolver(fl.SGD(0.1), steps=2), aggregator=aggregator), world
        )
        list(federation.train(3))
        ends.append(federation.params)
    assert torch.equal(*ends)


def test_theory_has_no_weights_for_the_example(added: type[fl.Aggregator]) -> None:
    """Losses decide, and they are known in rounds only: q = 0 is a mean like any other."""
    problem = fl.Quadratics(num_clients=3, dim=2).problem(fl.Key.from_seed(0))
    world = fl.SimulatedWorld(problem.task(), problem.data(), dtype=torch.float64)
    said = []
    for q in (1.0, 0.0):
        algorithm = fl.Algorithm(fl.LocalSolver(fl.SGD(0.1), steps=2), aggregator=added(q=q))  # type: ignore[call-arg]
        federation = fl.Federation(algorithm, world)
        list(federation.train(3))
        said.append(federation.consistency())
    assert said[0].predicted_weights is None
    assert said[0].predicted is not None
    assert said[0].predicted.explanation.startswith(
        "LossTilted weighs clients by what they return, such as their losses"
    )
    assert said[1].predicted_weights is not None
    assert torch.allclose(said[1].predicted_weights, said[1].intended)


def test_the_text_names_the_import_line() -> None:
    text = CONTRIBUTING.read_text(encoding="utf-8")
    name = re.search(r"^class (\w+)\(", first_example("Add an aggregator"), flags=re.MULTILINE)
    assert name is not None
    assert f"import {name.group(1)} as {name.group(1)}" in text
