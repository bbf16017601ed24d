"""The server's memory of every client's last update, and its weighted mean."""

from __future__ import annotations

import torch
from torch import Tensor

from fairlead.client_table import ClientTable, PartState, table_in, tensor_in
from fairlead.records import ClientUpdates, Population


def empty_table(population: Population) -> ClientTable:
    """No update remembered: every row reads as zero."""
    return ClientTable.create(
        population.num_clients,
        population.num_parameters,
        dtype=population.dtype,
        device=population.device,
        folder=population.tables_in,
    )


def nothing_remembered(population: Population) -> PartState:
    """Last updates y_i = 0 and their mean Σ ω_i y_i = 0."""
    mean = torch.zeros(population.num_parameters, dtype=torch.float64, device=population.device)
    return {"last": empty_table(population), "mean": mean}


def renewed(state: PartState, updates: ClientUpdates, old: Tensor, weights: Tensor) -> PartState:
    """The memory with y_i ← Δ_i for the clients that arrived; `old` are their rows so far, `weights` all ω.

    The mean is moved by what changed, m rows instead of N. It is kept in float64 and takes out exactly
    the numbers that were put in, so that rounding does not add up over rounds.
    """
    mean = tensor_in(state, "mean").clone()
    own = weights[updates.clients].tolist()
    for weight, new_row, old_row in zip(own, updates.delta, old, strict=True):
        mean.add_(new_row, alpha=weight).sub_(old_row, alpha=weight)
    return {"last": table_in(state, "last").write(updates.clients, updates.delta), "mean": mean}
