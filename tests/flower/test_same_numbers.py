"""On Flower a method gives the numbers of the simulation, given the same cohorts and arrivals."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from direct_grid import DirectGrid
from flwr.app import Message
from small_federation import (
    QUICK,
    SIZES,
    asking,
    build_frozen,
    build_model,
    client_apps,
    examples_of,
    experiment,
    get_data,
    round_of,
    simulated,
)

import fairlead as fl
from fairlead.flower import make_client_app
from fairlead.flower.server import run_on_grid
from fairlead.flower.world import FlowerWorld

METHODS: dict[str, Callable[[], fl.Algorithm]] = {
    "fedavg": lambda: fl.presets.fedavg(lr=0.1, epochs=2, batch_size=5),
    "fednova": lambda: fl.presets.fednova(lr=0.1, momentum=0.9, epochs=2, batch_size=5),
    "scaffold": lambda: fl.presets.scaffold(lr=0.1, epochs=2, batch_size=5),
    "scaffold at the anchor": lambda: fl.presets.scaffold(lr=0.1, steps=3, estimate="anchor"),
    "fedaware": lambda: fl.presets.fedaware(lr=0.1, epochs=2, batch_size=5),
    "feddyn": lambda: fl.presets.feddyn(lr=0.1, alpha=0.1, steps=4, batch_size=5),
    "fedcm": lambda: fl.presets.fedcm(lr=0.1, steps=4, batch_size=5),
    "fedper": lambda: fl.presets.fedper(lr=0.1, epochs=2, batch_size=5),
    "top-k": lambda: fl.presets.fedavg_compressed(lr=0.1, epochs=2, batch_size=5),
    "quantized": lambda: fl.presets.fedavg_compressed(lr=0.1, epochs=2, batch_size=5, share=1.0, bits=3),
    "top-k, quantized": lambda: fl.presets.fedavg_compressed(lr=0.1, steps=4, share=0.2, bits=5),
    "compressed scaffold": lambda: compressed(fl.presets.scaffold(lr=0.1, epochs=2, batch_size=5)),
    "fedrep": lambda: fl.presets.fedrep(lr=0.1, epochs=1, batch_size=5, personal_epochs=2),
    "ditto": lambda: fl.presets.ditto(lr=0.1, mu=0.5, epochs=2, batch_size=5, personal_steps=3),
}


def compressed(algorithm: fl.Algorithm) -> fl.Algorithm:
    added = (*algorithm.solver.corrections, fl.CompressedUpdate(0.3, bits=4))
    return replace(algorithm, solver=replace(algorithm.solver, corrections=added))


COHORTS = ((0, 1, 2), (0, 2), (1, 2, 2), (0, 1), (0, 1, 2), (2,))
ARRIVALS = ((0, 1, 2), (2,), (1, 2), (), (0, 2), (2,))


@pytest.mark.parametrize("name", METHODS)
def test_the_bits_of_the_simulation(name: str, tmp_path: Path) -> None:
    """Six rounds with repeated draws, losses and an empty round: parameters and records are equal."""
    algorithm = asking(METHODS[name](), COHORTS)

    def fate(client: int, message: Message) -> str:
        round = round_of(message)
        return "answered" if round is None or client in ARRIVALS[round] else "failed"

    grid = DirectGrid(client_apps(), tmp_path / "memory", fate)
    run = run_on_grid(grid, experiment(algorithm, len(COHORTS)), build_model, tmp_path / "run", QUICK)
    twin = simulated(algorithm, link=fl.ScriptedLink(ARRIVALS))
    expected = list(twin.train(len(COHORTS)))
    assert torch.equal(run.federation.params, twin.params)
    for record, simulated_record in zip(run.federation.records, expected, strict=True):
        assert replace(record, refused=()) == simulated_record


@pytest.mark.parametrize(
    "preset", [fl.presets.fedaware_published, fl.presets.fedaware_ridge, fl.presets.power_of_choice]
)
def test_cohorts_drawn_by_the_servers_weights(preset: Callable[..., fl.Algorithm], tmp_path: Path) -> None:
    """Two of three clients a round, by λ of the round before, uniformly, or by losses that they are asked for."""
    algorithm = preset(lr=0.1, epochs=2, batch_size=5, cohort_size=2)
    run = run_on_grid(
        DirectGrid(client_apps(), tmp_path / "memory"),
        experiment(algorithm, 6),
        build_model,
        tmp_path / "run",
        QUICK,
    )
    twin = simulated(algorithm)
    expected = list(twin.train(6))
    assert torch.equal(run.federation.params, twin.params)
    assert list(run.federation.records) == expected


def test_unequal_work_planned_by_the_server_and_limited_by_clients(tmp_path: Path) -> None:
    """The spec asks for 6, 2 and 9 steps; client 2 manages 5, as FixedSteps((6, 2, 5)) would."""
    algorithm = fl.presets.fednova(lr=0.1, batch_size=5)
    spec = replace(experiment(algorithm, 3), work=fl.FixedSteps((6, 2, 9)))
    apps = client_apps(capacity=5, weak=(2,))
    run = run_on_grid(DirectGrid(apps, tmp_path / "m"), spec, build_model, tmp_path / "run", QUICK)
    twin = simulated(algorithm, work=fl.FixedSteps((6, 2, 5)))
    expected = list(twin.train(3))
    assert torch.equal(run.federation.params, twin.params)
    assert [record.num_steps for record in run.federation.records] == [r.num_steps for r in expected]
    world = run.federation.world
    conditions = world.conditions(3, algorithm.solver, run.federation.key)
    assert conditions.effective_steps is not None
    assert conditions.effective_steps.tolist() == [6.0, 2.0, 5.0]


def test_evaluation_and_objective_are_those_of_the_simulation(tmp_path: Path) -> None:
    algorithm = METHODS["fedavg"]()
    spec = replace(experiment(algorithm, 2), evaluate_every=1, per_client=True)
    run = run_on_grid(DirectGrid(client_apps(), tmp_path / "m"), spec, build_model, tmp_path / "run", QUICK)
    twin = simulated(algorithm)
    expected = list(twin.train(2, evaluate_every=1, per_client=True))
    assert run.federation.records[-1].evaluation == expected[-1].evaluation
    assert isinstance(twin.world, fl.SimulatedWorld)
    assert run.summary is not None
    assert run.summary.objective == twin.world.objective_at(twin.params, twin.state.buffers)


PERSONAL = {
    "fedavg_finetuned": fl.presets.fedavg_finetuned(
        lr=0.1, batch_size=5, personal_lr=0.05, personal_epochs=2
    ),
    "fedper": METHODS["fedper"](),
    "fedrep": METHODS["fedrep"](),
    "ditto": METHODS["ditto"](),
    "pfedme": fl.presets.pfedme(lr=0.1, mu=2.0, batch_size=5, inner_steps=2),
    "per_fedavg": fl.presets.per_fedavg(lr=0.1, batch_size=5, epochs=2, inner_lr=0.05, delta=0.01),
    "apfl": fl.presets.apfl(lr=0.1, mix=0.4, batch_size=5, epochs=2),
    "adaptive apfl": fl.presets.apfl(lr=0.1, mix=0.4, adaptive=True, batch_size=5, epochs=2),
}


@pytest.mark.parametrize("name", PERSONAL)
def test_clients_evaluate_their_own_models(name: str, tmp_path: Path) -> None:
    """Their own models stay where they are, and their figures are those of the simulation."""
    spec = replace(experiment(asking(PERSONAL[name], COHORTS), 4), evaluate_every=2)
    run = run_on_grid(DirectGrid(client_apps(), tmp_path / "m"), spec, build_model, tmp_path / "run", QUICK)
    twin_run = simulated(spec.algorithm)
    expected = list(twin_run.train(4, evaluate_every=2))
    for record, twin in zip(run.federation.records, expected, strict=True):
        assert (record.evaluation is None) == (twin.evaluation is None)
        if record.evaluation is not None and twin.evaluation is not None:
            assert record.evaluation.client_metrics == twin.evaluation.client_metrics
            assert record.evaluation.metrics == pytest.approx(dict(twin.evaluation.metrics), rel=1e-12)
    assert torch.equal(run.federation.params, twin_run.params)
    last = expected[-1].evaluation
    assert last is not None
    assert last.client_metrics["personal_loss"] != last.client_loss


def test_own_parameters_are_in_no_message(tmp_path: Path) -> None:
    """What a client keeps appears nowhere in what it sends: its head is zero in every update."""
    sent: list[torch.Tensor] = []

    class Listening(DirectGrid):
        def pull_messages(self, message_ids: Iterable[str]) -> Iterable[Message]:
            replies = list(super().pull_messages(message_ids))
            for reply in replies:
                for record in reply.content.array_records.values():
                    sent.extend(torch.from_numpy(array.numpy()) for array in record.values())
            return replies

    spec = replace(experiment(METHODS["fedper"](), 3), evaluate_every=1)
    run = run_on_grid(Listening(client_apps(), tmp_path / "m"), spec, build_model, tmp_path / "run", QUICK)
    assert run.federation.algorithm.solver.memory_names
    updates = [array for array in sent if array.numel()]
    head = 6 * 3 + 3
    assert len(updates) == 9
    assert all(bool((update[-head:] == 0).all() and (update[:-head] != 0).any()) for update in updates)
    whole = experiment(METHODS["ditto"](), 3)
    sent.clear()
    run = run_on_grid(Listening(client_apps(), tmp_path / "d"), whole, build_model, tmp_path / "run2", QUICK)
    plain = experiment(METHODS["fedavg"](), 3)
    kept, sent[:] = list(sent), []
    run_on_grid(Listening(client_apps(), tmp_path / "a"), plain, build_model, tmp_path / "run3", QUICK)
    assert all(torch.equal(own, other) for own, other in zip(kept, sent, strict=True))


def test_fedacs_plans_with_the_links_it_has_seen(tmp_path: Path) -> None:
    """Client 0 answers every second question: after r rounds 1 − q̂ is (arrived + 1)/(asked + 2)."""

    def fate(client: int, message: Message) -> str:
        round = round_of(message)
        return "failed" if client == 0 and round is not None and round % 2 else "answered"

    algorithm = fl.presets.fedacs(lr=0.1, cohort_size=6, steps=2)
    grid = DirectGrid(client_apps(), tmp_path / "memory", fate)
    run = run_on_grid(grid, experiment(algorithm, 8), build_model, tmp_path / "run", QUICK)
    world, records = run.federation.world, run.federation.records
    assert isinstance(world, FlowerWorld)
    asked = [sum(client in r.asked for r in records) for client in range(3)]
    arrived = [sum(client in r.arrived for r in records) for client in range(3)]
    assert arrived[0] < asked[0]
    expected = [(came + 1) / (times + 2) for came, times in zip(arrived, asked, strict=True)]
    arrival = world.conditions(8, algorithm.solver, run.federation.key).arrival
    assert arrival is not None
    assert arrival.tolist() == pytest.approx(expected, abs=1e-15)
    report = run.federation.consistency()
    assert report.surrogate is not None
    assert report.predicted_weights is not None


def test_a_method_whose_memory_waits_for_the_server_is_refused(tmp_path: Path) -> None:
    algorithm = fl.presets.vrlsgd(lr=0.1, steps=2)
    with pytest.raises(fl.errors.ClashError, match="VRLSGD completes client memory"):
        run_on_grid(
            DirectGrid(client_apps(), tmp_path / "m"), experiment(algorithm, 1), build_model, tmp_path / "run"
        )


def test_frozen_parameters_are_drawn_alike_and_never_sent(tmp_path: Path) -> None:
    """A frozen layer that every process draws for itself: the bits of the simulation; the head alone is sent."""
    algorithm = METHODS["scaffold"]()
    app = make_client_app(build_frozen, get_data)
    grid = DirectGrid(dict.fromkeys(range(len(SIZES)), app), tmp_path / "memory")
    run = run_on_grid(grid, experiment(algorithm, 2), build_frozen, tmp_path / "run", QUICK)
    data = fl.ClientData.from_lists(*zip(*map(examples_of, range(len(SIZES))), strict=True))
    task = fl.Task(fl.ImportedModel("small_federation:build_frozen"))
    twin = fl.Federation(algorithm, fl.SimulatedWorld(task, data, engine="loop"), seed=run.federation.seed)
    for _ in twin.train(2):
        pass
    assert len(run.federation.params) == 6 * 3 + 3
    assert torch.equal(run.federation.params, twin.params)
