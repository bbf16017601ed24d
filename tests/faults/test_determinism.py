"""What may not change a run: workers, blocks, the order of work, stops; and what may, by rounding alone."""

from __future__ import annotations

import os
import random
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from fault_runs import FULL, METHODS, experiment, outcome

import fairlead as fl
from fairlead.experiments.study import PlannedRun
from fairlead.records import WorkOrder
from fairlead.worlds.engines.base import LocalReturns
from fairlead.worlds.executor import ClientBlock, ClientExecutor, LocalExecutor

ROUNDS = 12
ORDERS = 100 if FULL else 10
WORKERS = (1, 2, 4) if FULL else (1, 2)
SINGLE, DOUBLE = 1e-5, 1e-13
"""By how much parameters may differ between engines, relative to their length, in float32 and float64."""


def trained(method: str, **changes: object) -> fl.Federation:
    run = replace(experiment(method, ROUNDS), **changes).build()  # type: ignore[arg-type]
    list(run.train())
    return run


def same(one: fl.Federation, other: fl.Federation) -> bool:
    return torch.equal(one.params, other.params) and one.records == other.records


def distance(one: fl.Federation, other: fl.Federation) -> float:
    return float((one.params - other.params).norm() / one.params.norm())


@pytest.fixture
def one_core() -> Iterator[None]:
    """Workers share the cores among them, and torch's sums depend on how many it has."""
    cores = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {min(cores)})
    yield
    os.sched_setaffinity(0, cores)


@pytest.mark.full
@pytest.mark.usefixtures("one_core")
def test_any_number_of_workers_gives_the_same_bits(tmp_path: Path, figure: Callable[[str], None]) -> None:
    methods = list(METHODS) if FULL else ["SCAFFOLD", "FedAU"]
    planned = [PlannedRun(name, {"method": name}, experiment(name, 4)) for name in methods]
    found = []
    for workers in WORKERS:
        study = fl.StudyFolder(tmp_path / str(workers))
        assert set(fl.run_study(study, planned, jobs=workers).values()) == {"finished"}
        copies = tmp_path / f"copies-{workers}"
        found.append({run.folder: outcome(study.store(run).path, copies / run.folder) for run in planned})
    assert all(each == found[0] for each in found)
    figure(f"{len(planned)} runs with {', '.join(map(str, WORKERS))} workers: the same bits")


class OutOfOrder(ClientExecutor):
    """Clients work in any order, as they would on machines of different speeds."""

    def __init__(self, inner: LocalExecutor, block: int, draw: random.Random) -> None:
        self.inner, self.block, self.draw = inner, block, draw
        self.engine, self.host_data = inner.engine, inner.host_data

    def train(self, order: WorkOrder, block: ClientBlock) -> LocalReturns:
        parts = list(enumerate(block.cut(self.block)))
        self.draw.shuffle(parts)
        done = {place: self.inner.train(order, part) for place, part in parts}
        return LocalReturns.joined([done[place] for place in sorted(done)])


@pytest.mark.parametrize("block", [1, 2])
def test_the_order_of_work_does_not_matter(block: int, figure: Callable[[str], None]) -> None:
    """Blocks of the same clients in shuffled order, another order in each round."""
    draw, usual = random.Random(block), trained("SCAFFOLD", block=block)
    for _ in range(ORDERS // 2):
        run = replace(experiment("SCAFFOLD", ROUNDS), block=block).build()
        assert isinstance(run.world, fl.SimulatedWorld)
        assert isinstance(run.world.executor, LocalExecutor)
        run.world.executor = OutOfOrder(run.world.executor, block, draw)  # type: ignore[assignment]
        list(run.train())
        assert same(run, usual)
    figure(f"{ORDERS // 2} shuffled orders of work in blocks of {block}: the same bits")


@pytest.mark.parametrize("method", METHODS)
def test_a_stop_after_any_round_does_not_matter(method: str, tmp_path: Path) -> None:
    whole = trained(method)
    for stop in range(1, ROUNDS, 1 if FULL else 4):
        run = experiment(method, ROUNDS).build()
        list(run.train(stop, evaluate_every=0))
        run.save(tmp_path)
        resumed = experiment(method, ROUNDS).build()
        resumed.resume(tmp_path)
        list(resumed.train())
        assert torch.equal(resumed.params, whole.params)
        assert resumed.records == whole.records[stop:]


@pytest.mark.parametrize("method", METHODS)
def test_blocks_do_not_matter_in_a_loop(method: str) -> None:
    whole = trained(method, engine="loop")
    for block in (1, 2, 3):
        assert same(trained(method, engine="loop", block=block), whole)


@pytest.mark.parametrize("method", METHODS)
def test_engines_lanes_and_blocks_differ_by_rounding(method: str, figure: Callable[[str], None]) -> None:
    """Clients who train side by side share matrix products, whose sums may be rounded in another order."""
    apart = {}
    for dtype, allowed in (("float32", SINGLE), ("float64", DOUBLE)):
        loop = trained(method, engine="loop", dtype=dtype)
        others = [
            trained(method, engine="batched", dtype=dtype, lanes=lanes, block=block)
            for lanes, block in ((16, None), (1, None), (3, None), (16, 2))
        ]
        apart[dtype] = max(distance(loop, other) for other in others)
        assert apart[dtype] < allowed
        assert same(trained(method, engine="batched", dtype=dtype), others[0])
    figure(
        f"{method}: loop and batched engines {apart['float32']:.0e} apart in float32, {apart['float64']:.0e} in float64"
    )
