"""Which engine to use, and why."""

from __future__ import annotations

from typing import Literal, NamedTuple, get_args

from torch import nn

from fairlead.errors import ClashError, EngineError, FieldError, did_you_mean
from fairlead.worlds.engines.base import Engine, Objective
from fairlead.worlds.engines.batched import BatchedEngine
from fairlead.worlds.engines.dense import dense_stack
from fairlead.worlds.engines.graphs import GraphEngine
from fairlead.worlds.engines.lane_gradients import Backend
from fairlead.worlds.engines.loop import LoopEngine
from fairlead.worlds.engines.probe import seconds_per_step
from fairlead.worlds.engines.refusals import refuse_unbatchable
from fairlead.worlds.engines.stacked import has_own_stack

EngineName = Literal["auto", "loop", "batched", "branches"]
"""One client after the other, side by side in shared products, or side by side with a pass each."""

_LARGE_ON_CPU = 1_000_000
"""Parameters above which one client's products keep a core busy."""
_LARGE_BY_VMAP = 100_000
"""The same for models without batched products of their own; an LSTM of 0.8 M was 1.4 times slower."""


class EngineChoice(NamedTuple):
    """An engine and the reason for it, for the run's provenance."""

    engine: Engine
    reason: str


def choose_engine(
    name: EngineName, objective: Objective, lanes: int, *, compiled: bool = False, reproducible: bool = False
) -> EngineChoice:
    """The engine asked for, or for "auto" the one that should be faster for this model and device.

    On a CPU, and where the choice must be `reproducible`, a pure function of the model, so that a resumed run is
    continued by the engine that began it; else a trial decides on an accelerator where no rule does.
    """
    if name not in get_args(EngineName):
        raise FieldError(
            f"SimulatedWorld.engine must be 'auto', 'loop', 'batched' or 'branches', got {name!r}."
            + did_you_mean(str(name), get_args(EngineName))
        )
    if not isinstance(lanes, int) or isinstance(lanes, bool) or lanes < 1:
        raise FieldError(f"SimulatedWorld.lanes must be a whole number of at least 1, got {lanes!r}.")
    on_cpu = objective.device.type == "cpu"
    if compiled:
        _refuse_uncompilable(name, objective, on_cpu=on_cpu)
    if name == "loop":
        return EngineChoice(LoopEngine(), "asked for")
    if name == "auto" and on_cpu and (reason := _fills_a_cpu(objective)):
        return EngineChoice(LoopEngine(per_core=True), reason)
    try:
        if not on_cpu:
            return _choose_graphs(name, objective, lanes, compiled=compiled, reproducible=reproducible)
        backend: Backend = "branches" if name == "branches" else "stacked"
        refuse_unbatchable(objective, backend)
    except EngineError as error:
        if name != "auto":
            raise
        return EngineChoice(LoopEngine(), str(error))
    reason = "asked for"
    if name == "auto":
        small = sum(objective.model.sizes) <= _LARGE_ON_CPU
        reason = (
            "a small model: clients side by side share the overhead"
            if small
            else "gradients of dense layers in closed form"
        )
    return EngineChoice(BatchedEngine(lanes, backend), reason)


def _refuse_uncompilable(name: EngineName, objective: Objective, *, on_cpu: bool) -> None:
    """Raise where steps would quietly stay as they are: only what graphs capture is compiled."""
    if on_cpu:
        raise ClashError(
            "SimulatedWorld.compile=True compiles steps that a CUDA device captures, and SimulatedWorld.device is "
            "a CPU: leave `compile` out."
        )
    if name == "loop":
        raise ClashError(
            "SimulatedWorld.compile=True compiles steps that are captured, which engine='loop' does not do: use "
            "engine='branches' or 'auto'."
        )
    if name == "batched" and dense_stack(objective) is None:
        raise ClashError(
            "SimulatedWorld.compile=True with engine='batched' compiles gradients in closed form, which "
            f"{type(objective.model.module).__name__} does not have here: use engine='branches' or 'auto'."
        )


def _choose_graphs(
    name: EngineName, objective: Objective, lanes: int, *, compiled: bool, reproducible: bool
) -> EngineChoice:
    """Captured graphs on an accelerator: by rule where one way is known to be faster, else by a trial."""
    backends: tuple[Backend, ...] = ("branches", "stacked")
    reason = "asked for"
    if name == "branches":
        backends = ("branches",)
    elif name == "batched":
        backends = ("stacked",)
    elif compiled and dense_stack(objective) is None:
        backends, reason = ("branches",), "compiled for each client"
    elif _convolves(objective):
        backends, reason = ("branches",), "convolutions of several clients run side by side, not as one"
    elif has_own_stack(objective):
        backends, reason = ("stacked",), "dense layers of several clients are computed as one"
    elif reproducible:
        backends, reason = ("branches",), "not by a trial, whose times differ between repetitions"
    seconds: dict[Backend, float] = {}
    for place, backend in enumerate(backends):
        try:
            refuse_unbatchable(objective, backend)
            seconds[backend] = seconds_per_step(objective, backend)
        except EngineError:
            if place == len(backends) - 1 and not seconds:
                raise
    fastest = min(seconds, key=seconds.__getitem__)
    if name == "auto" and len(backends) > 1:
        times = ", ".join(f"{backend} {taken * 1e6:.0f} us" for backend, taken in seconds.items())
        reason = f"measured for a step of eight clients: {times}"
    return EngineChoice(GraphEngine(lanes, fastest, compiled), reason)


def _convolves(objective: Objective) -> bool:
    return any(isinstance(m, nn.modules.conv._ConvNd) for m in objective.model.module.modules())


def _fills_a_cpu(objective: Objective) -> str | None:
    """Why one client at a time is faster for this model on a CPU, or None."""
    size = sum(objective.model.sizes)
    if _convolves(objective):
        return "convolutions of one client already fill a core"
    if size > _LARGE_ON_CPU and dense_stack(objective) is None:
        return "a large model of one client already fills a core"
    if size > _LARGE_BY_VMAP and not has_own_stack(objective):
        return "vectorising this model by vmap costs a CPU more than it shares"
    return None
