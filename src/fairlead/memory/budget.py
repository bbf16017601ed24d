"""Available memory, and refusal of requests that do not fit."""

import sys
from pathlib import Path

import torch

from fairlead.errors import MemoryBudgetError

_CPU = torch.device("cpu")
_GROUPS = (
    (Path("/sys/fs/cgroup"), "memory.max", "memory.current", "inactive_file"),
    (Path("/sys/fs/cgroup/memory"), "memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file"),
)
"""Files in which the two versions of control groups state the limit and the use of memory."""


def available_bytes(device: torch.device = _CPU) -> int:
    """Bytes that a process can still allocate on a device; a huge number if the system does not say."""
    if device.type == "cuda":
        free, _ = torch.cuda.mem_get_info(device)
        # What torch keeps of memory that it no longer uses counts as taken: given back only where it is much, since
        # it would have to be asked for again.
        if torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device) > free:
            torch.cuda.empty_cache()
            free, _ = torch.cuda.mem_get_info(device)
        return free
    try:
        lines = Path("/proc/meminfo").read_text().splitlines()
        pages = int(Path("/proc/self/statm").read_text().split()[0])
    except OSError:
        # Only Linux says how much memory could be had, caches that it would give up included.
        return sys.maxsize
    import resource

    free = 1024 * int(next(line.split()[1] for line in lines if line.startswith("MemAvailable")))
    limit, _ = resource.getrlimit(resource.RLIMIT_AS)
    # A limit as `ulimit -v` sets it counts everything that the process has mapped.
    own = sys.maxsize if limit == resource.RLIM_INFINITY else limit - pages * resource.getpagesize()
    return max(min(free, own, _left_in_group()), 0)


def _left_in_group() -> int:
    """Bytes that the control group of a container leaves, caches that it would give up included."""
    for folder, limit, used, cache in _GROUPS:
        try:
            allowed = (folder / limit).read_text().strip()
            taken = int((folder / used).read_text())
            given_up = next(
                int(line.split()[1])
                for line in (folder / "memory.stat").read_text().splitlines()
                if line.startswith(f"{cache} ")
            )
        except (OSError, StopIteration):
            continue
        if allowed != "max":
            return int(allowed) - taken + given_up
    return sys.maxsize


def require_memory(what: str, size: int, remedy: str) -> None:
    """Refuse something of `size` bytes that does not fit, and name a remedy."""
    left = available_bytes()
    if size > left:
        raise MemoryBudgetError(
            f"{what} needs {size / 2**30:.1f} GiB of memory, and {left / 2**30:.1f} GiB are left: {remedy}."
        )
