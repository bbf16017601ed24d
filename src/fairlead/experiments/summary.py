"""What came of a run, in a few numbers."""

from __future__ import annotations

from dataclasses import dataclass
from statistics import median

from fairlead.diagnostics.consistency import chance_level
from fairlead.federation import Federation
from fairlead.privacy.accounting import PrivacyStatement
from fairlead.records import Evaluation
from fairlead.worlds.base import RunWorld


@dataclass(frozen=True)
class RunSummary:
    """The end of a run."""

    rounds: int
    seconds: float
    """Of rounds without warming up and evaluations: the median of them, times their number."""
    train_loss: float | None
    """Of the last round; None if nothing arrived."""
    evaluation: Evaluation | None
    """The last one, with figures per client where the run has them; None if the model was never evaluated."""
    objective: float
    """Σ ω_i F_i of the final model: the loss that was asked for, over the clients' training data."""
    misplaced_weight: float | None
    """½ Σ |ω_i − Ω_i| as measured; None where there are no such weights."""
    misplaced_by_chance: float
    """What lost updates and draws would misplace by chance alone in as many rounds."""
    chi_square: float | None
    """χ²(ω‖Ω) as measured."""
    predicted_chi_square: float | None
    """χ²(ω‖Ω) of theory."""
    by_design: bool
    """Whether no weight is misplaced because of the method's corrections, and not by measurement."""
    notice: str | None
    """What was said during training about another objective being optimised."""
    privacy: PrivacyStatement | None = None
    """What may be claimed of the models; None for an algorithm without privacy."""
    initial_objective: float | None = None
    """Σ ω_i F_i of the initial model; None where clients are real, who are not asked for it."""

    @property
    def learnt(self) -> bool:
        """Whether the final model has a lower objective than the initial one, or that is not known."""
        return self.initial_objective is None or self.objective < self.initial_objective


def summarise(federation: Federation) -> RunSummary:
    """The summary of a federation after its last round."""
    records, consistency, world = federation.records, federation.consistency(), federation.world
    assert isinstance(world, RunWorld)
    evaluation = next((record.evaluation for record in reversed(records) if record.evaluation), None)
    return RunSummary(
        rounds=len(records),
        seconds=median(record.seconds for record in records) * len(records) if records else 0.0,
        train_loss=records[-1].train_loss if records else None,
        evaluation=evaluation,
        objective=world.objective_at(federation.params, federation.state.buffers),
        misplaced_weight=consistency.total_variation,
        misplaced_by_chance=chance_level(records, consistency.intended),
        chi_square=consistency.chi_square,
        predicted_chi_square=consistency.predicted_chi_square,
        by_design=consistency.restored,
        notice=federation.notice,
        privacy=federation.privacy,
        initial_objective=_initial_objective(federation),
    )


def _initial_objective(federation: Federation) -> float | None:
    simulation = federation.world.simulation
    return None if simulation is None else simulation.objective_at(*simulation.initial_model(federation.key))
