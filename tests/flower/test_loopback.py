"""A real SuperLink and three real SuperNodes give the numbers of the simulation."""

from __future__ import annotations

from pathlib import Path

import torch
from safetensors.torch import load_file
from small_federation import METHODS, ROUNDS, simulated
from trial_app import wait_for, write_app

from fairlead.flower.local_trial import LocalFederation

_SERVER = """
from pathlib import Path

import torch

torch.set_num_threads(1)

from flwr.serverapp import ServerApp
from safetensors.torch import save_file

from fairlead import Federation
from fairlead.flower import FlowerWorld, RoundRules
from fairlead.flower.messages import ModelForm
from fairlead.flower.roster import Roster
from fairlead.flower.world import RunIdentity
from fairlead.parameters import FlatModule
from trial.small_federation import METHODS, ROUNDS, SIZES, build_model

app = ServerApp()


@app.main()
def main(grid, context):
    digest = ModelForm.of(FlatModule(build_model()), torch.float32).digest
    roster, rules = Roster(len(SIZES), digest), RoundRules(deadline=120.0, poll=0.2)
    results = {}
    for place, (name, algorithm) in enumerate(METHODS.items()):
        world = FlowerWorld(grid, build_model, roster, RunIdentity(f"{place:016x}", 1), rules=rules)
        federation = Federation(algorithm, world, seed=3)
        records = list(federation.train(ROUNDS[name]))
        assert all(record.arrived == (0, 1, 2) for record in records), records
        results[name] = federation.params
    file = Path(context.run_config["folder"]) / "params.safetensors"
    file.parent.mkdir(parents=True, exist_ok=True)
    save_file(results, file.with_suffix(".part"))
    file.with_suffix(".part").rename(file)
"""


def test_fednova_scaffold_and_fedaware_on_real_nodes(tmp_path: Path) -> None:
    """A round or two each over HTTP, in processes of their own: every bit is that of the simulated world."""
    app = write_app(tmp_path / "app", _SERVER)
    file = tmp_path / "run" / "params.safetensors"
    with LocalFederation(tmp_path / "federation", app, 3) as federation:
        federation.submit({"folder": str(file.parent)})
        wait_for(file.exists, 900, "the end of the run")
    found = load_file(file)
    assert set(found) == {"fednova", "scaffold", "fedaware"}
    for name, algorithm in METHODS.items():
        twin = simulated(algorithm)
        list(twin.train(ROUNDS[name]))
        assert torch.equal(found[name], twin.params), name
