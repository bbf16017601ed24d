"""Data that stay on the host give the numbers of data on the device, with room that grows as needed."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

import fairlead as fl
from fairlead.worlds.base import DataPlace, EngineName
from fairlead.worlds.device import HostData

SIZES = (5, 1, 2, 9, 3)


def clients() -> fl.ClientData:
    draw = torch.Generator().manual_seed(3)
    return fl.ClientData.from_lists(
        [torch.randn((n, 4), generator=draw, dtype=torch.float64) for n in SIZES],
        [torch.randint(0, 3, (n,), generator=draw) for n in SIZES],
    )


def world(place: DataPlace, engine: EngineName, device: torch.device) -> fl.SimulatedWorld:
    task = fl.Task(fl.MLP(hidden=(5,)))
    data = clients()
    return fl.SimulatedWorld(
        task, data, test=data, engine=engine, device=device, dtype=torch.float64, data_on=place
    )


@pytest.mark.parametrize("engine", ["loop", "batched", "branches"])
@pytest.mark.parametrize("correction", [(), (fl.ControlVariates("anchor"),)], ids=["plain", "full gradients"])
def test_the_place_of_the_data_does_not_matter(
    engine: EngineName, correction: tuple[fl.Correction, ...], device: torch.device
) -> None:
    """Cohorts of two, with and without a correction that needs clients' full gradients at the anchor."""
    solver = fl.LocalSolver(fl.SGD(0.2), epochs=2, batch_size=2, corrections=correction)
    algorithm = fl.Algorithm(solver, sampler=fl.UniformWithoutReplacement(2))
    runs = []
    for place in ("device", "host"):
        federation = fl.Federation(algorithm, world(place, engine, device))
        list(federation.train(6, evaluate_every=3, per_client=True))
        runs.append(federation)
    resident, staged = runs
    assert torch.equal(resident.params, staged.params)
    assert [replace(r, seconds=0.0) for r in resident.records] == [
        replace(r, seconds=0.0) for r in staged.records
    ]


def test_room_holds_the_rows_of_a_round(device: torch.device) -> None:
    host_data = HostData(world("host", "loop", device).objective)
    data = clients()
    for chosen in ([1, 4], [0, 3], [3], [0, 1, 2, 3, 4]):
        objective, first_rows = host_data.load(torch.tensor(chosen))
        for client, first in zip(chosen, first_rows.tolist(), strict=True):
            place = slice(first, first + SIZES[client])
            assert torch.equal(objective.data.inputs[place].cpu(), data.inputs[data.rows_of(client)])
            assert torch.equal(objective.data.targets[place].cpu(), data.targets[data.rows_of(client)])


def test_room_is_kept_while_it_suffices(device: torch.device) -> None:
    """Captured steps read it by address: 9 examples need 9 · 1.25 = 11 rows, which hold 5 + 3 too."""
    host_data = HostData(world("host", "loop", device).objective)
    large, _ = host_data.load(torch.tensor([3]))
    small, _ = host_data.load(torch.tensor([0, 4]))
    assert small is large
    assert len(large.data.inputs) == 11


def test_an_unknown_place_is_refused() -> None:
    with pytest.raises(fl.errors.FieldError, match="data_on must be 'auto', 'device' or 'host', got 'disk'"):
        world("disk", "loop", torch.device("cpu"))  # type: ignore[arg-type]
