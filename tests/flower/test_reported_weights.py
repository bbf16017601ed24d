"""Clients say themselves how many examples they have, and robust aggregators must not believe them."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Literal

import pytest
import torch
from direct_grid import DirectGrid
from flwr.app import Array, Message
from small_federation import QUICK, asking, build_model, client_apps, experiment, simulated
from test_strategy import plan, trained

import fairlead as fl
from fairlead.errors import ClashError, FieldError
from fairlead.experiments.experiment import Experiment
from fairlead.flower import FlowerStrategy
from fairlead.flower.messages import ModelForm
from fairlead.flower.project import write_project
from fairlead.flower.roster import Roster
from fairlead.flower.server import run_on_grid
from fairlead.flower.world import FlowerWorld, RunIdentity
from fairlead.parameters import FlatModule
from fairlead.worlds.base import Weights

VALUES, ARRAYS = "fairlead.values", "fairlead.arrays"
ROBUST = (
    fl.presets.coordinate_median,
    fl.presets.trimmed_mean,
    fl.presets.norm_bounded_mean,
    fl.presets.krum,
    fl.presets.geometric_median,
)
MEDIAN = asking(fl.presets.coordinate_median(lr=0.1, steps=2), ((0, 1, 2),))


def boastful(client: int, reply: Message) -> Message:
    """Client 1 claims a million examples, and sends an update of thousands."""
    if client == 1 and reply.metadata.message_type == "query":
        reply.content.config_records[VALUES]["num_examples"] = 1_000_000
    if client == 1 and reply.metadata.message_type == "train":
        reply.content.array_records[ARRAYS]["delta"] = Array(torch.full((51,), 1000.0))
    return reply


@pytest.mark.parametrize("weights", [None, "examples"])
@pytest.mark.parametrize("preset", ROBUST)
def test_a_robust_method_is_refused_by_reported_sizes(
    preset: Callable[..., fl.Algorithm], weights: Literal["examples"] | None, tmp_path: Path
) -> None:
    spec = replace(experiment(preset(lr=0.1), 1), weights=weights)
    with pytest.raises(
        ClashError, match=r"here each client reports its own size.+ write weights = 'uniform'\.$"
    ):
        run_on_grid(DirectGrid(client_apps(), tmp_path / "m"), spec, build_model, tmp_path / "run", QUICK)
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    ("weights", "is_refused"), [("examples", True), ("uniform", False), ((1, 1, 2), False)]
)
def test_a_federation_made_by_hand_is_refused_too(weights: Weights, is_refused: bool, tmp_path: Path) -> None:
    grid = DirectGrid(client_apps(), tmp_path / "m")
    form = ModelForm.of(FlatModule(build_model()), torch.float32)
    world = FlowerWorld(
        grid, build_model, Roster(3, form.digest), RunIdentity("0" * 16, 1), rules=QUICK, weights=weights
    )
    with pytest.raises(ClashError, match="minority") if is_refused else nullcontext():
        fl.Federation(MEDIAN, world)
    fl.Federation(fl.presets.fedavg(lr=0.1), world)


def test_a_boastful_client_stays_one_of_three(tmp_path: Path) -> None:
    """Under equal weights the median of every coordinate is that of an honest client."""
    spec = replace(experiment(MEDIAN, 1), weights="uniform")
    grid = DirectGrid(client_apps(), tmp_path / "m", tamper=boastful)
    run = run_on_grid(grid, spec, build_model, tmp_path / "run", QUICK)
    start = simulated(MEDIAN).params
    assert float((run.federation.params - start).abs().max()) < 1.0


def test_numbers_of_ones_own_are_believed(tmp_path: Path) -> None:
    spec = replace(experiment(MEDIAN, 1), weights=(0.3, 0.3, 0.4))
    grid = DirectGrid(client_apps(), tmp_path / "m", tamper=boastful)
    run = run_on_grid(grid, spec, build_model, tmp_path / "run", QUICK)
    assert run.federation.world.population.weights.tolist() == pytest.approx([0.3, 0.3, 0.4])


def test_no_app_is_written_for_a_spec_that_would_be_refused(tmp_path: Path) -> None:
    spec = Experiment(fl.Digits(num_clients=3), MEDIAN, rounds=1)
    with pytest.raises(
        ClashError, match="CoordinateMedian tolerates hostile clients with a minority of the weight"
    ):
        write_project(spec, tmp_path / "mine")
    assert not (tmp_path / "mine").exists()


def test_a_plain_app_counts_clients_alike_if_told_so(tmp_path: Path) -> None:
    algorithm = plan(fl.presets.coordinate_median)
    with pytest.raises(
        ClashError, match="CoordinateMedian tolerates hostile clients with a minority of the weight"
    ):
        FlowerStrategy(algorithm, 3)
    strategy = FlowerStrategy(algorithm, 3, weights="uniform")

    def tamper(client: int, reply: Message) -> Message:
        if client == 1 and reply.metadata.message_type == "train":
            reply.content.metric_records["metrics"]["num-examples"] = 1_000_000
            for name, array in reply.content.array_records["arrays"].items():
                far = torch.full(tuple(array.shape), 1000.0)
                reply.content.array_records["arrays"][name] = Array(far)
        return reply

    assert float(trained(strategy, tmp_path, 2, tamper=tamper).abs().max()) < 10.0
    assert strategy.weights.tolist() == pytest.approx([1 / 3] * 3)


def test_weights_of_a_strategy_are_checked() -> None:
    with pytest.raises(
        FieldError, match=r"FlowerStrategy.weights must be 'examples' or 'uniform', got 'equal'"
    ):
        FlowerStrategy(plan(fl.presets.fedavg), 3, weights="equal")  # type: ignore[arg-type]
