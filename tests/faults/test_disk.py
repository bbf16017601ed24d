"""Disks that fail: the checkpoint before is intact, one sentence says what happened, and nothing hangs."""

from __future__ import annotations

import errno
import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from fault_runs import FULL, experiment, outcome

import fairlead as fl
from fairlead.checkpoint import store
from fairlead.errors import CheckpointError, RunFolderError

PROBLEM = fl.Quadratics(num_clients=5, dim=3).problem(fl.Key.from_seed(0))
ERRORS = (errno.ENOSPC, errno.EROFS, errno.EIO, errno.EDQUOT)
PRIMITIVES: tuple[tuple[Any, str], ...] = (
    (os, "fsync"),
    (os, "replace"),
    (os, "open"),
    (os, "truncate"),
    (Path, "unlink"),
    (Path, "mkdir"),
    (Path, "open"),
    (store, "save_file"),
)
"""All that checkpoints and run folders change the disk with."""


def federation() -> fl.Federation:
    world = fl.SimulatedWorld(PROBLEM.task(), PROBLEM.data(), link=fl.BernoulliLink(0.3))
    return fl.Federation(fl.presets.scaffold(lr=0.1, cohort_size=3), world)


class FailingDisk:
    """Lets one call that changes the disk fail, the `call`-th from now on; and all after it if it is `broken`."""

    def __init__(self, patch: pytest.MonkeyPatch, folder: Path, number: int, call: int, broken: bool) -> None:
        self.number, self.left, self.broken, self.failed = number, call, broken, 0
        self.folder = str(folder)
        for owner, name in PRIMITIVES:
            patch.setattr(owner, name, self._wrapped(getattr(owner, name), name))

    def _wrapped(self, original: Callable[..., Any], name: str) -> Callable[..., Any]:
        def call(*arguments: Any, **options: Any) -> Any:
            if self._concerned(name, arguments, options):
                self.left -= 1
                if self.left == 0 or (self.left < 0 and self.broken):
                    self.failed += 1
                    raise OSError(self.number, os.strerror(self.number))
            return original(*arguments, **options)

        return call

    def _concerned(self, name: str, arguments: tuple[Any, ...], options: dict[str, Any]) -> bool:
        """Whether a call would change something: reading goes on."""
        if name == "open":
            mode = next((each for each in arguments[1:] if isinstance(each, str)), options.get("mode", "r"))
            flags = next((each for each in arguments[1:] if isinstance(each, int)), 0)
            writes = any(letter in mode for letter in "wax") or bool(flags & os.O_WRONLY)
            return writes and str(arguments[0]).startswith(self.folder)
        return name == "fsync" or any(str(each).startswith(self.folder) for each in arguments)


@pytest.mark.parametrize("broken", [False, True], ids=["once", "for good"])
@pytest.mark.parametrize("number", ERRORS, ids=os.strerror)
def test_a_failed_save_leaves_the_checkpoint_before(
    number: int, broken: bool, tmp_path: Path, figure: Callable[[str], None]
) -> None:
    """Every single call fails in turn, until a save gets through without meeting the failing one."""
    run = federation()
    list(run.train(2))
    run.save(tmp_path / "0")
    older = run.params.clone()
    list(run.train(1))
    call, sentences = 0, set[str]()
    while True:
        call += 1
        folder = tmp_path / str(call)
        before = federation()
        before.resume(tmp_path / "0")
        before.save(folder)
        with pytest.MonkeyPatch.context() as patch:
            disk = FailingDisk(patch, folder, number, call, broken)
            try:
                run.save(folder)
            except CheckpointError as error:
                sentences.add(str(error).replace(str(folder), "F"))
        if not disk.failed:
            break
        other, told = federation(), list[str]()
        other.resume(folder, told.append)
        assert told == []
        assert torch.equal(other.params, older if other.state.round == 2 else run.params)
        run.save(folder)
        assert not list(folder.glob("*.part"))
    reason = f"No checkpoint could be written to F: {os.strerror(number)}. Earlier checkpoints are unchanged."
    assert sentences == {reason}
    assert call > 10
    figure(
        f"{os.strerror(number)}{', for good' if broken else ''}: {call - 1} failing calls of a save, all harmless"
    )


@pytest.mark.parametrize("number", ERRORS if FULL else ERRORS[:1], ids=os.strerror)
def test_a_run_survives_every_failing_write(
    number: int, tmp_path: Path, figure: Callable[[str], None]
) -> None:
    """From the first folder to the summary: the run stops with one sentence, and goes on to the same end."""
    short = experiment("SCAFFOLD", rounds=4)
    fl.run_experiment(short, tmp_path / "whole" / "run", checkpoint_every=2)
    expected = outcome(tmp_path / "whole" / "run", tmp_path / "copies")
    call, step, stopped = 1, 1 if FULL and number == errno.ENOSPC else 6, 0
    data = short.load()
    while True:
        folder = tmp_path / f"{call}" / "run"
        with pytest.MonkeyPatch.context() as patch:
            disk = FailingDisk(patch, folder, number, call, broken=True)
            sentence = None
            try:
                fl.run_experiment(short, folder, checkpoint_every=2, data=data)
            except (CheckpointError, RunFolderError) as error:
                sentence = str(error)
        if not disk.failed:
            break
        assert sentence is not None
        assert sentence.count(os.strerror(number)) == 1
        assert "\n" not in sentence
        stopped += 1
        fl.run_experiment(short, folder, resume=True, checkpoint_every=2, data=data)
        assert outcome(folder, tmp_path / "copies") == expected
        call += step
    assert stopped > 50 / step
    figure(
        f"{os.strerror(number)}: a run stopped at each of {stopped} writes, every one went on to the same bits"
    )


SAVE = """
import resource, sys
sys.path.insert(0, sys.argv[1])
from test_disk import federation
from fairlead.errors import FairleadError
run = federation()
run.resume(sys.argv[2])
list(run.train(1))
for limit in map(int, sys.argv[3].split(",")):
    resource.setrlimit(resource.RLIMIT_FSIZE, (limit, resource.RLIM_INFINITY))
    try:
        run.save(sys.argv[2])
        print("saved")
    except FairleadError as error:
        print(error)
    resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
    other = federation()
    other.resume(sys.argv[2])
    print(other.state.round)
"""


def test_files_that_may_not_grow(tmp_path: Path, figure: Callable[[str], None]) -> None:
    """The system itself refuses to write beyond a size: 0 bytes, a part of the tensors, all but the manifest."""
    run = federation()
    list(run.train(2))
    run.save(tmp_path)
    size = max(path.stat().st_size for path in tmp_path.iterdir())
    limits = list(range(0, size, 8 if FULL else 100))
    given = [str(Path(__file__).parent), str(tmp_path), ",".join(map(str, [*limits, 2 * size]))]
    done = subprocess.run([sys.executable, "-c", SAVE, *given], capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    refused = (
        f"No checkpoint could be written to {tmp_path}: File too large. Earlier checkpoints are unchanged."
    )
    assert lines[:-2] == [refused, "2"] * len(limits)
    assert lines[-2:] == ["saved", "3"]
    figure(f"{len(limits)} file size limits, set by the system: the checkpoint before was intact every time")


def test_real_disks_that_fill_up_or_turn_read_only(tmp_path: Path, figure: Callable[[str], None]) -> None:
    """File systems of different sizes in memory, where the machine lets us mount them."""
    as_root = [] if os.geteuid() == 0 else ["unshare", "-r"]
    spaces = [*as_root, "unshare", "-m"]
    allowed = subprocess.run([*spaces, "mount", "-t", "tmpfs", "none", str(tmp_path)], capture_output=True)
    if allowed.returncode:
        figure(
            "This machine lets no file systems be mounted: disks were only made to fail, and file sizes limited"
        )
        return
    fl.run_experiment(experiment("SCAFFOLD"), tmp_path / "whole" / "run", checkpoint_every=2)
    used = sum(path.stat().st_size for path in (tmp_path / "whole").rglob("*")) // 1024
    sizes = sorted({used * share // 24 for share in range(1, 25, 2 if FULL else 8)})
    program = [sys.executable, str(Path(__file__).with_name("full_disks.py"))]
    given = [str(tmp_path), ",".join(map(str, sizes))]
    done = subprocess.run([*spaces, *program, *given], capture_output=True, text=True, timeout=1200)
    assert done.returncode == 0, done.stderr
    sentences = json.loads(done.stdout.splitlines()[-1])
    full = [said for size, said in sentences.items() if said and "read-only" not in size]
    assert len(full) >= len(sizes) / 2
    assert all(said.count("No space left on device") == 1 for said in full)
    for said in (said for size, said in sentences.items() if "read-only" in size):
        assert said.count("Read-only file system") == 1
    expected = outcome(tmp_path / "whole" / "run", tmp_path / "copies")
    for size in sizes:
        assert outcome(tmp_path / "kept" / str(size) / "run", tmp_path / "copies") == expected
    figure(
        f"{len(sizes)} real disks, {len(full)} of which filled up, all turned read-only: all went on to the same bits"
    )
