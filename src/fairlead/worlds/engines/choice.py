"""Which engine to use, and why."""

from __future__ import annotations

from typing import Literal, NamedTuple

from torch import nn

from fairlead.errors import EngineError
from fairlead.worlds.engines.base import Engine, Objective
from fairlead.worlds.engines.batched import BatchedEngine
from fairlead.worlds.engines.loop import LoopEngine
from fairlead.worlds.engines.stacked import refuse_unbatchable

EngineName = Literal["auto", "loop", "batched"]

_LARGE_ON_CPU = 1_000_000
"""Parameters above which one client's products keep two cores busy."""


class EngineChoice(NamedTuple):
    """An engine and the reason for it, for the run's provenance."""

    engine: Engine
    reason: str


def choose_engine(name: EngineName, objective: Objective, lanes: int) -> EngineChoice:
    """The engine asked for, or for "auto" the one that should be faster for this model."""
    if name == "loop":
        return EngineChoice(LoopEngine(), "asked for")
    if name == "batched":
        refuse_unbatchable(objective)
        return EngineChoice(BatchedEngine(lanes), "asked for")
    try:
        refuse_unbatchable(objective)
    except EngineError as error:
        return EngineChoice(LoopEngine(), str(error))
    on_cpu = objective.data.inputs.device.type == "cpu"
    convolutional = any(isinstance(m, nn.modules.conv._ConvNd) for m in objective.model.module.modules())
    if on_cpu and convolutional:
        return EngineChoice(LoopEngine(), "convolutions already fill a CPU one client at a time")
    if on_cpu and sum(objective.model.sizes) > _LARGE_ON_CPU:
        return EngineChoice(LoopEngine(), "a large dense model already fills a CPU one client at a time")
    return EngineChoice(BatchedEngine(lanes), "a small model: clients side by side share the overhead")
