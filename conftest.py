"""Settings of the whole suite: one thread, reproducible examples, and the device under test."""

from __future__ import annotations

import os
from importlib.util import find_spec

import pytest
import torch
from hypothesis import settings

# Two workers share two cores, and results on the CPU repeat at a fixed number of threads.
torch.set_num_threads(1)

settings.register_profile("fairlead", deadline=None, derandomize=True, max_examples=50)
settings.load_profile("fairlead")

# Triton comes with torch for CUDA alone, and its kernels cannot be imported without it.
collect_ignore = [] if find_spec("triton") else ["src/fairlead/worlds/engines/linear_triton.py"]


@pytest.fixture(scope="session")
def device() -> torch.device:
    """Where engines run: `FAIRLEAD_TEST_DEVICE=cuda` repeats their tests on a GPU."""
    return torch.device(os.environ.get("FAIRLEAD_TEST_DEVICE", "cpu"))
