"""Parameters that stay on the client: the part of the personal methods that clients remember."""

from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from fairlead.corrections.base import OWN_MASK, Correction, LocalOutcome, LocalResult
from fairlead.errors import field_error
from fairlead.records import Averaging, Contributions, Limit, Vectors


@dataclass(frozen=True)
class OwnParameters(Correction):
    """Keeps some parameters of the model on each client, which never uploads them.

        start      y = (1 − m)·x + m·v_i
        steps      g ← g ("all"),   m·g ("own"),   (1 − m)·g ("shared")
        upload     (1 − m)·(y_i − x),   then   v_i ← m·y_i

    Symbols: m is 1 at `parameters` and 0 elsewhere; x the anchor; v_i `memory["own"]`, which is x until the client's
    first update arrives; `train` names the parameters that steps change. `parameters` are names with wildcards
    ("fc2.*"), "head" for the last layer, "normalization" for all normalization layers, or "*" for the whole model.
    Running statistics of batch normalization among them stay on the client too, as `memory["own_buffers"]`.

    Reduces to no correction if `parameters` is empty and all are trained.

    The shared parameters have no objective of their own, because each client minimizes over its own ones as well: the
    limit is not a minimum of Σ ω_i F_i over one model.
    """

    parameters: tuple[str, ...] = ("head",)
    train: Literal["all", "own", "shared"] = "all"

    references = ("arivazhagan2019fedper", "collins2021fedrep", "li2021fedbn")
    exemptions = {"neutral": "it may train a part of the parameters alone"}
    memory_extent = {"own": "vector", "own_buffers": "buffers", "kept": "scalar"}
    keeps_parameters = True
    hides_weights = True

    def __post_init__(self) -> None:
        super().__post_init__()
        names = self.parameters
        if not isinstance(names, tuple) or not all(isinstance(name, str) and name for name in names):
            raise field_error(self, "parameters", "a list of names of parameters", names)

    def start_from(self, anchor: Tensor, memory: Vectors, shared: Vectors) -> Tensor:
        return torch.where((shared[OWN_MASK] > 0) & (memory["kept"] > 0), memory["own"], anchor)

    def correct(
        self, gradient: Tensor, local: Tensor, anchor: Tensor, memory: Vectors, shared: Vectors
    ) -> Tensor:
        if self.train == "all":
            return gradient
        own = shared[OWN_MASK]
        return gradient * (own if self.train == "own" else 1 - own)

    def after_steps(self, outcome: LocalOutcome, memory: Vectors, shared: Vectors) -> LocalResult:
        own = shared[OWN_MASK]
        kept = {name: memory[name] for name in self.memory_extent if name in memory}
        kept["own"] = (outcome.anchor + outcome.delta) * own
        kept["kept"] = torch.ones_like(memory["kept"])
        return LocalResult(outcome.delta * (1 - own), kept, {})

    def weights_under(self, contributions: Contributions, averaging: Averaging) -> Limit:
        return Limit(
            None,
            "Clients keep parameters of their own, so the shared ones minimize no weighted sum of the clients' "
            "objectives.",
        )
