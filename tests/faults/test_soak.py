"""A very long run: no memory, no file descriptors and no time are lost on the way."""

from __future__ import annotations

import os
import resource
import time
from collections.abc import Callable
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from statistics import median

from fault_runs import FULL

import fairlead as fl

ROUNDS = 100_000 if FULL else 2_000
LOOKS = 20
"""Equal stretches of a run, after each of which it is looked at."""
SLOWER_AT_MOST = 1.25 if FULL else 2.0
"""A few seconds are too short for a finer judgement on a shared machine."""
PAGE = resource.getpagesize()


class Watch:
    """Looks at the process after every `stretch` rounds of a run."""

    def __init__(self, stretch: int) -> None:
        self.stretch = stretch
        self.memory, self.files, self._clock = list[int](), list[int](), list[float]()

    def __call__(self, record: fl.RoundRecord) -> None:
        if (record.round + 1) % self.stretch == 0:
            self.memory.append(int(Path("/proc/self/statm").read_text().split()[1]) * PAGE)
            self.files.append(len(os.listdir("/proc/self/fd")))
            self._clock.append(time.process_time())

    @property
    def seconds(self) -> list[float]:
        """Of the processor, for each round of a stretch, since others may use the machine too."""
        return [(later - earlier) / self.stretch for earlier, later in pairwise(self._clock)]


def test_long_runs_lose_nothing(tmp_path: Path, figure: Callable[[str], None]) -> None:
    """SCAFFOLD over lossy links, with records, evaluations and checkpoints as usual.

    Memory is compared with the end of the first stretch, when everything that a run needs has been loaded; time
    with that of a fresh run made right afterwards, since a machine may be busier at the end than at the start.
    """
    stretch = ROUNDS // LOOKS
    experiment = fl.Experiment(
        fl.Quadratics(4, dim=3),
        fl.presets.scaffold(lr=0.05, steps=1, cohort_size=2),
        ROUNDS,
        link=fl.BernoulliLink(0.3),
        evaluate_every=stretch // 10,
    )
    long, fresh = Watch(stretch), Watch(stretch // 10)
    run = fl.run_experiment(experiment, tmp_path / "long", checkpoint_every=stretch // 10, on_round=long)
    assert len(run.federation.records) == ROUNDS
    short = replace(experiment, rounds=2 * stretch)
    fl.run_experiment(short, tmp_path / "fresh", checkpoint_every=stretch // 10, on_round=fresh)
    growth = max(long.memory) / long.memory[0] - 1
    late, new = median(long.seconds[-3:]), median(fresh.seconds)
    figure(
        f"{ROUNDS} rounds: {long.memory[0] / 2**20:.0f} MiB after the first twentieth, at most {growth:+.1%} later; "
        f"{long.files[0]} files open, {long.files[-1] - long.files[0]:+d} at the end; {1e3 * late:.2f} ms a round at "
        f"the end, {1e3 * new:.2f} ms in a fresh run right afterwards ({late / new - 1:+.0%})"
    )
    assert growth < 0.05
    assert max(long.files) == min(long.files)
    assert late < SLOWER_AT_MOST * new
