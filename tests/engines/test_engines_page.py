"""What docs/engines.md shows really runs, and its tables miss nothing."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any, get_args

import pytest
import torch

import fairlead as fl
from fairlead.worlds.base import DataPlace, EngineName
from fairlead.worlds.device import Arithmetic, HostData, Precision

PAGE = (Path(__file__).parents[2] / "docs" / "engines.md").read_text(encoding="utf-8")


def blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```$", PAGE, flags=re.DOTALL | re.MULTILINE)


def test_the_python_runs_and_prints_what_the_page_says(capsys: pytest.CaptureFixture[str]) -> None:
    names: dict[str, Any] = {}
    for block in blocks("python"):
        exec(compile(block, "docs/engines.md", "exec"), names)
    *exact, gap, time = capsys.readouterr().out.splitlines()
    shown = re.findall(r"^print\(.*\)  # (.*)$", PAGE, flags=re.MULTILINE)
    assert exact == shown[:5]
    assert 0 < float(gap) < 1e-6
    assert re.fullmatch(r"\d+\.\d ms a round", time)
    assert isinstance(names["hosted"].executor.host_data, HostData)


def test_the_picture_shows_the_plan() -> None:
    """Who is in which lane at which step, read off the drawing: clients A to E are the jobs 0 to 4."""
    from fairlead.worlds.engines.lanes import pack

    lanes = re.findall(r"^lane \d +([A-E ]+)$", PAGE, flags=re.MULTILINE)
    drawn = [["ABCDE".index(client) for client in lane.split()] for lane in lanes]
    planned: list[list[int]] = [[] for _ in drawn]
    for slot in sorted(pack([6, 3, 2, 2, 1], num_lanes=3).slots, key=lambda slot: slot.start):
        planned[slot.lane] += [slot.job] * (slot.end - slot.start)
    assert drawn == planned


def test_the_spec_reaches_the_world() -> None:
    (spec,) = blocks("toml")
    federation = fl.from_toml(fl.Experiment, spec).build()
    world = federation.world
    assert isinstance(world, fl.SimulatedWorld)
    assert repr(world.engine) == "BatchedEngine(lanes=8, backend='stacked')"
    assert world.arithmetic == Arithmetic("bfloat16", reproducible=True)
    assert world.dtype == torch.float32
    assert isinstance(world.executor.host_data, HostData)
    assert len(list(federation.train())) == 3


def test_every_choice_is_explained() -> None:
    rows = re.findall(r"^\| `\"(\w+)\"` \|", PAGE, flags=re.MULTILINE)
    assert rows == ["loop", "batched", "branches", "auto", *get_args(Precision)]
    assert set(rows[:4]) == set(get_args(EngineName))
    memory = PAGE.split("## Memory")[1]
    assert all(f'"{place}"' in memory for place in get_args(DataPlace))
    docstring = fl.SimulatedWorld.__doc__ or ""
    for choice in (*get_args(EngineName), *get_args(Precision), *get_args(DataPlace)):
        assert f'"{choice}"' in docstring
