"""A Flower app of the small federation, written to a folder, and how to wait for and kill parts of it."""

from __future__ import annotations

import os
import shutil
import signal
from collections.abc import Callable
from pathlib import Path
from time import monotonic, sleep

from fairlead.experiments.run_folder import RunFolder

HERE = Path(__file__).parent

_PYPROJECT = """
[project]
name = "trial"
version = "1.0.0"
description = "A small federation"
license = "Apache-2.0"
dependencies = []

[build-system]
requires = ["hatchling"]
build-backend = "hatchling.build"

[tool.hatch.build.targets.wheel]
packages = ["."]

[tool.flwr.app]
publisher = "fairlead"

[tool.flwr.app.components]
serverapp = "trial.server_app:app"
clientapp = "trial.client_app:app"

[tool.flwr.app.config]
folder = ""
bind-keys = false
metrics-address = ""
"""

_CLIENT = """
from pathlib import Path
from time import sleep

import torch

torch.set_num_threads(1)

from fairlead.flower import client_of, make_client_app
from trial.small_federation import build_model, examples_of


def get_data(context):
    # A file in this folder holds a client at its work, so that a test can kill something meanwhile.
    folder, client = Path(str(context.node_config["memory-folder"])), client_of(context)
    folder.mkdir(parents=True, exist_ok=True)
    (folder / f"at-work-{client}").touch()
    while (folder / f"hold-{client}").exists():
        sleep(0.1)
    return examples_of(client)


app = make_client_app(build_model, get_data)
"""


def write_app(folder: Path, server: str) -> Path:
    """An app whose ServerApp is the given source."""
    package = folder / "trial"
    package.mkdir(parents=True)
    (folder / "pyproject.toml").write_text(_PYPROJECT)
    (package / "__init__.py").touch()
    shutil.copy(HERE / "small_federation.py", package)
    (package / "client_app.py").write_text(_CLIENT)
    (package / "server_app.py").write_text(server)
    return folder


def wait_for(what: Callable[[], bool], seconds: float, name: str) -> None:
    closing = monotonic() + seconds
    while not what():
        assert monotonic() < closing, f"{name} did not happen within {seconds:g} s"
        sleep(0.2)


def rounds_in(folder: Path) -> int:
    file = folder / "rounds.jsonl"
    return file.read_bytes().count(b"\n") if file.exists() else 0


def is_finished(folder: Path) -> bool:
    return RunFolder(folder).summary_file.exists()


def kill_server_app(link: int) -> None:
    """Kill the ServerApp that a SuperLink has started, at once."""
    for process in Path("/proc").glob("[0-9]*"):
        try:
            is_one = any(word.endswith(b"flwr-serverapp") for word in _words(process))
            # The SuperLink starts a SuperExec, which starts the ServerApp.
            if is_one and _parent(_parent(int(process.name))) == link:
                os.kill(int(process.name), signal.SIGKILL)
                return
        except OSError:
            continue
    raise AssertionError("no ServerApp is running")


def processes_of(folder: Path) -> list[int]:
    """Processes, other than zombies, whose FLWR_HOME is under a folder."""
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        try:
            words = (process / "environ").read_bytes().split(b"\0")
        except OSError:
            continue
        if any(word.startswith(f"FLWR_HOME={folder}".encode()) for word in words):
            found.append(int(process.name))
    return found


def _words(process: Path) -> list[bytes]:
    return (process / "cmdline").read_bytes().split(b"\0")


def _parent(process: int) -> int:
    # After the name in brackets come the state and the parent.
    return int(Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[1])


class Hold:
    """Holds one client at its next work, or another part of an app under the name of its files."""

    def __init__(self, memory: Path, client: int | str) -> None:
        memory.mkdir(parents=True, exist_ok=True)
        self._hold, self._at_work = memory / f"hold-{client}", memory / f"at-work-{client}"

    def __enter__(self) -> Hold:
        self._at_work.unlink(missing_ok=True)
        self._hold.touch()
        return self

    def wait(self, seconds: float) -> None:
        wait_for(self._at_work.exists, seconds, "work of the held client")

    def __exit__(self, *_: object) -> None:
        self._hold.unlink(missing_ok=True)
