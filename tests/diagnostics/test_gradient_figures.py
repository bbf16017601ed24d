"""Figures of full gradients in the records of a run, against the closed form of quadratics."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
import torch

import fairlead as fl
from fairlead.errors import ClashError, FieldError
from fairlead.experiments.record_io import record_from_line, record_to_line, row_of
from fairlead.presets import METHODS
from fairlead.reproductions.closed_form import ClosedFormWorld

Array = npt.NDArray[np.float64]

OMEGA, STEPS = (0.1, 0.2, 0.3, 0.4), (4, 1, 2, 6)
ASKED, WORK = np.array(OMEGA), np.array(STEPS)
PROBLEM = fl.Quadratics(num_clients=4, dim=3, spread=2.0, conditioning=2.0, weights=OMEGA).problem(
    fl.Key.from_seed(1)
)


def federation(name: str, **conditions: Any) -> fl.Federation:
    world = fl.SimulatedWorld(
        PROBLEM.task(),
        PROBLEM.data(),
        weights=OMEGA,
        work=fl.FixedSteps(STEPS),
        dtype=torch.float64,
        **conditions,
    )
    arguments = {"fedprox": {"mu": 1.0}, "feddyn": {"alpha": 0.1}}.get(name, {})
    return fl.Federation(METHODS[name].build(lr=0.02, **arguments), world)


def expected(params: torch.Tensor, weights: Array) -> tuple[float, float]:
    """‖Σ w_i∇F_i‖ and the diversity that has it below the line, by NumPy from ∇F_i = H_i x − e_i."""
    rows = np.einsum("ijk,k->ij", PROBLEM.hessians.numpy(), params.numpy()) - PROBLEM.linear.numpy()
    length = float(np.linalg.norm(weights @ rows))
    return length, float(np.sqrt(np.array(OMEGA) @ (rows**2).sum(1))) / length


def shares(values: Array) -> Array:
    return values / float(values.sum())


@pytest.mark.parametrize(
    ("name", "applied"),
    [
        # FedAvg counts a client by ω·τ; FedNova divides τ out again; control variates restore ω.
        ("fedavg", shares(ASKED * WORK)),
        ("fednova", ASKED),
        ("scaffold", ASKED),
        # ‖a‖₁ of τ proximal steps with ημ = 0.02 is (1 − 0.98^τ)/0.02.
        ("fedprox", shares(ASKED * (1 - 0.98**WORK))),
        # New and remembered updates of a client add up to ω.
        ("fedvarp", shares(ASKED * WORK)),
    ],
)
def test_figures_are_those_of_the_gradients_after_the_round(name: str, applied: Array) -> None:
    run = federation(name)
    *_, last = run.train(3, gradients_every=3)
    found = last.gradients
    assert found is not None
    assert (found.norm, found.diversity) == pytest.approx(expected(run.params, ASKED), rel=1e-9)
    surrogate = (found.surrogate_norm, found.surrogate_diversity)
    assert surrogate == pytest.approx(expected(run.params, applied), rel=1e-9)


def test_gradients_of_other_rounds_leave_no_weights_to_tell() -> None:
    """The clients' momentum in FedCM mixes them in."""
    (record,) = federation("fedcm").train(1, gradients_every=1)
    assert record.gradients is not None
    assert record.gradients.surrogate_diversity is None


def test_weights_of_aware_are_those_that_it_chose() -> None:
    """λ̃_i ∝ λ_i τ_i with FedAWARE's own λ, which stand in the record."""
    run = federation("fedaware")
    *_, last = run.train(4, gradients_every=4)
    chosen = np.array([last.remembered.get(client, 0.0) for client in range(4)])
    assert last.gradients is not None
    assert chosen.sum() == pytest.approx(1.0)
    assert last.gradients.surrogate_norm == pytest.approx(expected(run.params, shares(chosen * WORK))[0])


def test_they_are_taken_every_so_many_rounds_and_after_the_last() -> None:
    records = list(federation("fedavg").train(5, gradients_every=2))
    assert [record.gradients is not None for record in records] == [False, True, False, True, True]
    assert all(record.gradients is None for record in federation("fedavg").train(2))


def test_an_experiment_asks_for_them_too() -> None:
    experiment = fl.Experiment(fl.Quadratics(num_clients=3), fl.presets.fedavg(lr=0.1), 3, gradients_every=2)
    found = [record.gradients is not None for record in experiment.build().train()]
    assert found == [False, True, True]
    with pytest.raises(
        FieldError, match=r"Experiment\.gradients_every must be a whole number of at least 0, got -1"
    ):
        replace(experiment, gradients_every=-1)


def test_they_change_nothing_of_a_run() -> None:
    plain, watched = federation("scaffold"), federation("scaffold")
    list(plain.train(3))
    list(watched.train(3, gradients_every=1))
    assert torch.equal(plain.params, watched.params)


def test_weight_decay_belongs_to_the_objective() -> None:
    """With the penalty ½·0.5‖x‖² every gradient is H_i x − e_i + 0.5 x."""
    world = fl.SimulatedWorld(PROBLEM.task(), PROBLEM.data(), weights=OMEGA, dtype=torch.float64)
    run = fl.Federation(fl.presets.fedavg(lr=0.02, weight_decay=0.5), world)
    (record,) = run.train(1, gradients_every=1)
    gradient = PROBLEM.weights @ PROBLEM.gradients(run.params) + 0.5 * run.params
    assert record.gradients is not None
    assert record.gradients.norm == pytest.approx(float(gradient.norm()))


def test_a_round_without_arrivals_has_no_weights_of_its_own() -> None:
    run = federation("fedavg", link=fl.BernoulliLink(drop=1.0))
    (record,) = run.train(1, gradients_every=1)
    assert record.gradients is not None
    assert record.gradients.norm == pytest.approx(expected(run.params, ASKED)[0])
    assert record.gradients.surrogate_norm is None
    assert record.gradients.surrogate_diversity is None


def test_records_keep_them_and_rows_show_them() -> None:
    (record,) = federation("fedavg").train(1, gradients_every=1)
    assert record_from_line(record_to_line(record)) == record
    assert record.gradients is not None
    row = row_of(record)
    assert row["gradients.diversity"] == record.gradients.diversity
    assert not any(name.startswith("gradients") for name in row_of(replace(record, gradients=None)))


def test_records_from_before_there_were_any_still_load() -> None:
    (record,) = federation("fedavg").train(1)
    line = record_to_line(record)
    assert '"gradients":null' in line
    assert record_from_line(line.replace(',"gradients":null', "")) == record


def test_clients_without_their_data_are_refused_at_once() -> None:
    centers = torch.eye(2, dtype=torch.float64)
    world = ClosedFormWorld(centers, fl.EqualWork(), fl.PerfectLink(), lambda steps: steps * 0.1)
    run = fl.Federation(fl.presets.fedavg(lr=0.1), world)
    with pytest.raises(ClashError, match="gradients_every needs the clients' data"):
        run.train(1, gradients_every=1)
