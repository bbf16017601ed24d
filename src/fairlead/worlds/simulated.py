"""`SimulatedWorld`: clients simulated in this process."""

from collections.abc import Iterable, Iterator, Sequence
from copy import copy
from dataclasses import replace
from hashlib import sha256
from os import PathLike
from pathlib import Path
from typing import get_args

import torch
from torch import Tensor, nn

from fairlead.client_table import ClientTable, PartState, table_in
from fairlead.clients.data import ClientData
from fairlead.component import parts_within
from fairlead.conditions.base import refuse_misfits
from fairlead.conditions.devices import DeviceModel, Payload
from fairlead.conditions.links import LinkModel, PerfectLink
from fairlead.conditions.timed_links import FirstArrivals
from fairlead.conditions.work import EqualWork, WorkModel
from fairlead.errors import ClashError, DataError, FieldError, field_error, is_integer, require_instance
from fairlead.local_solver import LocalSolver
from fairlead.memory.budget import require_memory
from fairlead.models.base import ExampleShape
from fairlead.numerics.rows import home_of
from fairlead.parameters import FlatModule
from fairlead.randomness import Key
from fairlead.records import (
    Buffering,
    ClientUpdates,
    Cohort,
    Conditions,
    Evaluation,
    PathRun,
    Poll,
    Population,
    ServerState,
    Vectors,
    WorkOrder,
)
from fairlead.task import Task, accuracy, mean_squared_error
from fairlead.text import label
from fairlead.worlds.base import DataPlace, EngineName, Weights, Workings, World, objective_weights
from fairlead.worlds.behavior import ClientBehavior, MessageSizes, Responders
from fairlead.worlds.device import Arithmetic, HostData, Precision, on_host, stays_on_host, usable_device
from fairlead.worlds.engines.base import AsyncEngine, Engine, LocalReturns, Objective
from fairlead.worlds.engines.choice import choose_engine
from fairlead.worlds.engines.lane_gradients import evaluation_model
from fairlead.worlds.evaluation import evaluate, evaluate_each, refuse_misjudged
from fairlead.worlds.executor import (
    ClientBlock,
    ClientExecutor,
    FinishedWork,
    LocalExecutor,
    do_work,
    own_models,
    refuse_unknown_parameters,
)
from fairlead.worlds.in_flight import Flight, Job, queue_of, run_until_full, stale

_PREFETCHED_CLIENTS = 100_000
"""Up to so many clients, drawing a cohort takes a millisecond or two, no longer than drawing its batches."""

_EVALUATED_TOGETHER = 256
"""Clients whose own models are in memory at a time."""


class SimulatedWorld(World):
    """Clients simulated on one machine.

    Clients: the `task`; the `clients`' data; unequal `work` and `link`s; the speed of `devices`, for a virtual clock;
    objective `weights` ω, "examples" (n_i/n), "uniform" or one number per client; a `test` set, common or divided among
    the clients; examples that each client has `held_out`, for figures per client and as test set if there is none.

    Computation, which changes numbers by rounding at most:

    - `engine`: "loop" trains one client after another, "batched" several in shared products, "branches" several with
      a pass each, and "auto" selects the fastest for this model and device; `lanes`: the most clients side by side;
      `block`: the number of clients that the engine receives together (None: all of a round), which must be equal in
      all processes that should give the same bits (`RayWorld`).
    - `device` and `dtype` of parameters and examples; on "mps" clients train one after another, and everything that is
      summed in float64 stays on the CPU.
    - `precision` of products: "full" in the type of the parameters, "tf32" or "bfloat16" with factors rounded
      to 10 or 7 bits, faster on devices that have them.
    - `reproducible`: the same bits on every repetition, on CUDA devices too, at some cost in speed.
    - `compile` captured steps on a CUDA device. This takes up to a minute and pays off after a few rounds of a large
      convolutional model, after a thousand or more of a small one.
    - `data_on`: examples stay on the "device", or on the "host", which sends those of a round's clients each round;
      "auto" leaves them on the host if they would take more than half of the device's free memory.
    - `tables_in`: a folder for tables with a row per client that do not fit in memory. They lie in memory-mapped files
      there, which are deleted with the run.

    A client whose update will be lost is not trained, since its work has no effect; a client without examples never
    responds.

    >>> from fairlead import Quadratics
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
        devices: DeviceModel | None = None,
        weights: Weights = "examples",
        test: ClientData | None = None,
        held_out: ClientData | None = None,
        engine: EngineName = "auto",
        lanes: int = 16,
        block: int | None = None,
        device: torch.device | str = "cpu",
        dtype: torch.dtype = torch.float32,
        precision: Precision = "full",
        reproducible: bool = False,
        compile: bool = False,
        data_on: DataPlace = "auto",
        tables_in: str | PathLike[str] | None = None,
    ) -> None:
        work, link = work or EqualWork(), link or PerfectLink()
        for field, value, kind in (
            ("task", task, Task),
            ("clients", clients, ClientData),
            ("work", work, WorkModel),
            ("link", link, LinkModel),
        ):
            require_instance(self, field, value, kind)
        if devices is not None:
            require_instance(self, "devices", devices, DeviceModel)
        self.task = task
        self.device, self.dtype = usable_device(self, device), dtype
        self.arithmetic = Arithmetic(precision, reproducible)
        self.arithmetic.require_device(self.device, dtype)
        if data_on not in get_args(DataPlace):
            raise field_error(self, "data_on", "'auto', 'device' or 'host'", data_on)
        if block is not None and not is_integer(block, at_least=1):
            raise field_error(self, "block", "None or a whole number of at least 1", block)
        staged = data_on == "host" or (data_on == "auto" and stays_on_host(clients, self.device))
        self.clients = on_host(clients, dtype, self.device) if staged else clients.to(self.device, dtype)
        self.shape = example_shape(clients, test, held_out)
        if held_out is not None and held_out.num_clients != clients.num_clients:
            raise field_error(
                self, "held_out", f"data of the same {clients.num_clients} clients", held_out.num_clients
            )
        test = held_out if test is None else test
        self.test = None if test is None else test.to(self.device, dtype)
        self.held_out = None if held_out is None else held_out.to(self.device, dtype)
        if held_out is test or (held_out is None and test and test.num_clients == clients.num_clients):
            self.held_out = self.test
        for condition in (work, link, *([devices] if devices else [])):
            refuse_misfits(condition, clients.num_clients, has_devices=devices is not None)
        omega = objective_weights(weights, clients.sizes, clients.names)
        model = task.build(self.shape, Key.from_seed(0)).to(self.device, dtype)
        with self.arithmetic.on(self.device):
            self.objective = Objective.build(
                model, task.loss_function(), self.clients, reduced_precision=precision != "full"
            )
            metrics = task.named_metrics().values()
            if not all(metric is accuracy or metric is mean_squared_error for metric in metrics):
                self.refuse_misjudged()
            trial, host_data = self.objective, None
            if staged:
                host_data = HostData(self.objective)
                trial, _ = host_data.load((clients.sizes > 0).nonzero().flatten()[:8])
            chosen, self.engine_reason = choose_engine(
                engine, trial, lanes, compiled=compile, reproducible=reproducible
            )
        self.executor = LocalExecutor(
            self.objective, chosen, self.arithmetic, host_data=host_data, block=block
        )
        folder = None if tables_in is None else Path(tables_in)
        self._population = Population(omega, model.layout, home_of(self.device), dtype, clients.names, folder)
        sizes = MessageSizes(self._population.num_parameters, len(model.initial_buffers()), dtype)
        self.behavior = ClientBehavior(clients.sizes, work, link, devices, sizes)
        self._paths: tuple[PathRun, ...] = ()
        self._evaluated: FlatModule | None = None
        self._prefetched: dict[tuple[tuple[int, ...], LocalSolver, int, Key], Responders] = {}

    @property
    def simulation(self) -> "SimulatedWorld":
        return self

    @property
    def population(self) -> Population:
        return self._population

    @property
    def description(self) -> str:
        conditions = f"{self.behavior.work!r} {self.behavior.link!r} {self.behavior.devices!r}"
        arithmetic = f"{self.dtype} {self.arithmetic.precision}"
        frozen = self.objective.model.frozen_digest(self.dtype)
        return f"{self.task.description} {conditions} {arithmetic} {_data_digest(self.clients)}{frozen}"

    @property
    def engine(self) -> Engine:
        """How clients train in this process."""
        return self.executor.engine

    @property
    def workings(self) -> Workings:
        return Workings(self.device, repr(self.engine), self.engine_reason, self._paths)

    def initial_model(self, key: Key) -> tuple[Tensor, Tensor]:
        model = self.task.build(self.shape, key)
        params, buffers = (
            vector.to(self.population.device, self.dtype)
            for vector in (model.initial_params(), model.initial_buffers())
        )
        if not bool(params.isfinite().all() & buffers.isfinite().all()):
            raise FieldError(
                f"Task.model must start from finite numbers, got NaN or infinity from {type(self.task.model).__name__} "
                f"in dtype {str(self.dtype).removeprefix('torch.')}."
            )
        return params, buffers

    def initial_memory(self, solver: LocalSolver) -> PartState:
        model, own = self.objective.model, self.population
        refuse_unknown_parameters(solver, model)
        dims = solver.memory_dims(self.population.num_parameters, len(model.initial_buffers()))
        return {
            name: ClientTable.create(
                own.num_clients, dim, dtype=own.dtype, device=own.device, folder=own.tables_in
            )
            for name, dim in dims.items()
        }

    def initial_flight(self, buffering: Buffering, solver: LocalSolver) -> PartState:
        if any(isinstance(part, FirstArrivals) for part in parts_within(self.behavior.link)):
            raise ClashError(
                "FirstArrivals ends rounds that wait for their clients, and BufferedSampling ends them by its "
                "buffer_size: remove one of the two."
            )
        places = buffering.places(self.population.num_clients)
        row = self.population.num_parameters + len(self.objective.model.initial_buffers())
        size = places * row * self.dtype.itemsize
        require_memory(
            f"The work of {places} clients at the same time", size, "lower BufferedSampling.concurrency"
        )
        return Flight.empty(places, self.population, len(self.objective.model.initial_buffers())).state

    def conditions(self, round: int, solver: LocalSolver, key: Key) -> Conditions:
        def everyone() -> Tensor:
            return torch.arange(self.population.num_clients)

        def steps() -> Tensor:
            return self.behavior.workload(everyone(), solver, round, key).num_steps

        def work() -> Tensor | None:
            return solver.effective_steps(steps(), round)

        def arrival() -> Tensor | None:
            return self.behavior.expected_arrival(everyone(), solver, round, key)

        def epochs() -> Tensor:
            return self.behavior.epochs(everyone(), solver, round, key)

        def seconds() -> Tensor:
            return self.behavior.seconds(everyone(), solver, round, key)

        return Conditions(
            round,
            self.population.weights,
            work,
            arrival,
            epochs,
            forecast_steps=steps,
            forecast_seconds=seconds,
            num_examples=self.behavior.sizes,
        )

    def refuse_single_examples(self, solver: LocalSolver, rounds: Iterable[int], key: Key) -> None:
        """Raise if a client could meet a batch of one example in these rounds and the model fails on it."""
        clients = self.population.weights.nonzero().flatten()
        sizes = self.behavior.sizes[clients]
        for round in () if self.objective.takes_one else rounds:
            steps, batches = self.behavior.workload(clients, solver, round, key)
            alone = clients[(batches == 1) | ((steps * batches >= sizes) & ((sizes - 1) % batches == 0))]
            if len(alone):
                size, whose = self.behavior.sizes[alone[0]], label(int(alone[0]), self.population.names)
                raise FieldError(
                    "LocalSolver.batch_size must leave no batch of one example for BatchNorm, got one in "
                    f"round {round + 1} from {whose} with {size}: change it, give weight 0 to clients of one, or use "
                    "GroupNorm."
                )

    def refuse_misjudged(self) -> None:
        """Raise if evaluations would fail: on a metric, or on a class that the model has no output for."""
        model, metrics = self.objective.model, self.task.named_metrics()
        refuse_misjudged(model, self.task, metrics, self.test or self.clients, is_test=self.test is not None)
        if self.held_out is not None and self.held_out is not self.test:
            refuse_misjudged(model, self.task, metrics, self.held_out, is_test=False)

    def over(self, link: LinkModel) -> "SimulatedWorld":
        """The same clients, reached over other links."""
        refuse_misfits(link, self.population.num_clients, has_devices=self.behavior.devices is not None)
        world = copy(self)
        world.behavior, world._prefetched = replace(self.behavior, link=link), {}
        return world

    def work(self, order: WorkOrder) -> ClientUpdates:
        return self.work_by(self.executor, order)

    def work_by(self, executor: ClientExecutor, order: WorkOrder) -> ClientUpdates:
        """Updates that arrive if `executor` does the local work of an order."""
        if order.buffering is not None:
            return self._work_on(executor, order, order.buffering)
        cohort, solver = order.cohort, order.solver
        responders = self._responders(cohort, solver, order.round, order.key)
        clients, num_steps = responders.block.clients, responders.block.num_steps
        block = replace(responders.block, memory=self._read(order.memory, clients))
        effective_steps = solver.effective_steps(num_steps, order.round)
        finished, results = self._train(executor, order, block, effective_steps)
        return ClientUpdates.of(
            cohort,
            responders.places,
            finished.delta,
            num_steps,
            effective_steps,
            lr=solver.optimizer.lr_at(order.round),
            loss=results.loss,
            num_examples=block.sizes,
            buffers=finished.buffers,
            messages=finished.message,
            memory=finished.memory,
            virtual_seconds=responders.virtual_seconds,
            device_seconds=responders.device_seconds,
        )

    def _train(
        self, executor: ClientExecutor, order: WorkOrder, block: ClientBlock, effective_steps: Tensor | None
    ) -> tuple[FinishedWork, LocalReturns]:
        noise = order.key.fold("noise", order.round).fold
        done = do_work(order, block, effective_steps, self.objective.model, executor.train, noise)
        self._paths = PathRun.tally([*self._paths, *done[1].ran])
        return done

    def _work_on(self, executor: ClientExecutor, order: WorkOrder, buffering: Buffering) -> ClientUpdates:
        """Let clients start and finish until the buffer is full; the others go on."""
        cohort, solver, round, key = order.cohort, order.solver, order.round, order.key
        flight, given = Flight(order.flight), (cohort.clients, solver, round, key)
        work, seconds = self.behavior.workload(*given), self.behavior.seconds(*given)
        arrives = self.behavior.arrives(*given)

        waiting = (
            Job(
                float(seconds[place]),
                round,
                int(cohort.clients[place]),
                int(work.num_steps[place]),
                float(cohort.importance[place]),
                bool(arrives[place]),
            )
            for place in queue_of(order)
            if work.num_steps[place] > 0
        )
        most = buffering.max_age
        interval = run_until_full(
            flight.jobs(),
            waiting,
            flight.now,
            flight.places,
            buffering.size,
            lambda job: most is not None and round - job.round > most,
        )
        asked = torch.isin(cohort.clients, torch.tensor([job.client for job in interval.started]))
        trained = (asked & arrives).nonzero().flatten()
        clients, num_steps = cohort.clients[trained], work.num_steps[trained]
        block = ClientBlock(clients, self.behavior.sizes[clients], num_steps, work.batch_sizes[trained], {})
        effective_steps = solver.effective_steps(num_steps, round)
        finished, results = self._train(executor, order, block, effective_steps)
        fresh = {"delta": finished.delta, "buffers": finished.buffers, "loss": results.loss[:, None]}

        def rows(name: str, jobs: list[Job]) -> Tensor:
            return fresh[name][torch.searchsorted(clients, torch.tensor([job.client for job in jobs]))]

        arrived = sorted(interval.arrived, key=lambda job: job.client)
        old, new = ([job for job in arrived if (job.row < 0) == is_new] for is_new in (False, True))
        order_of = torch.tensor([job.client for job in (*old, *new)], dtype=torch.int64).argsort()

        def received(name: str) -> Tensor:
            parts = [flight.read(name, old), *([rows(name, new)] if new else [])]
            return torch.cat(parts)[order_of.to(fresh[name].device)]

        ids, rounds, steps = (
            torch.tensor([getattr(job, name) for job in arrived], dtype=torch.int64)
            for name in ("client", "round", "num_steps")
        )
        importance = torch.tensor([job.importance for job in arrived], dtype=torch.float64)
        updates = ClientUpdates.of(
            Cohort(ids, torch.ones_like(ids), importance),
            torch.ones_like(ids, dtype=torch.bool),
            received("delta"),
            steps,
            solver.late_effective_steps(steps, rounds, round),
            lr=solver.optimizer.lr_at(round),
            loss=received("loss")[:, 0],
            num_examples=self.behavior.sizes[ids],
            buffers=received("buffers"),
            age=round - rounds,
            virtual_seconds=None if self.behavior.devices is None else interval.now - flight.now,
            device_seconds=self.behavior.device_seconds(cohort.clients[asked], solver, round, key),
            refused=tuple(stale(job.client, round - job.round, most) for job in interval.refused),
        )
        started = Cohort(cohort.clients[asked], cohort.multiplicity[asked], cohort.importance[asked])
        return replace(updates, cohort=started, flight=flight.after(interval, rows))

    def _read(self, memory: PartState, clients: Tensor) -> Vectors:
        return {name: table_in(memory, name).read(clients) for name in memory}

    @property
    def prefetches(self) -> bool:
        """Whether the device computes asynchronously, and drawing a cohort twice is cheap."""
        few = self.population.num_clients <= _PREFETCHED_CLIENTS
        return few and isinstance(self.engine, AsyncEngine) and self.executor.host_data is None

    def prefetch(self, round: int, solver: LocalSolver, key: Key, cohort: Cohort) -> None:
        """Find the responders of the cohort that the next round will probably sample, and prepare their work."""
        responders = self.behavior.responders(cohort.clients, solver, round, key)
        self._prefetched = {(tuple(cohort.clients.tolist()), solver, round, key): responders}
        self.executor.prepare(round, solver, key, responders.block)

    def _responders(self, cohort: Cohort, solver: LocalSolver, round: int, key: Key) -> Responders:
        if self._prefetched:
            found = self._prefetched.get((tuple(cohort.clients.tolist()), solver, round, key))
            if found is not None:
                return found
        return self.behavior.responders(cohort.clients, solver, round, key)

    def commit(
        self, order: WorkOrder, updates: ClientUpdates, params: Tensor, direction: Tensor
    ) -> PartState:
        adopted = order.solver.after_round(updates.memory, params, direction)
        return {
            name: table_in(order.memory, name).write(updates.clients, rows) for name, rows in adopted.items()
        }

    def module(self, params: Tensor, buffers: Tensor) -> nn.Module:
        return self.objective.model.filled(params, buffers)

    def evaluate(self, params: Tensor, buffers: Tensor, *, per_client: bool = False) -> Evaluation:
        return self._evaluate(self.task, params, buffers, self.test, per_client=per_client)

    def evaluate_personal(self, solver: LocalSolver, state: ServerState, key: Key) -> Evaluation:
        """As `evaluate` with `per_client`, each client with its own model: on held-out examples if clients have any."""
        return self.evaluate_models(self.personal_models(solver, state, key))

    def evaluate_models(
        self, models: Iterable[tuple[int, Tensor, Tensor]], *, on_training_data: bool = False
    ) -> Evaluation:
        """Figures of clients' own models (client, parameters, running statistics) on their own data; losses alone of
        the training data."""
        data = self.clients if self.held_out is None or on_training_data else self.held_out
        with self.arithmetic.on(self.device):
            return evaluate_each(
                self.objective.model,
                replace(self.task, metrics=()) if on_training_data else self.task,
                models,
                data,
                channels_last=self.objective.channels_last and self.device.type == "cuda",
            )

    def personal_models(
        self, solver: LocalSolver, state: ServerState, key: Key, clients: Tensor | None = None
    ) -> Iterator[tuple[int, Tensor, Tensor]]:
        used, nothing = solver if solver.is_personal else replace(solver, corrections=()), torch.empty(0)
        everyone = torch.arange(self.population.num_clients)
        cohort = Cohort(everyone if clients is None else clients, nothing, nothing)
        broadcast = (state.round, used, state.params, state.buffers, state.shared)
        order, none = WorkOrder(*broadcast, cohort, state.memory, key), nothing.long()
        for clients in torch.split(cohort.clients, self.executor.block or _EVALUATED_TOGETHER):
            memory = self._read(state.memory, clients)
            block = ClientBlock(clients, self.behavior.sizes[clients], none, none, memory)
            params, buffers = own_models(order, block, self.objective.model, self.executor.train)
            yield from zip(clients.tolist(), params, buffers, strict=True)

    def objective_at(self, params: Tensor, buffers: Tensor) -> float:
        return self._evaluate(replace(self.task, metrics=()), params, buffers, None, per_client=False).loss

    def poll(self, clients: Tensor, params: Tensor, buffers: Tensor, round: int) -> Poll:
        models = ((client, params, buffers) for client in clients.tolist())
        found = self.evaluate_models(models, on_training_data=True).client_loss or ()
        losses = torch.tensor(found, dtype=torch.float64)[clients]
        return Poll(clients, losses, *self.behavior.poll_seconds(clients, round))

    def _evaluate(
        self, task: Task, params: Tensor, buffers: Tensor, test: ClientData | None, *, per_client: bool
    ) -> Evaluation:
        with self.arithmetic.on(self.device):
            if self._evaluated is None:
                self._evaluated = evaluation_model(self.objective)
            return evaluate(
                self._evaluated,
                task,
                params,
                buffers,
                train=self.clients,
                test=test,
                held_out=None if test is None else self.held_out,
                weights=self.population.weights,
                per_client=per_client,
                channels_last=self.objective.channels_last and self.device.type == "cuda",
            )

    def payload(self, solver: LocalSolver) -> Payload:
        """Bytes that each client receives and sends in a round."""
        return self.behavior.message_sizes.payload(solver)


def _data_digest(data: ClientData) -> str:
    """A digest of all clients' sizes and of some examples."""
    rows = torch.linspace(0, len(data.inputs) - 1, min(len(data.inputs), 256)).long()
    digest = sha256(data.sizes.numpy().tobytes())
    for values in (data.inputs, data.targets):
        digest.update(values[rows.to(values.device)].cpu().contiguous().view(torch.uint8).numpy().tobytes())
    return digest.hexdigest()


_CLASSES_AT_MOST = 2**24
"""A model has an output for each; larger targets are ids or quantities by mistake."""


def example_shape(clients: ClientData, *tests: ClientData | None) -> ExampleShape:
    """The shape that a model for these clients must fit, classes and tokens of the test sets included."""
    parts, targets = [clients, *filter(None, tests)], clients.targets
    if targets.is_floating_point():
        outputs = int(targets.shape[1:].numel())
    else:
        outputs = _count_values([part.targets for part in parts])
        if outputs > _CLASSES_AT_MOST:
            raise DataError(
                f"Targets of whole numbers are classes, counted from 0, and must be below {_CLASSES_AT_MOST}, got "
                f"{outputs - 1}: number the classes 0, 1, 2, ..., or give quantities as floating-point numbers."
            )
    inputs = [part.inputs for part in parts]
    # Bytes are pixels, which the model's input pipeline scales.
    if inputs[0].is_floating_point() or inputs[0].dtype == torch.uint8:
        return ExampleShape(tuple(inputs[0].shape[1:]), outputs, None)
    smallest = min((int(part.min()) for part in inputs if len(part)), default=0)
    if smallest < 0:
        # Some engines would take them for places counted from the end of an embedding.
        raise DataError(
            f"Inputs of whole numbers are token ids and must be at least 0, got {smallest}: give quantities as "
            "floating-point numbers."
        )
    return ExampleShape(tuple(inputs[0].shape[1:]), outputs, _count_values(inputs))


def _count_values(parts: Sequence[Tensor]) -> int:
    """How many whole numbers there are from 0 to the largest in any part."""
    return max((int(part.max()) for part in parts if len(part)), default=0) + 1
