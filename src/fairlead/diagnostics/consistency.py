"""The consistency report: the weights Ω that a run optimizes against the weights ω that it should."""

from dataclasses import asdict, dataclass
from typing import Any

import torch
from torch import Tensor

from fairlead.algorithm import Algorithm
from fairlead.charts.chart import AxisScale, Chart, ChartAxis, Series
from fairlead.charts.display import Display, Displayed
from fairlead.errors import FieldError
from fairlead.randomness import Key
from fairlead.text import ClientNames, called, counted, label, of_clients
from fairlead.text import divergence as written
from fairlead.theory.convergence import (
    ConsistencyCondition,
    ConvergenceFactors,
    condition_of,
    convergence_factors,
)
from fairlead.theory.prediction import Surrogate, implied_surrogate, known_limit
from fairlead.worlds.base import World

_AHEAD = 200
"""Rounds whose conditions theory considers, at most."""
_NOTABLE = 0.01
"""Share of misplaced weight below which the report does not look for reasons."""
_SHOWN = 20
"""Most clients in the table of a notebook."""
_TITLES = {"intended": "intended ω", "surrogate": "effective Ω", "predicted": "Ω of theory"}
"""Of the weights of clients."""


def chi_square(intended: Tensor, surrogate: Tensor) -> float:
    """χ²(ω‖Ω) = Σ (ω_i − Ω_i)²/Ω_i (Wang 2021, Weng 2025); inf if no update of a client of positive weight arrived."""
    gap, used = (intended - surrogate).square(), surrogate > 0
    if bool((gap[~used] > 0).any()):
        return float("inf")
    return float((gap[used] / surrogate[used]).sum())


def zeng_chi(intended: Tensor, surrogate: Tensor) -> tuple[float, float]:
    """χ = Σ λ̃_i/λ_i and χ² = Σ λ̃_i²/λ_i² of Zeng 2023, for λ `intended` and λ̃ `surrogate`; inf where only λ_i is 0.

    They measure no distance: for λ̃ = λ both are the number of clients.
    """
    ratio = (surrogate / intended)[(intended > 0) | (surrogate > 0)]
    return float(ratio.sum()), float(ratio.square().sum())


def total_variation(intended: Tensor, surrogate: Tensor) -> float:
    """½ Σ |ω_i − Ω_i|: the share of the objective that goes to the wrong clients."""
    return float((intended - surrogate).abs().sum() / 2)


@dataclass(frozen=True, eq=False)
class ConsistencyReport(Displayed):
    """Intended, measured and predicted objective weights of a run.

        Ω_i ∝ Σ_rounds (coefficient_i ‖a_i‖₁ + the same for its remembered update, where there is one)

    is the share of all gradient steps that client i contributed (Wang 2021 (7), Weng 2025 §3): to first order in
    the learning rate the run minimizes Σ Ω_i F_i instead of Σ ω_i F_i. Methods whose corrections bring in
    gradients of other rounds are read as their theory has it (`Correction.weights_under`).
    """

    intended: Tensor
    """ω, (N,)."""
    surrogate: Tensor | None
    """Ω as measured, (N,); None if the method has none, or no update arrived."""
    rounds: int
    """Rounds measured; 0 for a report made before training."""
    restored: bool = False
    """Whether Ω = ω follows from a correction that restores the weights, and was not measured."""
    unheard: tuple[int, ...] = ()
    """Clients of positive weight none of whose updates arrived in the rounds measured."""
    first_round: int = 0
    """The first measured round."""
    names: ClientNames | None = None
    """Names of clients, (N,); None if they have only numbers."""
    predicted: Surrogate | None = None
    """Ω predicted for the world's conditions."""
    condition: ConsistencyCondition | None = None
    """Condition (13) of Weng 2025; None if work or arrival rates are unknown."""
    factors: ConvergenceFactors | None = None
    """Effective steps and FedNova's A, B, C; None if coefficients or steps are unknown."""

    @property
    def chi_square(self) -> float | None:
        """χ²(ω‖Ω) of the measured weights; inf if no update of a client of positive weight arrived."""
        return None if self.surrogate is None else chi_square(self.intended, self.surrogate)

    @property
    def total_variation(self) -> float | None:
        """½ Σ |ω_i − Ω_i| of the measured weights: the share that went to the wrong clients."""
        return None if self.surrogate is None else total_variation(self.intended, self.surrogate)

    @property
    def predicted_weights(self) -> Tensor | None:
        """Ω of theory, (N,)."""
        return None if self.predicted is None else self.predicted.weights

    @property
    def predicted_chi_square(self) -> float | None:
        """χ²(ω‖Ω) of theory."""
        weights = self.predicted_weights
        return None if weights is None else chi_square(self.intended, weights)

    @property
    def predicted_total_variation(self) -> float | None:
        """½ Σ |ω_i − Ω_i| of theory."""
        weights = self.predicted_weights
        return None if weights is None else total_variation(self.intended, weights)

    def __repr__(self) -> str:
        share = self.total_variation
        told = "no weights" if share is None else f"{share:.1%} of the weight misplaced"
        return f"<ConsistencyReport: {told} in {counted(self.rounds, 'round')}>"

    def _weights(self) -> dict[str, Tensor]:
        """ω, and Ω as measured and of theory where they are known."""
        weights = zip(_TITLES, (self.intended, self.surrogate, self.predicted_weights), strict=True)
        return {name: values for name, values in weights if values is not None}

    def rows(self) -> list[dict[str, Any]]:
        """ω, Ω as measured and Ω of theory of every client."""
        known = {name: values.tolist() for name, values in self._weights().items()}
        return [
            {
                "client": client if self.names is None else str(self.names[client]),
                **{name: values[client] for name, values in known.items()},
            }
            for client in range(len(self.intended))
        ]

    def display(self) -> Display:
        worst = sorted(
            self.rows(), key=lambda row: -abs(row.get("surrogate", row["intended"]) - row["intended"])
        )
        shown = worst[:_SHOWN]
        table = {"client": [str(row["client"]) for row in shown]}
        table |= {_TITLES[name]: [f"{row[name]:.2%}" for row in shown] for name in self._weights()}
        return Display("Consistency", (str(self),), table, self._charts())

    def _charts(self) -> tuple[Chart, ...]:
        """The weights of all clients, smallest ω first."""
        order, colors = self.intended.argsort(), list(_TITLES)
        places = tuple(float(place) for place in range(len(order)))
        series = tuple(
            Series(
                places,
                tuple(values[order].tolist()),
                label=_TITLES[name],
                place=colors.index(name),
                joined=False,
            )
            for name, values in self._weights().items()
        )
        across = AxisScale.fitted(places, margin=0.02)
        up = AxisScale.fitted([value for each in series for value in each.y], bounds=(0.0, 1.0))
        x, y = ChartAxis("clients, by ω", across, "count"), ChartAxis("weight", up, "share")
        return (Chart("Weights of the clients", x, y, series),)

    def to_dict(self) -> dict[str, object]:
        """All figures for JSON, with one list per client where there is one."""
        theory = self.predicted
        return {
            "rounds": self.rounds,
            "names": None if self.names is None else self.names.tolist(),
            "intended": self.intended.tolist(),
            "surrogate": None if self.surrogate is None else self.surrogate.tolist(),
            "chi_square": self.chi_square,
            "total_variation": self.total_variation,
            "restored": self.restored,
            "unheard": list(self.unheard),
            "first_round": self.first_round,
            "predicted": None if self.predicted_weights is None else self.predicted_weights.tolist(),
            "predicted_chi_square": self.predicted_chi_square,
            "predicted_total_variation": self.predicted_total_variation,
            "predicted_exactness": None if theory is None else theory.exactness,
            "says": None if theory is None else theory.explanation,
            "condition": None if self.condition is None else asdict(self.condition),
            "factors": None if self.factors is None else asdict(self.factors),
        }

    def __str__(self) -> str:
        if self.restored:
            return (
                "The corrections of this method make every client follow the objective's own weights at the "
                "fixed point, for any work and links: by design no weight is misplaced."
            )
        sentences = [*self._measured(), *self._predicted()]
        # Where theory knows the weights, chance is no reason to look for causes.
        known, measured = self.predicted_total_variation, self.total_variation
        if self.condition is not None and ((measured if known is None else known) or 0.0) > _NOTABLE:
            sentences.append(self.condition.told(self.names))
            if not self.condition.holds:
                sentences.append("This method does not fully correct that.")
        return " ".join(sentences) or "The weights are not known yet."

    def _measured(self) -> list[str]:
        if not self.rounds:
            return []
        since = f" from round {self.first_round + 1} on" if self.first_round else ""
        missing = []
        if self.unheard:
            share = float(self.intended[list(self.unheard)].sum())
            whom = of_clients([called(client, self.names) for client in self.unheard])
            hold = "holds" if len(self.unheard) == 1 else "hold"
            missing = [
                f"No update ever arrived{since} from {whom}, which {hold} {share:.1%} of the objective's weight."
            ]
        if self.surrogate is None:
            return ["This run has no measurable surrogate weights.", *missing]
        over = f"Over {counted(self.rounds, 'round')}{since},"
        return [self._misplaced(over, "was misplaced", self.surrogate), *missing]

    def _predicted(self) -> list[str]:
        weights = self.predicted_weights
        if self.predicted is None or (weights is None and self.surrogate is not None):
            return []
        if weights is None:
            return [self.predicted.explanation]
        if self.surrogate is not None:
            share, divergence = total_variation(self.intended, weights), chi_square(self.intended, weights)
            return [
                f"Theory predicts {share:.1%} (chi-square {written(divergence, 3)}) under these conditions."
            ]
        return [self._misplaced("Theory predicts that", "will be misplaced", weights)]

    def _misplaced(self, begin: str, verb: str, surrogate: Tensor) -> str:
        """How much weight is misplaced, and which clients gain and lose most unless it is too little to show."""
        share = f"{total_variation(self.intended, surrogate):.1%}"
        divergence = written(chi_square(self.intended, surrogate), 3)
        told = f"{begin} {share} of the objective's weight {verb} (chi-square {divergence})"
        return f"{told}." if share == "0.0%" else f"{told}: {extremes(self.intended, surrogate, self.names)}."


def predicted_consistency(
    algorithm: Algorithm, world: World, *, rounds: int = 50, first: int = 0, key: Key | None = None
) -> ConsistencyReport:
    """What theory says of an algorithm in a world, before any training.

    It uses the conditions of `rounds` rounds (200 at most) from round `first` on, as a run with the given key would
    meet them: `Federation.key` for that of a federation, else that of seed 0.

    >>> from fairlead import FixedSteps, Quadratics, SimulatedWorld
    >>> from fairlead.presets import fedavg
    >>> problem = Quadratics(linear=((0.0,), (4.0,))).problem(Key.from_seed(0))
    >>> world = SimulatedWorld(problem.task(), problem.data(), work=FixedSteps((1, 3)))
    >>> predicted_consistency(fedavg(lr=0.01), world).predicted_weights.tolist()
    [0.25, 0.75]
    """
    if rounds < 1:
        raise FieldError(f"predicted_consistency needs rounds of at least 1, got {rounds}.")
    key = Key.from_seed(0) if key is None else key
    ahead = range(first, first + min(rounds, _AHEAD))
    looked_at = [world.conditions(round, algorithm.solver, key) for round in ahead]
    predicted = implied_surrogate(algorithm, looked_at)
    weights, facts = world.population.weights, predicted.contributions
    factors, simulation, solver = None, world.simulation, algorithm.solver
    if simulation is not None and facts is not None and predicted.weights is not None:
        everyone = torch.arange(len(weights))
        planned = [simulation.behavior.workload(everyone, solver, round, key) for round in ahead]
        steps = torch.stack([work.num_steps for work in planned])
        mean, longest = steps.to(torch.float64).mean(0), int(steps.max())
        factors = convergence_factors(
            solver, mean, facts.coefficient, predicted.weights, weights, longest=longest
        )
    limit = known_limit(algorithm, weights)
    return ConsistencyReport(
        weights,
        None,
        0,
        restored=limit is not None and limit.weights is not None and predicted.weights is limit.weights,
        predicted=predicted,
        condition=condition_of(looked_at) if solver.is_linear else None,
        factors=factors,
        names=world.population.names,
    )


def extremes(intended: Tensor, surrogate: Tensor, names: ClientNames | None) -> str:
    """The clients that gain and lose most in relation to their weight."""
    ratio, weighted = surrogate / intended, intended > 0
    gained = int(torch.where(weighted, ratio, -1.0).argmax())
    lost = int(torch.where(weighted, ratio, float("inf")).argmin())
    return f"{label(gained, names)} counted {ratio[gained]:.2f}× its weight, {label(lost, names)} {ratio[lost]:.2f}×"
