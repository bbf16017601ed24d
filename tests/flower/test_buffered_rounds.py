"""FedBuff on Flower: a step with every full buffer, clients that go on working, and a server that starts again."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import torch
from direct_grid import DirectGrid
from flwr.app import Message
from small_federation import QUICK, SIZES, build_model, client_apps, experiment, round_of, simulated
from test_round_rules import fated, reasons

import fairlead as fl
from fairlead.errors import ClashError
from fairlead.flower import RoundRules
from fairlead.flower.server import run_on_grid


def buffered(buffer_size: int, cohort_size: int | None = None, **own: int) -> fl.Algorithm:
    side = {"lr": 0.1, "steps": 3, "batch_size": 5}
    return fl.presets.fedbuff(**side, buffer_size=buffer_size, cohort_size=cohort_size, **own)  # type: ignore[arg-type]


@pytest.mark.parametrize(("buffer_size", "cohort_size"), [(1, None), (2, None), (3, None), (1, 2), (2, 2)])
def test_prompt_clients_give_the_bits_of_equally_fast_simulated_ones(
    buffer_size: int, cohort_size: int | None, tmp_path: Path
) -> None:
    """Answers that come with a full buffer wait for the next one, in both worlds."""
    algorithm, rounds = buffered(buffer_size, cohort_size), 7
    grid = DirectGrid(client_apps(), tmp_path / "m")
    run = run_on_grid(grid, experiment(algorithm, rounds), build_model, tmp_path / "run", QUICK)
    twin = simulated(algorithm)
    expected = list(twin.train(rounds))
    for record, other in zip(run.federation.records, expected, strict=True):
        assert (record.asked, record.arrived, record.late) == (other.asked, other.arrived, other.late)
        assert record.facts == other.facts
        assert len(record.arrived) == buffer_size
    assert torch.equal(run.federation.params, twin.params)


def test_a_slow_client_holds_up_nobody_and_counts_with_its_age(tmp_path: Path) -> None:
    """Client 1 works from round 0 to round 3: its update, made from the first model, counts 1/√4 of its share."""
    grid = DirectGrid(client_apps(), tmp_path / "m", fated({(1, 0): "late"}))
    answered = grid.fate

    def fate(client: int, message: Message) -> str:
        if round_of(message) == 3:
            grid.release()
        return answered(client, message)

    grid.fate = fate
    spec = replace(experiment(buffered(2), 5), evaluate_every=1)
    records = run_on_grid(grid, spec, build_model, tmp_path / "run", QUICK).federation.records
    assert [record.arrived for record in records[:3]] == [(0, 2)] * 3
    late = next(record for record in records if 1 in record.arrived)
    assert late.round == 3
    assert late.late[1] == 3
    assert late.coefficients is not None
    share = SIZES[1] / sum(SIZES[client] for client in late.arrived)
    assert late.coefficients[late.arrived.index(1)] == pytest.approx(share / 2)
    assert [record.facts["in_flight"] for record in records[:3]] == [1.0] * 3
    assert not any(reasons(record) for record in records)


def test_updates_that_are_too_old_are_refused(tmp_path: Path) -> None:
    grid = DirectGrid(client_apps(), tmp_path / "m", fated({(1, 0): "late"}))
    answered = grid.fate

    def fate(client: int, message: Message) -> str:
        if round_of(message) == 3:
            grid.release()
        return answered(client, message)

    grid.fate = fate
    algorithm = buffered(2, max_staleness=2)
    run = run_on_grid(grid, experiment(algorithm, 4), build_model, tmp_path / "run", QUICK)
    assert reasons(run.federation.records[3]) == {1: "stale"}
    assert run.federation.records[3].refused[0].sentence == (
        "Client 1 was refused: its update is 3 rounds old, and at most 2 are allowed."
    )


def test_a_buffer_that_does_not_fill_ends_with_the_deadline(tmp_path: Path) -> None:
    grid = DirectGrid(client_apps(), tmp_path / "m", fated({(1, 0): "lost"}))
    run = run_on_grid(grid, experiment(buffered(3), 2), build_model, tmp_path / "run", QUICK)
    assert [record.arrived for record in run.federation.records] == [(0, 2)] * 2


def test_a_server_that_starts_again_asks_those_in_flight_anew(tmp_path: Path) -> None:
    """All clients were at work when the first server ended: each starts again, from the newest model."""
    fates = {(1, 0): "lost", (0, 2): "lost", (2, 2): "lost"}
    grid = DirectGrid(client_apps(), tmp_path / "m", fated(fates))
    run_on_grid(grid, experiment(buffered(2), 3), build_model, tmp_path / "run", QUICK)
    assert [sent for sent, message in grid.sent if round_of(message) == 2] == [0, 2]
    again = DirectGrid(client_apps(), tmp_path / "m")
    more = run_on_grid(again, experiment(buffered(2), 5), build_model, tmp_path / "run", QUICK)
    assert sorted(sent for sent, message in again.sent if round_of(message) == 3) == [0, 1, 2]
    assert more.federation.records[3].arrived == (0, 1)
    assert more.federation.records[4].late == {2: 1}


@pytest.mark.parametrize(
    ("rules", "sentence"),
    [
        (RoundRules(first=2), "RoundRules.first=2 ends rounds"),
        (RoundRules(quorum=3), "RoundRules.quorum=3 is never reached by a buffer of 2 updates"),
    ],
)
def test_rules_that_contradict_a_buffer_are_refused(rules: RoundRules, sentence: str, tmp_path: Path) -> None:
    grid = DirectGrid(client_apps(), tmp_path / "m")
    with pytest.raises(ClashError, match=sentence):
        run_on_grid(grid, experiment(buffered(2), 1), build_model, tmp_path / "run", rules)
