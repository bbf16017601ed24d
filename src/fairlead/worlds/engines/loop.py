"""The loop engine: one client after another. It runs any model and defines the numbers of all engines."""

from dataclasses import dataclass, replace
from queue import SimpleQueue

from fairlead.errors import EngineError
from fairlead.parameters import FlatModule
from fairlead.worlds.engines.base import LocalJobs, LocalResults, Objective, WholePath
from fairlead.worlds.engines.relu_pool import joined_pooling
from fairlead.worlds.engines.threads import Workers


@dataclass(frozen=True)
class LoopEngine(WholePath):
    """Trains clients one by one, on batches without padding; an error names the client.

    `per_core`: each of torch's threads trains some of the clients on its own core, with ReLU and pooling as one layer
    (`relu_pool`).
    """

    name, engine, takes_only = "loop", "loop", "everything"
    per_core: bool = False

    def run(self, objective: Objective, jobs: LocalJobs) -> LocalResults:
        anchor, num_jobs = jobs.anchor, len(jobs)
        workers = Workers.for_jobs(jobs.steps.num_steps, heavy=True)
        results = LocalResults(
            anchor.new_zeros((num_jobs, len(anchor))),
            anchor.new_zeros(num_jobs),
            jobs.buffers.repeat(num_jobs, 1),
            self.ran(anchor, workers.number if self.per_core else 1),
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


def _train(objective: Objective, jobs: LocalJobs, job: int, results: LocalResults) -> None:
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
    results.delta[job] = state.local - anchor
    results.loss[job] /= len(batches)
