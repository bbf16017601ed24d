"""The loop engine: one client after another. It runs any model and defines the numbers of all engines."""

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, replace
from queue import SimpleQueue

import torch

from fairlead.errors import EngineError
from fairlead.parameters import FlatModule
from fairlead.worlds.engines.base import LocalJobs, LocalReturns, Objective, WholePath
from fairlead.worlds.engines.relu_pool import joined_pooling

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
    def for_jobs(num_steps: Sequence[int], *, heavy: bool) -> "Workers":
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


@dataclass(frozen=True)
class LoopEngine(WholePath):
    """Trains clients one by one, on batches without padding; an error names the client.

    `per_core`: each of torch's threads trains some of the clients on its own core, with ReLU and pooling as one layer
    (`relu_pool`).
    """

    name, engine, takes_only = "loop", "loop", "everything"
    devices = ("cpu", "cuda", "mps")
    per_core: bool = False

    def run(self, objective: Objective, jobs: LocalJobs) -> LocalReturns:
        anchor, num_jobs = jobs.anchor, len(jobs)
        workers = Workers.for_jobs(jobs.steps.num_steps, heavy=True)
        results = LocalReturns(
            anchor.new_zeros((num_jobs, len(anchor))),
            anchor.new_zeros(num_jobs),
            jobs.buffers.expand(num_jobs, -1).clone(),
            (self.ran(anchor, workers.number if self.per_core else 1),),
            kept=jobs.room_to_keep(),
        )
        objective.model.module.train()
        if not self.per_core:
            for job in range(num_jobs):
                _train(objective, jobs, job, results)
            return results
        module = joined_pooling(objective.model.module)
        # A module holds the parameters of the client that it is called for.
        idle: SimpleQueue[Objective] = SimpleQueue()
        for place in range(workers.number):
            same = place == 0 and module is objective.model.module
            model = objective.model if same else FlatModule(module, objective.model.pipeline)
            idle.put(replace(objective, model=model))

        def train(job: int) -> None:
            own = idle.get()
            try:
                _train(own, jobs, job, results)
            finally:
                idle.put(own)

        workers.train(jobs.steps.num_steps, train)
        return results


def _train(objective: Objective, jobs: LocalJobs, job: int, results: LocalReturns) -> None:
    """All local steps of one job, written into its row of the results."""
    solver, anchor, batches = jobs.steps.solver, jobs.anchor, jobs.steps.batches[job]
    memory = {name: rows[job] for name, rows in jobs.memory.items()}
    state = solver.start(anchor, memory, jobs.shared)
    step_lrs = jobs.steps.step_lrs.to(anchor)[:, None]
    for step, batch in enumerate(batches):
        rows = batch[batch >= 0].to(anchor.device)
        key = jobs.steps.noise[job][step].to(anchor.device) if objective.draws_noise else None
        try:
            step_loss, gradient = objective.gradient(state.local, results.buffers[job], rows, key)
        except (RuntimeError, ValueError, IndexError) as error:
            raise EngineError(
                f"Client {jobs.clients[job]} fails at local step {step} with a batch of {len(rows)}: {error}"
            ) from error
        state = solver.step(state, gradient, anchor, jobs.shared, step_lrs[step])
        results.loss[job] += step_loss
    results.delta[job] = solver.position(state) - anchor
    if results.kept is not None:
        results.kept[job] = solver.kept(state)
    results.loss[job] /= len(batches)
