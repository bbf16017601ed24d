"""Ways to run simulated clients: one idea, the same numbers, different speeds."""

from fairlead.worlds.engines.base import Engine as Engine
from fairlead.worlds.engines.base import LocalJobs as LocalJobs
from fairlead.worlds.engines.base import LocalResults as LocalResults
from fairlead.worlds.engines.base import Objective as Objective
from fairlead.worlds.engines.batched import BatchedEngine as BatchedEngine
from fairlead.worlds.engines.graphs import GraphEngine as GraphEngine
from fairlead.worlds.engines.loop import LoopEngine as LoopEngine
