"""Run folders with chosen numbers, written as a run would write them but without training."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import fairlead as fl
from fairlead.experiments.provenance import ClientFacts, provenance_of
from fairlead.experiments.run_folder import RunSummary
from fairlead.records import Evaluation, RoundRecord

WEIGHTS = (0.25, 0.75)
"""ω of the two clients."""


@dataclass(frozen=True)
class Made:
    """What a fabricated run did; every field has a value that most tests can leave alone."""

    method: str = "fedavg"
    seed: int = 0
    accuracy: Sequence[float | None] = (0.5, 0.6)
    """After each round; None: not evaluated."""
    outcome: str = "finished"
    steps: tuple[int, int] = (1, 3)
    """Local steps of the two clients in every round, averaged equally."""
    arrived: tuple[int, ...] = (0, 1)
    """Which of them arrive."""
    planned: int | None = None
    """Rounds of the spec, if not all were run."""
    client_accuracy: tuple[float, float] | None = (0.5, 1.0)
    seconds: float | None = 10.0
    """Of computing in every round; None: devices without speed."""
    metric: str = "accuracy"
    lr: float = 0.1
    objective: float = 0.125
    optimum: float = 1.0
    """Of the second client: other values are other data."""
    wall: Sequence[float] = ()
    """Seconds that each round took on the wall; half a second if empty."""
    initial_objective: float = 0.75


USUAL = Made()


def experiment_of(made: Made) -> fl.Experiment:
    algorithm = {
        "fedavg": fl.presets.fedavg(lr=made.lr, steps=1),
        "fednova": fl.presets.fednova(lr=made.lr, steps=1),
        "fedaware": fl.presets.fedaware(lr=made.lr, steps=1),
        "scaffold": fl.presets.scaffold(lr=made.lr, steps=1),
    }[made.method]
    return fl.Experiment(
        fl.Quadratics(linear=((0.0,), (made.optimum,))),
        algorithm,
        made.planned or len(made.accuracy),
        weights=WEIGHTS,
        work=fl.FixedSteps(made.steps),
        seed=made.seed,
        evaluate_every=1,
        per_client=True,
    )


def records_of(made: Made) -> list[RoundRecord]:
    return [
        RoundRecord(
            round=place,
            asked=(0, 1),
            multiplicity=(1, 1),
            arrived=made.arrived,
            num_steps=tuple(made.steps[client] for client in made.arrived),
            effective_steps=tuple(float(made.steps[client]) for client in made.arrived),
            coefficients=(1 / len(made.arrived),) * len(made.arrived),
            remembered={},
            train_loss=1.0 / (place + 1),
            direction_norm=1.0,
            step_norm=1.0,
            elud=2.0 + place,
            bytes_down=100,
            bytes_up=50,
            evaluation=None if value is None else _evaluation(made, value),
            virtual_seconds=None if made.seconds is None else made.seconds / 2,
            device_seconds=made.seconds,
            seconds=made.wall[place] if made.wall else 0.5,
        )
        for place, value in enumerate(made.accuracy)
    ]


def _evaluation(made: Made, value: float) -> Evaluation:
    clients = {} if made.client_accuracy is None else {made.metric: made.client_accuracy}
    losses = None if made.client_accuracy is None else (1.0, 2.0)
    return Evaluation(1.0 - value, {made.metric: value}, losses, clients)


def fabricate(path: Path, made: Made = USUAL) -> Path:
    """Write the folder of a run and return its path."""
    store, experiment = fl.RunFolder(path), experiment_of(made)
    with store.claimed():
        log = store.begin(experiment)
        store.introduce(ClientFacts(WEIGHTS, names=None, held_out=False))
        for record in records_of(made):
            log.append(record)
        store.note(replace(_START, seed=made.seed, outcome=made.outcome, next_round=len(made.accuracy)))
        if made.outcome == "finished":
            store.conclude(_summary(made))
    return path


_START = provenance_of(experiment_of(USUAL).build())


def _summary(made: Made) -> RunSummary:
    return RunSummary(
        rounds=len(made.accuracy),
        seconds=1.0,
        train_loss=0.5,
        evaluation=None,
        objective=made.objective,
        misplaced_weight=0.5,
        misplaced_by_chance=0.01,
        chi_square=1.0,
        predicted_chi_square=1.0,
        by_design=False,
        notice=None,
        initial_objective=made.initial_objective,
    )


def fabricate_study(path: Path) -> Path:
    """Three methods over two seeds, of which one run failed and one cannot be read."""
    for method, lead in (("fedavg", 0.0), ("fednova", 0.1), ("scaffold", 0.2)):
        for seed in (0, 1):
            accuracy = tuple(
                0.3 + 0.1 * place + lead + 0.01 * seed + 1e-5 * seed * lead for place in range(4)
            )
            failed = method == "fednova" and seed == 1
            fabricate(
                path / f"{method}-{seed}",
                Made(method, seed, accuracy, outcome="failed: it <burst>." if failed else "finished"),
            )
    broken = fabricate(path / "broken")
    (broken / "spec.toml").write_text("nonsense")
    return path
