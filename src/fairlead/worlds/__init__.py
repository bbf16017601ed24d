"""What an algorithm faces: simulated clients, or real ones."""

from fairlead.worlds.base import World as World
from fairlead.worlds.ray.cluster import RayCluster as RayCluster
from fairlead.worlds.ray.world import RayWorld as RayWorld
from fairlead.worlds.simulated import SimulatedWorld as SimulatedWorld
