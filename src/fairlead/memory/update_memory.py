"""The server's memory of clients' updates: a moving average per client or cluster, and AWARE's hull of them."""

from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Literal, NamedTuple, Protocol

import torch
from torch import Tensor

from fairlead.client_table import ClientTable, PartState, table_in, tensor_in
from fairlead.component import BelowOne, Component, NotNegative, PositiveShare
from fairlead.errors import FieldError, did_you_mean, field_error
from fairlead.numerics.minimum_norm import ShortestPoint, shortest_in_ridged_hull
from fairlead.numerics.rows import combination, inner_products
from fairlead.randomness import Key
from fairlead.records import ClientUpdates, ClientWeights, Conditions, Population

FirstVisit = Literal["update", "scaled"]

_AT_ONCE, _AT_ONCE_ON_GPU = 2**20, 2**28
"""Numbers averaged at a time: on a CPU, allocating more costs more than the arithmetic; on a GPU, every operation has a
fixed cost."""


@dataclass(frozen=True)
class UpdateMemory(Component):
    """How clients' updates are remembered; Zeng 2025 names the first two ways to save space.

    - `layers`: patterns of parameter names, such as "fc2.*"; only these parameters are remembered. All if
      empty. The part that remembers decides how to treat the others.
    - `clusters`: one cluster id per client; the members of a cluster share one memory, updated with the
      mean of their updates that arrived. One memory per client if empty.
    - `dtype`: "model", or "bfloat16" for half or a quarter of the space. Then changes below one part in 512 of a
      client's memory may be rounded away.
    - `folder`: rows are in a file in this folder, mapped into memory and deleted with the run. By default they are in
      memory, on the model's device.
    - `credit`: "own" files every update under its client. "exchanged" files the updates of a round under clients of
      the same round in random order. This is a mistake of FedAWARE's released code, whose clients train in ascending
      order and are filed in the order drawn. It happens to regularize: every row becomes a mixture of clients.

    With n rows of d parameters the memory takes n·d numbers of its type.
    """

    layers: tuple[str, ...] = ()
    clusters: tuple[int, ...] = ()
    dtype: Literal["model", "bfloat16"] = "model"
    folder: str | None = None
    credit: Literal["own", "exchanged"] = "own"

    references = ("zeng2025fedaware",)

    def __post_init__(self) -> None:
        super().__post_init__()
        if any(not isinstance(pattern, str) for pattern in self.layers):
            raise field_error(self, "layers", "patterns of parameter names", self.layers)
        if any(not isinstance(cluster, int) or isinstance(cluster, bool) for cluster in self.clusters):
            raise field_error(self, "clusters", "one whole number per client", self.clusters)

    def columns(self, population: Population) -> Tensor:
        """First and last-plus-one entry of each remembered parameter in the flat vector, (·, 2)."""
        names = list(population.layout)
        for pattern in self.layers:
            if not any(fnmatchcase(name, pattern) for name in names):
                raise FieldError(
                    f"UpdateMemory.layers must match names of parameters, got {pattern!r}."
                    + did_you_mean(pattern, names)
                )
        if not self.layers:
            return torch.tensor([[0, population.num_parameters]])
        ends = torch.tensor(list(population.layout.values())).cumsum(0).tolist()
        kept = [any(fnmatchcase(name, pattern) for pattern in self.layers) for name in names]
        spans = zip([0, *ends[:-1]], ends, kept, strict=True)
        return torch.tensor([[first, last] for first, last, keep in spans if keep])

    def row_of(self, num_clients: int) -> Tensor:
        """Which row each client writes to, (N,): its own, or its cluster's."""
        if not self.clusters:
            return torch.arange(num_clients)
        if len(self.clusters) != num_clients:
            raise FieldError(
                f"UpdateMemory.clusters must have one id for each of {num_clients} clients, got "
                f"{len(self.clusters)}."
            )
        _, row_of = torch.unique(torch.tensor(self.clusters), return_inverse=True)
        return torch.as_tensor(row_of)

    def credited(self, clients: Tensor, round: int) -> Tensor:
        """The clients under which the updates of `clients` are filed, drawn by the key of the round."""
        if self.credit == "own":
            return clients
        order = Key.from_seed(0).fold("credit", round).generator().permutation(len(clients))
        return clients[torch.from_numpy(order)]

    def table(self, population: Population) -> ClientTable:
        """An empty table of such rows."""
        columns = self.columns(population)
        return ClientTable.create(
            int(self.row_of(population.num_clients).max()) + 1,
            int((columns[:, 1] - columns[:, 0]).sum()),
            dtype=torch.bfloat16 if self.dtype == "bfloat16" else population.dtype,
            device=population.device,
            folder=population.tables_in if self.folder is None else Path(self.folder),
        )


class Remembers(Protocol):
    """A part with a moving average of updates, whose weight is given in one of two ways."""

    @property
    def alpha(self) -> float | None: ...

    @property
    def retention(self) -> float | None: ...

    @property
    def first_visit(self) -> FirstVisit: ...

    @property
    def memory(self) -> UpdateMemory: ...


def resolve_alpha(part: Remembers) -> None:
    """Express the moving average of a part that remembers by `alpha` alone.

    Zeng 2025 writes α for the share of the new update, Zeng 2023 for the share of the old memory; here the first
    is `alpha` and the second is `retention` = 1 − `alpha`. Both papers use ½, the default.
    """
    if part.alpha is not None and part.retention is not None:
        raise FieldError(
            f"{type(part).__name__} takes alpha, the share of the new update (Zeng 2025), or retention, the share "
            f"of the memory (Zeng 2023), not both; got alpha={part.alpha} and retention={part.retention}."
        )
    if part.retention is not None:
        object.__setattr__(part, "alpha", 1.0 - part.retention)
        object.__setattr__(part, "retention", None)
    if part.alpha is None:
        object.__setattr__(part, "alpha", 0.5)


@dataclass(frozen=True)
class MovingAverages:
    """A moving average m_i of every client's updates, in a table that grows with the clients seen.

        m_i ← (1 − α) m_i + α Δ_i   for the clients that arrived; others keep theirs     (Zeng 2025 (3))

    At the first visit m_i ← Δ_i (`first_visit` = "update"), as the analysis of Zeng 2025 assumes with
    ‖m⁰ − g⁰‖ = 0, or m_i ← αΔ_i ("scaled"), which is (3) from m_i = 0 and what released code does. Short rows
    count most where a norm is minimized, so the second favors newcomers.
    """

    alpha: float
    first_visit: FirstVisit
    memory: UpdateMemory

    def init(self, population: Population) -> PartState:
        return {"averages": self.memory.table(population), "columns": self.memory.columns(population)}

    def renew(
        self, state: PartState, updates: ClientUpdates, conditions: Conditions
    ) -> tuple[PartState, Tensor]:
        """Take in the updates that arrived: the new state, and the ids of the rows that changed."""
        table = table_in(state, "averages")
        owner = self.memory.row_of(len(conditions.weights))[
            self.memory.credited(updates.clients, conditions.round)
        ]
        fresh = remembered_part(state, updates.delta)
        changed = owner
        if self.memory.clusters:
            changed, member = torch.unique(owner, return_inverse=True)
            fresh = _cluster_shares(member, updates.importance, len(changed)).to(fresh) @ fresh
        table.make_room(changed)
        at_once = _AT_ONCE_ON_GPU if fresh.is_cuda else _AT_ONCE
        size = max(1, at_once // max(table.dim, 1))
        for first in range(0, len(changed), size):
            table = self._averaged(table, changed[first : first + size], fresh[first : first + size])
        return {**state, "averages": table}, changed

    def _averaged(self, table: ClientTable, changed: Tensor, fresh: Tensor) -> ClientTable:
        """The table after some of its rows took in fresh updates."""
        # What the table hands out is a copy, which may be changed in place.
        rows = table.read(changed).to(fresh).lerp_(fresh, self.alpha)
        new = table.positions(changed) < 0
        if self.first_visit == "update" and bool(new.any()):
            new = new.to(fresh.device)
            rows[new] = fresh[new]
        return table.write(changed, rows)

    def all_seen(self, state: PartState, weights: Tensor) -> bool:
        """Whether every client (or cluster) of positive weight has arrived once."""
        needed = self.memory.row_of(len(weights))[weights > 0]
        return bool((table_in(state, "averages").positions(needed) >= 0).all())

    def combined(self, state: PartState, coefficients: Tensor, like: Tensor) -> Tensor:
        """Σ coefficient_i m_i over all rows seen, in their order, in the type and on the device of `like`."""
        return combination(coefficients, table_in(state, "averages").rows, like=like)

    def by_client(self, state: PartState, coefficients: Tensor, weights: Tensor) -> ClientWeights:
        """Coefficients of rows as coefficients of clients; a cluster's is shared out by ω."""
        rows = torch.zeros(table_in(state, "averages").num_clients, dtype=torch.float64)
        rows[table_in(state, "averages").clients] = coefficients
        row_of = self.memory.row_of(len(weights))
        share = torch.ones_like(weights)
        if self.memory.clusters:
            totals = torch.zeros_like(rows).index_add_(0, row_of, weights)
            share = weights / totals[row_of].clamp(min=torch.finfo(weights.dtype).tiny)
        spread = rows[row_of] * share
        clients = spread.nonzero()[:, 0]
        return ClientWeights(clients, spread[clients])


def averages_of(part: Remembers) -> MovingAverages:
    """The moving averages that a part's fields describe."""
    assert part.alpha is not None, "resolve_alpha has been called"
    return MovingAverages(part.alpha, part.first_visit, part.memory)


def _cluster_shares(member: Tensor, importance: Tensor, num_clusters: int) -> Tensor:
    """Importance as shares within each cluster, equal where all are zero: (clusters, m)."""
    shares = torch.zeros((num_clusters, len(member)), dtype=torch.float64)
    each = torch.arange(len(member))
    shares[member, each] = importance
    empty = shares.sum(1) == 0
    shares[member, each] += empty[member].to(shares)
    return shares / shares.sum(1, keepdim=True)


def remembered_part(state: PartState, vectors: Tensor) -> Tensor:
    """The remembered entries of one or many flat vectors, (..., d) to (..., kept)."""
    spans = tensor_in(state, "columns").tolist()
    if len(spans) == 1:
        return vectors[..., spans[0][0] : spans[0][1]]
    return torch.cat([vectors[..., first:last] for first, last in spans], dim=-1)


def remembers_everything(state: PartState, dim: int) -> bool:
    """Whether no parameter is left out of the memory."""
    spans: list[list[int]] = tensor_in(state, "columns").tolist()
    return spans == [[0, dim]]


def with_remembered_part(state: PartState, vector: Tensor, part: Tensor) -> Tensor:
    """A flat vector with its remembered entries replaced."""
    if remembers_everything(state, len(vector)):
        return part
    spans = tensor_in(state, "columns").tolist()
    vector = vector.clone()
    pieces = torch.split(part, [last - first for first, last in spans])
    for (first, last), piece in zip(spans, pieces, strict=True):
        vector[first:last] = piece
    return vector


Start = Literal["seen", "all_seen", "zero"]
RowLength = Literal["raw", "unit", "equal"]


_SOLVED_ON_HOST = 500
"""Rows up to which λ is sought on the host: a device takes as long for a short operation as for a long one. Of 100 rows
two cores were a millisecond faster than a GPU, of 1,000 ten slower."""


class Recalled(NamedTuple):
    """The proposal of the memory after a round."""

    state: PartState
    ready: bool
    """Whether the method has started; if not, there is no proposal yet."""
    coefficients: Tensor
    """Coefficients of the remembered averages in d, (rows seen,) float64, in the order of the table."""
    point: ShortestPoint | None
    """The solution; None if unseen clients make d zero."""

    @property
    def facts(self) -> dict[str, float]:
        """Facts for the round record."""
        facts = {"aware_seen": float(len(self.coefficients))}
        if self.ready and self.point is not None:
            facts["aware_gap"] = self.point.gap
            facts["aware_support"] = float(self.point.support)
            facts["aware_squared_norm"] = self.point.squared_norm
        return facts

    @property
    def is_zero(self) -> bool:
        """Whether d is zero: everything cancels, or unseen clients count as zero."""
        return self.point is None or self.point.is_zero


@dataclass(frozen=True)
class AwareMemory:
    """Moving averages of updates with their inner products, kept so that a round costs only what changed.

        d = Σ λ_i m_i  with  λ = argmin ‖Σ λ_i m_i‖² over the simplex               (Zeng 2025 (2))

    Parts that follow d derive from it; `FedAWARE` describes the fields.

    The inner products are float64 and part of the state: rebuilt from the rows, a resumed run would differ in its last
    bits.
    """

    alpha: PositiveShare | None = None
    retention: BelowOne | None = None
    start: Start = "seen"
    first_visit: FirstVisit = "update"
    rows: RowLength = "raw"
    memory: UpdateMemory = UpdateMemory()
    rho: NotNegative = 0.0

    @property
    def averages(self) -> MovingAverages:
        """The moving averages that these fields describe."""
        return averages_of(self)

    def shares(self, recalled: Recalled, weights: Tensor) -> ClientWeights | None:
        """λ by client, where something was solved."""
        if recalled.point is None:
            return None
        return self.averages.by_client(recalled.state, recalled.point.weights.cpu(), weights)

    def init(self, population: Population) -> PartState:
        averages = self.averages.init(population)
        table = table_in(averages, "averages")
        size, device = table.num_clients, table.rows.device
        return {
            **averages,
            "products": ClientTable.create(size, size, dtype=torch.float64, device=device),
            "lambda": torch.zeros(size, dtype=torch.float64),
        }

    def recall(self, state: PartState, updates: ClientUpdates, conditions: Conditions) -> Recalled:
        """Take in a round's updates and find d."""
        weights = conditions.weights
        state, changed = self.averages.renew(state, updates, conditions)
        table = table_in(state, "averages")
        gram, products = _with_new_products(table_in(state, "products"), table, changed)
        state = {**state, "products": products}
        none = torch.zeros(len(table.clients), dtype=torch.float64)
        if self.start != "seen" and not self.averages.all_seen(state, weights):
            return Recalled(state, self.start == "zero", none, None)
        if len(gram) <= _SOLVED_ON_HOST:
            gram = gram.cpu()
        scale = gram.new_ones(len(gram))
        if self.rows != "raw":
            lengths = gram.diagonal().clamp(min=0).sqrt()
            scale = torch.where(lengths > 0, (lengths.mean() if self.rows == "equal" else 1) / lengths, 0.0)
            gram.mul_(scale[:, None]).mul_(scale)
        last = tensor_in(state, "lambda")
        point = shortest_in_ridged_hull(gram, self.rho, last[table.clients])
        shares = torch.zeros_like(last)
        shares[table.clients] = point.weights.cpu()
        return Recalled({**state, "lambda": shares}, True, (point.weights * scale).cpu(), point)


def _with_new_products(
    products: ClientTable, averages: ClientTable, changed: Tensor
) -> tuple[Tensor, ClientTable]:
    """A copy of all inner products of the rows seen, those of changed rows recomputed."""
    seen, at = averages.clients, averages.positions(changed)
    fresh = inner_products(averages.rows, at)
    full = products.read(seen)
    full[:, changed] = fresh.mT
    full[at[:, None], seen] = fresh
    return full[:, seen], products.write(seen, full)
