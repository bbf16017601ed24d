"""`RayWorld`: a simulated world whose clients train on the actors of a `RayCluster`."""

from collections.abc import Iterator
from importlib.util import find_spec

from torch import Tensor, nn

from fairlead.client_table import PartState
from fairlead.errors import ClashError, FieldError, field_error, require_instance
from fairlead.local_solver import LocalSolver
from fairlead.randomness import Key
from fairlead.records import (
    Buffering,
    ClientUpdates,
    Conditions,
    Evaluation,
    Poll,
    Population,
    ServerState,
    WorkOrder,
)
from fairlead.worlds.base import Workings, World
from fairlead.worlds.engines.loop import LoopEngine
from fairlead.worlds.ray.cluster import RayCluster
from fairlead.worlds.simulated import SimulatedWorld


class RayWorld(World):
    """A `simulation` whose clients train on the actors of a `cluster`, with the same bits as the simulation alone.

    The simulation plans work, draws arrivals, evaluates, and holds client memory, which travels with the work and
    comes back. Actors hold examples only, so that no state is lost with an actor, and either world resumes checkpoints
    of the other. Engines whose bits depend on the clients that train together need the simulation's `block`, which
    divides a round in both worlds. Bits are those of a process with as many threads as each actor.

    >>> from fairlead import Quadratics
    >>> problem = Quadratics(num_clients=3).problem(Key.from_seed(0))
    >>> RayWorld(SimulatedWorld(problem.task(), problem.data(), engine="batched"), RayCluster(actors=2))
    Traceback (most recent call last):
    ...
    fairlead.errors.ClashError: RayWorld divides a round into blocks of clients, and BatchedEngine may give other \
bits in each division: set SimulatedWorld.block, such as block=32.
    """

    def __init__(self, simulation: SimulatedWorld, cluster: RayCluster) -> None:
        require_instance(self, "simulation", simulation, SimulatedWorld)
        require_instance(self, "cluster", cluster, RayCluster)
        if (simulation.device.type == "cuda") != (cluster.gpus > 0):
            constraint = f"{'above 0' if cluster.gpus == 0 else '0'} for a world on {simulation.device}"
            raise field_error(cluster, "gpus", constraint, cluster.gpus)
        engine = simulation.engine
        # A client that trains alone has the same bits in any division, unless its threads depend on the others.
        alone = isinstance(engine, LoopEngine) and not (engine.per_core and cluster.threads > 1)
        if simulation.executor.block is None and not alone:
            raise ClashError(
                f"RayWorld divides a round into blocks of clients, and {type(engine).__name__} may give other bits "
                "in each division: set SimulatedWorld.block, such as block=32."
            )
        self._simulation, self.cluster = simulation, cluster
        if find_spec("ray") is None:
            raise FieldError("RayWorld needs Ray: install it with pip install 'ray>=2.55,<3'.")
        from fairlead.worlds.ray.executor import RayExecutor

        self.executor = RayExecutor(cluster, simulation)

    @property
    def simulation(self) -> SimulatedWorld:
        return self._simulation

    @property
    def population(self) -> Population:
        return self.simulation.population

    @property
    def description(self) -> str:
        return self.simulation.description

    @property
    def workings(self) -> Workings:
        own = self.simulation.workings
        return own._replace(engine=f"{own.engine} on {self.cluster!r}")

    def initial_model(self, key: Key) -> tuple[Tensor, Tensor]:
        return self.simulation.initial_model(key)

    def initial_memory(self, solver: LocalSolver) -> PartState:
        return self.simulation.initial_memory(solver)

    def initial_flight(self, buffering: Buffering, solver: LocalSolver) -> PartState:
        return self.simulation.initial_flight(buffering, solver)

    def conditions(self, round: int, solver: LocalSolver, key: Key) -> Conditions:
        return self.simulation.conditions(round, solver, key)

    def work(self, order: WorkOrder) -> ClientUpdates:
        return self.simulation.work_by(self.executor, order)

    def commit(
        self, order: WorkOrder, updates: ClientUpdates, params: Tensor, direction: Tensor
    ) -> PartState:
        return self.simulation.commit(order, updates, params, direction)

    def module(self, params: Tensor, buffers: Tensor) -> nn.Module:
        return self.simulation.module(params, buffers)

    def evaluate(self, params: Tensor, buffers: Tensor, *, per_client: bool = False) -> Evaluation:
        return self.simulation.evaluate(params, buffers, per_client=per_client)

    def personal_models(
        self, solver: LocalSolver, state: ServerState, key: Key, clients: Tensor | None = None
    ) -> Iterator[tuple[int, Tensor, Tensor]]:
        return self.simulation.personal_models(solver, state, key, clients)

    def evaluate_personal(self, solver: LocalSolver, state: ServerState, key: Key) -> Evaluation:
        return self.simulation.evaluate_personal(solver, state, key)

    def poll(self, clients: Tensor, params: Tensor, buffers: Tensor, round: int) -> Poll:
        return self.simulation.poll(clients, params, buffers, round)

    def objective_at(self, params: Tensor, buffers: Tensor) -> float:
        return self.simulation.objective_at(params, buffers)
