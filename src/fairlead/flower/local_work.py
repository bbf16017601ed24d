"""What a client of a real federation computes: the solver and loop of the simulation, for itself alone."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import torch

from fairlead.corrections.base import LocalOutcome
from fairlead.flower.messages import Answer, Question
from fairlead.records import Vectors
from fairlead.worlds.batches import draw_batches
from fairlead.worlds.engines.base import LocalJobs, LocalSteps, Objective
from fairlead.worlds.engines.loop import LoopEngine


class LocalResult(NamedTuple):
    """What a client sends, and what it keeps if the server takes it."""

    answer: Answer
    memory: Vectors


def work_locally(objective: Objective, question: Question, memory: Vectors, num_steps: int) -> LocalResult:
    """Train on the only client of `objective`, `num_steps` long; the same bits as the loop engine's."""
    solver, round, size = question.solver, question.round, int(objective.data.sizes[0])
    words = np.zeros(num_steps + 1, dtype=np.uint64)
    if objective.draws_noise:
        words = question.noise.words(np.arange(num_steps + 1))
    rows = {name: vector[None] for name, vector in memory.items()}
    jobs = LocalJobs(
        clients=[question.client],
        steps=LocalSteps(
            solver=solver,
            batches=[draw_batches(0, size, num_steps, question.batch_size, question.batches)],
            noise=[torch.from_numpy(words.view(np.int64))],
            step_lrs=solver.step_lrs(round, num_steps),
        ),
        anchor=question.anchor,
        buffers=question.buffers,
        shared=question.shared,
        memory=rows,
    )
    results = LoopEngine().run(objective, jobs)
    anchor_gradient = None
    if solver.needs_anchor_gradient:
        key = jobs.steps.noise[0][-1].to(question.anchor.device) if objective.draws_noise else None
        anchor_gradient = objective.full_gradient(question.anchor, question.buffers, 0, key)[None]
    steps = torch.tensor([num_steps])
    norms = solver.accumulation(steps, round)
    outcome = LocalOutcome(
        round=round,
        anchor=question.anchor,
        delta=results.delta,
        num_steps=steps.to(results.delta)[:, None],
        effective_steps=None if norms is None else norms.l1.to(results.delta)[:, None],
        lr=solver.optimizer.lr_at(round),
        anchor_gradient=anchor_gradient,
    )
    aftermath = solver.settle(outcome, rows, question.shared)
    answer = Answer(
        client=question.client,
        round=round,
        num_steps=num_steps,
        num_examples=size,
        loss=float(results.loss[0]),
        delta=aftermath.delta[0],
        buffers=results.buffers[0],
        messages={name: upload[0] for name, upload in aftermath.message.items()},
    )
    return LocalResult(answer, {name: row[0] for name, row in aftermath.memory.items()})
