"""What an algorithm faces: simulated clients, or real ones."""

from fairlead.worlds.base import World as World
from fairlead.worlds.simulated import SimulatedWorld as SimulatedWorld
