"""`RayWorkforce`: shares a round's clients out among actors."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any, NamedTuple
from weakref import WeakValueDictionary

from torch import Tensor

from fairlead.errors import EngineError
from fairlead.records import WorkOrder
from fairlead.worlds.engines.base import Engine
from fairlead.worlds.engines.loop import LoopEngine
from fairlead.worlds.executor import ClientBlock, LocalReturns, Workforce
from fairlead.worlds.ray.actor import Assignment, PackedReturns, Parcel, Recipe, ShardActor, Shards
from fairlead.worlds.ray.cluster import RayCluster
from fairlead.worlds.simulated import SimulatedWorld

_SECONDS_TO_START = 300.0
_STARTS = 3
"""Actors that may fail to start one after another before it is no accident."""


@dataclass(eq=False)
class Member:
    """An actor that starts, works or has died."""

    handle: Any
    readiness: Any
    """The reference of a call that the actor answers once it has started."""
    is_ready: bool = False


class Crew:
    """As many actors as a cluster should have, in fixed places; they end with the last that uses the crew."""

    def __init__(self, cluster: RayCluster) -> None:
        import ray

        self._cluster = cluster
        self._actor_class: Any = ray.remote(ShardActor).options(
            num_cpus=cluster.threads, num_gpus=cluster.gpus, scheduling_strategy="SPREAD", max_restarts=0
        )
        self._failed_starts = 0
        self.members = [self._hire() for _ in range(cluster.actors)]

    @staticmethod
    def of(cluster: RayCluster) -> Crew:
        """The crew of a cluster: one for all worlds of this process, which would else compete for its CPUs."""
        import ray

        cluster.connect()
        context = ray.get_runtime_context()
        # The node too: a Ray that this process starts anew counts its jobs from the beginning.
        key = cluster, context.get_node_id(), context.get_job_id()
        crew = _CREWS.get(key) or Crew(cluster)
        _CREWS[key] = crew
        return crew

    def processes(self) -> list[int]:
        """The numbers of the processes of all actors, once they have started."""
        import ray

        numbers: list[int] = ray.get([member.readiness for member in self.members])
        return numbers

    def wait(self, work: Iterable[Any]) -> list[Any]:
        """References of `work` that has ended by now, well or not; empty if only an actor has become ready."""
        import ray

        work = list(work)
        starting = {member.readiness: member for member in self.members if not member.is_ready}
        patience = None if work else _SECONDS_TO_START
        ended, _ = ray.wait([*work, *starting], timeout=patience, fetch_local=False)
        if not ended:
            raise EngineError(
                f"RayCluster.actors={self._cluster.actors} with {self._cluster.threads} CPUs and "
                f"{self._cluster.gpus:g} GPUs each: none could start within {_SECONDS_TO_START:.0f} s; free are "
                f"{_free_resources()}."
            )
        for reference in ended:
            if reference in starting:
                self._admit(starting[reference])
        return [reference for reference in ended if reference not in starting]

    def collect(self, reference: Any, member: Member) -> PackedReturns | None:
        """What a member has returned, or None if it died before: then another takes its place."""
        import ray
        from ray.exceptions import RayError, RayTaskError

        try:
            returns: PackedReturns = ray.get(reference)
        except RayTaskError as error:
            raise error.cause from error
        except RayError:
            self._replace(member)
            return None
        return returns

    def _hire(self) -> Member:
        handle = self._actor_class.remote(self._cluster.threads)
        return Member(handle, handle.process.remote())

    def _admit(self, member: Member) -> None:
        import ray
        from ray.exceptions import RayError

        try:
            ray.get(member.readiness)
        except RayError as error:
            self._failed_starts += 1
            if self._failed_starts >= _STARTS:
                reason = str(error).strip().splitlines()[-1]
                raise EngineError(f"Ray actors cannot start: {reason}") from error
            self._replace(member)
        else:
            self._failed_starts = 0
            member.is_ready = True

    def _replace(self, member: Member) -> None:
        if member in self.members:
            self.members[self.members.index(member)] = self._hire()


_CREWS: WeakValueDictionary[tuple[RayCluster, str, str], Crew] = WeakValueDictionary()


def _free_resources() -> str:
    import ray

    free: dict[str, float] = ray.available_resources()  # type: ignore[no-untyped-call]
    return f"{free.get('CPU', 0):g} CPUs and {free.get('GPU', 0):g} GPUs"


_AT_ONCE = 2
"""Blocks that an actor has at a time: it begins the next one while the last is on its way back."""
_BLOCKS_PER_ACTOR = 4
"""Where blocks may have any size: enough of them that actors end at about the same time."""
_ATTEMPTS = 4


def needs_block(engine: Engine, threads: int) -> bool:
    """Whether clients may end with other bits if a round is divided otherwise.

    Not where one is trained after the other, unless the threads that one gets depend on how many there are.
    """
    return not isinstance(engine, LoopEngine) or (engine.per_core and threads > 1)


class _Task(NamedTuple):
    """A block that an actor works on."""

    member: Member
    place: int
    """Of the member in the crew."""
    number: int
    """Of the block in the round."""


class RayWorkforce(Workforce):
    """Ray actors that share a round's clients.

    A round is cut into the blocks that the world's own process would train, and each block is trained by one
    actor with the same engine: how many actors there are, which of them takes a block and in which order they end
    cannot change a bit. Blocks ascend by client, and each actor begins with its own stretch of them, so that it
    mostly needs its own shards; one that has nothing left takes from the actor with most. What a dead actor had
    not given back is done again.
    """

    def __init__(self, cluster: RayCluster, simulation: SimulatedWorld) -> None:
        import ray

        self._num_actors, self._block = cluster.actors, simulation.workforce.block
        self._is_free_to_cut = self._block is None and not needs_block(simulation.engine, cluster.threads)
        self.crew = Crew.of(cluster)
        try:
            # A pair that Ray does not look into, so that actors fetch what it refers to once and not every time.
            self._assignment = Assignment(
                ray.put(Recipe.of(simulation)), ray.put(Shards.put(simulation.clients))
            )
        except TypeError as error:
            reason = str(error).strip().splitlines()[0]
            raise EngineError(f"The world's task cannot be sent to other processes: {reason}") from error

    def train(self, order: WorkOrder, block: ClientBlock) -> LocalReturns:
        import ray

        returns = _empty_returns(order, len(block))
        size = self._block_size(len(block))
        blocks = list(block.cut(size)) if len(block) else []
        told = ray.put(Parcel(replace(order, memory={})))
        waiting = self._dealt(len(blocks))
        running: dict[Any, _Task] = {}
        attempts: Counter[int] = Counter()
        unfinished = len(blocks)
        while unfinished:
            for task in self._taken(waiting, running):
                reference = task.member.handle.train.remote(
                    self._assignment, told, Parcel(blocks[task.number])
                )
                running[reference] = task
            for reference in self.crew.wait(running):
                task = running.pop(reference)
                packed = self.crew.collect(reference, task.member)
                if packed is None:
                    attempts[task.number] += 1
                    _refuse_deadly(blocks[task.number], attempts[task.number])
                    waiting[task.place].appendleft(task.number)
                else:
                    _fill(returns, task.number * size, packed)
                    unfinished -= 1
        return returns

    def _block_size(self, num_clients: int) -> int:
        if self._is_free_to_cut:
            return -(-num_clients // (self._num_actors * _BLOCKS_PER_ACTOR))
        return self._block or num_clients

    def _dealt(self, num_blocks: int) -> list[deque[int]]:
        """Numbers of the blocks that each actor begins with: consecutive ones."""
        waiting: list[deque[int]] = [deque() for _ in range(self._num_actors)]
        for number in range(num_blocks):
            waiting[number * self._num_actors // num_blocks].append(number)
        return waiting

    def _taken(self, waiting: list[deque[int]], running: dict[Any, _Task]) -> list[_Task]:
        """Which blocks go to which actors now."""
        taken: list[_Task] = []
        load = Counter(task.place for task in running.values())
        for wanted in range(1, _AT_ONCE + 1):
            for place, member in enumerate(self.crew.members):
                if not member.is_ready or load[place] >= wanted:
                    continue
                if waiting[place]:
                    taken.append(_Task(member, place, waiting[place].popleft()))
                elif load[place] == 0 and (longest := max(waiting, key=len)):
                    taken.append(_Task(member, place, longest.pop()))
                else:
                    continue
                load[place] += 1
        return taken


def _refuse_deadly(block: ClientBlock, attempts: int) -> None:
    if attempts >= _ATTEMPTS:
        first, last = int(block.clients[0]), int(block.clients[-1])
        raise EngineError(
            f"{attempts} Ray actors have died over the work of clients {first} to {last}: they may need more memory "
            "than there is, and fewer actors a machine or a smaller SimulatedWorld.block need less."
        )


def _empty_returns(order: WorkOrder, num_clients: int) -> LocalReturns:
    anchor, buffers = order.anchor, order.buffers

    def rows() -> Tensor:
        return anchor.new_empty((num_clients, len(anchor)))

    return LocalReturns(
        rows(),
        anchor.new_empty(num_clients),
        buffers.new_empty((num_clients, len(buffers))),
        rows() if order.solver.needs_anchor_gradient else None,
    )


def _fill(returns: LocalReturns, first: int, packed: PackedReturns) -> None:
    """Write the rows of one block."""
    for rows, part in zip(returns, packed, strict=True):
        if rows is not None and part is not None:
            rows[first : first + part.shape[0]].copy_(part.view())
