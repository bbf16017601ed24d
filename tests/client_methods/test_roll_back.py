"""A client whose upload is lost starts again from what it had: sums over clients stay true."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import torch
from scripted_quadratics import LOSSY, PROBLEM, federation, memory_of, run

from fairlead.algorithm import Algorithm
from fairlead.optimizers.base import Cosine
from fairlead.presets import fedawe, fedcm, feddyn, fednova_vr, scaffold, vrlsgd

METHODS = {
    "scaffold": scaffold(lr=0.2),
    "scaffold_anchor": scaffold(lr=0.2, estimate="anchor"),
    "fednova_vr": fednova_vr(lr=0.2),
    "feddyn": feddyn(lr=0.2, alpha=1.0),
    "fedcm": fedcm(lr=0.2),
    "fedawe": fedawe(lr=0.1),
    "vrlsgd": vrlsgd(lr=0.2),
}


@pytest.mark.parametrize("name", ["scaffold", "scaffold_anchor", "fednova_vr"])
def test_server_control_is_the_mean_of_the_clients_under_losses(name: str) -> None:
    """c = Σω_ic_i in every round although updates are lost in most, and the limit is the optimum."""
    training = federation(METHODS[name], link=LOSSY)
    for _ in training.train(16):
        mean = PROBLEM.weights @ memory_of(training, "control")
        torch.testing.assert_close(training.state.shared["control_mean"], mean, rtol=0, atol=1e-12)
    assert mean.abs().min() > 1e-6
    torch.testing.assert_close(run(training, 300), PROBLEM.optimum, rtol=0, atol=1e-7)


@pytest.mark.parametrize("name", [name for name, method in METHODS.items() if method.solver.memory_names])
def test_clients_that_do_not_arrive_keep_their_memory(name: str) -> None:
    """Bit for bit, in seven rounds of the script, the empty one included; those that arrive change theirs."""
    training = federation(METHODS[name], link=LOSSY)
    names = training.algorithm.solver.memory_names
    run(training, 1)
    before = torch.cat([memory_of(training, name) for name in names], dim=1)
    learned: set[int] = set()
    for record in training.train(7):
        after = torch.cat([memory_of(training, name) for name in names], dim=1)
        changed = set((after != before).any(1).nonzero().flatten().tolist())
        assert changed <= set(record.arrived)
        before, learned = after, learned | changed
    assert learned == {0, 1, 2}


@pytest.mark.parametrize("algorithm", METHODS.values(), ids=METHODS)
def test_resumed_run_is_the_uninterrupted_one(algorithm: Algorithm, tmp_path: Path) -> None:
    """Memory, broadcasts and the server's sums are all in the checkpoint."""
    whole = federation(algorithm, link=LOSSY)
    run(whole, 5)
    whole.save(tmp_path)
    end = run(whole, 6)
    resumed = federation(algorithm, link=LOSSY)
    resumed.resume(tmp_path)
    assert torch.equal(run(resumed, 6), end)


@pytest.mark.parametrize("algorithm", METHODS.values(), ids=METHODS)
def test_learning_rate_that_falls_to_zero(algorithm: Algorithm) -> None:
    """A cosine schedule ends at 0, where path lengths and steps are both zero: nothing may be divided."""
    optimizer = replace(algorithm.solver.optimizer, schedule=Cosine(horizon=3))
    training = federation(replace(algorithm, solver=replace(algorithm.solver, optimizer=optimizer)))
    run(training, 3)
    shared = training.state.shared
    assert bool(torch.isfinite(run(training, 3)).all())
    for name in ("momentum", "first_model"):
        if name in shared:
            assert torch.equal(training.state.shared[name], shared[name])
    for name in algorithm.solver.memory_names:
        assert bool(torch.isfinite(memory_of(training, name)).all())
