"""The weights ω of the objective Σ ω_i F_i, as people give them."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from fairlead.clients.names import ClientNames, label
from fairlead.errors import FieldError, did_you_mean, short

Weights = str | Sequence[float] | Tensor


def objective_weights(weights: Weights, sizes: Tensor, names: ClientNames | None = None) -> Tensor:
    """ω as float64 that sum to 1."""
    if isinstance(weights, str):
        if weights not in ("examples", "uniform"):
            raise FieldError(
                f"SimulatedWorld.weights must be 'examples', 'uniform' or one number per client, got "
                f"{weights!r}." + did_you_mean(weights, ("examples", "uniform"))
            )
        values = sizes.to(torch.float64) if weights == "examples" else (sizes > 0).to(torch.float64)
    else:
        values = torch.as_tensor(weights, dtype=torch.float64, device="cpu")
    if values.shape != sizes.shape:
        raise FieldError(
            f"SimulatedWorld.weights must have one number per client ({len(sizes)}), got {_counted(values)}."
        )
    total = values.sum()
    if not bool(torch.isfinite(total)) or bool((values < 0).any()) or total <= 0:
        raise FieldError(
            "SimulatedWorld.weights must be finite, at least 0 and not all 0, with a finite sum, got "
            f"{short(values.tolist())}."
        )
    if bool(((values > 0) & (sizes == 0)).any()):
        client = int(((values > 0) & (sizes == 0)).nonzero()[0])
        raise FieldError(
            f"SimulatedWorld.weights must be 0 for a client without examples, got {values[client]:g} for "
            f"{label(client, names)}."
        )
    return values / total


def _counted(values: Tensor) -> str:
    return str(len(values)) if values.ndim == 1 else f"an array of shape {tuple(values.shape)}"
