"""What the folder of a run on Flower tells afterwards, without the federation."""

from __future__ import annotations

import json
from pathlib import Path

import torch

from fairlead.diagnostics.consistency import ConsistencyReport, measured_consistency
from fairlead.errors import RunFolderError
from fairlead.experiments.run_folder import RunFolder
from fairlead.worlds.objective_weights import objective_weights

MEMBERS = "flower.json"
"""The file in which a run notes who its clients are."""


def consistency_of(folder: Path) -> ConsistencyReport:
    """ω against Ω of a run on Flower, from its folder."""
    file = folder / MEMBERS
    if not file.exists():
        raise RunFolderError(f"{folder} holds no run on Flower: {MEMBERS} is missing.")
    store = RunFolder(folder)
    experiment = store.experiment()
    sizes = torch.tensor([member["num_examples"] for member in json.loads(file.read_bytes())["clients"]])
    weights = objective_weights("examples" if experiment.weights is None else experiment.weights, sizes)
    return measured_consistency(store.records(), weights, algorithm=experiment.algorithm)
