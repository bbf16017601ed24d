"""The aggregator and the sampler that CONTRIBUTING.md adds really are found, written, run, checked and predicted."""

from __future__ import annotations

import gc
import re
import sys
from collections.abc import Iterator
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from typing import Any

import pytest
import torch
from part_examples import examples

import fairlead as fl
from fairlead.component import Component, parts_of
from fairlead.plain_data import from_plain, to_plain
from fairlead.testing import check_part

CONTRIBUTING = Path(__file__).parents[1] / "CONTRIBUTING.md"
STEPS, DROP = (4, 1, 2, 6), (0.0, 0.5, 0.2, 0.6)


def first_example(heading: str) -> str:
    """The first block of Python after a heading."""
    section = CONTRIBUTING.read_text(encoding="utf-8").split(f"\n## {heading}\n", maxsplit=1)[1]
    block = re.search(r"^```python\n(.*?)^```$", section, flags=re.DOTALL | re.MULTILINE)
    assert block is not None
    return block.group(1)


def added_part(role: type[Component], heading: str, folder: Path) -> Iterator[Any]:
    """The class of an example, imported as a module of its own and forgotten afterwards."""
    known, name = set(parts_of(role)), f"added_{role.__name__}"
    path = folder / f"{name}.py"
    path.write_text(first_example(heading), encoding="utf-8")
    spec = spec_from_file_location(name, path)
    assert spec is not None
    assert spec.loader is not None
    sys.modules[name] = module = module_from_spec(spec)
    spec.loader.exec_module(module)
    now = parts_of(role)
    (added,) = set(now) - known
    yield now.pop(added)
    # Other tests list all parts: everything that refers to the class must forget it.
    del sys.modules[name], module, now
    gc.collect()


@pytest.fixture(scope="module")
def aggregator(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    yield from added_part(fl.Aggregator, "Add an aggregator", tmp_path_factory.mktemp("aggregator"))


@pytest.fixture(scope="module")
def sampler(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    yield from added_part(fl.Sampler, "Add a sampler", tmp_path_factory.mktemp("sampler"))


def federation(algorithm: fl.Algorithm, *, lossy: bool = True) -> fl.Federation:
    problem = fl.Quadratics(num_clients=4, dim=2, weights=(1.0, 2.0, 3.0, 4.0)).problem(fl.Key.from_seed(0))
    world = fl.SimulatedWorld(
        problem.task(),
        problem.data(),
        weights=problem.weights,
        work=fl.FixedSteps(STEPS),
        link=fl.BernoulliLink(DROP) if lossy else fl.PerfectLink(),
        dtype=torch.float64,
    )
    return fl.Federation(algorithm, world)


def algorithm_with(**parts: Any) -> fl.Algorithm:
    return fl.Algorithm(fl.LocalSolver(fl.SGD(0.001), steps=1), **parts)


@pytest.mark.parametrize("role", ["aggregator", "sampler"])
def test_the_example_is_found_by_its_name_and_survives_a_spec(
    role: str, request: pytest.FixtureRequest
) -> None:
    added = request.getfixturevalue(role)
    part = examples(added)[0]
    plain = to_plain(algorithm_with(**{role: part}), fl.Algorithm)
    assert plain[role]["type"] == added.__name__
    assert from_plain(fl.Algorithm, plain) == algorithm_with(**{role: part})


@pytest.mark.parametrize("role", ["aggregator", "sampler"])
def test_the_example_keeps_its_contract(role: str, request: pytest.FixtureRequest) -> None:
    for part in examples(request.getfixturevalue(role)):
        check_part(part)


def test_the_aggregator_reduces_to_the_weighted_mean_as_it_says(aggregator: Any) -> None:
    ends = []
    for part in (aggregator(), fl.WeightedMean()):
        run = federation(algorithm_with(aggregator=part), lossy=False)
        list(run.train(3))
        ends.append(run.params)
    assert torch.allclose(ends[0], ends[1], rtol=1e-12)


def test_the_sampler_reduces_to_draws_by_weight_as_it_says(sampler: Any) -> None:
    conditions = fl.Conditions(0, torch.tensor([0.1, 0.2, 0.3, 0.4], dtype=torch.float64))
    for seed in range(5):
        one, other = (
            part.draw({}, conditions, fl.Key.from_seed(seed))
            for part in (sampler(3, power=1.0), fl.WeightedWithReplacement(3))
        )
        assert torch.equal(one.clients, other.clients)
        assert torch.allclose(one.importance, other.importance)


@pytest.mark.parametrize("role", ["aggregator", "sampler"])
def test_the_theory_of_the_example_predicts_a_run(role: str, request: pytest.FixtureRequest) -> None:
    """Ω ∝ ω‖a‖₁ for the aggregator, which corrects links; ω(1 − q)‖a‖₁ for the sampler, which does not."""
    added = request.getfixturevalue(role)
    corrects = role == "aggregator"
    algorithm = (
        algorithm_with(aggregator=added())
        if corrects
        else algorithm_with(sampler=added(3), aggregator=fl.WeightedMean(over="asked"))
    )
    run = federation(algorithm)
    list(run.train(3000))
    report = run.consistency()
    mass = run.world.population.weights * torch.tensor(STEPS, dtype=torch.float64)
    if not corrects:
        mass = mass * (1 - torch.tensor(DROP, dtype=torch.float64))
    predicted, measured = report.predicted_weights, report.surrogate
    assert predicted is not None
    assert measured is not None
    assert torch.allclose(predicted, mass / mass.sum())
    assert torch.allclose(measured, predicted, atol=0.03)


def test_the_text_names_the_line_of_the_public_name() -> None:
    text, example = CONTRIBUTING.read_text(encoding="utf-8"), first_example("Add an aggregator")
    name = re.search(r"^class (\w+)\(", example, flags=re.MULTILINE)
    module = re.search(r"src/fairlead/aggregators/(\w+)\.py", text)
    assert name is not None
    assert module is not None
    assert f"from fairlead.aggregators.{module[1]} import {name[1]} as {name[1]}" in text


def test_coefficients_that_depend_on_losses_are_not_predicted() -> None:
    class LossWeighted(fl.LinearAggregator):
        def coefficients(self, updates: fl.ClientUpdates, conditions: fl.Conditions) -> torch.Tensor:
            return updates.importance * updates.loss.to("cpu", torch.float64)

    report = federation(algorithm_with(aggregator=LossWeighted())).consistency()
    assert report.predicted_weights is None
    assert "LossWeighted weighs clients by ClientUpdates.loss, which is not known" in str(report)
