"""FedBuff (Nguyen et al. 2022, Algorithm 1) as a loop over events, with the anchor of each client at work."""

from collections.abc import Callable, Collection, Sequence
from typing import NamedTuple, Unpack

from transcriptions.script import Array, Round, Script, Solver, follow, local_work


def fedbuff(
    script: Script, *, server_lr: float = 1.0, exponent: float = 0.5, **solver: Unpack[Solver]
) -> Array:
    """In rounds that wait for their clients every s(τ) = s(0) is 1: FedAvg with a server's step size."""
    return follow(script, solver, lambda round, g: server_lr * (1 + 0) ** -exponent * round.mean(g))


class Step(NamedTuple):
    """A step of the server."""

    model: Array
    ages: dict[int, int]
    """τ_i of the updates in its buffer."""
    refused: list[int]
    time: float
    """On the clock, of the last update in the buffer."""


class _Trip(NamedTuple):
    finish: float
    version: int
    client: int
    anchor: Array


def buffered(
    script: Script,
    *,
    seconds: Callable[[int, int], float],
    candidates: Callable[[int, Collection[int]], Sequence[int]],
    concurrency: int,
    buffer_size: int,
    max_staleness: int | None = None,
    exponent: float = 0.5,
    server_lr: float = 1.0,
    **solver: Unpack[Solver],
) -> list[Step]:
    """The server's steps; x ← x − η_g Σ_B s(τ_i) p̂_i g_i once the buffer B holds K updates, τ_i = t − t_i.

    `seconds` gives the duration of a client's work by version and client, and `candidates` who starts next in a
    version, from the clients at work. `steps` and `arrivals` of the script are those of the version that a client
    starts from. With equal weights p̂_i = 1/K, as in the paper.
    """
    x, now, work, found = script.start, 0.0, list[_Trip](), list[Step]()
    for version in range(len(script.steps)):
        buffer, refused = dict[int, _Trip](), list[int]()
        queue = list(candidates(version, {trip.client for trip in work}))
        while len(buffer) < buffer_size:
            while queue and len(work) < concurrency:
                client = queue.pop(0)
                work.append(_Trip(now + seconds(version, client), version, client, x))
            if not work:
                break
            now = min(trip.finish for trip in work)
            for trip in sorted((trip for trip in work if trip.finish == now), key=lambda trip: trip[:3]):
                if len(buffer) == buffer_size:
                    break
                work = [other for other in work if other is not trip]
                if trip.client in script.arrivals[trip.version]:
                    if max_staleness is not None and version - trip.version > max_staleness:
                        refused.append(trip.client)
                    else:
                        buffer[trip.client] = trip
        total = sum(script.weights[client] for client in buffer)
        move = script.zeros()
        for client, trip in buffer.items():
            then = Round(trip.version, {}, (), script.steps[trip.version])
            g = trip.anchor - local_work(script, then, client, trip.anchor, solver)
            age = version - trip.version
            move = move + (1 + age) ** -exponent * script.weights[client] / total * g
        x = x - server_lr * move
        ages = {client: version - trip.version for client, trip in sorted(buffer.items())}
        found.append(Step(x, ages, refused, now))
    return found
