"""Which engine to use, and why."""

from __future__ import annotations

from typing import Literal, NamedTuple, get_args

from torch import nn

from fairlead.errors import EngineError, FieldError, did_you_mean
from fairlead.worlds.engines.base import Engine, Objective
from fairlead.worlds.engines.batched import BatchedEngine
from fairlead.worlds.engines.loop import LoopEngine
from fairlead.worlds.engines.stacked import has_own_stack, refuse_unbatchable

EngineName = Literal["auto", "loop", "batched"]

_LARGE_ON_CPU = 1_000_000
"""Parameters above which one client's products keep two cores busy."""
_LARGE_BY_VMAP = 100_000
"""The same for models without batched products of their own; an LSTM of 0.8 M was 1.4 times slower."""


class EngineChoice(NamedTuple):
    """An engine and the reason for it, for the run's provenance."""

    engine: Engine
    reason: str


def choose_engine(name: EngineName, objective: Objective, lanes: int) -> EngineChoice:
    """The engine asked for, or for "auto" the one that should be faster for this model."""
    if name not in get_args(EngineName):
        raise FieldError(
            f"SimulatedWorld.engine must be 'auto', 'loop' or 'batched', got {name!r}."
            + did_you_mean(str(name), get_args(EngineName))
        )
    if not isinstance(lanes, int) or isinstance(lanes, bool) or lanes < 1:
        raise FieldError(f"SimulatedWorld.lanes must be a whole number of at least 1, got {lanes!r}.")
    if name == "loop":
        return EngineChoice(LoopEngine(), "asked for")
    if name == "batched":
        refuse_unbatchable(objective)
        return EngineChoice(BatchedEngine(lanes), "asked for")
    if objective.data.inputs.device.type == "cpu" and (reason := _fills_a_cpu(objective)):
        return EngineChoice(LoopEngine(), reason)
    try:
        refuse_unbatchable(objective)
    except EngineError as error:
        return EngineChoice(LoopEngine(), str(error))
    return EngineChoice(BatchedEngine(lanes), "a small model: clients side by side share the overhead")


def _fills_a_cpu(objective: Objective) -> str | None:
    """Why one client at a time is faster for this model on a CPU, or None."""
    size = sum(objective.model.sizes)
    if any(isinstance(m, nn.modules.conv._ConvNd) for m in objective.model.module.modules()):
        return "convolutions already fill a CPU one client at a time"
    if size > _LARGE_ON_CPU:
        return "a large dense model already fills a CPU one client at a time"
    if size > _LARGE_BY_VMAP and not has_own_stack(objective):
        return "vectorising this model by vmap costs a CPU more than it shares"
    return None
