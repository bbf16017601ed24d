"""Runs on disks that fill up or turn read-only, for real: small file systems in memory.

`python full_disks.py FOLDER SIZES` needs to be root, or to be so in a namespace of its own (`unshare -rm`). For each
size in KiB a run is started on a disk of that size, and resumed to its end once there is room; its folder is then
copied to FOLDER/kept/<size>/run. The last line printed says what the run said when the disk was full.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path

import torch
from killed_runs import ended, forked, run

from fairlead.errors import FairleadError

METHOD = "SCAFFOLD"
FAILED = 3


def mount(disk: Path, options: str) -> None:
    subprocess.run(["mount", "-t", "tmpfs", "-o", options, "none", str(disk)], check=True)


def tried(folder: Path, said: Path) -> int:
    """Run in a folder, in another process; what it says if it fails goes to a file."""

    def work() -> None:
        try:
            run(METHOD, folder)
        except FairleadError as error:
            said.write_text(str(error))
            sys.exit(FAILED)

    return ended(forked(work))


def main(folder: Path, sizes: list[int]) -> None:
    # As in the run that they are compared with: their number is noted beside the results.
    torch.set_num_threads(1)
    disk, said = folder / "disk", folder / "said.txt"
    disk.mkdir()
    sentences: dict[str, str] = {}
    for size in sizes:
        mount(disk, f"size={size}k")
        status = tried(disk / "run", said)
        assert status in (0, FAILED), status
        sentences[str(size)] = said.read_text() if status else ""
        mount(disk, "remount,ro")
        assert tried(disk / "run", said) == FAILED
        sentences[f"{size}, read-only"] = said.read_text()
        mount(disk, "remount,rw,size=64m")
        assert tried(disk / "run", said) == 0
        shutil.copytree(disk / "run", folder / "kept" / str(size) / "run")
        subprocess.run(["umount", str(disk)], check=True)
    print(json.dumps(sentences))


if __name__ == "__main__":
    main(Path(sys.argv[1]), [int(size) for size in sys.argv[2].split(",")])
