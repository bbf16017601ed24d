"""The command line of the comparison; `python -m benchmarks.peers --help`."""

from __future__ import annotations

import argparse
import json
import sys
from ast import literal_eval
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from benchmarks.machine import PRECISIONS, set_precision
from benchmarks.peers import __doc__ as method
from benchmarks.peers.comparison import compare, disagreeing
from benchmarks.peers.problem import Problem
from benchmarks.peers.report import as_data, as_text
from benchmarks.peers.systems import LISTINGS
from benchmarks.peers.workloads import WORKLOADS


def main(arguments: Sequence[str] | None = None) -> int:
    """Print a table per workload; 1 if updates disagree."""
    options = _parser().parse_args(arguments)
    sys.path.extend(options.path)
    torch.set_num_threads(options.threads)
    device = torch.device(options.device)
    set_precision(options.precision, device)
    names = list(WORKLOADS) if options.workload == "all" else [options.workload]
    wrong = []
    for name in names:
        problem = Problem.build(
            WORKLOADS[name], options.rounds, options.precision, device, options.data, dict(options.world)
        )
        outcomes = compare(problem, options.systems, options.repeats, _say)
        data = as_data(name, problem, outcomes)
        print(as_text(data), flush=True)
        if options.out is not None:
            options.out.mkdir(parents=True, exist_ok=True)
            file = options.out / f"peers-{name}-{device.type}-{options.precision}.json"
            file.write_text(json.dumps(data, indent=1) + "\n")
        wrong += [f"{peer} on {name}" for peer in disagreeing(outcomes, options.precision)]
    if wrong:
        print(f"Not the same updates: {', '.join(wrong)}.", file=sys.stderr)
    return 1 if wrong else 0


def _say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


def _named_value(text: str) -> tuple[str, Any]:
    name, _, value = text.partition("=")
    try:
        return name, literal_eval(value)
    except (SyntaxError, ValueError):
        return name, value


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        "python -m benchmarks.peers", description=method, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--workload", choices=[*WORKLOADS, "all"], default="mlp")
    parser.add_argument("--systems", nargs="+", choices=list(LISTINGS), default=list(LISTINGS))
    parser.add_argument("--rounds", type=int, default=5, help="rounds of a pass")
    parser.add_argument("--repeats", type=int, default=3, help="timed passes")
    parser.add_argument("--precision", choices=PRECISIONS, default="float32")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--data", help="folder with MNIST or CIFAR-10; random pixels without it")
    parser.add_argument("--path", action="append", default=[], help="folder with unpacked packages of peers")
    parser.add_argument(
        "--world",
        nargs="+",
        type=_named_value,
        default=[],
        metavar="NAME=VALUE",
        help="arguments of fairlead's SimulatedWorld, such as lanes=50 compile=True",
    )
    parser.add_argument("--out", type=Path, help="folder for results as JSON")
    return parser


if __name__ == "__main__":
    sys.exit(main())
