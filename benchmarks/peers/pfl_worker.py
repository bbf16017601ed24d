"""One of pfl's processes: for every number of rounds that it reads, it runs them and writes their seconds."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from time import sleep

import torch
from benchmarks.machine import set_precision
from benchmarks.peers.stand_ins import stand_ins

_HEAD_START = 2.0
"""Seconds in which pfl draws users ahead, 10,000 of them whatever the number of rounds."""


def main(folder: Path) -> None:
    """Until the input ends."""
    problem = torch.load(folder / "problem.pt", weights_only=False)
    torch.set_num_threads(1)
    set_precision(problem.precision, problem.device)
    with stand_ins():
        from benchmarks.peers.pfl_system import PflSystem
    system = PflSystem(problem, head_start=lambda: sleep(_HEAD_START))
    for line in sys.stdin:
        seconds, params = system.run(int(line))
        if os.environ["RANK"] == "0":
            torch.save(params, folder / "params.pt")
        print(json.dumps(seconds), flush=True)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
