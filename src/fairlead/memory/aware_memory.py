"""AWARE: the shortest vector in the convex hull of clients' remembered updates."""

from dataclasses import dataclass
from typing import Literal, NamedTuple, Protocol

import torch
from torch import Tensor

from fairlead.client_table import ClientTable, PartState, table_in, tensor_in
from fairlead.errors import require_choice, require_number
from fairlead.memory.update_memory import MovingAverages, Remembers, averages_of, settle_alpha
from fairlead.numerics.minimum_norm import ShortestPoint, shortest_in_ridged_hull
from fairlead.numerics.row_products import inner_products
from fairlead.records import ClientUpdates, ClientWeights, Conditions, Population

Start = Literal["seen", "all_seen", "zero"]
RowLength = Literal["raw", "unit"]


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

    `rows` = "raw" takes the averages as they are, "unit" scales each to length 1 first. `start` sets the hull until
    all clients have arrived once: only the clients seen so far ("seen"); none, and the method has not started
    ("all_seen"); or all, the others at zero, so that d = 0 ("zero").

    The inner products are float64 and part of the state: rebuilt from the rows, a resumed run would differ in its last
    bits.
    """

    averages: MovingAverages
    start: Start
    rows: RowLength
    rho: float = 0.0

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
        if self.rows == "unit":
            lengths = gram.diagonal().clamp(min=0).sqrt()
            scale = torch.where(lengths > 0, 1 / lengths, 0.0)
            gram.mul_(scale[:, None]).mul_(scale)
        last = tensor_in(state, "lambda")
        point = shortest_in_ridged_hull(gram, self.rho, last[table.clients])
        shares = torch.zeros_like(last)
        shares[table.clients] = point.weights.cpu()
        return Recalled({**state, "lambda": shares}, True, (point.weights * scale).cpu(), point)


class Aware(Remembers, Protocol):
    """A part whose fields describe an `AwareMemory`."""

    @property
    def start(self) -> Start: ...

    @property
    def rows(self) -> RowLength: ...

    @property
    def rho(self) -> float: ...


def settle_aware(part: Aware) -> None:
    """Check the fields of such a part, and express its moving average by `alpha` alone."""
    settle_alpha(part)
    require_choice(part, "start", ("seen", "all_seen", "zero"))
    require_choice(part, "rows", ("raw", "unit"))
    require_number(part, "rho", at_least=0)


def aware_memory_of(part: Aware) -> AwareMemory:
    """The memory that a part's fields describe."""
    return AwareMemory(averages_of(part), part.start, part.rows, part.rho)


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
