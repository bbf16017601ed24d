"""Experiments that are over in a second, and what kills them."""

from __future__ import annotations

from typing import Any

import fairlead as fl

METHODS: dict[str, fl.Algorithm] = {
    "scaffold": fl.presets.scaffold(lr=0.1, steps=3, cohort_size=3),
    "fedyogi": fl.presets.fedyogi(lr=0.1, steps=3),
    "fedau": fl.presets.fedau(lr=0.1, steps=3),
    "mifa": fl.presets.mifa(lr=0.1, steps=3, cohort_size=3),
    "fedacs_estimated": fl.presets.fedacs_estimated(lr=0.1, steps=3, cohort_size=4),
}


def experiment(name: str = "scaffold", rounds: int = 7) -> fl.Experiment:
    """Lossy links, random work and a method with memory."""
    return fl.Experiment(
        fl.Digits(6, fl.DirichletPartitioner(0.3)),
        METHODS[name],
        rounds,
        work=fl.RandomSteps(1, 4),
        link=fl.BernoulliLink(0.3),
        evaluate_every=2,
        per_client=True,
    )


class KilledError(Exception):
    """Stands for whatever ends a process without warning."""


def kill_after(rounds: int) -> Any:
    def on_round(record: fl.RoundRecord) -> None:
        if record.round + 1 == rounds:
            raise KilledError

    return on_round
