"""Settings of the whole suite: one thread, reproducible examples, and the device under test."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from importlib.util import find_spec
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from hypothesis import settings

# Two workers share two cores, and results on the CPU repeat at a fixed number of threads.
torch.set_num_threads(1)

# A suite that is started in the background inherits an ignored Ctrl-C, and some tests press it.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

settings.register_profile("fairlead", deadline=None, derandomize=True, max_examples=50)
settings.load_profile("fairlead")

# Triton comes with torch for CUDA alone, and its kernels cannot be imported without it.
collect_ignore_glob = [] if find_spec("triton") else ["*_triton.py", "*/lane_convolutions.py"]

_NEEDED = {
    "tests/studies/test_frames.py": ("pandas", "polars"),
    "tests/experiments/test_tensorboard_log.py": ("tensorboard",),
    "tests/experiments/test_mlflow_log.py": ("mlflow",),
    "tests/flower": ("flwr",),
    "tests/documentation/test_site.py": ("mkdocs", "flwr"),
    "tests/test_packaging.py": ("hatchling",),
    "tests/ray": ("ray",),
    "src/fairlead/flower": ("flwr",),
    "src/fairlead/worlds/ray": ("ray",),
}
"""Tests and modules that need packages which fairlead does not; all are in the extra `test`."""
_LEFT_OUT = {
    file: missing
    for file, packages in _NEEDED.items()
    if (missing := [name for name in packages if find_spec(name) is None])
}
collect_ignore = list(_LEFT_OUT)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Say which files of tests were left out, and why."""
    for file, missing in _LEFT_OUT.items():
        terminalreporter.write_line(f"{file} was left out: {' and '.join(missing)} not installed")
    if os.environ.get("FAIRLEAD_FAULTS") == "full":
        found = [each for report in terminalreporter.getreports("passed") for each in report.user_properties]
        for name, sentence in found:
            if name == "figure":
                terminalreporter.write_line(str(sentence))


@pytest.fixture
def figure(request: pytest.FixtureRequest) -> Callable[[str], None]:
    """Keep a sentence on what a fault test found; `make test-faults` prints them for docs/reliability.md."""
    return lambda sentence: request.node.user_properties.append(("figure", sentence))


@pytest.fixture(scope="session")
def device() -> torch.device:
    """Where engines run: `FAIRLEAD_TEST_DEVICE=cuda` repeats their tests on a GPU."""
    return torch.device(os.environ.get("FAIRLEAD_TEST_DEVICE", "cpu"))


@pytest.fixture
def captured_on_cpu(monkeypatch: pytest.MonkeyPatch) -> None:
    """A replay of a graph does the steps that were captured, where no GPU can capture it."""
    from fairlead.worlds.engines import graphs

    def capture(lanes: Any, width: int, length: int) -> SimpleNamespace:
        def replay() -> None:
            for _ in range(length):
                lanes._advance(width)

        return SimpleNamespace(replay=replay)

    monkeypatch.setattr(graphs._CapturedLanes, "_capture", capture)
    monkeypatch.setattr(graphs, "bytes_per_lane", lambda *_: 1)
    monkeypatch.setattr(graphs, "lanes_that_fit", lambda wanted, *_: wanted)
    monkeypatch.setattr(torch.cuda, "graph_pool_handle", lambda: (0, 0))


@pytest.fixture
def traced_only(monkeypatch: pytest.MonkeyPatch) -> None:
    """Compiling traces forward and backward pass and runs what it found: a back end would need a compiler for C++."""
    compiler = torch.compile
    monkeypatch.setattr(
        torch, "compile", lambda step, **options: compiler(step, backend="aot_eager", **options)
    )
