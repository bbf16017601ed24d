"""A very long run: no memory, no file descriptors and no time are lost on the way."""

from __future__ import annotations

import os
import resource
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from statistics import median

import pytest
from fault_runs import FULL

import fairlead as fl

ROUNDS = 100_000 if FULL else 2_000
LOOKS = 20
"""Equal stretches of a run, after each of which memory and files are looked at."""
PIECE, PIECES = (500, 12) if FULL else (100, 5)
"""Rounds at the end that are timed, in turn with as many of a fresh run."""
SLOWER_AT_MOST = 1.25 if FULL else 2.0
"""A second or two are too short for a finer judgement on a shared machine."""

EXPERIMENT = fl.Experiment(
    fl.Quadratics(4, dim=3),
    fl.presets.scaffold(lr=0.05, steps=1, cohort_size=2),
    ROUNDS,
    link=fl.BernoulliLink(0.3),
    evaluate_every=100,
)


class Watch:
    """Looks at the process after every stretch, and at the pace of the last rounds."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.memory, self.files = list[int](), list[int]()
        self.old, self.new = list[float](), list[float]()
        self._since = 0.0

    def __call__(self, record: fl.RoundRecord) -> None:
        done = record.round + 1
        if done % (ROUNDS // LOOKS) == 0:
            self.memory.append(int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize())
            self.files.append(len(os.listdir("/proc/self/fd")))
        piece, within = divmod(ROUNDS - done, PIECE)
        if within == 0 and piece <= PIECES:
            if piece < PIECES:
                self.old.append((time.process_time() - self._since) / PIECE)
                self.new.append(self._fresh_pace(piece))
            self._since = time.process_time()

    def _fresh_pace(self, number: int) -> float:
        """Seconds of the processor for a round of a run that has just begun."""
        clock: list[float] = []
        short = replace(EXPERIMENT, rounds=PIECE + 1)
        fl.run_experiment(
            short,
            self.folder / str(number),
            checkpoint_every=100,
            on_round=lambda record: clock.append(time.process_time()),
        )
        return (clock[-1] - clock[0]) / PIECE


@pytest.mark.full
def test_long_runs_lose_nothing(tmp_path: Path, figure: Callable[[str], None]) -> None:
    """SCAFFOLD over lossy links, with records, evaluations and checkpoints as usual.

    Memory is compared with the end of the first stretch, when everything that a run needs has been loaded. The last
    rounds are timed in turn with those of fresh runs in the same process, since a machine may be busier at one time
    than at another.
    """
    watch = Watch(tmp_path / "fresh")
    run = fl.run_experiment(EXPERIMENT, tmp_path / "long", checkpoint_every=100, on_round=watch)
    assert len(run.federation.records) == ROUNDS
    growth = max(watch.memory) / watch.memory[0] - 1
    slower = median(watch.old) / median(watch.new) - 1
    figure(
        f"{ROUNDS} rounds: {watch.memory[0] / 2**20:.0f} MiB after the first twentieth, at most {growth:+.1%} later; "
        f"{watch.files[0]} files open, {watch.files[-1] - watch.files[0]:+d} at the end; a round takes "
        f"{1e3 * median(watch.old):.2f} ms at the end, {slower:+.0%} against fresh runs timed in turn with it"
    )
    assert growth < 0.05
    assert max(watch.files) == min(watch.files)
    assert len(watch.old) == len(watch.new) == PIECES
    assert slower < SLOWER_AT_MOST - 1
