"""The records that cross between parts. Shapes: `N` clients, `c` asked, `m` arrived, `d` parameters.

Client ids are int64 tensors on the CPU, sorted; weights and coefficients are float64 on the CPU;
vectors of parameters live on the world's device in its dtype.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Literal, NamedTuple, Protocol, Self

import torch
from torch import Tensor

if TYPE_CHECKING:
    from fairlead.client_table import PartState
    from fairlead.local_solver import LocalSolver
    from fairlead.randomness import Key
    from fairlead.text import ClientNames

Vectors = Mapping[str, Tensor]
"""Named vectors of parameters, or stacks of them with one row per client."""


@dataclass(frozen=True)
class Population:
    """Facts that parts may use to set up their state: the clients and the size of the model."""

    weights: Tensor
    """ω, the objective weights: (N,) float64, sum 1."""
    layout: Mapping[str, int]
    """Names of the model's parameters and how many numbers each has, in the order of the vector."""
    device: torch.device
    dtype: torch.dtype
    names: ClientNames | None = None
    """(N,) names of clients, if their data have them."""
    tables_in: Path | None = None
    """The folder for files with a row per client; None for tables in memory."""
    self_reported: bool = False
    """Whether ω follows the sizes that clients report, which cannot be verified."""

    @property
    def num_clients(self) -> int:
        return len(self.weights)

    @property
    def num_parameters(self) -> int:
        return sum(self.layout.values())


class Forecast(Protocol):
    """Computes a per-client figure on demand, so that only methods that need it pay for it."""

    def __call__(self) -> Tensor | None: ...


def unknown() -> None:
    """The forecast of a world that cannot know."""
    return


class Poll(NamedTuple):
    """Losses of the global model that clients reported before a cohort was drawn."""

    clients: Tensor
    """(p,) the clients asked, ascending."""
    losses: Tensor
    """(p,) float64, each over its client's training data; NaN without an answer."""
    virtual_seconds: float | None = None
    """Duration on the clients' devices; None if the world has no clock."""
    device_seconds: float | None = None
    """Total computation time of the devices."""


@dataclass(frozen=True)
class Conditions:
    """Facts about the clients that the server may know before a round starts."""

    round: int
    weights: Tensor
    """ω, the objective weights: (N,) float64, sum 1."""
    forecast_work: Forecast = unknown
    forecast_arrival: Forecast = unknown
    forecast_epochs: Forecast = unknown
    """Planned passes of every client over its data (N,)."""
    repeated: tuple[int, ...] = ()
    """Rounds that a crashed server repeated, once per repetition: their models may have been published before."""
    forecast_steps: Forecast = unknown
    forecast_seconds: Forecast = unknown
    num_examples: Tensor | None = None
    """Examples that every client holds (N,), or None if unknown."""
    poll: Poll | None = None
    """Losses that clients reported for this round, if the sampler asked for them."""

    @classmethod
    def known(
        cls, round: int, weights: Tensor, work: Tensor, arrival: Tensor, num_steps: Tensor | None = None
    ) -> Self:
        """Conditions with the given work, arrival rates and local steps, (N,) each; an epoch counts as `work`."""
        return cls(
            round, weights, lambda: work, lambda: arrival, lambda: work, forecast_steps=lambda: num_steps
        )

    @cached_property
    def effective_steps(self) -> Tensor | None:
        """Planned ‖a‖₁ of every client (N,), or None if unknown."""
        return self.forecast_work()

    def in_epochs(self) -> Self:
        """The same conditions with work counted in passes over the data, as `effective_steps`."""
        return replace(self, forecast_work=self.forecast_epochs)

    @cached_property
    def num_steps(self) -> Tensor | None:
        """Planned local steps of every client (N,), or None if unknown."""
        return self.forecast_steps()

    @cached_property
    def seconds(self) -> Tensor | None:
        """Planned duration of every client's work with its transmission (N,), or None if unknown."""
        return self.forecast_seconds()

    @cached_property
    def arrival(self) -> Tensor | None:
        """1 − q, the probability that an update arrives (N,), or None if unknown."""
        return self.forecast_arrival()


@dataclass(frozen=True)
class Cohort:
    """The clients asked to work in a round."""

    clients: Tensor
    """(c,) distinct ids, ascending."""
    multiplicity: Tensor
    """(c,) how often each was drawn: it works once and counts that often."""
    importance: Tensor
    """(c,) the coefficient of each update in the sampler's estimate Σ importance·delta of Σ ω·delta.

    It includes the multiplicity. Aggregators may use it unchanged, or normalize it over arrivals.
    """


@dataclass(frozen=True)
class Broadcast:
    """What every client of a round is sent."""

    round: int
    solver: LocalSolver
    anchor: Tensor
    """(d,) global parameters that every client starts from."""
    buffers: Tensor
    """Global running statistics of the model (BatchNorm), flat; empty for most models."""
    shared: Vectors
    """Vectors that the corrections broadcast."""


class Buffering(NamedTuple):
    """Asynchronous rounds: a round ends when its buffer is full, and the other clients go on working."""

    size: int
    """Updates in a full buffer, at most one of each client."""
    concurrency: int | None
    """Clients at work at the same time; None: all."""
    max_age: int | None
    """Rounds after which an update is too old to count; None: never."""

    def places(self, num_clients: int) -> int:
        """Clients at work at the same time, of so many."""
        return num_clients if self.concurrency is None else min(self.concurrency, num_clients)


@dataclass(frozen=True)
class NeededSums:
    """The sums over clients that a server needs if secure aggregation hides the rows from it."""

    weights: Callable[[ClientUpdates], Mapping[str, Tensor]]
    """Weights (k, m) of the sums of "delta", "buffers", "messages" and "loss", from updates without these rows."""
    clip: float | None = None
    """Length to which clients clip their updates themselves."""


@dataclass(frozen=True)
class WorkOrder(Broadcast):
    """The work of a round: what is sent, to whom, and what the world needs for it."""

    cohort: Cohort
    memory: PartState
    """The clients' memory, which the world keeps between rounds."""
    key: Key
    buffering: Buffering | None = None
    """For asynchronous rounds: the cohort are then candidates, who start as soon as others finish."""
    flight: PartState = field(default_factory=dict)
    """The work that has not arrived yet, as the world keeps it."""
    sums: NeededSums | None = None
    """Set under secure aggregation; a simulated world hides nothing."""


@dataclass(frozen=True)
class Refusal:
    """Why a client's reply was refused and became an absent row."""

    client: int | None
    """None if the sender is unknown."""
    reason: str
    """A value of `reply_checks.Reason`; for real clients also a word of the world (late, busy, failed) or their own."""
    sentence: str


@dataclass(frozen=True)
class ClientUpdates:
    """The updates of a round: only the rows that arrived, ascending by client; m may be 0."""

    cohort: Cohort
    """The clients asked."""
    clients: Tensor
    """(m,) ids."""
    importance: Tensor
    """(m,) as in the cohort."""
    delta: Tensor
    """(m, d) local − anchor: displacements, already scaled by the client's learning rate."""
    num_steps: Tensor
    """(m,) local steps taken, at least 1."""
    effective_steps: Tensor | None
    """(m,) ‖a‖₁; None for a solver that is not linear in the gradient."""
    loss: Tensor
    """(m,) mean training loss over the local steps."""
    num_examples: Tensor
    """(m,) examples held."""
    messages: Vectors
    """Extra uploads of the corrections, (m, ·) each."""
    memory: Vectors
    """The new memory of each client if the server accepts its update, (m, ·) each."""
    buffers: Tensor
    """(m, b) running statistics after local work."""
    age: Tensor
    """(m,) rounds between the anchor that the client started from and now."""
    lr: float
    """The clients' learning rate of this round, before any schedule by step."""
    virtual_seconds: float | None = None
    """Duration of the round on the clients' devices; None if the world has no clock."""
    device_seconds: float | None = None
    """Total computation time of the devices of all clients asked."""
    refused: tuple[Refusal, ...] = ()
    """Replies that arrived and were refused."""
    flight: PartState = field(default_factory=dict)
    """In asynchronous rounds, the work that goes on: "clients" (C,), -1 for a free place, and what else the world
    needs. `cohort` are then the clients that started in this round, of whom some arrive in later ones."""
    masked_bytes: int | None = None
    """Size of the masked uploads of which only sums are known; the rows then stand in for them, with the same sums."""

    @staticmethod
    def of(
        cohort: Cohort,
        places: Tensor,
        delta: Tensor,
        num_steps: Tensor,
        effective_steps: Tensor | None,
        *,
        lr: float,
        loss: Tensor | None = None,
        num_examples: Tensor | None = None,
        buffers: Tensor | None = None,
        messages: Vectors | None = None,
        memory: Vectors | None = None,
        age: Tensor | None = None,
        virtual_seconds: float | None = None,
        device_seconds: float | None = None,
        refused: tuple[Refusal, ...] = (),
    ) -> ClientUpdates:
        """The updates of the clients at `places` of a cohort, as positions or as a mask.

        Unless given: loss 0, one example each, no buffers, messages or memory, and age 0.
        """
        clients = cohort.clients[places]
        return ClientUpdates(
            cohort,
            clients,
            cohort.importance[places],
            delta,
            num_steps,
            effective_steps,
            loss=delta.new_zeros(len(clients)) if loss is None else loss,
            num_examples=torch.ones_like(clients) if num_examples is None else num_examples,
            messages=messages or {},
            memory=memory or {},
            buffers=delta.new_zeros((len(clients), 0)) if buffers is None else buffers,
            age=torch.zeros_like(clients) if age is None else age,
            lr=lr,
            virtual_seconds=virtual_seconds,
            device_seconds=device_seconds,
            refused=refused,
        )

    def __len__(self) -> int:
        return len(self.clients)


class ClientWeights(NamedTuple):
    """Numbers for some of the clients."""

    clients: Tensor
    weights: Tensor


@dataclass(frozen=True)
class Aggregate:
    """The result of an aggregator for a round's updates."""

    direction: Tensor
    """(d,) the server's direction before transforms and server optimizer."""
    state: PartState
    coefficients: Tensor | None
    """(m,) weight of each row that arrived; None if no single number describes it."""
    remembered: ClientWeights | None = None
    """Weights of rows that the aggregator remembers from earlier rounds, if any: in a round without arrivals, the
    server moves only if there are some."""
    facts: Mapping[str, float] = field(default_factory=dict)
    shares: ClientWeights | None = None
    """λ: weights over all clients that the direction follows, if there are any. Samplers may draw by them."""


@dataclass(frozen=True)
class Transformed:
    """The result of a direction transform."""

    direction: Tensor
    state: PartState
    facts: Mapping[str, float] = field(default_factory=dict)
    remembered: ClientWeights | None = None
    """Weights of remembered updates, if the direction now follows them instead of the aggregate."""
    shares: ClientWeights | None = None
    """As in `Aggregate`."""


class NotKnown(NamedTuple):
    """The answer of a part that has no theory for a question, with the reason in a sentence."""

    reason: str


class Participation(NamedTuple):
    """What a sampler does on average in a round under given conditions."""

    importance: Tensor
    """E[importance_i], 0 where the client is not asked, (N,)."""
    asked: Tensor | None
    """Chance of being asked, (N,); None where it depends on the updates."""
    settled: bool = True
    """False if the figures hold only once the sampler has learned them."""
    age: Tensor | None = None
    """Mean age of an update that arrives, in rounds (N,); None for rounds that wait for their clients."""


Exactness = Literal["exact", "sampled", "large cohorts", "long run"]
"""How a mean coefficient is meant: exactly; up to the noise of random cohorts and arrivals, a few thousandths;
up to O(1/cohort), where one random sum is divided by another; once memories are full and estimates have settled."""


class MeanCoefficients(NamedTuple):
    """Mean coefficients of one round."""

    coefficients: Tensor
    """C, (N,)."""
    exactness: Exactness
    remembers: bool = False
    """Whether an update counts until the next one of the same client arrives."""


@dataclass(frozen=True, eq=False)
class ExpectedRound(ABC):
    """A round before it runs, as the theory of an aggregator sees it (`theory.prediction` computes it)."""

    conditions: Conditions
    participation: Participation
    arrival: Tensor
    """1 − q, (N,)."""
    work: Tensor
    """Planned ‖a‖₁, (N,)."""

    @property
    def reachable(self) -> Tensor:
        """1 for clients whose updates can count, 0 for all others, (N,)."""
        return (self.participation.importance * self.arrival > 0).to(torch.float64)

    @abstractmethod
    def mean_of(
        self, coefficients: Callable[[ClientUpdates, Conditions], Tensor]
    ) -> MeanCoefficients | NotKnown:
        """E[coefficient_i] of a linear aggregator, whose name completes the reason if they are not known."""


@dataclass(frozen=True, eq=False)
class Contributions:
    """What each client adds to a round on average, predicted or measured; all (N,) float64."""

    weights: Tensor
    """ω."""
    coefficient: Tensor
    """C, the weight that its updates get."""
    mass: Tensor
    """C‖a‖₁, the local gradient steps that get through."""
    work: Tensor
    """Mean ‖a‖₁ of an update that arrives; 0 if none does."""
    echoed: Tensor
    """‖a‖₁ times the rounds since the client last arrived, per round: FedAWE multiplies its work by that."""
    steady: bool
    """Whether every client does the same work in every round."""


Averaging = Literal["weights", "importance", "other"]
"""How the server averages the arrivals: in proportion to ω, to their importance, or in another way."""


class Limit(NamedTuple):
    """The objective that a method minimizes."""

    weights: Tensor | None
    """Ω, (N,); None where there are no such weights, or none that are known."""
    explanation: str
    exact: bool = False
    """Whether it holds for every learning rate, and not only to first order in it."""


@dataclass(frozen=True)
class ServerState:
    """Everything that the next round needs, and that a checkpoint holds."""

    round: int
    params: Tensor
    buffers: Tensor
    shared: Vectors
    sampler: PartState
    aggregator: PartState
    transforms: tuple[PartState, ...]
    server: PartState
    memory: PartState
    flight: PartState = field(default_factory=dict)


@dataclass(frozen=True)
class Evaluation:
    """Loss and metrics of the global model over all clients' data or a test set."""

    loss: float
    metrics: Mapping[str, float]
    client_loss: tuple[float, ...] | None = None
    client_metrics: Mapping[str, tuple[float, ...]] = field(default_factory=dict)

    def of_clients(self, name: str) -> tuple[float, ...]:
        """A figure of every client; "personal_accuracy" is "accuracy" where clients have no models of their own."""
        if name == "loss":
            return self.client_loss or ()
        shared = name.removeprefix("personal_")
        if name in self.client_metrics or shared == name:
            return tuple(self.client_metrics.get(name, ()))
        return self.of_clients(shared)

    def overall(self, name: str) -> float | None:
        """A figure of the global model, or the mean of clients' own models for "personal_accuracy"."""
        if name in self.metrics or not name.startswith("personal_"):
            return self.metrics.get(name)
        known = [value for value in self.of_clients(name) if math.isfinite(value)]
        return sum(known) / len(known) if known else None


@dataclass(frozen=True)
class GradientFigures:
    """Figures of the full gradients ∇F_i of all clients at a model (`diagnostics.gradient_figures`)."""

    norm: float
    """‖Σ ω_i∇F_i‖: 0 where the objective asked for is stationary."""
    diversity: float
    """D, the gradient diversity (Zeng 2023 (3)); inf where only the mean is 0."""
    surrogate_norm: float | None = None
    """‖Σ λ̃_i∇F_i‖ with the weights of the round's own step; None if they are unknown."""
    surrogate_diversity: float | None = None
    """D̃, the surrogate gradient diversity under them (Zeng 2023 (6))."""


@dataclass(frozen=True)
class RoundRecord:
    """Facts of one round for people, plots and diagnostics; the algorithm never reads it."""

    round: int
    asked: tuple[int, ...]
    multiplicity: tuple[int, ...]
    arrived: tuple[int, ...]
    num_steps: tuple[int, ...]
    effective_steps: tuple[float, ...] | None
    coefficients: tuple[float, ...] | None
    """Weight of each update that arrived; None if no single number describes it."""
    remembered: Mapping[int, float]
    """Weights given to clients' remembered updates, by client: λ of AWARE, as aggregator or as projection."""
    train_loss: float | None
    """Mean training loss of the arrivals by importance; None in an empty round."""
    direction_norm: float
    step_norm: float
    elud: float | None
    """e-LUD of the received updates (Zeng 2025); None in an empty round, inf if their mean is zero."""
    bytes_down: int
    bytes_up: int
    facts: Mapping[str, float] = field(default_factory=dict)
    evaluation: Evaluation | None = None
    virtual_seconds: float | None = None
    """Duration of the round on the clients' devices; None if the world has no clock."""
    device_seconds: float | None = None
    """Total computation time of the devices of all clients asked: the computation time of Weng 2025."""
    client_lr: float | None = None
    """The clients' learning rate of the round, before any schedule by step; None in an empty round."""
    lud: float | None = None
    """LUD of the received updates under the objective's weights as sampled (Zeng 2025 (5)); as `elud` otherwise."""
    consensus: float | None = None
    """‖Σ λ_i g_i‖² under the same weights, one draw of the client consensus dynamics ρᵗ (Zeng 2025)."""
    coherence: float | None = None
    """Client coherence, Σ_{i<j} cos(g_i, g_j) over the received updates (Zeng 2025); None in an empty round."""
    update_norm: float | None = None
    """Mean ‖g_i‖ of the received updates; None in an empty round."""
    drift_norm: float | None = None
    """Mean ‖g_i − mean g‖ of the received updates; None in an empty round."""
    gradients: GradientFigures | None = None
    """Of the model after the round; None unless requested for this round."""
    refused: tuple[Refusal, ...] = ()
    """Refused updates with reasons; their clients count as asked and not arrived."""
    late: Mapping[int, int] = field(default_factory=dict)
    """Age in rounds, by client, of updates that were asked for in an earlier round."""
    seconds: float = field(default=0.0, compare=False)
    """Of the whole round, preparation of the next one included."""


NOTHING_MEASURED = RoundRecord(0, (), (), (), (), None, None, {}, None, 0.0, 0.0, None, 0, 0)
"""A round without clients and figures, to which records from elsewhere add those that they have."""


class StoredRecords(Sequence[RoundRecord]):
    """Records of a run outside of memory, oldest first."""

    @abstractmethod
    def append(self, record: RoundRecord) -> None:
        """Add the record of the round that has just ended."""


@dataclass(frozen=True)
class PathRun:
    """How local work was computed: facts for provenance."""

    path: str
    """Of `worlds.engines.paths.PATHS`."""
    backend: str
    """"torch", "numba" or "triton", with ", CUDA graph" where steps were captured."""
    lanes: int
    """Clients side by side, at most."""
    precision: str
    """Of products: the type of the parameters, "tf32" or "bfloat16"."""
    blocks: int = 1
    """Blocks of clients, of which a round has one or more."""

    def __str__(self) -> str:
        lanes = "1 lane" if self.lanes == 1 else f"{self.lanes} lanes"
        return f"{self.path} ({self.backend}), {lanes}, {self.precision}"

    @staticmethod
    def tally(runs: Iterable[PathRun]) -> tuple[PathRun, ...]:
        """One entry for each path, with its most lanes and all its blocks."""
        found: dict[tuple[str, str, str], PathRun] = {}
        for run in runs:
            key = run.path, run.backend, run.precision
            before = found.get(key, replace(run, blocks=0))
            lanes = max(before.lanes, run.lanes)
            found[key] = replace(run, lanes=lanes, blocks=before.blocks + run.blocks)
        return tuple(found.values())
