"""What the folder of a run on Flower tells afterwards, without the federation."""

from __future__ import annotations

from pathlib import Path

import torch

from fairlead.diagnostics.consistency import ConsistencyReport, measured_consistency
from fairlead.errors import RunFolderError
from fairlead.experiments.run_folder import RunFolder

MEMBERS = "flower.json"
"""The file in which a run notes who its clients are."""


def consistency_of(folder: Path) -> ConsistencyReport:
    """ω against Ω of a run on Flower, from its folder."""
    if not (folder / MEMBERS).exists():
        raise RunFolderError(f"{folder} holds no run on Flower: {MEMBERS} is missing.")
    store = RunFolder(folder)
    clients = store.clients()
    if clients is None:
        raise RunFolderError(f"{folder} holds no run on Flower: {store.clients_file.name} is missing.")
    weights = torch.tensor(clients.weights, dtype=torch.float64)
    return measured_consistency(store.records(), weights, algorithm=store.experiment().algorithm)
