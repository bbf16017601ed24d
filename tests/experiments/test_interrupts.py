"""Runs that are stopped: by one signal after the round, by two at once, and without signals in a thread."""

from __future__ import annotations

import os
import signal
import threading
from pathlib import Path

import pytest
from small_runs import experiment

import fairlead as fl
from fairlead.checkpoint.store import checkpointed_rounds


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupt_ends_the_round_and_leaves_a_checkpoint(tmp_path: Path, number: signal.Signals) -> None:
    told: list[str] = []

    def on_round(record: fl.RoundRecord) -> None:
        if record.round == 1:
            os.kill(os.getpid(), number)

    handlers = [signal.getsignal(which) for which in (signal.SIGINT, signal.SIGTERM)]
    stopped = fl.run_experiment(
        experiment(), tmp_path / "cut", on_round=on_round, on_interrupt=lambda: told.append("stopping")
    )
    assert [signal.getsignal(which) for which in (signal.SIGINT, signal.SIGTERM)] == handlers
    assert (stopped.outcome, told, len(stopped.federation.records)) == ("interrupted", ["stopping"], 3)
    assert stopped.summary is None
    assert checkpointed_rounds(tmp_path / "cut" / "checkpoint") == [3]
    (start,) = stopped.folder.provenance()
    assert (start.outcome, start.next_round) == ("interrupted", 3)
    resumed = fl.run_experiment(experiment(), tmp_path / "cut", resume=True)
    whole = fl.run_experiment(experiment(), tmp_path / "whole")
    assert resumed.federation.records == whole.federation.records


def test_the_second_interrupt_stops_at_once(tmp_path: Path) -> None:
    def on_round(record: fl.RoundRecord) -> None:
        os.kill(os.getpid(), signal.SIGINT)
        os.kill(os.getpid(), signal.SIGINT)

    with pytest.raises(KeyboardInterrupt):
        fl.run_experiment(experiment(), tmp_path, on_round=on_round)
    (start,) = fl.RunFolder(tmp_path).provenance()
    assert start.outcome == "interrupted"
    resumed = fl.run_experiment(experiment(), tmp_path, resume=True)
    assert len(resumed.federation.records) == 7


def test_a_start_says_how_it_computes_before_it_ends(tmp_path: Path) -> None:
    """A process that is killed writes no more: the paths are known from its first round on."""
    found: list[tuple[str, str | None, int]] = []

    def on_round(record: fl.RoundRecord) -> None:
        start = fl.RunFolder(tmp_path).provenance()[-1]
        found.append((start.outcome, start.ended, sum(path.blocks for path in start.paths)))

    fl.run_experiment(experiment(rounds=5), tmp_path, checkpoint_every=2, on_round=on_round)
    assert [(outcome, ended) for outcome, ended, _ in found] == [("running", None)] * 5
    assert [blocks for *_, blocks in found] == [1, 2, 2, 4, 5]


def test_runs_work_outside_the_main_thread(tmp_path: Path) -> None:
    thread = threading.Thread(target=lambda: fl.run_experiment(experiment(rounds=2), tmp_path))
    thread.start()
    thread.join()
    assert len(fl.load_records(tmp_path)) == 2
