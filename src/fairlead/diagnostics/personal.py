"""The personal gain: whether clients do better with models of their own than with one model for all."""

from dataclasses import dataclass, replace
from typing import Literal

import torch
from torch import Tensor

from fairlead.federation import Federation
from fairlead.records import Evaluation
from fairlead.worlds.simulated import SimulatedWorld

_FEWEST = 5
"""Clients below which nothing is said."""
_WORTH = 0.01
"""A gain in accuracy, or in loss relative to the shared model's, that is not worth a second model."""


@dataclass(frozen=True, eq=False)
class PersonalGain:
    """Figures of clients on their held-out examples, with the shared model and with their own, (m,) each.

        gain_i = accuracy_i(x + Δ_i) − accuracy_i(x + Σ_j ω_jΔ_j)        (a loss with the other sign)

    Symbols: Δ_i what client i makes of the present model x by the local work of one round. Both models have seen the
    same work, so that the gain is not that of further training.
    """

    metric: Literal["accuracy", "loss"]
    shared: Tensor
    own: Tensor

    @property
    def gains(self) -> Tensor:
        return self.own - self.shared if self.metric == "accuracy" else self.shared - self.own

    @property
    def mean(self) -> float:
        return float(self.gains.mean())

    @property
    def margin(self) -> float:
        """Two standard errors of the mean."""
        return float(2 * self.gains.std() / len(self.gains) ** 0.5)

    @property
    def verdict(self) -> Literal["enough", "not enough", "unknown"]:
        """Whether one model for all clients is enough."""
        worth = _WORTH if self.metric == "accuracy" else _WORTH * float(self.shared.mean())
        if self.mean - self.margin > 0 and self.mean > worth:
            return "not enough"
        return "enough" if self.mean + self.margin < worth else "unknown"


def personal_gain(federation: Federation, world: SimulatedWorld, most: int) -> PersonalGain | None:
    """The gain of up to `most` clients at the present model.

    None if clients have no examples held out, if there are fewer than five, or if the method is personal already: then
    its records have the figures.
    """
    solver, held_out, weights = federation.algorithm.solver, world.held_out, world.population.weights
    if held_out is None or solver.is_personal:
        return None
    able = ((weights > 0) & (held_out.sizes > 0) & (world.clients.sizes > 0)).nonzero().flatten()
    clients = able[torch.linspace(0, len(able) - 1, min(len(able), most)).long()] if len(able) else able
    if len(clients) < _FEWEST:
        return None
    plain = replace(solver, corrections=())
    tuned = replace(plain, personal=plain)
    models = list(world.personal_models(tuned, federation.state, federation.key, clients))
    shares = (weights[clients] / weights[clients].sum()).to(federation.params)
    params, buffers = (shares @ torch.stack(rows) for rows in list(zip(*models, strict=True))[1:])
    shared = world.evaluate_models((client, params, buffers) for client in clients.tolist())
    own = world.evaluate_models(models)
    metric: Literal["accuracy", "loss"] = "accuracy" if "accuracy" in own.client_metrics else "loss"

    def figures(found: Evaluation) -> Tensor:
        values = found.client_metrics["accuracy"] if metric == "accuracy" else found.client_loss or ()
        return torch.tensor(values, dtype=torch.float64)[clients]

    return PersonalGain(metric, figures(shared), figures(own))
