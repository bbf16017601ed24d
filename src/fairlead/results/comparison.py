"""Several algorithms under the same conditions, and which objective each of them really optimised."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

from fairlead.algorithm import Algorithm
from fairlead.diagnostics.consistency import ConsistencyReport, chance_level
from fairlead.experiments.experiment import Experiment
from fairlead.federation import Federation
from fairlead.records import Evaluation, RoundRecord
from fairlead.worlds.base import RunWorld

_NEARLY = 0.1
"""Share of misplaced weight up to which a method is said to be nearly right."""


@dataclass(frozen=True, eq=False)
class ComparedMethod:
    """One algorithm of a comparison, after its last round."""

    name: str
    federation: Federation
    evaluation: Evaluation
    """Of the final model, with figures per client."""
    objective: float
    """Σ ω_i F_i of the final model: the loss that was asked for, over the clients' training data."""
    consistency: ConsistencyReport
    chance: float
    """Share of the weight that chance alone would misplace in as many rounds; see `chance_level`."""

    def verdict(self) -> str:
        """One sentence on the objective that the method really optimised."""
        surrogate, misplaced = self.consistency.surrogate, self.consistency.total_variation
        if surrogate is None or misplaced is None:
            return f"{self.name} has no weights that could be measured, so its objective is not known."
        if self.consistency.restored:
            return (
                f"{self.name} optimised the objective that was asked for by design: its corrections undo "
                "unequal work and losses."
            )
        if misplaced < 1e-6:
            return f"{self.name} optimised the objective that was asked for."
        if misplaced < 2 * self.chance:
            return self._within_chance(misplaced)
        if misplaced < _NEARLY:
            return (
                f"{self.name} optimised nearly the objective that was asked for: {misplaced:.0%} of the "
                "weight went to the wrong clients."
            )
        intended = self.consistency.intended
        favoured = surrogate > intended
        return (
            f"{self.name} optimised another objective: {int(favoured.sum())} of {len(intended)} clients got "
            f"{float(surrogate[favoured].sum()):.0%} of the weight instead of "
            f"{float(intended[favoured].sum()):.0%}."
        )

    def _within_chance(self, misplaced: float) -> str:
        rounds, expected = self.consistency.rounds, self.consistency.predicted_total_variation
        if expected is None or expected >= _NEARLY:
            return (
                f"{self.name} cannot be judged after {rounds} rounds: {misplaced:.0%} of the weight went to "
                "other clients than asked, as chance alone might do."
            )
        return (
            f"{self.name} optimised the objective that was asked for: theory misplaces {expected:.0%} of the "
            f"weight, and the {misplaced:.0%} measured over {rounds} rounds is what chance would do."
        )


def compare(
    experiment: Experiment,
    algorithms: Mapping[str, Algorithm],
    *,
    on_round: Callable[[str, RoundRecord], None] | None = None,
) -> list[ComparedMethod]:
    """Run each algorithm in the place of the experiment's own, one after another.

    All share the seed, and so the data, the initial model, the batches, the work and the links: what
    differs between them is the method. `on_round` is called with the name and the record of each round.

    >>> import fairlead as fl
    >>> quadratics = fl.Quadratics(linear=((0.0,), (4.0,)), start=0.0)
    >>> fedavg, fednova = fl.presets.fedavg(lr=0.01, steps=1), fl.presets.fednova(lr=0.01, steps=1)
    >>> experiment = Experiment(quadratics, fedavg, rounds=300, work=fl.FixedSteps((1, 9)))
    >>> for method in compare(experiment, {"FedAvg": fedavg, "FedNova": fednova}):
    ...     print(method.verdict())
    FedAvg optimised another objective: 1 of 2 clients got 90% of the weight instead of 50%.
    FedNova optimised the objective that was asked for.
    """
    compared = []
    for name, algorithm in algorithms.items():
        federation = replace(experiment, algorithm=algorithm).build()
        for record in federation.train(experiment.rounds, evaluate_every=experiment.evaluate_every):
            if on_round:
                on_round(name, record)
        consistency, world = federation.consistency(), federation.world
        assert isinstance(world, RunWorld)
        compared.append(
            ComparedMethod(
                name,
                federation,
                federation.evaluate(per_client=True),
                world.objective_at(federation.params, federation.state.buffers),
                consistency,
                chance_level(federation.records, consistency.intended),
            )
        )
    return compared
