"""What a measurement ran on, and how fast that machine multiplies matrices."""

from __future__ import annotations

import os
import platform
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from time import perf_counter
from typing import Any, Literal, get_args

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.utils.flop_counter import FlopCounterMode

from fairlead import __version__

Precision = Literal["float32", "tf32", "bfloat16", "float64"]
PRECISIONS: tuple[Precision, ...] = get_args(Precision)
MEANING: dict[Precision, str] = {
    "float32": "float32 everywhere, products and convolutions without TF32",
    "tf32": "float32 with TF32 in products and convolutions, by torch's own switches",
    "bfloat16": "float32 parameters, products and convolutions in bfloat16 by torch.autocast",
    "float64": "float64 parameters, data and products; pfl sums differences in float32",
}
"""What each does, in all systems alike."""


def set_precision(precision: Precision, device: torch.device) -> None:
    """Let float32 products round to TF32, or not: torch rounds those of convolutions unless told not to."""
    if precision == "tf32" and device.type != "cuda":
        raise SystemExit("--precision tf32 needs --device cuda: a CPU has no such products.")
    torch.set_float32_matmul_precision("high" if precision == "tf32" else "highest")
    torch.backends.cudnn.allow_tf32 = precision == "tf32"


def storage_type(precision: Precision) -> torch.dtype:
    """The type of parameters and data: bfloat16 is used for products only."""
    return torch.float64 if precision == "float64" else torch.float32


def autocast(precision: Precision, device: torch.device) -> AbstractContextManager[Any]:
    """Products in bfloat16 where that is asked for.

    Without the cache of rounded weights: around a whole loop it would go on using those of the first step.
    """
    if precision == "bfloat16":
        return torch.autocast(device.type, torch.bfloat16, cache_enabled=False)
    return nullcontext()


def synchronize(device: torch.device) -> None:
    """Wait until the device has really done what it was told."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def seconds_of(work: Callable[[], object], device: torch.device) -> float:
    """How long some work takes, until it is really done."""
    synchronize(device)
    started = perf_counter()
    work()
    synchronize(device)
    return perf_counter() - started


def describe_machine(device: torch.device, packages: Sequence[str] = ()) -> dict[str, Any]:
    """Processor, device, versions, threads, load and time, as plain data."""
    return {
        "processor": _processor(),
        "cores": os.cpu_count(),
        "threads": torch.get_num_threads(),
        "device": torch.cuda.get_device_name(device) if device.type == "cuda" else "cpu",
        "load": round(os.getloadavg()[0], 2),
        "python": platform.python_version(),
        "versions": {
            "fairlead": __version__,
            **{name: _version(name) for name in ("torch", "numpy", "numba", *packages)},
        },
        "time": datetime.now(UTC).isoformat(timespec="seconds"),
    }


def peak_flops(precision: Precision, device: torch.device, patience: float = 0.5) -> float:
    """Floating-point operations a second in the product of two large square matrices, the best in some seconds."""
    size = 8192 if device.type == "cuda" else 1024
    dtype = torch.bfloat16 if precision == "bfloat16" else storage_type(precision)
    left = torch.randn((size, size), device=device).to(dtype)
    right = torch.randn((size, size), device=device).to(dtype)
    torch.mm(left, right)
    times: list[float] = []
    while sum(times) < patience or len(times) < 5:
        times.append(seconds_of(lambda: torch.mm(left, right), device))
    return 2 * size**3 / min(times)


def flops_per_example(module: nn.Module, inputs: Tensor, targets: Tensor) -> float:
    """Operations of one forward and backward pass, counted by torch on the given batch."""
    with FlopCounterMode(display=False) as counter:
        F.cross_entropy(module(inputs), targets).backward()  # type: ignore[no-untyped-call]
    module.zero_grad(set_to_none=True)
    return float(counter.get_total_flops()) / len(inputs)


def _processor() -> str:
    information = Path("/proc/cpuinfo")
    lines = information.read_text().splitlines() if information.is_file() else []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor() or platform.machine()


def _version(name: str) -> str | None:
    try:
        return version(name)
    except PackageNotFoundError:
        return None
