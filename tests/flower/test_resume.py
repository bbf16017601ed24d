"""A server that dies at any moment goes on from its folder as if nothing had happened."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from threading import Timer

import pytest
import torch
from direct_grid import DirectGrid
from flwr.app import Message
from small_federation import METHODS, QUICK, SIZES, build_model, client_apps, experiment, round_of, simulated
from typer.testing import CliRunner

import fairlead as fl
from fairlead.cli import app
from fairlead.errors import RunFolderError
from fairlead.experiments.run_folder import load_records
from fairlead.flower.server import EarlierAttempts, consistency_of, run_on_grid
from fairlead.flower.world import FlowerWorld, RunIdentity

ROUNDS = 5


class _PowerCutError(Exception):
    """The server process dies."""


def cut_at(grid: DirectGrid, client: int, round: int) -> None:
    """Die while a client is asked in a round: those before it have already worked, and their answers are lost."""
    untroubled = grid.fate

    def fate(asked: int, message: Message) -> str:
        if asked == client and round_of(message) == round:
            grid.fate = untroubled
            raise _PowerCutError
        return untroubled(asked, message)

    grid.fate = fate


@pytest.mark.parametrize("name", METHODS)
def test_a_server_that_dies_in_the_middle_of_rounds(name: str, tmp_path: Path) -> None:
    """It dies twice; clients 0 and 1 do rounds 1 and 3 twice, each time from the memory they should."""
    spec, folder = experiment(METHODS[name], ROUNDS), tmp_path / "run"
    grid = DirectGrid(client_apps(), tmp_path / "memory")
    for round in (1, 3):
        cut_at(grid, 2, round)
        with pytest.raises(_PowerCutError):
            run_on_grid(grid, spec, build_model, folder, QUICK)
        assert len(load_records(folder)) == round
    run = run_on_grid(grid, spec, build_model, folder, QUICK)
    twin = simulated(METHODS[name])
    expected = list(twin.train(ROUNDS))
    assert torch.equal(run.federation.params, twin.params)
    assert load_records(folder) == expected
    worked = [client for client, message in grid.sent if round_of(message) in (1, 3)]
    assert [worked.count(client) for client in range(len(SIZES))] == [4, 4, 4]


def test_a_private_run_has_a_secret_seed_and_goes_on_with_it(tmp_path: Path) -> None:
    """Nodes know the spec's seed, by which they could subtract the noise: it must not be the run's.

    Round 1 is done twice, by the same clients, and has other noise the second time, for which the account pays.
    """
    algorithm = fl.Algorithm(
        fl.LocalSolver(fl.SGD(0.1), steps=2),
        aggregator=fl.WeightedMean(over="asked"),
        privacy=fl.ClientPrivacy(clip=1.0, noise_multiplier=1.0, delta=1e-3),
    )
    grid = DirectGrid(client_apps(), tmp_path / "memory")
    cut_at(grid, 2, 1)
    with pytest.raises(_PowerCutError):
        run_on_grid(grid, experiment(algorithm, 3), build_model, tmp_path / "run", QUICK)
    run = run_on_grid(grid, experiment(algorithm, 3), build_model, tmp_path / "run", QUICK)
    other = run_on_grid(grid, experiment(algorithm, 3), build_model, tmp_path / "other", QUICK)
    assert (tmp_path / "run").stat().st_mode & 0o077 == 0
    assert len({run.federation.seed, other.federation.seed, experiment(algorithm, 3).seed}) == 3
    assert run.federation.seed.bit_length() > 100
    for federation, same in ((other.federation, True), (run.federation, False)):
        twin = simulated(algorithm, seed=federation.seed)
        expected = list(twin.train(3))
        assert torch.equal(federation.params, twin.params) == same
        assert federation.records[0].step_norm == expected[0].step_norm
        assert (federation.records[1].step_norm == expected[1].step_norm) == same


def test_a_private_round_that_is_done_again_is_counted_again(tmp_path: Path) -> None:
    """The server dies twice while clients evaluate: they have seen models of rounds 1 and 2 that it did not keep.

    Client 0 is not there when these rounds are done again, so that other models are shown, with other noise. All
    three clients take part in every round, and each model costs the same: five of them, not three.
    """
    algorithm = fl.Algorithm(
        fl.LocalSolver(fl.SGD(0.1), steps=2),
        aggregator=fl.WeightedMean(over="asked"),
        privacy=fl.ClientPrivacy(clip=1.0, noise_multiplier=4.0, delta=1e-3),
    )
    spec = replace(experiment(algorithm, 3), evaluate_every=1)
    grid = DirectGrid(client_apps(), tmp_path / "memory")
    _cut_at_evaluations(grid, (1, 2))
    for _ in range(2):
        with pytest.raises(_PowerCutError):
            run_on_grid(grid, spec, build_model, tmp_path / "run", QUICK)
    run = run_on_grid(grid, spec, build_model, tmp_path / "run", QUICK)
    assert [record.arrived for record in run.federation.records] == [(0, 1, 2), (1, 2), (1, 2)]
    shown = {
        message.content.array_records["fairlead.arrays"]["params"].data
        for client, message in grid.sent
        if message.metadata.message_type == "evaluate"
    }
    assert len(shown) == 5
    spent = [_cost_of_rounds(algorithm, rounds) for rounds in range(6)]
    statement = run.federation.privacy
    assert statement is not None
    assert (statement.rounds, statement.repeated) == (3, 2)
    assert statement.epsilon == pytest.approx(spent[5])
    told = [record.facts["epsilon"] for record in run.federation.records]
    assert told == pytest.approx([spent[1], spent[3], spent[5]])
    assert run_on_grid(grid, spec, build_model, tmp_path / "run", QUICK).federation.privacy == statement


def _cut_at_evaluations(grid: DirectGrid, rounds: tuple[int, ...]) -> None:
    """Die while models of these rounds are shown to client 1; client 0 fails when a round is done again."""
    asked: list[int] = []

    def fate(client: int, message: Message) -> str:
        round = round_of(message)
        if round is not None and client == 0:
            asked.append(round)
            return "failed" if asked.count(round) > 1 else "answered"
        is_shown = message.metadata.message_type == "evaluate" and client == 1
        if is_shown and asked[-1] in rounds and asked.count(asked[-1]) == 1:
            raise _PowerCutError
        return "answered"

    grid.fate = fate


def _cost_of_rounds(algorithm: fl.Algorithm, rounds: int) -> float:
    """ε of so many rounds of a run in which nothing goes wrong."""
    federation = simulated(algorithm)
    list(federation.train(rounds))
    assert federation.privacy is not None
    return federation.privacy.epsilon


def test_rounds_before_a_damaged_checkpoint_are_done_again_too() -> None:
    """Records of rounds 0 to 5, and a checkpoint after round 3: 4 and 5 are repeated, and 6 was under way."""
    earlier = EarlierAttempts(RunIdentity("0123456789abcdef", 3), {}, repeated=(1,), num_records=6)
    assert earlier.repeated_from(4, last=10) == (1, 4, 5, 6)
    assert earlier.repeated_from(6, last=6) == (1,), "a run that is over does nothing again"
    first = EarlierAttempts(RunIdentity("0123456789abcdef", 1), {}, repeated=(), num_records=0)
    assert first.repeated_from(0, last=10) == ()


@pytest.mark.parametrize("content", ["", "[1]", '{"run": "0123456789abcdef", "attempt": 1, "clients": []}'])
def test_a_folder_that_does_not_tell_of_its_starts_is_refused(content: str, tmp_path: Path) -> None:
    (tmp_path / "flower.json").write_text(content)
    with pytest.raises(RunFolderError, match=r"flower\.json is damaged or of another version of fairlead \("):
        EarlierAttempts.of(tmp_path)


def test_a_server_that_comes_back_waits_for_its_clients(tmp_path: Path) -> None:
    """Clients known from before need a while to be found again: no round goes by without them."""
    spec, folder = experiment(METHODS["scaffold"], ROUNDS), tmp_path / "run"
    grid = DirectGrid(client_apps(), tmp_path / "memory")
    cut_at(grid, 2, 1)
    with pytest.raises(_PowerCutError):
        run_on_grid(grid, spec, build_model, folder, QUICK)
    grid.fate = lambda client, message: "late" if message.metadata.message_type == "query" else "answered"
    Timer(0.3, grid.release).start()
    rules = replace(QUICK, deadline=20.0)
    run = run_on_grid(grid, spec, build_model, folder, rules)
    assert [record.arrived for record in run.federation.records] == [(0, 1, 2)] * ROUNDS


def test_rounds_wait_while_everybody_is_away(tmp_path: Path) -> None:
    """The link fails after round 0 and is back a little later: round 1 is late, and not lost."""
    grid = DirectGrid(client_apps(), tmp_path / "memory")
    everybody = set(range(len(SIZES)))

    def fate(client: int, message: Message) -> str:
        if round_of(message) == 0 and client == 2:
            grid.away = everybody
            Timer(0.3, lambda: grid.away.clear()).start()
        return "answered"

    grid.fate = fate
    rules = replace(QUICK, deadline=20.0)
    run = run_on_grid(grid, experiment(METHODS["fednova"], 3), build_model, tmp_path / "run", rules)
    assert [len(record.arrived) for record in run.federation.records] == [3, 3, 3]


def test_estimates_survive(tmp_path: Path) -> None:
    """What was learned of links and capacities before the cut is learned again from the records."""
    algorithm = fl.presets.fedavg(lr=0.1, steps=6, batch_size=5)
    spec, folder = experiment(algorithm, 4), tmp_path / "run"
    apps = client_apps(capacity=2, weak=(1,))

    def fate(client: int, message: Message) -> str:
        return "failed" if client == 0 and round_of(message) in (0, 1) else "answered"

    grid = DirectGrid(apps, tmp_path / "memory", fate)
    cut_at(grid, 2, 3)
    with pytest.raises(_PowerCutError):
        run_on_grid(grid, spec, build_model, folder, QUICK)
    run = run_on_grid(grid, spec, build_model, folder, QUICK)
    world = run.federation.world
    assert isinstance(world, FlowerWorld)
    assert world.estimates.arrival.tolist() == [3 / 6, 5 / 6, 5 / 6]
    assert world.estimates.expected_steps(torch.full((3,), 6)).tolist() == [6, 2, 6]


def test_the_folder_tells_the_weights_afterwards(tmp_path: Path) -> None:
    """FedAvg with 6, 4 and 8 steps: Ω_i ∝ ω_i τ_i = 12·6, 7·4, 20·8."""
    run_on_grid(
        DirectGrid(client_apps(), tmp_path / "m"),
        experiment(fl.presets.fedavg(lr=0.1, epochs=2, batch_size=5), 3),
        build_model,
        tmp_path / "run",
        QUICK,
    )
    report, chance = consistency_of(tmp_path / "run")
    assert report.surrogate is not None
    assert report.intended.tolist() == pytest.approx([size / sum(SIZES) for size in SIZES])
    assert report.surrogate.tolist() == pytest.approx([72 / 260, 28 / 260, 160 / 260])
    assert report.predicted_weights is not None
    assert report.predicted_weights.tolist() == pytest.approx(report.surrogate.tolist())
    assert chance == pytest.approx(0.0, abs=1e-12)
    said = CliRunner().invoke(app, ["flower", "weights", str(tmp_path / "run")]).output
    assert "of the objective's weight was misplaced" in said
    assert "Theory predicts" in said


def test_a_lost_memory_is_told_and_never_replaced_by_zeros(tmp_path: Path) -> None:
    grid = DirectGrid(client_apps(), tmp_path / "memory")
    spec = experiment(METHODS["scaffold"], 3)
    untroubled = grid.fate

    def fate(client: int, message: Message) -> str:
        if round_of(message) == 1 and client == 0:
            for file in (tmp_path / "memory").glob("*/client-1/*.safetensors"):
                file.unlink()
        return untroubled(client, message)

    grid.fate = fate
    run = run_on_grid(grid, spec, build_model, tmp_path / "run", QUICK)
    records = list(run.federation.records)
    assert [record.arrived for record in records] == [(0, 1, 2), (0, 2), (0, 2)]
    assert [refusal.reason for refusal in records[2].refused] == ["memory lost"]
    twin = simulated(METHODS["scaffold"], link=fl.ScriptedLink(((0, 1, 2), (0, 2), (0, 2))))
    list(twin.train(3))
    assert torch.equal(run.federation.params, twin.params)
