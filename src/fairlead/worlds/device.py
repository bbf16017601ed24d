"""Devices: those of this machine, how they multiply, and how examples in host memory reach them."""

import os
import shutil
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from tempfile import TemporaryDirectory
from typing import Literal, get_args

import torch
from torch import Tensor

from fairlead.clients.data import ClientData, offsets_of
from fairlead.errors import ClashError, FieldError, did_you_mean, field_error, short
from fairlead.memory.budget import available_bytes
from fairlead.worlds.engines.base import Objective


def usable_device(owner: object | None, device: torch.device | str) -> torch.device:
    """The device of that name, refused for `owner.device`, or the option --device, unless engines run on it here."""
    try:
        found = torch.device(device)
    except (RuntimeError, TypeError) as error:
        raise _refused(owner, device) from error
    count = {"cpu": 1, "cuda": torch.cuda.device_count(), "mps": int(torch.backends.mps.is_available())}
    # Torch keeps eight bits of an index, so that a large one may come back below zero.
    if not 0 <= (found.index or 0) < count.get(found.type, 0):
        raise _refused(owner, device)
    return found


def _refused(owner: object | None, device: torch.device | str) -> FieldError:
    allowed = "'cpu', 'mps'" if torch.backends.mps.is_available() else "'cpu'"
    allowed += f" or a CUDA device of this machine, which has {torch.cuda.device_count() or 'none'}"
    if owner is None:
        return FieldError(f"--device must be {allowed}, got {short(device)}.")
    return field_error(owner, "device", allowed, device)


@contextmanager
def shared_gpus() -> Iterator[dict[str, str]]:
    """Variables by which processes use a GPU at the same time within the block; none where they must take turns.

    They connect to a server, NVIDIA MPS, if that is installed. One that runs already is left alone.
    """
    control, variable = shutil.which("nvidia-cuda-mps-control"), "CUDA_MPS_PIPE_DIRECTORY"
    if variable in os.environ:
        yield {variable: os.environ[variable]}
        return
    with TemporaryDirectory(prefix="fairlead-mps-") as folder:
        variables = {variable: folder, "CUDA_MPS_LOG_DIRECTORY": folder}
        environment = {**os.environ, **variables}
        if (
            control is None
            or subprocess.run([control, "-d"], env=environment, capture_output=True).returncode
        ):
            yield {}
            return
        try:
            yield variables
        finally:
            subprocess.run([control], input=b"quit\n", env=environment, capture_output=True)


Precision = Literal["full", "tf32", "bfloat16"]


@dataclass(frozen=True)
class Arithmetic:
    """How local work and evaluation are computed.

    `precision`: "full" multiplies in the type of the parameters; "tf32" lets an accelerator round factors
    to 10 bits, "bfloat16" to 7 bits of mantissa. Parameters, updates and sums stay as they are. Left alone,
    torch runs convolutions in TF32 and matrix products in full precision.

    `reproducible`: the same bits on every repetition on the same device, at some cost in speed.
    """

    precision: Precision = "full"
    reproducible: bool = False

    def __post_init__(self) -> None:
        if self.precision not in get_args(Precision):
            raise FieldError(
                f"SimulatedWorld.precision must be 'full', 'tf32' or 'bfloat16', got {self.precision!r}."
                + did_you_mean(str(self.precision), get_args(Precision))
            )

    def require_device(self, device: torch.device, dtype: torch.dtype) -> None:
        """Refuse a precision that a device does not have, and prepare the device."""
        if self.precision != "full" and dtype != torch.float32:
            raise ClashError(
                f"SimulatedWorld.precision={self.precision!r} rounds factors of float32 products: leave "
                f"SimulatedWorld.dtype at torch.float32, got {dtype}."
            )
        if self.precision == "tf32" and device.type == "cpu":
            raise ClashError(
                "SimulatedWorld.precision='tf32' needs an NVIDIA device: use 'full' or 'bfloat16'."
            )
        if device.type == "mps" and (self != Arithmetic() or dtype != torch.float32):
            raise ClashError(
                "device='mps' computes in float32 alone: leave dtype, precision and reproducible out, or use 'cpu'."
            )
        if self.reproducible and device.type == "cuda":
            # cuBLAS reads it when it is first used in a process.
            os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")

    @contextmanager
    def on(self, device: torch.device, *, autotune: bool = True) -> Iterator[None]:
        """Compute this way on a device within the block.

        `autotune` tries convolutions out for every new shape of a batch, which pays off where few shapes return
        often; it is off where `reproducible`.
        """
        if device.type == "mps":
            # Of float32 alone; torch before 2.5 has no autocast there, not even a disabled one.
            yield
            return
        with torch.autocast(
            device.type, torch.bfloat16, enabled=self.precision == "bfloat16", cache_enabled=False
        ):
            if device.type != "cuda":
                yield
                return
            cudnn, matmul = torch.backends.cudnn, torch.backends.cuda.matmul
            before = (cudnn.allow_tf32, matmul.allow_tf32, cudnn.deterministic, cudnn.benchmark)
            strict = torch.are_deterministic_algorithms_enabled()
            only_warned = torch.is_deterministic_algorithms_warn_only_enabled()
            cudnn.allow_tf32 = matmul.allow_tf32 = self.precision == "tf32"
            cudnn.deterministic, cudnn.benchmark = self.reproducible, autotune and not self.reproducible
            torch.use_deterministic_algorithms(
                self.reproducible or strict, warn_only=only_warned and not self.reproducible
            )
            try:
                # Graphs and kernels are launched on the current device, whatever their tensors are on.
                with torch.cuda.device(device):
                    yield
            finally:
                cudnn.allow_tf32, matmul.allow_tf32, cudnn.deterministic, cudnn.benchmark = before
                torch.use_deterministic_algorithms(strict, warn_only=only_warned)


_SPARE = 1.25
"""Room beyond what a round needs, so that the next one seldom needs more."""


class HostData:
    """Room on the device for the examples of one round's clients, at a fixed address.

    The clients of a round own ranges of rows, so each is one copy; engines then read the room as they would
    read data that live on the device. `examples_of` gives a client's inputs and targets; by default they are
    those of the objective.
    """

    def __init__(
        self, objective: Objective, examples_of: Callable[[int], tuple[Tensor, Tensor]] | None = None
    ) -> None:
        self._source = objective
        self._examples_of = examples_of or objective.data.examples_of
        self._room = self._allocate(0)

    def load(self, clients: Tensor) -> tuple[Objective, Tensor]:
        """The objective over the given clients' examples, and the row at which each client's begin."""
        examples = [self._examples_of(client) for client in clients.tolist()]
        starts = offsets_of(torch.tensor([len(inputs) for inputs, _ in examples], dtype=torch.int64))
        total = int(starts[-1])
        if total > len(self._room.data.inputs):
            self._room = self._allocate(int(total * _SPARE))
        for start, (inputs, targets) in zip(starts.tolist(), examples, strict=False):
            place = slice(start, start + len(inputs))
            self._room.data.inputs[place].copy_(inputs, non_blocking=True)
            self._room.data.targets[place].copy_(targets, non_blocking=True)
        return self._room, starts[:-1]

    def _allocate(self, rows: int) -> Objective:
        return replace(self._source, data=self._source.data.blank(rows, self._source.device))


def stays_on_host(data: ClientData, device: torch.device) -> bool:
    """Whether the examples would take more than half of a device's free memory."""
    if device.type != "cuda":
        return False
    return data.inputs.nbytes + data.targets.nbytes > available_bytes(device) // 2


def on_host(data: ClientData, dtype: torch.dtype, device: torch.device) -> ClientData:
    """The same data in host memory, from which the device can fetch without a detour if it is one."""
    data = data.to(torch.device("cpu"), dtype)
    if device.type != "cuda":
        return data
    return replace(data, inputs=data.inputs.pin_memory(), targets=data.targets.pin_memory())
