"""`Crew`: the actors of a cluster, any of which may die at any time and is replaced."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any
from weakref import WeakValueDictionary

from fairlead.errors import EngineError
from fairlead.worlds.ray.actor import PackedReturns, ShardActor
from fairlead.worlds.ray.cluster import RayCluster

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
