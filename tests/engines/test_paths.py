"""Every path is in one list, says what it takes, and is recorded where it ran."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path as File
from typing import Any, get_args

import pytest
import torch
from torch import nn

import fairlead as fl
from fairlead.experiments.run_folder import RunFolder
from fairlead.numerics.native import has_numba
from fairlead.records import PathRun
from fairlead.worlds.base import EngineName
from fairlead.worlds.engines.base import Path
from fairlead.worlds.engines.loop import LoopEngine
from fairlead.worlds.engines.paths import PATHS

SIZES = (12, 7, 9, 14, 5, 8)


class Scaled(nn.Module):
    """A model that only `vmap` can run side by side."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(4, 3)

    def forward(self, inputs: torch.Tensor) -> Any:
        return 2 * self.layer(inputs)


def ran(
    model: nn.Module, engine: EngineName = "auto", *, loss: Any = "cross_entropy", **options: Any
) -> list[PathRun]:
    torch.manual_seed(0)
    inputs, targets = torch.randn(sum(SIZES), 4), torch.randint(0, 3, (sum(SIZES),))
    data = fl.ClientData(inputs, targets, torch.tensor([0, *SIZES]).cumsum(0))
    world = fl.SimulatedWorld(fl.Task(model, loss=loss), data, engine=engine, **options)
    list(fl.Federation(fl.presets.fedavg(lr=0.1, batch_size=4), world, seed=0).train(rounds=2))
    return list(world.workings.paths)


def own_loss(outputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    return nn.functional.cross_entropy(outputs, targets, reduction="none")


DENSE = nn.Sequential(nn.Linear(4, 5), nn.ReLU(), nn.Linear(5, 3))


@pytest.mark.parametrize(
    ("model", "options", "path"),
    [
        (nn.Linear(4, 3), {}, "dense kernel" if has_numba() else "closed form"),
        (DENSE, {"block": 2}, "dense kernel" if has_numba() else "dense, client by client"),
        (DENSE, {"engine": "loop"}, "loop"),
        (DENSE, {"engine": "branches"}, "branches"),
        (DENSE, {"loss": own_loss}, "batched products"),
        (DENSE, {"precision": "bfloat16"}, "batched products"),
        (Scaled(), {}, "vmap"),
    ],
)
def test_the_path_that_ran_is_known(model: nn.Module, options: dict[str, Any], path: str) -> None:
    (run,) = ran(model, **options)
    assert run.path == path
    assert run.backend == ("numba" if path == "dense kernel" else "torch")
    assert run.precision == options.get("precision", "float32")
    assert run.blocks == (6 if "block" in options else 2)
    assert 1 <= run.lanes <= len(SIZES)


def test_clients_side_by_side_are_counted() -> None:
    (run,) = ran(DENSE, "batched", loss=own_loss, lanes=4)
    assert (run.path, run.lanes) == ("batched products", 4)


def test_a_run_folder_keeps_the_path(tmp_path: File) -> None:
    experiment = fl.Experiment(fl.Digits(num_clients=4), fl.presets.fedavg(lr=0.1), rounds=2, engine="loop")
    run = fl.run_experiment(experiment, tmp_path / "run")
    (start,) = RunFolder(run.folder.path).provenance()
    (path,) = start.paths
    assert asdict(path) == {
        "path": "loop",
        "backend": "torch",
        "lanes": 1,
        "precision": "float32",
        "blocks": 2,
    }


def test_the_list_is_complete() -> None:
    """All final paths are in it once; the loop, which takes everything, is last."""

    def final(kind: type[Path]) -> set[type[Path]]:
        below = set().union(*map(final, kind.__subclasses__()))
        return below if kind is Path or kind.__abstractmethods__ else {kind, *below}

    assert {type(path) for path in PATHS} == {
        kind for kind in final(Path) if kind.__module__.startswith("fairlead")
    }
    assert isinstance(PATHS[-1], LoopEngine)
    assert {path.engine for path in PATHS} == set(get_args(EngineName)) - {"auto"}
    assert len({(path.name, path.backend) for path in PATHS}) == len(PATHS)
