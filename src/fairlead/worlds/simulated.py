"""`SimulatedWorld`: clients that live in this process."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from fairlead.client_table import ClientTable, PartState, table_in
from fairlead.clients.data import ClientData
from fairlead.conditions.link import LinkModel, PerfectLink
from fairlead.conditions.work import EqualWork, Workload, WorkModel
from fairlead.corrections.base import LocalOutcome
from fairlead.errors import FieldError, did_you_mean
from fairlead.local_solver import LocalSolver
from fairlead.models.base import ExampleShape
from fairlead.randomness import Key
from fairlead.records import ClientUpdates, Conditions, Evaluation, Population, WorkOrder
from fairlead.task import Task
from fairlead.worlds.base import World
from fairlead.worlds.batches import draw_batches
from fairlead.worlds.engines.base import LocalJobs, Objective
from fairlead.worlds.engines.choice import EngineName, choose_engine
from fairlead.worlds.evaluation import evaluate

Weights = str | Sequence[float] | Tensor


class SimulatedWorld(World):
    """Clients simulated on one machine.

    Arguments: the `task`; the `clients`' data; `work` and `link`, how unequal they are; `weights` ω of the
    objective, "examples" (n_i/n), "uniform" or one number per client; a common `test` set; the `engine`
    ("auto", "batched" or "loop") and how many `lanes` the batched one has; `device` and `dtype`.

    A client whose update will be lost is not trained, since nothing of its work could be seen; a client
    without examples never answers.

    >>> from fairlead.clients import Quadratics
    >>> problem = Quadratics(num_clients=3).problem(Key.from_seed(0))
    >>> SimulatedWorld(problem.task(), problem.data()).population.num_clients
    3
    """

    def __init__(
        self,
        task: Task,
        clients: ClientData,
        *,
        work: WorkModel | None = None,
        link: LinkModel | None = None,
        weights: Weights = "examples",
        test: ClientData | None = None,
        engine: EngineName = "auto",
        lanes: int = 16,
        device: torch.device | str = "cpu",
        dtype: torch.dtype = torch.float32,
    ) -> None:
        self.task = task
        self.device, self.dtype = torch.device(device), dtype
        self.clients = clients.to(self.device, dtype)
        self.test = None if test is None else test.to(self.device, dtype)
        self.work_model, self.link_model = work or EqualWork(), link or PerfectLink()
        self._shape = _example_shape(clients, test)
        model = task.build(self._shape, Key.from_seed(0)).to(self.device, dtype)
        self.objective = Objective(
            model,
            task.loss_function(),
            self.clients,
            draws_noise=model.draws_noise(self.clients.inputs[:1]),
        )
        self.engine, self.engine_reason = choose_engine(engine, self.objective, lanes)
        self._population = Population(
            _objective_weights(weights, clients.sizes), model.layout, self.device, dtype
        )

    @property
    def population(self) -> Population:
        return self._population

    def initial_model(self, key: Key) -> tuple[Tensor, Tensor]:
        model = self.task.build(self._shape, key).to(self.device, self.dtype)
        return model.initial_params(), model.initial_buffers()

    def initial_memory(self, solver: LocalSolver) -> PartState:
        num_clients, dim = self.population.num_clients, self.population.num_parameters
        return {
            name: ClientTable.create(
                num_clients, solver.memory_dim(name, dim), dtype=self.dtype, device=self.device
            )
            for name in solver.memory_names
        }

    def conditions(self, round: int, solver: LocalSolver, key: Key) -> Conditions:
        everyone = torch.arange(self.population.num_clients)

        def work() -> Tensor | None:
            steps = self._workload(everyone, solver, round, key).num_steps
            norms = solver.accumulation(steps, round)
            return None if norms is None else norms.l1

        def arrival() -> Tensor | None:
            return self.link_model.arrival(everyone, round, key.fold("link"))

        return Conditions(round, self.population.weights, work, arrival)

    def work(self, order: WorkOrder) -> ClientUpdates:
        cohort, key, solver = order.cohort, order.key, order.solver
        workload = self._workload(cohort.clients, solver, order.round, key)
        arrives = self.link_model.arrives(cohort.clients, order.round, key.fold("link"))
        present = arrives & (workload.num_steps > 0)
        clients, num_steps = cohort.clients[present], workload.num_steps[present]
        jobs = self._jobs(order, clients, num_steps, workload.batch_sizes[present])
        results = self.engine.run(self.objective, jobs)
        norms = solver.accumulation(num_steps, order.round)
        lr = solver.optimizer.lr_at(order.round)
        outcome = LocalOutcome(
            round=order.round,
            anchor=order.anchor,
            delta=results.delta,
            num_steps=num_steps.to(results.delta)[:, None],
            effective_steps=None if norms is None else norms.l1.to(results.delta)[:, None],
            lr=lr,
            anchor_gradient=self._anchor_gradients(order, clients, jobs),
        )
        aftermath = solver.settle(outcome, jobs.memory, order.shared)
        return ClientUpdates(
            cohort=cohort,
            clients=clients,
            importance=cohort.importance[present],
            delta=aftermath.delta,
            num_steps=num_steps,
            effective_steps=None if norms is None else norms.l1,
            a2=None if norms is None else norms.l2,
            loss=results.loss,
            num_examples=self.clients.sizes[clients],
            messages=aftermath.message,
            memory=aftermath.memory,
            buffers=results.buffers,
            age=torch.zeros_like(clients),
            lr=lr,
        )

    def commit(
        self, memory: PartState, updates: ClientUpdates, solver: LocalSolver, params: Tensor
    ) -> PartState:
        adopted = solver.adopt(updates.memory, params)
        return {name: table_in(memory, name).write(updates.clients, rows) for name, rows in adopted.items()}

    def evaluate(self, params: Tensor, buffers: Tensor, *, per_client: bool = False) -> Evaluation:
        return evaluate(
            self.objective.model,
            self.task,
            params,
            buffers,
            train=self.clients,
            test=self.test,
            weights=self.population.weights,
            per_client=per_client,
        )

    def _workload(self, clients: Tensor, solver: LocalSolver, round: int, key: Key) -> Workload:
        sizes = self.clients.sizes[clients]
        return self.work_model.workload(clients, sizes, solver, round, key.fold("work"))

    def _jobs(self, order: WorkOrder, clients: Tensor, num_steps: Tensor, batch_sizes: Tensor) -> LocalJobs:
        sizes, offsets = self.clients.sizes, self.clients.offsets
        batches, noise = [], []
        for client, steps, batch_size in zip(
            clients.tolist(), num_steps.tolist(), batch_sizes.tolist(), strict=True
        ):
            stream = order.key.fold("batches", order.round, client)
            batches.append(draw_batches(int(offsets[client]), int(sizes[client]), steps, batch_size, stream))
            words = order.key.fold("noise", order.round, client).words(np.arange(steps + 1))
            noise.append(torch.from_numpy(words.view(np.int64)))
        return LocalJobs(
            solver=order.solver,
            anchor=order.anchor,
            buffers=order.buffers,
            shared=order.shared,
            memory={name: table_in(order.memory, name).read(clients) for name in order.memory},
            batches=batches,
            noise=noise,
            step_lrs=order.solver.step_lrs(order.round, max(num_steps.tolist(), default=0)),
        )

    def _anchor_gradients(self, order: WorkOrder, clients: Tensor, jobs: LocalJobs) -> Tensor | None:
        if not order.solver.needs_anchor_gradient:
            return None
        rows = [
            self.objective.full_gradient(
                order.anchor,
                order.buffers,
                client,
                noise[-1].to(self.device) if self.objective.draws_noise else None,
            )
            for client, noise in zip(clients.tolist(), jobs.noise, strict=True)
        ]
        return torch.stack(rows) if rows else order.anchor.new_zeros((0, len(order.anchor)))


def _example_shape(clients: ClientData, test: ClientData | None) -> ExampleShape:
    targets = clients.targets
    if targets.is_floating_point():
        outputs = int(targets.shape[1:].numel())
    else:
        largest = [int(part.max()) for part in (targets, *([test.targets] if test else [])) if len(part)]
        outputs = max(largest, default=0) + 1
    return ExampleShape(tuple(clients.inputs.shape[1:]), outputs)


def _objective_weights(weights: Weights, sizes: Tensor) -> Tensor:
    """ω as float64 that sum to 1."""
    if isinstance(weights, str):
        if weights not in ("examples", "uniform"):
            raise FieldError(
                f"SimulatedWorld.weights must be 'examples', 'uniform' or one number per client, got "
                f"{weights!r}." + did_you_mean(weights, ("examples", "uniform"))
            )
        values = sizes.to(torch.float64) if weights == "examples" else (sizes > 0).to(torch.float64)
    else:
        values = torch.as_tensor(weights, dtype=torch.float64)
    if len(values) != len(sizes):
        raise FieldError(
            f"SimulatedWorld.weights must have one number per client ({len(sizes)}), got {len(values)}."
        )
    if not bool(torch.isfinite(values).all()) or bool((values < 0).any()) or values.sum() <= 0:
        raise FieldError("SimulatedWorld.weights must be finite, at least 0 and not all 0.")
    if bool(((values > 0) & (sizes == 0)).any()):
        client = int(((values > 0) & (sizes == 0)).nonzero()[0])
        raise FieldError(
            f"SimulatedWorld.weights must be 0 for a client without examples, got {values[client]:g} for "
            f"client {client}."
        )
    return values / values.sum()
