"""The choice of an engine by model and device, and the reason for it."""

import warnings
from time import perf_counter
from typing import NamedTuple, get_args

import torch
from torch import Tensor, nn

from fairlead.errors import ClashError, EngineError, FieldError, did_you_mean
from fairlead.local_solver import LocalSolver
from fairlead.optimizers.descent import SGD
from fairlead.parameters import watched_calls
from fairlead.randomness import keyed_uniform
from fairlead.worlds.base import EngineName
from fairlead.worlds.engines.base import Engine, LocalJobs, LocalSteps, Objective
from fairlead.worlds.engines.dense import dense_stack
from fairlead.worlds.engines.graphs import GraphEngine
from fairlead.worlds.engines.lane_gradients import LaneConvolutions, Vmap, stacked_path
from fairlead.worlds.engines.loop import LoopEngine
from fairlead.worlds.engines.paths import Backend, BatchedEngine

_CLIENTS, _STEPS, _BATCH, _REPEATS = 8, 8, 32, 3


def seconds_per_step(objective: Objective, backend: Backend) -> float:
    """Time of one step of eight clients in captured graphs; raises where they cannot be captured."""
    jobs, engine = _trial_jobs(objective), GraphEngine(_CLIENTS, backend)
    try:
        engine.run(objective, jobs)
        torch.cuda.synchronize()
        taken = []
        for _ in range(_REPEATS):
            started = perf_counter()
            engine.run(objective, jobs)
            torch.cuda.synchronize()
            taken.append(perf_counter() - started)
    except EngineError:
        raise
    except RuntimeError as error:
        reason = str(error).splitlines()[0]
        raise EngineError(
            f"The steps of {type(objective.model.module).__name__} cannot be captured in a CUDA graph: {reason} "
            'Keep values on the device, without .item() or control flow on them, or use engine="loop".'
        ) from error
    return min(taken) / _STEPS


def _trial_jobs(objective: Objective) -> LocalJobs:
    model, num_rows = objective.model, len(objective.data.inputs)
    rows = torch.arange(_CLIENTS * _STEPS * _BATCH).view(_CLIENTS, _STEPS, _BATCH) % num_rows
    return LocalJobs(
        clients=range(_CLIENTS),
        steps=LocalSteps(
            solver=LocalSolver(SGD(lr=0.0), steps=_STEPS, batch_size=_BATCH),
            batches=list(rows),
            noise=[torch.zeros(_STEPS + 1, dtype=torch.int64)] * _CLIENTS,
            step_lrs=torch.zeros(_STEPS, dtype=torch.float64),
        ),
        anchor=model.initial_params(),
        buffers=model.initial_buffers(),
        shared={},
        memory={},
    )


def refuse_unbatchable(objective: Objective, backend: Backend) -> None:
    """Raise an error that names the module that cannot run several clients at once, and the remedy."""
    for name, module in objective.model.module.named_modules():
        tracked = getattr(module, "track_running_stats", False)
        if isinstance(module, nn.modules.batchnorm._BatchNorm) or tracked:
            raise EngineError(
                f"The batched engine cannot run {type(module).__name__} {name!r}: its batch statistics "
                "would mix in padding, and its running ones differ by client. Use GroupNorm or "
                'LayerNorm, or engine="loop".'
            )
    # In full precision, where a difference can only come from the other examples.
    with torch.autocast(objective.device.type, enabled=False):
        padded, alone = _trial_losses(objective, backend)
    tolerance = torch.finfo(alone.dtype).eps ** 0.5
    if not torch.allclose(padded[:2], alone, rtol=tolerance, atol=tolerance, equal_nan=True):
        raise EngineError(
            f"The batched engine cannot run {type(objective.model.module).__name__}: the loss of an example "
            "depends on the other examples of its batch, into which padding would mix. Keep examples apart, "
            'with the batch as first axis wherever dropout is drawn, or use engine="loop".'
        )


def _trial_losses(objective: Objective, backend: Backend) -> tuple[Tensor, Tensor]:
    """Losses of a batch of three examples, and of its first two alone."""
    params, buffers = _trial_params(objective), objective.model.initial_buffers()
    rows = torch.arange(6, device=params.device).view(2, 3) % len(objective.data.inputs)
    noise = torch.zeros(2, dtype=torch.int64, device=params.device) if objective.draws_noise else None
    objective.model.module.train()
    if backend == "stacked":
        padded = _try_stacked(objective, params.repeat(2, 1), buffers, rows, noise)[0]
    else:
        with torch.no_grad():
            padded = objective.losses(params, buffers, rows[0], None if noise is None else noise[0])
    with torch.no_grad():
        alone = objective.losses(params, buffers, rows[0, :2], None if noise is None else noise[0])
    return padded, alone


def _trial_params(objective: Objective) -> Tensor:
    """Parameters away from the initial ones, at which a layer of zeros may hide the layers before it."""
    params = objective.model.initial_params()
    shift = keyed_uniform(torch.tensor(1, device=params.device), params.shape, params.device)
    return params + 0.1 * (shift - 0.5).to(params)


def _try_stacked(
    objective: Objective, params: Tensor, buffers: Tensor, rows: Tensor, noise: Tensor | None
) -> Tensor:
    """Losses of two clients at once; an error names the module that cannot run so."""
    running: list[str] = []
    with (
        watched_calls(objective.model.module, running.append, lambda _: running.pop()),
        warnings.catch_warnings(),
    ):
        # An operation without a batching rule runs one client after another: worse than the loop.
        warnings.filterwarnings("error", message="There is a performance drop", category=UserWarning)
        try:
            leaf = params.requires_grad_()
            inputs, targets = objective.examples(rows)
            # The hooks turn plain stacks away from batched products to vmap: it refuses a loss that decides by
            # values, among which those products would show it other clients' too.
            losses = stacked_path(objective).losses(objective, buffers)(leaf, inputs, targets, noise)
            torch.autograd.grad(losses.sum(), leaf)
        except EngineError:
            raise
        except (RuntimeError, ValueError, IndexError, UserWarning) as error:
            culprit = running[-1] if running else "the loss"
            reason = str(error).splitlines()[0].split(" Please file us an issue")[0]
            raise EngineError(
                f"The batched engine cannot run {culprit}: {reason} Rewrite it without control flow that "
                'depends on values, or use engine="loop".'
            ) from error
    return losses.detach()


_LARGE_ON_CPU = 1_000_000
"""Parameters above which one client's products keep a core busy."""
_LARGE_BY_VMAP = 100_000
"""The same for models without batched products; an LSTM of 0.8 M parameters was 1.4 times slower."""


class EngineChoice(NamedTuple):
    """An engine and the reason for it, for the run's provenance."""

    engine: Engine
    reason: str


def choose_engine(
    name: EngineName, objective: Objective, lanes: int, *, compiled: bool = False, reproducible: bool = False
) -> EngineChoice:
    """The requested engine, or for "auto" the one that is faster for this model and device.

    On a CPU, and if `reproducible`, the choice is a pure function of the model, so that a resumed run uses the same
    engine. On an accelerator, a short trial decides if no rule does.
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
        _refuse_uncompilable(name, objective)
    if name == "loop":
        return EngineChoice(LoopEngine(), "asked for")
    if objective.device.type == "mps":
        if name != "auto":
            raise ClashError(f"SimulatedWorld.device='mps' needs engine='loop' or 'auto', got {name!r}.")
        return EngineChoice(LoopEngine(), "the only engine for mps")
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
    if name == "auto" and sum(objective.model.sizes) <= _LARGE_ON_CPU:
        reason = "a small model: clients side by side share the overhead"
    elif name == "auto":
        reason = "gradients of dense layers in closed form"
    return EngineChoice(BatchedEngine(lanes, backend), reason)


def _refuse_uncompilable(name: EngineName, objective: Objective) -> None:
    """Raise if nothing would be compiled: only steps that graphs capture are."""
    if objective.device.type in ("cpu", "mps"):
        raise ClashError(
            "SimulatedWorld.compile=True compiles steps that a CUDA device captures, and SimulatedWorld.device is "
            f"{objective.device.type!r}: leave `compile` out."
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
    """Captured graphs on an accelerator: by rule if one back end is known to be faster, else by a trial."""
    backends: tuple[Backend, ...] = ("branches", "stacked")
    reason = "asked for"
    if name == "branches":
        backends = ("branches",)
    elif name == "batched":
        backends = ("stacked",)
    elif compiled and dense_stack(objective) is None:
        backends, reason = ("branches",), "compiled for each client"
    elif _convolves(objective) and not isinstance(stacked_path(objective), LaneConvolutions):
        backends, reason = ("branches",), "convolutions of several clients run side by side, not as one"
    elif _has_own_stack(objective):
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


def _has_own_stack(objective: Objective) -> bool:
    """Whether the model runs in lanes by batched products rather than by `vmap`."""
    return not isinstance(stacked_path(objective), Vmap)


def _convolves(objective: Objective) -> bool:
    return any(isinstance(m, nn.modules.conv._ConvNd) for m in objective.model.module.modules())


def _fills_a_cpu(objective: Objective) -> str | None:
    """Why one client at a time is faster for this model on a CPU, or None."""
    size = sum(objective.model.sizes)
    if _convolves(objective):
        return "convolutions of one client already fill a core"
    if size > _LARGE_ON_CPU and dense_stack(objective) is None:
        return "a large model of one client already fills a core"
    if size > _LARGE_BY_VMAP and not _has_own_stack(objective):
        return "vectorizing this model by vmap costs a CPU more than it saves"
    return None
