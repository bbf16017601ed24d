"""`Algorithm`: both halves of a federated method in one value."""

from __future__ import annotations

from dataclasses import dataclass

from fairlead.aggregators.base import Aggregator
from fairlead.aggregators.weighted_mean import WeightedMean
from fairlead.component import Component, freeze_lists
from fairlead.errors import ClashError
from fairlead.local_solver import LocalSolver
from fairlead.optimizers.base import Optimizer
from fairlead.optimizers.sgd import SGD
from fairlead.samplers.base import Sampler
from fairlead.samplers.full import FullParticipation
from fairlead.transforms.base import DirectionTransform


@dataclass(frozen=True)
class Algorithm(Component):
    """sampler × local solver × aggregator × direction transforms × server optimizer.

    What clients do and what the server does live together, so that one value describes a method
    completely. Pairs that contradict each other are refused here, before any work is done.

    >>> from fairlead.aggregators import FedNova
    >>> Algorithm(LocalSolver(SGD(lr=0.1), epochs=2), aggregator=FedNova()).server
    SGD(lr=1.0, schedule=Constant(), weight_decay=0.0, momentum=0.0, nesterov=False, dampening=0.0)
    """

    solver: LocalSolver
    sampler: Sampler = FullParticipation()
    aggregator: Aggregator = WeightedMean()
    transforms: tuple[DirectionTransform, ...] = ()
    server: Optimizer = SGD(lr=1.0)

    def __post_init__(self) -> None:
        freeze_lists(self)
        for part in (self.sampler, self.aggregator):
            if part.needs_effective_steps and not self.solver.is_linear:
                cause = (
                    "LocalSolver.clip"
                    if self.solver.optimizer.linear
                    else type(self.solver.optimizer).__name__
                )
                raise ClashError(
                    f"{type(part).__name__} needs the effective number of local steps, which does not "
                    f"exist with {cause} because the update is then not linear in the gradients: use SGD "
                    "without clipping on the clients, or an aggregator and sampler that do not "
                    "normalise."
                )
