"""Runs that are killed: started as a program, which forks, since forking a suite with threads is not safe.

`python killed_runs.py METHOD FOLDER SEED MOMENTS` makes an uninterrupted run in FOLDER/whole, and for every moment
one in FOLDER/<number> that is killed with SIGKILL then and resumed to its end; the last line printed is the list
of moments.
"""

from __future__ import annotations

import json
import os
import random
import signal
import sys
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from fault_runs import experiment

import fairlead as fl
from fairlead import federation
from fairlead.checkpoint import durable_files, store

ENTRIES: dict[str, tuple[Any, str]] = {
    "evaluation": (fl.Federation, "evaluate"),
    "tensors of a checkpoint": (store, "save_file"),
    "fsync of a file": (durable_files, "_sync"),
    "exchange of a file": (os, "replace"),
    "pruning of checkpoints": (store, "_prune"),
    "round": (federation, "run_round"),
}
"""Where a run can be killed exactly: at the start or at the end of these calls."""


def run(method: str, folder: Path) -> None:
    fl.run_experiment(
        experiment(method), folder, resume=True, checkpoint_every=2, on_recovery=lambda text: None
    )


def forked(work: Callable[[], None]) -> int:
    """Do something in a process of its own; returns its id."""
    child = os.fork()
    if child:
        return child
    status = 1
    try:
        work()
        status = 0
    except SystemExit as error:
        status = int(error.code or 0)
    except Exception:
        traceback.print_exc()
    finally:
        os._exit(status)


def ended(child: int) -> int:
    """Wait for a process and return its exit status, negative if a signal ended it."""
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def armed(place: str, calls: int, *, after: bool) -> None:
    """Let this process kill itself at the given call."""
    owner, name = ENTRIES[place]
    original, left = getattr(owner, name), calls

    def deadly(*arguments: Any, **options: Any) -> Any:
        nonlocal left
        left -= 1
        if left == 0 and not after:
            _leave_half(place, arguments)
            os.kill(os.getpid(), signal.SIGKILL)
        result = original(*arguments, **options)
        if left == 0:
            os.kill(os.getpid(), signal.SIGKILL)
        return result

    setattr(owner, name, deadly)


def _leave_half(place: str, arguments: tuple[Any, ...]) -> None:
    """What a kill in the middle of writing leaves."""
    if place == "tensors of a checkpoint":
        Path(arguments[1]).write_bytes(b"\x00" * 1000)


def killed(method: str, folder: Path, seconds: float, draw: random.Random) -> str:
    """Start a run, kill it, and say when that was."""
    if draw.random() < 0.4:
        moment = draw.uniform(0.0, seconds)
        child = forked(lambda: run(method, folder))
        time.sleep(moment)
        os.kill(child, signal.SIGKILL)
        if ended(child) != -signal.SIGKILL:
            return f"after {moment:.3f} s, when it had ended"
        return f"after {moment:.3f} s"
    place, calls, after = draw.choice(list(ENTRIES)), draw.randint(1, 8), draw.random() < 0.5

    def work() -> None:
        armed(place, calls, after=after)
        run(method, folder)

    status = ended(forked(work))
    assert status in (0, -signal.SIGKILL), status
    when = f"{'after' if after else 'before'} {place} {calls}"
    return when if status else f"{when}, which never came"


def main(method: str, folder: Path, seed: int, moments: int) -> None:
    torch.set_num_threads(1)
    draw = random.Random(seed)
    started = time.perf_counter()
    assert ended(forked(lambda: run(method, folder / "whole" / "run"))) == 0
    seconds = time.perf_counter() - started
    told: list[str] = []
    while len(told) < moments:
        cut = folder / str(len(told)) / "run"
        moment = killed(method, cut, seconds, draw)
        if moment.endswith(("ended", "came")):
            # No kill, no moment: the run was faster than the clock, or had no such call.
            cut.parent.rename(folder / f"unharmed-{time.monotonic_ns()}")
            continue
        told.append(moment)
        assert ended(forked(lambda: run(method, folder / str(len(told) - 1) / "run"))) == 0
    print(json.dumps(told))


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]), int(sys.argv[3]), int(sys.argv[4]))
