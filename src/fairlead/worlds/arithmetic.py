"""Devices of this machine, and the precision of products: torch's switches, set within a block and restored."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Literal, get_args

import torch

from fairlead.errors import ClashError, FieldError, did_you_mean, field_error


def usable_device(owner: object, device: torch.device | str) -> torch.device:
    """The device of that name, which `owner.device` refuses unless engines can compute on it here."""
    try:
        found = torch.device(device)
    except (RuntimeError, TypeError) as error:
        raise _refused(owner, device) from error
    # Torch keeps eight bits of an index, so that a large one may come back below zero.
    if found.type != "cpu" and not (
        found.type == "cuda" and 0 <= (found.index or 0) < torch.cuda.device_count()
    ):
        raise _refused(owner, device)
    return found


def _refused(owner: object, device: torch.device | str) -> FieldError:
    allowed = f"'cpu' or a CUDA device of this machine, which has {torch.cuda.device_count() or 'none'}"
    return field_error(owner, "device", allowed, device)


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
        if self.reproducible and device.type == "cuda":
            # cuBLAS reads it when it is first used in a process.
            os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")

    @contextmanager
    def on(self, device: torch.device, *, autotune: bool = True) -> Iterator[None]:
        """Compute this way on a device within the block.

        `autotune` tries convolutions out for every new shape of a batch, which pays off where few shapes return
        often; it is off where `reproducible`.
        """
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
