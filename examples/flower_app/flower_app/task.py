"""The model and the data: replace these two functions by your own."""

from pathlib import Path

from flwr.app import Context
from torch import Tensor, nn

import fairlead as fl
from fairlead.flower import client_of

SPEC = Path(__file__).with_name("spec.toml")


def build_model() -> nn.Module:
    """The model, the same on the server and on clients."""
    return nn.Sequential(nn.Flatten(), nn.Linear(64, 32), nn.ReLU(), nn.Linear(32, 10))


def get_data(context: Context) -> tuple[Tensor, Tensor]:
    """Inputs and targets of this client, a row per example; a real one would read its own files."""
    source = fl.Digits(num_clients=3, partition=fl.DirichletPartitioner(alpha=0.5))
    data = source.load(fl.Key.from_seed(0)).train
    rows = data.rows_of(client_of(context))
    return data.inputs[rows], data.targets[rows]
