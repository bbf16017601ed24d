"""What came of one run, in figures."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median

from fairlead.diagnostics.consistency import ConsistencyReport, measured_consistency
from fairlead.diagnostics.diversity import running_elud
from fairlead.experiments.comparison import chance_level
from fairlead.records import Evaluation
from fairlead.reports.curves import COMPUTE_TIME, LOCAL_STEPS, LOSS, VIRTUAL_TIME
from fairlead.reports.measure import Measure
from fairlead.reports.runs import ReportedRun
from fairlead.reports.statistics import spread, tenth, worst_tenth

_LAST_FEW = 5
"""Rounds over which Weng 2025 averages."""


@dataclass(frozen=True)
class Reached:
    """What it took a run to meet a target."""

    rounds: int
    steps: float | None
    compute_seconds: float | None
    """Of all devices together, as Weng 2025 counts it; None where devices have no speed."""
    virtual_seconds: float | None
    """By the clock of the simulated world; None where it has none."""


@dataclass(frozen=True, eq=False)
class RunFigures:
    """One run in figures; None stands for what it cannot tell."""

    run: ReportedRun
    seed: int
    final: float | None
    best: float | None
    last_tenth: float | None
    """Mean over the last 10 % of rounds (Zeng 2025)."""
    last_five: float | None
    """Mean over the last five rounds (Weng 2025)."""
    objective: float | None
    eludd: float | None
    consistency: ConsistencyReport | None
    chi_square: float | None
    misplaced: float | None
    by_chance: float | None
    """Share of weight that chance alone would misplace."""
    clients: tuple[float, ...]
    """The measure for every client at the last evaluation; empty if that was not asked for."""
    client_mean: float | None
    client_spread: float | None
    client_worst: float | None
    bytes_down: float | None
    bytes_up: float | None
    steps: float
    compute_seconds: float | None
    virtual_seconds: float | None
    seconds: float | None
    """Median round times their number: the first one also waits for the process to warm up."""
    reached: tuple[Reached | None, ...]
    """Per target."""

    def client_ratios(self) -> list[float | None]:
        """Ω_i/ω_i of every client, None where ω_i = 0; empty where Ω was not measured."""
        report = self.consistency
        if report is None or report.surrogate is None or report.restored:
            return []
        pairs = zip(report.surrogate.tolist(), report.intended.tolist(), strict=True)
        return [really / asked if asked > 0 else None for really, asked in pairs]


def run_figures(run: ReportedRun, measure: Measure, targets: Sequence[float] = ()) -> RunFigures:
    """One run in figures."""
    experiment, records = run.experiment, run.records
    assert run.seed is not None
    curve, total = measure.quantity.read(run), len(records)
    consistency = None
    if experiment is not None and run.weights is not None and records:
        consistency = measured_consistency(records, run.weights, algorithm=experiment.algorithm)
    noted = run.summary
    chance = noted.misplaced_by_chance if noted else None
    if chance is None and run.weights is not None and records:
        chance = chance_level(records, run.weights)
    eludd = running_elud(records)[-1] if records else math.nan
    evaluation = next((record.evaluation for record in reversed(records) if record.evaluation), None)
    clients = _client_values(evaluation, measure)
    known = [value for value in clients if math.isfinite(value)]
    compute, virtual = COMPUTE_TIME.read(run), VIRTUAL_TIME.read(run)
    return RunFigures(
        run=run,
        seed=run.seed,
        final=curve.values[-1] if len(curve) else None,
        best=curve.best(higher=measure.higher),
        last_tenth=curve.tail_mean(total, tenth(total)),
        last_five=curve.tail_mean(total, _LAST_FEW),
        objective=None if noted is None else noted.objective,
        eludd=None if math.isnan(eludd) else eludd,
        consistency=consistency,
        chi_square=consistency.chi_square if consistency else noted.chi_square if noted else None,
        misplaced=consistency.total_variation if consistency else noted.misplaced_weight if noted else None,
        by_chance=chance,
        clients=clients,
        client_mean=math.fsum(known) / len(known) if known else None,
        client_spread=spread(clients),
        client_worst=worst_tenth(clients, higher=measure.higher),
        bytes_down=float(sum(record.bytes_down for record in records)) if run.detailed else None,
        bytes_up=float(sum(record.bytes_up for record in records)) if run.detailed else None,
        steps=float(sum(sum(record.num_steps) for record in records)),
        compute_seconds=compute[-1] if compute else None,
        virtual_seconds=virtual[-1] if virtual else None,
        seconds=median(record.seconds for record in records) * total if records and run.detailed else None,
        reached=tuple(_reached(run, measure, target) for target in targets),
    )


def _reached(run: ReportedRun, measure: Measure, target: float) -> Reached | None:
    done = measure.quantity.read(run).rounds_to(target, higher=measure.higher)
    if done is None:
        return None
    spent = [axis.read(run) for axis in (LOCAL_STEPS, COMPUTE_TIME, VIRTUAL_TIME)]
    steps, compute, virtual = (None if total is None else total[done - 1] for total in spent)
    return Reached(done, steps, compute, virtual)


def _client_values(evaluation: Evaluation | None, measure: Measure) -> tuple[float, ...]:
    if evaluation is None:
        return ()
    if measure.quantity is LOSS:
        return evaluation.client_loss or ()
    return tuple(evaluation.client_metrics.get("accuracy", ()))
