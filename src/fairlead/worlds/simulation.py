"""The simulation behind a world."""

from __future__ import annotations

from fairlead.worlds.base import World
from fairlead.worlds.ray.world import RayWorld
from fairlead.worlds.simulated import SimulatedWorld


def simulation_of(world: World) -> SimulatedWorld | None:
    """The simulated world that a world is or lets others compute; None where clients are real."""
    if isinstance(world, RayWorld):
        return world.simulation
    return world if isinstance(world, SimulatedWorld) else None
