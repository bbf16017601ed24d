"""A plain Flower app on a real SuperLink, with `FlowerStrategy` in the place of Flower's own: `make test-flower`."""

from __future__ import annotations

import inspect
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file
from small_federation import SIZES, simulated
from test_strategy import STEPS, plain_app, plan
from trial_app import wait_for, write_app

import fairlead as fl
from fairlead.flower.local_trial import LocalFederation

ROUNDS = 2
_CLIENT = f"""
import torch
from flwr.app import ArrayRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from torch import nn

from trial.small_federation import SIZES, build_model, examples_of

STEPS = {STEPS}


{inspect.getsource(plain_app)}

app = plain_app()
"""
_SERVER = f"""
from pathlib import Path

import torch
from flwr.app import ArrayRecord
from flwr.serverapp import ServerApp
from safetensors.torch import save_file

import fairlead as fl
from fairlead.flower import FlowerStrategy
from trial.small_federation import build_model

app = ServerApp()


@app.main()
def main(grid, context):
    torch.manual_seed(fl.Key.from_seed(3).fold("init").torch_seed())
    arrays = ArrayRecord(build_model().state_dict())
    strategy = FlowerStrategy(fl.presets.fednova(lr=0.1, batch_size=None), {len(SIZES)})
    result = strategy.start(grid=grid, initial_arrays=arrays, num_rounds={ROUNDS})
    file = Path(context.run_config["folder"]) / "model.safetensors"
    file.parent.mkdir(parents=True)
    found = {{**result.arrays.to_torch_state_dict(), "surrogate": strategy.consistency().surrogate}}
    save_file(found, file.with_suffix(".part"))
    file.with_suffix(".part").rename(file)
"""


def test_the_strategy_on_real_nodes(tmp_path: Path) -> None:
    """FedNova with 2, 5 and 3 steps, whose Ω is ω: the numbers of the simulation up to rounding.

    Nodes are numbered as Flower happens to, so that Ω is compared without regard to order.
    """
    app = write_app(tmp_path / "app", _SERVER)
    (app / "trial" / "client_app.py").write_text(_CLIENT)
    file = tmp_path / "run" / "model.safetensors"
    with LocalFederation(tmp_path / "federation", app, len(SIZES)) as federation:
        federation.submit({"folder": str(file.parent)})
        wait_for(file.exists, 900, "the end of the run")
    found = load_file(file)
    twin = simulated(plan(fl.presets.fednova), work=fl.FixedSteps(STEPS))
    list(twin.train(ROUNDS))
    surrogate = found.pop("surrogate")
    assert surrogate.sort().values.tolist() == pytest.approx([size / sum(SIZES) for size in sorted(SIZES)])
    torch.testing.assert_close(found, dict(twin.model().state_dict()), atol=2e-6, rtol=0.0)
