"""`Experiment`: everything that determines a run, as one value."""

import re
from collections.abc import Iterable
from dataclasses import dataclass, fields, replace
from typing import TYPE_CHECKING, Annotated, Any, Literal

import torch

from fairlead.algorithm import Algorithm
from fairlead.charts.display import Display, Displayed
from fairlead.clients.in_memory import ALLOWED, InMemory, in_memory
from fairlead.clients.preprocessing import Preprocessing
from fairlead.clients.source import ClientSource, FederatedData, PooledSource, RealClients, naming
from fairlead.component import Component, NaturalNumber, PositiveCount, WholeRange, worded
from fairlead.conditions.devices import DeviceModel
from fairlead.conditions.links import LinkModel, PerfectLink
from fairlead.conditions.work import EqualWork, WorkModel
from fairlead.errors import ClashError, field_error
from fairlead.federation import Federation
from fairlead.plain_data import LARGEST_INTEGER
from fairlead.randomness import Key
from fairlead.records import RoundRecord
from fairlead.stopping import BestSoFar, StopRule
from fairlead.task import Task, minimizes
from fairlead.text import counted
from fairlead.worlds.base import DataPlace, EngineName, Weights, World
from fairlead.worlds.device import Arithmetic, Precision, usable_device
from fairlead.worlds.ray.cluster import RayCluster

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from fairlead.diagnostics.clients import ClientOverview

_DTYPES = {"float32": torch.float32, "float64": torch.float64}
_OF_WORLD = "work link devices engine lanes block device precision reproducible compile data_on tables_in"
"""Fields that mean the same in `SimulatedWorld`."""
_DEVICE = re.compile(r"cpu|mps(:0)?|cuda(:\d{1,3})?")


@dataclass(frozen=True)
class Experiment(Component, Displayed):
    """An algorithm, its clients and conditions, and the number of rounds.

    Fields: where the `clients` get their data, or the data themselves (a `Pool`, `ClientData`, a torch `Dataset`, or
    tensors (inputs, targets, clients): see `InMemory`); the `algorithm`; `rounds` to run; the `task`, the usual one
    of the data unless given; `work` and `link`, how unequal clients are; `devices`, how fast they are, for a virtual
    clock; the objective `weights` ω, "examples" (n_i/n), "uniform" or one number per client, where None takes those
    that the client source defines and "examples" if it defines none; the `seed` of everything that is drawn; the
    model is evaluated after every `evaluate_every`-th round and after the last (0: never), also `per_client` if set
    or if clients hold examples out, and the full gradients of all clients are computed after every
    `gradients_every`-th (0: never, see `Federation.train`); `keep_best`, a metric or "loss": the folder of the run
    also keeps the model with the best evaluation; `stop_when` ends the run early (`StopRule`); `engine`,
    `lanes`, `block`, `device`, `dtype`, `precision`, `reproducible`, `compile`, `data_on` and `tables_in` as in
    `SimulatedWorld`; `ray`, the actors that clients train on, None for this process (`RayWorld`); `preprocessing`,
    what clients agree on before round 1, from sums over their data.

    In a spec, a published `setting` fills in what is left open of clients, work, link, rounds and the arguments
    of a preset: its name, or a table with its `name` and arguments.

    Two experiments that differ in `algorithm` alone meet the same data, initial model, batches, work and
    links.

    >>> import fairlead as fl
    >>> experiment = Experiment(fl.Digits(num_clients=5), fl.presets.fedavg(lr=0.1), rounds=3, evaluate_every=2)
    >>> [record.evaluation is not None for record in experiment.build().train()]
    [False, True, True]
    """

    clients: ClientSource
    algorithm: Algorithm
    rounds: PositiveCount
    task: Task | None = None
    work: WorkModel = EqualWork()
    link: LinkModel = PerfectLink()
    devices: DeviceModel | None = None
    weights: Literal["examples", "uniform"] | tuple[float, ...] | None = None
    seed: Annotated[int, WholeRange(0, LARGEST_INTEGER)] = 0
    evaluate_every: NaturalNumber = 10
    per_client: bool = False
    gradients_every: NaturalNumber = 0
    keep_best: str | None = None
    stop_when: StopRule | None = None
    engine: EngineName = "auto"
    lanes: PositiveCount = 16
    block: PositiveCount | None = None
    device: str = "cpu"
    dtype: Literal["float32", "float64"] = "float32"
    precision: Precision = "full"
    reproducible: bool = False
    compile: bool = False
    data_on: DataPlace = "auto"
    tables_in: str | None = None
    ray: RayCluster | None = None
    preprocessing: Preprocessing | None = None

    def __post_init__(self) -> None:
        # Before lists are frozen, which would take tensors for lists of numbers.
        object.__setattr__(self, "clients", in_memory(self.clients))
        if not isinstance(self.clients, ClientSource):
            raise field_error(self, "clients", f"a source of clients or their data, {ALLOWED}", self.clients)
        if not isinstance(self.algorithm, Algorithm):
            raise field_error(
                self, "algorithm", "an Algorithm, such as presets.fedavg(lr=0.1)", self.algorithm
            )
        super().__post_init__()
        if not (isinstance(self.device, str) and _DEVICE.fullmatch(self.device)):
            raise field_error(self, "device", "'cpu', 'cuda', 'cuda:<number>' or 'mps'", self.device)
        if self.keep_best is not None:
            self._require_evaluated("keep_best", self.keep_best)
        if self.stop_when is not None:
            self._require_evaluated("stop_when.metric", self.stop_when.metric)

    def _require_evaluated(self, field: str, metric: str) -> None:
        """Refuse a metric that the rounds do not evaluate; real clients have metrics of their own."""
        if not self.evaluate_every:
            raise ClashError(f"Experiment.{field} needs evaluations: set evaluate_every to 1 or more.")
        known = ["loss", *self.learning_task.named_metrics()] if self.has_task else [metric]
        if self.algorithm.solver.is_personal or self.evaluates_clients:
            known += [f"personal_{name}" for name in known]
        if metric not in known:
            error = field_error(self, field, f"one of {', '.join(map(repr, known))}", metric)
            error.args = (f"{error}{self.learning_task.how_to_add(metric)}",)
            raise error

    @property
    def has_task(self) -> bool:
        """Whether the experiment defines a model: real clients have one of their own."""
        return self.task is not None or not isinstance(self.clients, RealClients)

    @property
    def learning_task(self) -> Task:
        """The task given, or the default one of the clients' data."""
        return self.task or self.clients.default_task()

    def recorded(self) -> "Experiment":
        """The experiment as its folder records it: data, modules and functions in memory only by name and digest."""
        if isinstance(self.clients, InMemory):
            return replace(self, clients=replace(self.clients, data=None), task=self.learning_task.recorded())
        return self if self.task is None else replace(self, task=self.task.recorded())

    @property
    def is_in_memory(self) -> bool:
        """Whether a spec cannot hold the experiment, because data, modules or functions are in memory only."""
        return isinstance(self.clients, InMemory) or self.recorded() != self

    def best_so_far(self, metric: str) -> BestSoFar:
        """The best value of a metric, before the first round."""
        return BestSoFar(metric, -1 if self.minimizes(metric) else 1)

    def stopped_by(self, records: Iterable[RoundRecord]) -> str | None:
        """Why `stop_when` ends a run with these records; None if it does not."""
        rule = self.stop_rule
        return None if rule is None else rule.reason(rule.best_so_far().after(records))

    @property
    def stop_rule(self) -> StopRule | None:
        """`stop_when`, with the direction of its metric filled in."""
        rule = self.stop_when
        if rule is None or rule.minimize is not None:
            return rule
        return replace(rule, minimize=self.minimizes(rule.metric))

    def minimizes(self, metric: str) -> bool:
        """Whether smaller is better."""
        shared = metric.removeprefix("personal_")
        return self.learning_task.minimizes(shared) if self.has_task else minimizes(shared)

    @property
    def evaluates_clients(self) -> bool:
        """Whether evaluations measure each client too: `per_client`, or `holdout` of its data."""
        return self.per_client or (isinstance(self.clients, PooledSource) and self.clients.holdout > 0)

    def __repr__(self) -> str:
        method = type(self.algorithm.aggregator).__name__
        rounds = counted(self.rounds, "round")
        return f"<Experiment: {type(self.clients).__name__}, {method}, {rounds}, seed {self.seed}>"

    def display(self) -> Display:
        given = [(each.name, getattr(self, each.name)) for each in fields(self) if each.repr]
        own = {name: worded(value) for name, value in given if value != getattr(type(self), name, None)}
        return Display("Experiment", (), {"field": list(own), "value": list(own.values())})

    def overview(self, rounds: int = 20) -> "ClientOverview":
        """Data, work and arrival rates of every client, averaged over some rounds, without training."""
        from fairlead.diagnostics.clients import overview

        # In this process, because nothing is trained.
        federation = replace(self, ray=None).build()
        assert federation.world.simulation is not None
        return overview(federation.world.simulation, federation.algorithm.solver, federation.key, rounds)

    def rows(self) -> list[dict[str, Any]]:
        """Data, work and arrival rates of every client."""
        found = self.overview()
        columns = {name: values.tolist() for name, values in found.columns.items()}
        names = range(len(found.sizes)) if found.names is None else found.names.tolist()
        return [
            {"client": name, **{column: values[place] for column, values in columns.items()}}
            for place, name in enumerate(names)
        ]

    def plot(self) -> "Figure":
        """Labels, sizes, work and arrival rates of every client (needs the extra `plots`)."""
        from fairlead.diagnostics.plots import plot_overview

        return plot_overview(self.overview())

    def load(self, *, raw: bool = False) -> FederatedData:
        """The clients' data, a function of `clients`, `seed` and `preprocessing`; `raw` are those before it."""
        data = self.clients.load(Key.from_seed(self.seed).fold("data"))
        if raw or self.preprocessing is None:
            return data
        with naming(self.clients):
            return data.preprocessed(self.preprocessing)

    def weights_over(self, data: FederatedData) -> Weights:
        """The weights of the objective: as given, else as the data define them, else by examples."""
        if self.weights is not None:
            return self.weights
        return "examples" if data.weights is None else tuple(data.weights.tolist())

    def require_device(self) -> None:
        """Refuse a device that is missing or lacks the requested precision."""
        device = usable_device(self, self.device)
        Arithmetic(self.precision, self.reproducible).require_device(device, _DTYPES[self.dtype])

    def build(self, data: FederatedData | None = None) -> Federation:
        """A new federation, whose `train()` runs the experiment.

        `data` are those of `load`, if they are loaded already.
        """
        # Engines take time to import, and reading a spec needs none.
        from fairlead.worlds.simulated import SimulatedWorld

        # Before data are loaded, which may take long.
        self.require_device()
        data = self.load() if data is None else data
        with naming(self.clients):
            simulation = SimulatedWorld(
                self.learning_task,
                data.train,
                weights=self.weights_over(data),
                test=data.test,
                held_out=data.held_out,
                dtype=_DTYPES[self.dtype],
                **{name: getattr(self, name) for name in _OF_WORLD.split()},
            )
            if self.evaluate_every:
                simulation.refuse_misjudged()
        world: World = simulation
        if self.ray is not None:
            from fairlead.worlds.ray.world import RayWorld

            world = RayWorld(simulation, self.ray)
        return Federation(
            self.algorithm,
            world,
            self.seed,
            rounds=self.rounds,
            evaluate_every=self.evaluate_every,
            per_client=self.evaluates_clients,
            gradients_every=self.gradients_every,
            stop_when=self.stop_rule,
        )
