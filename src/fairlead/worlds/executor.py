"""Execution of a round's local work: its batches, the role `ClientExecutor`, and `LocalExecutor` for this process.

Batches and all other chance of local work are drawn before it starts.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple, TypeVar

import numpy as np
import torch
from torch import Tensor

from fairlead.corrections.base import OWN_BUFFERS, OWN_MASK, LocalOutcome
from fairlead.local_solver import LocalSolver
from fairlead.memory.budget import require_memory
from fairlead.parameters import FlatModule
from fairlead.randomness import Key
from fairlead.records import Broadcast, Vectors, WorkOrder
from fairlead.worlds.device import Arithmetic, HostData
from fairlead.worlds.engines.base import AsyncEngine, Engine, LocalJobs, LocalReturns, LocalSteps, Objective

_SMALL = 2**26
"""Bytes of batches that fit anywhere: asking the system takes longer than drawing them."""


class LocalDraw(NamedTuple):
    """All that decides the local steps of some clients; tuples have a number for each."""

    solver: LocalSolver
    key: Key
    round: int
    draws_noise: bool
    clients: tuple[int, ...]
    first_rows: tuple[int, ...]
    sizes: tuple[int, ...]
    num_steps: tuple[int, ...]
    batch_sizes: tuple[int, ...]

    def steps(self) -> LocalSteps:
        """The batches, the keys of noise and the learning rates."""
        shuffle, noise = (self.key.fold(purpose, self.round) for purpose in ("batches", "noise"))
        needed = sum(map(_batch_bytes, self.sizes, self.num_steps, self.batch_sizes))
        if needed > _SMALL:
            what = f"A block of {len(self.clients)} clients with up to {max(self.num_steps)} local steps each"
            require_memory(what, needed, "lower their epochs, their steps, their batch size, or the block")
        each = zip(self.first_rows, self.sizes, self.num_steps, self.batch_sizes, strict=True)
        batches = [
            draw_batches(*one, shuffle.fold(client)) for client, one in zip(self.clients, each, strict=True)
        ]
        noise_keys = map(noise.fold, self.clients) if self.draws_noise else None
        return local_steps(self.solver, self.round, batches, noise_keys)


def local_steps(
    solver: LocalSolver, round: int, batches: Sequence[Tensor], noise: Iterable[Key] | None
) -> LocalSteps:
    """The local steps of clients with the given batches; `noise` has a key per client where the model draws any."""
    longest = max(map(len, batches), default=0)
    if noise is None:
        keys = [torch.zeros(longest + 1, dtype=torch.int64)] * len(batches)
    else:
        words = (key.words(np.arange(len(own) + 1)) for key, own in zip(noise, batches, strict=True))
        keys = [torch.from_numpy(word.view(np.int64)) for word in words]
    lrs = solver.step_lrs(round, longest)
    if solver.optimizer.cycle != (0,):
        taken = [solver.gradient_batches(len(own)) for own in batches]
        batches = [own[places] for own, places in zip(batches, taken, strict=True)]
        keys = [torch.cat([own[places], own[-1:]]) for own, places in zip(keys, taken, strict=True)]
        lrs = lrs[max(taken, key=len, default=[])]
    return LocalSteps(solver, batches, keys, lrs)


def draw_batches(first_row: int, size: int, num_steps: int, batch_size: int, key: Key) -> Tensor:
    """Row numbers (num_steps, batch_size), -1 where the last batch of an epoch is short.

    Every epoch is a new permutation of the client's rows, cut into batches with the partial one kept;
    a client that uses all its rows at every step keeps their order.
    """
    per_epoch = -(-size // batch_size)
    epochs = -(-num_steps // per_epoch)
    if (needed := _batch_bytes(size, num_steps, batch_size)) > _SMALL:
        what = f"A client with {num_steps} local steps of {batch_size} examples"
        require_memory(what, needed, "lower its epochs, its steps or its batch size")
    rows = np.full((epochs, per_epoch * batch_size), -1, dtype=np.int64)
    rows[:, :size] = np.arange(first_row, first_row + size)
    if batch_size < size:
        rows[:, :size] = key.generator().permuted(rows[:, :size], axis=1)
    return torch.from_numpy(rows.reshape(-1, batch_size)[:num_steps])


def _batch_bytes(size: int, num_steps: int, batch_size: int) -> int:
    """Of the row numbers of a client, and of a copy of them."""
    per_epoch = -(-size // batch_size)
    return 2 * 8 * -(-num_steps // per_epoch) * per_epoch * batch_size


@dataclass(frozen=True, eq=False)
class ClientBlock:
    """Clients of a round whose updates will arrive, ascending, and the local work of each."""

    clients: Tensor
    """(m,) ids."""
    sizes: Tensor
    """(m,) examples held."""
    num_steps: Tensor
    """(m,) local steps, at least 1."""
    batch_sizes: Tensor
    """(m,)"""
    memory: Vectors
    """(m, ·) each."""

    def __len__(self) -> int:
        return len(self.clients)

    def cut(self, most: int | None) -> "Iterator[ClientBlock]":
        """The same clients in blocks of `most`, the last of which may be smaller; None leaves them together.

        A pure function of the clients, since the bits of a client may depend on the clients that train beside it.
        """
        if most is None or len(self) <= most:
            yield self
            return
        for first in range(0, len(self), most):
            yield self.some(slice(first, first + most))

    def training(self, solver: LocalSolver) -> "ClientBlock":
        """The same clients with the work that a solver plans."""
        num_steps, batch_sizes = solver.count_steps(self.sizes), solver.batches(self.sizes)
        return replace(self, num_steps=num_steps, batch_sizes=batch_sizes)

    def some(self, part: slice | Tensor) -> "ClientBlock":
        """These clients alone."""
        return ClientBlock(
            self.clients[part],
            self.sizes[part],
            self.num_steps[part],
            self.batch_sizes[part],
            {name: rows[part] for name, rows in self.memory.items()},
        )


OrderT = TypeVar("OrderT", bound=Broadcast)


def derive_masks(order: OrderT, solver: LocalSolver, model: FlatModule) -> OrderT:
    """An order for a solver, with the masks of the parameters that clients keep among its shared vectors."""
    names, shared = solver.own_parameters, dict(order.shared)
    if names is not None:
        params, buffers = model.own(names)
        shared[OWN_MASK] = params.to(order.anchor)
        if buffers is not None:
            shared[OWN_BUFFERS] = buffers.to(order.anchor)
    return replace(order, solver=solver, shared=shared)


def refuse_unknown_parameters(solver: LocalSolver, model: FlatModule) -> None:
    """Raise if clients should keep parameters that the model does not have."""
    for each in (solver, solver.personal):
        if each is not None and each.own_parameters is not None:
            model.own(each.own_parameters)


def start_buffers(order: Broadcast, memory: Vectors) -> Tensor:
    """Running statistics before local work: (b,) for all clients, or (m, b) if they keep some of their own."""
    if OWN_BUFFERS not in order.shared:
        return order.buffers
    own = (order.shared[OWN_BUFFERS] > 0) & (memory["kept"] > 0)
    return torch.where(own, memory["own_buffers"], order.buffers)


class FinishedWork(NamedTuple):
    """The uploads and the new memory of clients after local work, a row for each."""

    delta: Tensor
    memory: Vectors
    message: Vectors
    buffers: Tensor


def finish_work(
    order: Broadcast,
    memory: Vectors,
    num_steps: Tensor,
    effective_steps: Tensor | None,
    returns: LocalReturns,
    draws: Tensor | None = None,
) -> FinishedWork:
    """Apply the corrections to finished local work; `draws` (m, 1) are keys of random numbers, if they need any."""
    solver, buffers = order.solver, returns.buffers
    if returns.kept is not None:
        memory = {
            **memory,
            **dict(zip(solver.optimizer.kept, torch.split(returns.kept, 1, dim=1), strict=True)),
        }
    if not solver.corrections:
        return FinishedWork(returns.delta, memory, {}, buffers)

    def column(values: Tensor) -> Tensor:
        # Sent without waiting for work that a device still has before it; pageable, and so read at once.
        return values.to(returns.delta, non_blocking=True)[:, None]

    outcome = LocalOutcome(
        round=order.round,
        anchor=order.anchor,
        delta=returns.delta,
        num_steps=column(num_steps),
        effective_steps=None if effective_steps is None else column(effective_steps),
        lr=solver.optimizer.lr_at(order.round),
        anchor_gradient=returns.anchor_gradient,
        draws=draws,
    )
    result = solver.after_steps(outcome, memory, order.shared)
    kept = {**memory, **result.memory}
    if OWN_BUFFERS in order.shared:
        kept["own_buffers"] = buffers
        buffers = torch.where(order.shared[OWN_BUFFERS] > 0, order.buffers, buffers)
    return FinishedWork(result.delta, kept, result.message, buffers)


Train = Callable[[OrderT, ClientBlock], LocalReturns]
"""Does the local steps of an order."""


def do_work(
    order: OrderT,
    block: ClientBlock,
    effective_steps: Tensor | None,
    model: FlatModule,
    train: Train[OrderT],
    noise: Callable[[int], Key],
) -> tuple[FinishedWork, LocalReturns]:
    """All local work of clients in a round: training that they keep for themselves, then that of their updates.

    `noise` gives the key of a client's random numbers in the round.
    """
    kept = order.solver.kept_training
    if kept is not None:
        personal, own = derive_masks(order, kept, model), block.training(kept)
        finished = finish_work(personal, own.memory, own.num_steps, None, train(personal, own))
        block = replace(block, memory=finished.memory)
    order = derive_masks(order, order.solver, model)
    returns, draws = train(order, block), None
    if any(correction.needs_draws for correction in order.solver.corrections):
        keys = [noise(client).fold("upload").torch_seed() for client in block.clients.tolist()]
        draws = torch.tensor(keys, dtype=torch.int64)[:, None]
    return finish_work(order, block.memory, block.num_steps, effective_steps, returns, draws), returns


def own_models(
    order: OrderT, block: ClientBlock, model: FlatModule, train: Train[OrderT]
) -> tuple[Tensor, Tensor]:
    """Parameters (m, d) and running statistics (m, b) of the models that clients use themselves."""
    solver, own = order.solver, order.solver.personal or order.solver
    order, block = derive_masks(order, own, model), block.training(own)
    params = own.used(order.anchor.expand(len(block), -1), block.memory, order.shared).clone()
    buffers = start_buffers(order, block.memory).expand(len(block), -1)
    able = (block.sizes > 0).nonzero().flatten()
    if solver.personal is not None and solver.kept_training is None and len(able):
        returns = train(order, block.some(able))
        params[able] += returns.delta
        buffers = buffers.index_copy(0, able.to(buffers.device), returns.buffers)
    return params, buffers


class ClientExecutor(ABC):
    """Does the local work of clients. All executors of a world give the same bits."""

    @abstractmethod
    def train(self, order: WorkOrder, block: ClientBlock) -> LocalReturns:
        """Local work of all clients in a block, whose memory comes with the block."""


class LocalExecutor(ClientExecutor):
    """This process: an engine on one device, with examples on that device or copied there by `host_data`.

    The engine receives clients in blocks of at most `block` (None: all at once).
    """

    def __init__(
        self,
        objective: Objective,
        engine: Engine,
        arithmetic: Arithmetic,
        *,
        host_data: HostData | None = None,
        block: int | None = None,
    ) -> None:
        self.objective, self.engine, self.arithmetic = objective, engine, arithmetic
        self.host_data, self.block = host_data, block
        self._drawn_ahead: dict[LocalDraw, LocalSteps] = {}

    def train(self, order: WorkOrder, block: ClientBlock) -> LocalReturns:
        if not len(block):
            return LocalReturns.empty(order, 0)
        return LocalReturns.joined([self._train(order, part) for part in block.cut(self.block)])

    def prepare(self, round: int, solver: LocalSolver, key: Key, block: ClientBlock) -> None:
        """Draw the batches of the next round's first block, and plan it.

        The batches and the plan stay in memory until the round. Only for data on the device: rows of data on the host
        are known when they are loaded.
        """
        first = next(block.cut(self.block))
        draw = self._draw(round, solver, key, first, self.objective.data.offsets[first.clients])
        steps = draw.steps()
        self._drawn_ahead = {draw: steps}
        if isinstance(self.engine, AsyncEngine):
            self.engine.prepare(self.objective, steps)

    def _draw(
        self, round: int, solver: LocalSolver, key: Key, block: ClientBlock, first_rows: Tensor
    ) -> LocalDraw:
        columns = (block.clients, first_rows, block.sizes, block.num_steps, block.batch_sizes)
        numbers = (tuple(column.tolist()) for column in columns)
        return LocalDraw(solver, key, round, self.objective.draws_noise, *numbers)

    def _train(self, order: WorkOrder, block: ClientBlock) -> LocalReturns:
        if self.host_data is None:
            objective, first_rows = self.objective, self.objective.data.offsets[block.clients]
        else:
            objective, first_rows = self.host_data.load(block.clients)
        draw = self._draw(order.round, order.solver, order.key, block, first_rows)
        steps = self._drawn_ahead.pop(draw) if draw in self._drawn_ahead else draw.steps()
        with self.arithmetic.on(objective.device):
            return take_steps(self.engine, objective, order, block, steps, first_rows)


def take_steps(
    engine: Engine,
    objective: Objective,
    order: Broadcast,
    block: ClientBlock,
    steps: LocalSteps,
    first_rows: Tensor,
) -> LocalReturns:
    """The local work of clients whose examples begin at `first_rows` of the objective's data.

    It is done on the device of the objective, and returned to that of the order.
    """
    device = objective.device
    jobs = LocalJobs(
        clients=block.clients.tolist(),
        steps=steps,
        anchor=order.anchor.to(device),
        buffers=start_buffers(order, block.memory).to(device),
        shared={name: vector.to(device) for name, vector in order.shared.items()},
        memory={name: block.memory[name].to(device) for name in order.solver.step_memory},
    )
    returns = engine.run(objective, jobs)
    if jobs.steps.solver.needs_anchor_gradient:
        gradients = _anchor_gradients(objective, jobs, first_rows, block.sizes)
        returns = returns._replace(anchor_gradient=gradients)
    return returns.to(order.anchor.device)


def _anchor_gradients(objective: Objective, jobs: LocalJobs, first_rows: Tensor, sizes: Tensor) -> Tensor:
    rows = [
        objective.mean_gradient(
            jobs.anchor,
            jobs.buffers,
            slice(first, first + size),
            noise[-1].to(jobs.anchor.device) if objective.draws_noise else None,
        )
        for first, size, noise in zip(first_rows.tolist(), sizes.tolist(), jobs.steps.noise, strict=True)
    ]
    return torch.stack(rows)
