"""The clients of a round distributed over threads, each of which computes on its own cores."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass

import torch

from fairlead.worlds.engines.base import LocalJobs

_HEAVY = 2_000_000
"""Parameters times examples of a step from which products take longer than launching them."""


def heavy_steps(jobs: LocalJobs) -> bool:
    """Whether a client's dense step is long enough for other threads to do something meanwhile."""
    largest = max((batches.shape[1] for batches in jobs.steps.batches), default=0)
    return largest * len(jobs.anchor) >= _HEAVY


@dataclass(frozen=True)
class Workers:
    """How many jobs are trained at once on a CPU, and on how many cores each.

    A job is trained whole by one worker, so that no bit depends on which of them was faster.
    """

    number: int
    cores: int

    @staticmethod
    def for_jobs(num_steps: Sequence[int], *, heavy: bool) -> Workers:
        """How to share torch's threads out between jobs of so many steps each: a pure function of both.

        Steps that are not `heavy` spend their time on launching operations, which one thread does at a time: one worker
        on one core. Else as many workers as end together with the longest job, since cores gain less within a
        product than by having jobs of their own.
        """
        threads = torch.get_num_threads()
        if not heavy:
            return Workers(1, 1)
        number = min(threads, max(1, round(sum(num_steps) / max(num_steps, default=1))))
        return Workers(number, threads // number)

    def train(self, num_steps: Sequence[int], train: Callable[[int], None]) -> None:
        """Call `train` with the number of every job, the longest first."""
        jobs = sorted(range(len(num_steps)), key=lambda job: (-num_steps[job], job))
        with on_cores(self.cores):
            if self.number == 1:
                for job in jobs:
                    train(job)
            else:
                self._train_at_once(jobs, train)

    def _train_at_once(self, jobs: Sequence[int], train: Callable[[int], None]) -> None:
        # Belongs to a thread, as does the number of cores.
        rounded, rounded_type = torch.is_autocast_enabled("cpu"), torch.get_autocast_dtype("cpu")

        def train_in_thread(job: int) -> None:
            with torch.autocast("cpu", rounded_type, enabled=rounded, cache_enabled=False):
                train(job)

        pool = ThreadPoolExecutor(self.number, initializer=torch.set_num_threads, initargs=(self.cores,))
        try:
            for done in [pool.submit(train_in_thread, job) for job in jobs]:
                done.result()
        finally:
            # After an error or an interrupt, only jobs that have begun are waited for.
            pool.shutdown(cancel_futures=True)


@contextmanager
def on_cores(number: int) -> Iterator[None]:
    """Let operations use so many cores within the block."""
    before = torch.get_num_threads()
    torch.set_num_threads(number)
    try:
        yield
    finally:
        torch.set_num_threads(before)
