"""`compare`: several algorithms on one experiment, in memory."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from fairlead.algorithm import Algorithm
from fairlead.diagnostics.consistency import ConsistencyReport
from fairlead.errors import FieldError
from fairlead.experiments.experiment import Experiment
from fairlead.experiments.method_list import refuse_same
from fairlead.experiments.provenance import client_facts
from fairlead.experiments.runner import summarize as summarize_run
from fairlead.federation import Federation
from fairlead.records import Evaluation, RoundRecord
from fairlead.results.comparison import Summary, summarize
from fairlead.results.curves import FigureName
from fairlead.results.figures import MethodFigures
from fairlead.results.runs import ReportedRun
from fairlead.results.sentences import describe_standing, objective_verdict


@dataclass(frozen=True, eq=False)
class ComparedMethod:
    """One algorithm of a comparison, after its last round."""

    name: str
    federation: Federation
    evaluation: Evaluation
    """Of the final model, with figures per client."""
    objective: float
    """Σ ω_i F_i of the final model: the intended loss, over the clients' training data."""
    consistency: ConsistencyReport
    chance: float
    """Share of the weight that chance alone would misplace in as many rounds; see `chance_level`."""
    figures: MethodFigures
    """Its figures and its difference to the first method."""
    summary: Summary
    """The whole comparison, as `fairlead report` has it."""

    @property
    def value(self) -> float | None:
        """The figure by which methods are compared, of the metric `summary.measure`."""
        return self.figures.runs[0].value

    @property
    def difference(self) -> float | None:
        """Its `value` less that of the first method; None for the first."""
        return None if self.figures.difference is None else self.figures.difference.mean

    def standing(self) -> str:
        """How it compares with the first method, in words."""
        return str(describe_standing(self.summary, self.figures))

    def objective_verdict(self) -> str:
        """One sentence on the objective that the method optimized."""
        return objective_verdict(self.name, self.consistency, self.chance)


def compare(
    experiment: Experiment,
    algorithms: Mapping[str, Algorithm],
    *,
    metric: str | None = None,
    minimize: bool = False,
    figure: FigureName = "last-tenth",
    on_round: Callable[[str, RoundRecord], None] | None = None,
) -> list[ComparedMethod]:
    """Run each algorithm instead of the experiment's own, one after another.

    All share the seed, and so data, initial model, batches, work and links: only the method differs.
    `metric` and `figure` say which number is compared, as in `fairlead compare`; `minimize` that less of it is better.
    `on_round` is called with the name and the record of each round.

    >>> import fairlead as fl
    >>> quadratics = fl.Quadratics(linear=((0.0,), (4.0,)), start=0.0)
    >>> fedavg, fednova = fl.presets.fedavg(lr=0.01, steps=1), fl.presets.fednova(lr=0.01, steps=1)
    >>> experiment = Experiment(quadratics, fedavg, rounds=300, work=fl.FixedSteps((1, 9)))
    >>> for method in compare(experiment, {"FedAvg": fedavg, "FedNova": fednova}):
    ...     print(method.objective_verdict())
    FedAvg optimized another objective: 1 of 2 clients got 90% of the weight instead of 50%.
    FedNova optimized the intended objective.
    """
    if not algorithms:
        raise FieldError("compare needs at least one algorithm, got none.")
    refuse_same(algorithms)
    federations = {}
    for name, algorithm in algorithms.items():
        federation = federations[name] = replace(experiment, algorithm=algorithm).build()
        for record in federation.train(experiment.rounds, evaluate_every=experiment.evaluate_every):
            if on_round:
                on_round(name, record)
    runs = [_run_of(name, experiment, federation) for name, federation in federations.items()]
    (summary,) = summarize(
        runs, baseline=next(iter(algorithms)), metric=metric, minimize=minimize, figure=figure
    )
    compared = []
    for figures, run, (name, federation) in zip(summary.methods, runs, federations.items(), strict=True):
        assert run.summary is not None
        compared.append(
            ComparedMethod(
                name,
                federation,
                federation.evaluate(per_client=True),
                run.summary.objective,
                federation.consistency(),
                run.summary.misplaced_by_chance,
                figures,
                summary,
            )
        )
    return compared


def _run_of(name: str, experiment: Experiment, federation: Federation) -> ReportedRun:
    """A finished federation as the reader of runs has it."""
    return ReportedRun(
        name,
        Path(name),
        {"method": name, "seed": experiment.seed},
        seed=experiment.seed,
        state="finished",
        experiment=replace(experiment, algorithm=federation.algorithm),
        records=tuple(federation.records),
        weights=federation.world.population.weights,
        names=federation.world.population.names,
        held_out=client_facts(federation).held_out,
        summary=summarize_run(federation),
        detailed=True,
    )
