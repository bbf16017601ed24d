"""`RayExecutor`: connects to a cluster, and distributes a round's clients over actors."""

import logging
import math
import os
import socket
import warnings
from collections import Counter, deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from time import monotonic
from typing import Any, NamedTuple
from weakref import WeakValueDictionary

import ray
from ray.exceptions import RayError, RayTaskError

from fairlead.errors import EngineError, EngineWarning, FieldError, field_error
from fairlead.records import PathRun, WorkOrder
from fairlead.worlds.engines.base import LocalReturns
from fairlead.worlds.executor import ClientBlock, ClientExecutor
from fairlead.worlds.ray.actor import Assignment, Packed, PackedReturns, Parcel, Recipe, ShardActor, Shards
from fairlead.worlds.ray.cluster import ADDRESS, RayCluster
from fairlead.worlds.simulated import SimulatedWorld

_SECONDS_TO_ANSWER, _SECONDS_TO_START, _SECONDS_TO_JOIN = 5.0, 300.0, 60.0
_STARTS = 3
"""Consecutive failed starts of actors after which a run gives up."""


def connect(cluster: RayCluster) -> None:
    """Connect this process to a cluster, unless it is already."""
    if ray.is_initialized():
        current = ray.get_runtime_context().gcs_address
        if cluster.address not in (None, "auto", current):
            constraint = f"that of the cluster which this process is connected to, {current!r}"
            raise field_error(cluster, "address", constraint, cluster.address)
        return
    address = cluster.address or os.environ.get("RAY_ADDRESS")
    if address is None:
        _start_here(num_cpus=cluster.actors * cluster.threads)
        return
    try:
        _require_listener(address)
        ray.init(address=address, log_to_driver=False, logging_level=logging.ERROR)
    except (OSError, OverflowError, RuntimeError, ValueError) as error:
        reason = str(error).splitlines()[0].rstrip(".")
        raise FieldError(
            f"RayCluster.address must be where a Ray cluster can be reached, got {address!r}: {reason}."
        ) from error


def _start_here(num_cpus: int) -> None:
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    try:
        ray.init(
            address="local",
            num_cpus=num_cpus,
            include_dashboard=False,
            log_to_driver=False,
            logging_level=logging.ERROR,
        )
    except Exception as error:
        # Ray raises a plain Exception if its start takes more than 30 s, as on a busy machine.
        raise EngineError(f"Ray cannot be started on this machine: {error}") from error


def _require_listener(address: str) -> None:
    """Raise if nothing listens at an address: Ray itself would try for a minute."""
    place = ADDRESS.fullmatch(address)
    if place is not None and place["host"] is not None:
        host, port = place["host"].strip("[]"), int(place["port"])
        socket.create_connection((host, port), _SECONDS_TO_ANSWER).close()


@dataclass(eq=False)
class PoolActor:
    """An actor that starts, works or has died."""

    handle: Any
    readiness: Any
    """The reference of a call that the actor answers once it has started."""
    is_ready: bool = False


class ActorPool:
    """The actors of a cluster, in fixed places; they stop with the last user of the pool."""

    def __init__(self, cluster: RayCluster) -> None:
        self._cluster = cluster
        self._actor_class: Any = ray.remote(ShardActor).options(
            num_cpus=cluster.threads, num_gpus=cluster.gpus, scheduling_strategy="SPREAD", max_restarts=0
        )
        self._failed_starts = 0
        self._announce_at = math.inf
        self.actors = [self._start() for _ in range(cluster.actors)]

    @staticmethod
    def of(cluster: RayCluster) -> "ActorPool":
        """The pool of a cluster: one for all worlds of this process, which would otherwise compete for CPUs."""
        connect(cluster)
        context = ray.get_runtime_context()
        # The node too: a Ray that this process starts anew counts its jobs from the beginning.
        key = cluster, context.get_node_id(), context.get_job_id()
        pool = _POOLS.get(key) or ActorPool(cluster)
        _POOLS[key] = pool
        return pool

    def processes(self) -> list[int]:
        """The process ids of all actors, once they have started."""
        numbers: list[int] = ray.get([actor.readiness for actor in self.actors])
        return numbers

    def wait(self, work: Iterable[Any]) -> list[Any]:
        """References of `work` that has ended, with or without an error; empty if only an actor has become ready."""
        work = list(work)
        starting = {actor.readiness: actor for actor in self.actors if not actor.is_ready}
        patience = None if work else _SECONDS_TO_START
        ended, _ = ray.wait([*work, *starting], timeout=patience, fetch_local=False)
        if not ended:
            free: dict[str, float] = ray.available_resources()  # type: ignore[no-untyped-call]
            raise EngineError(
                f"RayCluster.actors={self._cluster.actors} with {self._cluster.threads} CPUs and "
                f"{self._cluster.gpus:g} GPUs each: no actor started within {_SECONDS_TO_START:.0f} s. Free are "
                f"{free.get('CPU', 0):g} CPUs and {free.get('GPU', 0):g} GPUs."
            )
        for reference in ended:
            if reference in starting:
                self._admit(starting[reference])
        self._announce_missing()
        return [reference for reference in ended if reference not in starting]

    def _announce_missing(self) -> None:
        """Warn once of actors that have not started: the cluster is too small, or they take too long."""
        cluster, ready = self._cluster, sum(actor.is_ready for actor in self.actors)
        if ready == cluster.actors or self._announce_at == math.inf:
            return
        found: dict[str, float] = ray.cluster_resources()  # type: ignore[no-untyped-call]
        has_room = found.get("CPU", 0) >= cluster.actors * cluster.threads
        has_room &= found.get("GPU", 0) >= cluster.actors * cluster.gpus
        if not has_room or monotonic() > self._announce_at:
            self._announce_at = math.inf
            warnings.warn(
                f"RayCluster.actors={cluster.actors}, and {ready} have started: the others join when the cluster of "
                f"{found.get('CPU', 0):g} CPUs and {found.get('GPU', 0):g} GPUs has room for them.",
                EngineWarning,
                stacklevel=2,
            )

    def collect(self, reference: Any, actor: PoolActor) -> PackedReturns | None:
        """The results of an actor, or None if it died: then a new actor takes its place."""
        try:
            returns: PackedReturns = ray.get(reference)
        except RayTaskError as error:
            raise error.cause from error
        except RayError:
            self._replace(actor)
            return None
        return returns

    def _start(self) -> PoolActor:
        self._announce_at = monotonic() + _SECONDS_TO_JOIN
        handle = self._actor_class.remote(self._cluster.threads)
        return PoolActor(handle, handle.process.remote())

    def _admit(self, actor: PoolActor) -> None:
        try:
            ray.get(actor.readiness)
        except RayError as error:
            self._failed_starts += 1
            if self._failed_starts >= _STARTS:
                reason = str(error).strip().splitlines()[-1]
                raise EngineError(f"Ray actors cannot start: {reason}") from error
            self._replace(actor)
        else:
            self._failed_starts = 0
            actor.is_ready = True

    def _replace(self, actor: PoolActor) -> None:
        if actor in self.actors:
            self.actors[self.actors.index(actor)] = self._start()


_POOLS: WeakValueDictionary[tuple[RayCluster, str, str], ActorPool] = WeakValueDictionary()


_AT_ONCE = 2
"""Blocks that an actor has at a time: it begins the next one while the results of the last travel back."""
_BLOCKS_PER_ACTOR = 4
"""If blocks may have any size: enough of them that actors end at about the same time."""
_ATTEMPTS = 4


class _BlockRun(NamedTuple):
    """A block that an actor trains."""

    actor: PoolActor
    place: int
    """Of the actor in the pool."""
    number: int
    """Of the block in the round."""


class RayExecutor(ClientExecutor):
    """Ray actors that share a round's clients.

    A round is cut into the blocks that the world's own process would train, and each block is trained by one
    actor with the same engine: how many actors there are, which of them takes a block and in which order they end
    cannot change a bit. Blocks ascend by client, and each actor begins with its own stretch of them, so that it
    mostly needs its own shards; one that has nothing left takes from the actor with most. What a dead actor had
    not given back is done again.
    """

    def __init__(self, cluster: RayCluster, simulation: SimulatedWorld) -> None:
        self._num_actors, self._block = cluster.actors, simulation.executor.block
        self.pool = ActorPool.of(cluster)
        try:
            # Ray does not resolve references inside a pair, so that actors fetch them once and not every time.
            self._assignment = Assignment(
                ray.put(Recipe.of(simulation)), ray.put(Shards.put(simulation.clients))
            )
        except TypeError as error:
            reason = str(error).strip().splitlines()[0]
            raise EngineError(f"The world's task cannot be sent to other processes: {reason}") from error

    def train(self, order: WorkOrder, block: ClientBlock) -> LocalReturns:
        returns, ran = LocalReturns.empty(order, len(block)), list[PathRun]()
        size = self._block or -(-len(block) // (self._num_actors * _BLOCKS_PER_ACTOR))
        blocks = list(block.cut(size)) if len(block) else []
        shared_order = ray.put(Parcel(replace(order, memory={})))
        waiting = self._dealt(len(blocks))
        running: dict[Any, _BlockRun] = {}
        attempts: Counter[int] = Counter()
        unfinished = len(blocks)
        while unfinished:
            for run in self._taken(waiting, running):
                reference = run.actor.handle.train.remote(
                    self._assignment, shared_order, Parcel(blocks[run.number])
                )
                running[reference] = run
            for reference in self.pool.wait(running):
                run = running.pop(reference)
                packed = self.pool.collect(reference, run.actor)
                if packed is None:
                    attempts[run.number] += 1
                    _refuse_deadly(blocks[run.number], attempts[run.number])
                    waiting[run.place].appendleft(run.number)
                else:
                    _fill(returns, run.number * size, packed.rows)
                    ran += packed.ran
                    unfinished -= 1
        return returns._replace(ran=PathRun.tally(ran))

    def _dealt(self, num_blocks: int) -> list[deque[int]]:
        """The numbers of the consecutive blocks that each actor begins with."""
        waiting: list[deque[int]] = [deque() for _ in range(self._num_actors)]
        for number in range(num_blocks):
            waiting[number * self._num_actors // num_blocks].append(number)
        return waiting

    def _taken(self, waiting: list[deque[int]], running: dict[Any, _BlockRun]) -> list[_BlockRun]:
        """The blocks that actors take next."""
        taken: list[_BlockRun] = []
        load = Counter(run.place for run in running.values())
        for wanted in range(1, _AT_ONCE + 1):
            for place, actor in enumerate(self.pool.actors):
                if not actor.is_ready or load[place] >= wanted:
                    continue
                if waiting[place]:
                    taken.append(_BlockRun(actor, place, waiting[place].popleft()))
                elif load[place] == 0 and (longest := max(waiting, key=len)):
                    taken.append(_BlockRun(actor, place, longest.pop()))
                else:
                    continue
                load[place] += 1
        return taken


def _refuse_deadly(block: ClientBlock, attempts: int) -> None:
    if attempts >= _ATTEMPTS:
        first, last = int(block.clients[0]), int(block.clients[-1])
        raise EngineError(
            f"{attempts} Ray actors died while training clients {first} to {last}, probably for lack of memory: use "
            "fewer actors per machine or a smaller SimulatedWorld.block."
        )


def _fill(returns: LocalReturns, first: int, packed: Sequence[Packed | None]) -> None:
    """Write the rows of one block."""
    for rows, part in zip(returns.rows, packed, strict=True):
        if rows is not None and part is not None:
            rows[first : first + part.shape[0]].copy_(part.view())
