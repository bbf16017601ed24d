"""What engines compute with: objective, jobs and results; and the roles `Engine` and `Path`."""

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

import torch
from torch import Tensor, nn

from fairlead.clients.data import ClientData
from fairlead.errors import EngineError, FairleadError, MemoryBudgetError
from fairlead.local_solver import LocalSolver
from fairlead.optimizers.descent import SGD
from fairlead.parameters import FlatModule
from fairlead.records import PathRun, Vectors, WorkOrder
from fairlead.task import PerExample, refuse_unknown_classes

if TYPE_CHECKING:
    from fairlead.worlds.engines.mlp_triton import MlpDescent


class LaneOrder:
    """The model's flat vector with the kernels of convolutions turned, channels last: (O, H, W, I) for (O, I, H, W).

    So they lie in memory as do the images they meet. Otherwise every step would turn each kernel on its way in, and
    its gradient on its way out, which for large kernels costs a third as much as the convolutions.
    """

    def __init__(self, model: FlatModule) -> None:
        self._model = model
        self._turned = {
            f"{name}.weight".lstrip(".")
            for name, part in model.module.named_modules()
            if type(part) is nn.Conv2d and "weight" in part._parameters
        }

    def arranged(self, vectors: Tensor) -> Tensor:
        """Vectors (..., d) of the model as lanes keep them."""
        pieces = []
        for name, shape, piece in self._pieces(vectors):
            if name in self._turned:
                piece = piece.view(*piece.shape[:-1], *shape).movedim(-3, -1).flatten(-4)
            pieces.append(piece)
        return torch.cat(pieces, -1)

    def restored(self, vectors: Tensor) -> Tensor:
        """Vectors (..., d) of lanes as the model has them."""
        return torch.cat([values.flatten(vectors.ndim - 1) for values in self.named(vectors).values()], -1)

    def named(self, vectors: Tensor) -> dict[str, Tensor]:
        """Parameters by name that share memory with vectors (..., d) of lanes."""
        named: dict[str, Tensor] = {}
        for name, shape, piece in self._pieces(vectors):
            if name in self._turned:
                outputs, inputs, height, width = shape
                turned = piece.view(*piece.shape[:-1], outputs, height, width, inputs)
                named[name] = turned.movedim(-1, -3)
            else:
                named[name] = piece.view(*piece.shape[:-1], *shape)
        return named

    def _pieces(self, vectors: Tensor) -> Iterator[tuple[str, torch.Size, Tensor]]:
        model = self._model
        return zip(model.names, model.shapes, torch.split(vectors, model.sizes, -1), strict=True)


def _takes(model: FlatModule, inputs: Tensor, noise: Tensor | None) -> bool:
    try:
        model.call(model.initial_params(), model.initial_buffers(), inputs, noise)
    except (RuntimeError, ValueError, IndexError):
        return False
    return True


@dataclass(frozen=True, eq=False)
class Objective:
    """The clients' objective: a model, a loss per example and all clients' data, on one device."""

    model: FlatModule
    loss: PerExample
    data: ClientData
    draws_noise: bool
    channels_last: bool
    """Whether images are laid out in memory with all channels of a pixel together: faster for convolutions on a CPU,
    and on an accelerator in reduced precision."""
    marks_missing: bool
    """Whether some examples are marked by a negative target to have none."""
    takes_one: bool = True
    """Whether the model trains on a batch of one example, which BatchNorm may refuse."""

    @staticmethod
    def build(
        model: FlatModule, loss: PerExample, data: ClientData, *, reduced_precision: bool = False
    ) -> "Objective":
        """An objective whose model and loss were tested on a few examples."""
        # Two examples at least, since some layers need several to normalize over.
        rows = torch.arange(max(min(len(data.inputs), 3), 2)) % len(data.inputs)
        device = next(model.module.parameters()).device
        inputs, targets = data.inputs[rows].to(device), data.targets[rows].to(device)
        key = torch.zeros((), dtype=torch.int64, device=device)
        try:
            convolves = any(isinstance(part, nn.Conv2d) for part in model.module.modules())
            channels_last = (
                inputs.ndim == 4 and convolves and (reduced_precision or inputs.device.type == "cpu")
            )
            marks_missing = not targets.is_floating_point() and bool((data.targets < 0).any())
            objective = Objective(model, loss, data, model.draws_noise(inputs), channels_last, marks_missing)
            noise = key if objective.draws_noise else None
            with torch.no_grad():
                outputs = model.call(model.initial_params(), model.initial_buffers(), inputs, noise)
                refuse_unknown_classes(loss, outputs, data.targets, data.whose)
                losses = loss(outputs, targets)
        except FairleadError:
            raise
        except (RuntimeError, ValueError, IndexError, TypeError, AttributeError) as error:
            if "allocate memory" in str(error):
                raise MemoryBudgetError(
                    f"{type(model.module).__name__} needs more memory than is left for a batch with inputs of shape "
                    f"{tuple(inputs.shape)}: make Task.model or the inputs smaller."
                ) from error
            raise EngineError(
                f"{type(model.module).__name__} or its loss fails on a batch with inputs of shape "
                f"{tuple(inputs.shape)} and targets of shape {tuple(targets.shape)}: "
                f"{' '.join(str(error).split()).rstrip('.')}. Check that Task.model, Task.loss and the targets "
                "(classes, or numbers for a regression) fit together."
            ) from error
        if not isinstance(losses, Tensor) or losses.shape != rows.shape:
            got = f"shape {tuple(losses.shape)}" if isinstance(losses, Tensor) else type(losses).__name__
            raise EngineError(
                f"Task.loss must give one number per example, (batch,) = ({len(rows)},), got {got}: use "
                'reduction="none" and average over all axes but the first.'
            )
        return replace(objective, takes_one=_takes(model, inputs[:1], noise))

    @cached_property
    def lane_order(self) -> LaneOrder | None:
        """The order in which lanes of branches keep parameters; None for the order of the model.

        The model is tested with it, since a view of a kernel as a matrix needs the kernel in one piece.
        """
        if not self.channels_last:
            return None
        model, order = self.model, LaneOrder(self.model)
        trial = torch.zeros(
            (2, *self.data.inputs.shape[1:]), dtype=self.data.inputs.dtype, device=self.device
        )
        noise = torch.zeros((), dtype=torch.int64, device=self.device) if self.draws_noise else None
        named = order.named(order.arranged(model.initial_params()))
        try:
            with torch.no_grad():
                model.call(named, model.initial_buffers(), trial, noise, channels_last=True)
        except RuntimeError:
            return None
        return order

    def losses(self, params: Tensor, buffers: Tensor, rows: Tensor, noise: Tensor | None) -> Tensor:
        """Loss of each of the given examples at `(d,)` parameters."""
        inputs, targets = self.examples(rows)
        params, buffers = params.to(self.device), buffers.to(self.device)
        outputs = self.model.call(params, buffers, inputs, noise, channels_last=self.channels_last)
        return self.loss(outputs, targets)

    @property
    def device(self) -> torch.device:
        """Where the model computes; the data may stay elsewhere."""
        return next(self.model.module.parameters()).device

    def examples(self, rows: Tensor) -> tuple[Tensor, Tensor]:
        """Inputs and targets of the given rows, on the model's device."""
        rows = rows.to(self.data.inputs.device)
        return self.data.inputs[rows].to(self.device), self.data.targets[rows].to(self.device)

    def gradient(
        self, params: Tensor, buffers: Tensor, rows: Tensor, noise: Tensor | None
    ) -> tuple[Tensor, Tensor]:
        """Mean loss over the given examples and its gradient (d,); updates `buffers` in place."""
        leaf = params.detach().requires_grad_()
        loss = self.losses(leaf, buffers, rows, noise).mean()
        return loss.detach(), torch.autograd.grad(loss, leaf)[0]

    def mean_gradient(
        self, params: Tensor, buffers: Tensor, rows: slice | Tensor, noise: Tensor | None, chunk: int = 1024
    ) -> Tensor:
        """The gradient of the mean loss over any number of examples, leaving `buffers` as they are."""
        total = torch.zeros_like(params)
        places = torch.arange(rows.start, rows.stop) if isinstance(rows, slice) else rows
        for part in torch.split(places, chunk):
            total += self.gradient(params, buffers.clone(), part, noise)[1] * len(part)
        return total / max(len(places), 1)


@dataclass(frozen=True, eq=False)
class LocalSteps:
    """Local steps of a round that do not depend on its model, client by client."""

    solver: LocalSolver
    batches: Sequence[Tensor]
    """Row numbers (K_i, B_i) on the CPU, -1 where a batch is short."""
    noise: Sequence[Tensor]
    """Keys (K_i + 1,) int64 of augmentation and dropout at each step, and of the full gradient; read where drawn."""
    step_lrs: Tensor
    """(longest K,) float64."""

    @property
    def num_steps(self) -> list[int]:
        return [len(batches) for batches in self.batches]


@dataclass(frozen=True, eq=False)
class LocalJobs:
    """The local work of one round: one entry per client that will arrive, ascending by client."""

    clients: Sequence[int]
    steps: LocalSteps
    anchor: Tensor
    buffers: Tensor
    """(b,), or (m, b) if clients keep running statistics of their own, which only models of the loop engine have."""
    shared: Vectors
    memory: Vectors
    """(m, ·) each."""

    def __len__(self) -> int:
        return len(self.steps.batches)

    def room_to_keep(self) -> Tensor | None:
        """Zeros (m, k) for the numbers that the optimizer leaves for the next round; None if there are none."""
        names = self.steps.solver.optimizer.kept
        return self.anchor.new_zeros((len(self), len(names))) if names else None

    def some(self, jobs: Sequence[int]) -> "LocalJobs":
        """These jobs alone."""
        batches, noise = ([part[job] for job in jobs] for part in (self.steps.batches, self.steps.noise))
        return replace(
            self,
            clients=[self.clients[job] for job in jobs],
            steps=replace(self.steps, batches=batches, noise=noise),
            memory={name: rows[list(jobs)] for name, rows in self.memory.items()},
        )


class LocalReturns(NamedTuple):
    """Results of local work, one row per client."""

    delta: Tensor
    """(m, d) local − anchor."""
    loss: Tensor
    """(m,) mean loss over the local steps."""
    buffers: Tensor
    """(m, b) running statistics after local work."""
    ran: tuple[PathRun, ...]
    """How it was computed."""
    anchor_gradient: Tensor | None = None
    """(m, d) ∇F_i at the anchor; None if no correction needs it."""
    kept: Tensor | None = None
    """(m, k) numbers that the optimizer leaves for the next round; None if there are none."""

    @staticmethod
    def empty(order: WorkOrder, num_clients: int) -> "LocalReturns":
        """Uninitialized rows for so many clients."""
        delta = order.anchor.new_empty((num_clients, len(order.anchor)))
        buffers = order.buffers.new_empty((num_clients, len(order.buffers)))
        gradient = torch.empty_like(delta) if order.solver.needs_anchor_gradient else None
        names = order.solver.optimizer.kept
        kept = delta.new_empty((num_clients, len(names))) if names else None
        return LocalReturns(delta, delta.new_empty(num_clients), buffers, (), gradient, kept)

    @staticmethod
    def joined(parts: "Sequence[LocalReturns]") -> "LocalReturns":
        """All parts, concatenated."""
        if len(parts) == 1:
            return parts[0]
        gradients = [part.anchor_gradient for part in parts if part.anchor_gradient is not None]
        kept = [part.kept for part in parts if part.kept is not None]
        return LocalReturns(
            torch.cat([part.delta for part in parts]),
            torch.cat([part.loss for part in parts]),
            torch.cat([part.buffers for part in parts]),
            PathRun.tally(run for part in parts for run in part.ran),
            torch.cat(gradients) if gradients else None,
            torch.cat(kept) if kept else None,
        )

    def to(self, device: torch.device) -> "LocalReturns":
        """The same on another device."""
        parts: dict[str, Any] = self._asdict()
        moved = {name: part.to(device) for name, part in parts.items() if isinstance(part, Tensor)}
        return self._replace(**(parts | moved))

    @property
    def rows(self) -> tuple[Tensor | None, ...]:
        """All tensors."""
        return self.delta, self.loss, self.buffers, self.anchor_gradient, self.kept


class LaneBatch(NamedTuple):
    """One batch of several clients at once, one row per lane."""

    inputs: Tensor
    """(L, B, ...)"""
    targets: Tensor
    """(L, B, ...)"""
    weight: Tensor
    """(L, B) 1/size for examples of the batch, 0 for padding."""
    noise: Tensor | None
    """(L,) keys of augmentation and dropout, None where the model uses neither."""


class LaneGradient(ABC):
    """Computes the gradients of several clients at once, each at its own parameters."""

    order: LaneOrder | None = None
    """The order of its parameters and gradients; None for that of the model."""

    @abstractmethod
    def __call__(self, params: Tensor, batch: LaneBatch, out: Tensor) -> Tensor:
        """Mean loss (L,) at `params` (L, d); its gradient is written into `out` (L, d)."""


class Engine(ABC):
    """Runs clients' local work. All engines give the same numbers up to rounding."""

    @abstractmethod
    def run(self, objective: Objective, jobs: LocalJobs) -> LocalReturns:
        """Local work of every job."""


class Path(ABC):
    """A way to compute local steps, which says what it takes. `paths.PATHS` lists all of them."""

    name: ClassVar[str]
    """With `backend`, no other path has it."""
    engine: ClassVar[str]
    """The `SimulatedWorld.engine` that it belongs to."""
    takes_only: ClassVar[str]
    """The work that it takes, for people."""
    devices: ClassVar[tuple[str, ...]] = ("cpu", "cuda")
    backend: ClassVar[str] = "torch"
    """The package that computes it."""

    def refusal(self, objective: Objective, jobs: LocalJobs) -> str | None:
        """Why it does not take these jobs; None if it takes them."""
        return None

    def missing(self) -> str | None:
        """What this machine lacks for it; None if it can run here."""
        if "cpu" not in self.devices and not torch.cuda.is_available():
            return "no CUDA device"
        return None if find_spec(self.backend) else f"{self.backend} is not installed"

    def ran(self, anchor: Tensor, lanes: int, *, precision: str | None = None, how: str = "") -> PathRun:
        """What to record of work that it does now."""
        return PathRun(self.name, how or self.backend, lanes, precision or _precision_of_products(anchor))


def _precision_of_products(like: Tensor) -> str:
    """The type in which torch multiplies numbers of this tensor's type and device at the moment."""
    device, dtype = like.device.type, like.dtype
    if device != "mps" and torch.is_autocast_enabled(device):
        dtype = torch.get_autocast_dtype(device)
    elif device == "cuda" and dtype == torch.float32 and torch.backends.cuda.matmul.allow_tf32:
        return "tf32"
    return str(dtype).removeprefix("torch.")


class WholePath(Path, Engine, ABC):
    """A path that takes all steps of all jobs at once."""


class LanePath(Path, ABC):
    """A path that gives the gradients of clients side by side in lanes."""

    def refusal(self, objective: Objective, jobs: LocalJobs | None = None) -> str | None:
        """Why it does not take these jobs, or any of this model; None if it takes them."""
        return None

    @abstractmethod
    def gradient(self, objective: Objective, buffers: Tensor, *, compiled: bool = False) -> LaneGradient:
        """The gradient of several lanes at once."""

    def kernels(self, objective: Objective, solver: LocalSolver) -> "MlpDescent | None":
        """Whole steps of lanes by kernels, where gradients are not even written; None for all paths but one."""
        return None


class AsyncEngine(Engine, ABC):
    """An engine whose `run` only enqueues work on a device, so that the host can prepare the next round."""

    @abstractmethod
    def prepare(self, objective: Objective, steps: LocalSteps) -> None:
        """Plan steps ahead of time, without the model; `run` gives the same bits without it."""


class PlainSGD(NamedTuple):
    """y ← y − η (g + λ y + μ (y − anchor) + s)."""

    weight_decay: float
    """λ."""
    mu: float
    """μ."""
    shifted: bool
    """Whether there is an s, a vector of each client that stays the same in all its local steps."""

    @property
    def kept(self) -> float:
        """λ + μ: the factor of y."""
        return self.weight_decay + self.mu


NOT_SGD_ONLY = "the solver is more than SGD without momentum with weight decay and steady corrections"


def sgd_only(solver: LocalSolver) -> PlainSGD | None:
    """The steps of SGD without momentum and clipping whose corrections all are steady; None for any other solver."""
    optimizer, corrections = solver.optimizer, solver.step_corrections
    pulls = [correction.pull for correction in corrections if correction.pull is not None]
    if type(optimizer) is not SGD or optimizer.momentum or solver.clip is not None:
        return None
    if len(pulls) < len(corrections):
        return None
    return PlainSGD(float(optimizer.weight_decay), float(sum(pulls)), bool(solver.step_memory))


NOT_UNSHIFTED = "the solver is more than plain SGD with weight decay and Proximal"


def unshifted(solver: LocalSolver) -> bool:
    """Whether steps are those of `sgd_only` without s, which kernels of GPUs take."""
    descent = sgd_only(solver)
    return descent is not None and not descent.shifted


def constant_terms(jobs: LocalJobs) -> Tensor:
    """What steps add to g + (λ + μ) y: s − μ·anchor, (m, d), or (d,) if it is the same for all; for `sgd_only`."""
    term = torch.zeros_like(jobs.anchor)
    for correction in jobs.steps.solver.step_corrections:
        # Of no gradient at the origin.
        term = correction.correct(term, torch.zeros_like(jobs.anchor), jobs.anchor, jobs.memory, jobs.shared)
    return term


class FlatBatches(NamedTuple):
    """The batches of all jobs in one piece: step k of job j has `rows[starts[j] + k·sizes[j]:][:sizes[j]]`."""

    rows: Tensor
    """Row numbers, -1 for padding."""
    starts: Tensor
    """(m,)."""
    sizes: Tensor
    """(m,), padding included."""
    num_steps: Tensor
    """(m,)."""


def flat_batches(jobs: LocalJobs) -> FlatBatches:
    batches = jobs.steps.batches
    counts = torch.tensor([own.numel() for own in batches])
    return FlatBatches(
        torch.cat([own.flatten() for own in batches]),
        counts.cumsum(0) - counts,
        torch.tensor([own.shape[1] for own in batches]),
        torch.tensor(jobs.steps.num_steps),
    )
