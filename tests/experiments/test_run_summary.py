"""What a run notes of itself at its end, and only there."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from statistics import median

import pytest
from small_runs import KilledError, experiment, kill_after

import fairlead as fl
from fairlead.errors import RunFolderError


def world_of(run: fl.Run) -> fl.SimulatedWorld:
    world = run.federation.world
    assert isinstance(world, fl.SimulatedWorld)
    return world


def test_the_summary_says_what_came_of_the_run(tmp_path: Path) -> None:
    run = fl.run_experiment(experiment(), tmp_path)
    kept, records = fl.RunFolder(tmp_path).summary(), run.federation.records
    assert kept == run.summary
    assert kept is not None
    assert records[-1].evaluation is not None
    assert kept.evaluation == records[-1].evaluation
    assert len(kept.evaluation.client_loss or ()) == world_of(run).population.num_clients
    assert kept.rounds == 7
    assert kept.seconds == pytest.approx(len(records) * median(record.seconds for record in records))
    state = run.federation.state
    assert kept.objective == world_of(run).objective_at(state.params, state.buffers)
    assert kept.by_design
    assert kept.chi_square == 0


@pytest.mark.parametrize(("lr", "learned"), [(0.1, True), (3.0, False)])
def test_a_run_that_ends_no_better_than_it_began_has_not_learned(
    tmp_path: Path, lr: float, learned: bool
) -> None:
    """Quadratics of curvature 1 multiply the distance by |1 − lr| a step."""
    experiment = fl.Experiment(fl.Quadratics(3, dim=1), fl.presets.fedavg(lr=lr, steps=1), rounds=2)
    run, fresh = fl.run_experiment(experiment, tmp_path), experiment.build().state
    assert run.summary is not None
    assert run.summary.initial_objective == world_of(run).objective_at(fresh.params, fresh.buffers)
    assert run.summary.learned == learned


def test_only_a_finished_run_has_a_summary(tmp_path: Path) -> None:
    """It goes when the run is lengthened, and is there again at the new end."""
    with pytest.raises(KilledError):
        fl.run_experiment(experiment(), tmp_path, on_round=kill_after(5))
    store = fl.RunFolder(tmp_path)
    assert store.summary() is None
    assert not store.is_done(experiment())
    fl.run_experiment(experiment(), tmp_path, resume=True)
    assert store.is_done(experiment())
    assert not store.is_done(experiment(rounds=9))
    assert not store.is_done(replace(experiment(), seed=1))
    with pytest.raises(KilledError):
        fl.run_experiment(experiment(rounds=9), tmp_path, resume=True, on_round=kill_after(8))
    assert store.summary() is None
    store.summary_file.write_text('{"rounds": "many"}')
    with pytest.raises(RunFolderError, match=r"summary.json is damaged"):
        store.summary()
