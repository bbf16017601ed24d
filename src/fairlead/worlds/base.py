"""The role `World`: the clients that an algorithm faces, simulated or real."""

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Literal, NamedTuple

import torch
from torch import Tensor, nn

from fairlead.client_table import PartState
from fairlead.errors import ClashError, FieldError, did_you_mean, short
from fairlead.local_solver import LocalSolver
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
    WorkOrder,
)
from fairlead.text import ClientNames, label

if TYPE_CHECKING:
    from fairlead.worlds.simulated import SimulatedWorld

Weights = str | Sequence[float] | Tensor
EngineName = Literal["auto", "loop", "batched", "branches"]
"""One client after another, side by side in shared products, or side by side with a pass each."""
DataPlace = Literal["auto", "device", "host"]
"""Where the clients' examples lie between rounds."""


def objective_weights(weights: Weights, sizes: Tensor, names: ClientNames | None = None) -> Tensor:
    """ω as float64 that sum to 1."""
    if isinstance(weights, str):
        if weights not in ("examples", "uniform"):
            raise FieldError(
                f"SimulatedWorld.weights must be 'examples', 'uniform' or one number per client, got "
                f"{weights!r}." + did_you_mean(weights, ("examples", "uniform"))
            )
        values = sizes.to(torch.float64) if weights == "examples" else (sizes > 0).to(torch.float64)
    else:
        values = torch.as_tensor(weights, dtype=torch.float64, device="cpu")
    if values.shape != sizes.shape:
        raise FieldError(
            f"SimulatedWorld.weights must have one number per client ({len(sizes)}), got {_counted(values)}."
        )
    total = values.sum()
    if not bool(torch.isfinite(total)) or bool((values < 0).any()) or total <= 0:
        raise FieldError(
            "SimulatedWorld.weights must be finite, at least 0 and not all 0, with a finite sum, got "
            f"{short(values.tolist())}."
        )
    if bool(((values > 0) & (sizes == 0)).any()):
        client = int(((values > 0) & (sizes == 0)).nonzero()[0])
        raise FieldError(
            f"SimulatedWorld.weights must be 0 for a client without examples, got {values[client]:g} for "
            f"{label(client, names)}."
        )
    return values / total


def _counted(values: Tensor) -> str:
    return str(len(values)) if values.ndim == 1 else f"an array of shape {tuple(values.shape)}"


class Workings(NamedTuple):
    """How a world computes, for people."""

    device: torch.device
    engine: str
    reason: str
    """Why this engine."""
    paths: tuple[PathRun, ...] = ()
    """The paths that ran so far."""


class World(ABC):
    """Clients with data and private memory, unequal work and unequal links."""

    @property
    @abstractmethod
    def population(self) -> Population:
        """How many clients, with which objective weights, and how large the model is."""

    @property
    @abstractmethod
    def description(self) -> str:
        """What decides the numbers of a run beside algorithm, seed and ω: resuming requires the same description."""

    @property
    def simulation(self) -> "SimulatedWorld | None":
        """The simulated world that this is, or whose clients it trains in other processes; None for real clients."""
        return None

    @abstractmethod
    def initial_model(self, key: Key) -> tuple[Tensor, Tensor]:
        """Parameters (d,) and running statistics (b,) before the first round."""

    def initial_memory(self, solver: LocalSolver) -> PartState:
        """What the world keeps for its clients before the first round; nothing, unless a world says otherwise."""
        return {}

    def initial_flight(self, buffering: Buffering, solver: LocalSolver) -> PartState:
        """What the world keeps of clients that go on working after a round, before the first round."""
        raise ClashError(
            f"{type(self).__name__} has no asynchronous rounds, which BufferedSampling needs: use another sampler, "
            "or run the method in simulation or by make_server_app."
        )

    @abstractmethod
    def conditions(self, round: int, solver: LocalSolver, key: Key) -> Conditions:
        """What the server may know before it draws a cohort."""

    @abstractmethod
    def work(self, order: WorkOrder) -> ClientUpdates:
        """Let the cohort work and return what arrived, ascending by client."""

    def commit(
        self, order: WorkOrder, updates: ClientUpdates, params: Tensor, direction: Tensor
    ) -> PartState:
        """Let the clients that arrived keep what they learned: the memory of the next order.

        `params` are the new global ones, and `direction` is the aggregate of the round. Clients whose update
        was lost are not told, and start again from what they had.
        """
        return order.memory

    @abstractmethod
    def module(self, params: Tensor, buffers: Tensor) -> nn.Module:
        """A module of its own with the given parameters (d,) and running statistics (b,)."""

    @abstractmethod
    def evaluate(self, params: Tensor, buffers: Tensor, *, per_client: bool = False) -> Evaluation:
        """How good the global model is."""

    def personal_models(
        self, solver: LocalSolver, state: ServerState, key: Key, clients: Tensor | None = None
    ) -> Iterator[tuple[int, Tensor, Tensor]]:
        """Client, parameters (d,) and running statistics (b,) of the models that clients use themselves."""
        raise ClashError("The clients' own models stay with them: only a simulated world knows them.")

    def evaluate_personal(self, solver: LocalSolver, state: ServerState, key: Key) -> Evaluation | None:
        """How good the model of each client is for its own data; None if the world cannot know."""
        return None

    def objective_at(self, params: Tensor, buffers: Tensor) -> float:
        """Σ ω_i F_i, the loss that was asked for, over the clients' training data if they can be asked for it."""
        return self.evaluate(params, buffers).loss

    def poll(self, clients: Tensor, params: Tensor, buffers: Tensor, round: int) -> Poll:
        """Ask clients for the loss of a model over their training data."""
        raise ClashError(
            "The sampler asks clients for their loss before it draws, which the clients of this world cannot be asked: "
            "use a sampler that does not ask, such as UniformWithoutReplacement."
        )

    @property
    def workings(self) -> Workings:
        """Where and by what clients are computed."""
        return Workings(self.population.device, type(self).__name__, "clients compute at their own nodes")

    @property
    def prefetches(self) -> bool:
        """Whether `work` may return before its results are ready, and drawing a cohort is cheap.

        There is then time to prepare the next round.
        """
        return False

    def prefetch(self, round: int, solver: LocalSolver, key: Key, cohort: Cohort) -> None:
        """Prepare for a cohort that will probably be asked in the next round; no number depends on it."""
        raise NotImplementedError
