"""The loop engine: one client after another. It runs any model and is what the others mean."""

from __future__ import annotations

from dataclasses import dataclass

from fairlead.errors import EngineError
from fairlead.worlds.engines.base import Engine, LocalJobs, LocalResults, Objective


@dataclass(frozen=True)
class LoopEngine(Engine):
    """Trains clients one by one, on real batches without padding; says whose batch a model fails on."""

    def run(self, objective: Objective, jobs: LocalJobs) -> LocalResults:
        solver, anchor = jobs.solver, jobs.anchor
        delta = anchor.new_zeros((len(jobs.batches), len(anchor)))
        loss = anchor.new_zeros(len(jobs.batches))
        buffers = jobs.buffers.repeat(len(jobs.batches), 1)
        step_lrs = jobs.step_lrs.to(anchor)[:, None]
        objective.model.module.train()
        for job, (batches, noise) in enumerate(zip(jobs.batches, jobs.noise, strict=True)):
            memory = {name: rows[job] for name, rows in jobs.memory.items()}
            state = solver.start(anchor, memory, jobs.shared)
            for step, batch in enumerate(batches):
                rows = batch[batch >= 0].to(anchor.device)
                key = noise[step].to(anchor.device) if objective.draws_noise else None
                try:
                    step_loss, gradient = objective.gradient(state.local, buffers[job], rows, key)
                except (RuntimeError, ValueError, IndexError) as error:
                    raise EngineError(
                        f"Client {jobs.clients[job]} fails at local step {step} with a batch of {len(rows)}: "
                        f"{error}"
                    ) from error
                state = solver.step(state, gradient, anchor, jobs.shared, step_lrs[step])
                loss[job] += step_loss
            delta[job] = state.local - anchor
            loss[job] /= len(batches)
        return LocalResults(delta, loss, buffers)
