"""The demonstration: effects of unequal work and unequal links on a federation."""

from collections.abc import Mapping
from dataclasses import replace

from fairlead.algorithm import Algorithm
from fairlead.clients.images import Digits
from fairlead.clients.label_skew import DirichletPartitioner
from fairlead.conditions.links import BernoulliLink
from fairlead.conditions.work import FixedEpochs
from fairlead.experiments.experiment import Experiment
from fairlead.models.base import LogisticRegression
from fairlead.presets import fedavg, method_named
from fairlead.task import Task
from fairlead.theory.convergence import step_length

DEMO_METHODS = ("fedavg", "fedprox", "fednova", "scaffold", "fedacs")

_NUM_CLIENTS, _NUM_STRONG = 20, 5
_CLIENT_SIDE = {"lr": 0.05, "weight_decay": 0.002, "batch_size": 16}
_OWN_ARGUMENTS: Mapping[str, Mapping[str, float]] = {
    "fedprox": {"mu": 0.1},
    "fedacs": {"cohort_size": _NUM_CLIENTS},
}


def demo_experiment(rounds: int = 120, seed: int = 0) -> Experiment:
    """Handwritten digits on 20 clients, each with few of the classes.

    Five strong clients do eight epochs a round over perfect links; fifteen weak ones do one epoch, and
    six of ten of their updates are lost. Whoever counts work and arrivals as they come therefore learns
    the digits of the strong. The model is convex and penalized, so that methods end where their
    objective is smallest and not only near data that any model could fit.
    """
    weak = _NUM_CLIENTS - _NUM_STRONG
    return Experiment(
        clients=Digits(_NUM_CLIENTS, DirichletPartitioner(0.1, min_partition_size=10)),
        algorithm=fedavg(lr=_CLIENT_SIDE["lr"]),
        rounds=rounds,
        task=Task(LogisticRegression()),
        work=FixedEpochs((8,) * _NUM_STRONG + (1,) * weak),
        link=BernoulliLink((0.0,) * _NUM_STRONG + (0.6,) * weak),
        seed=seed,
    )


def demo_algorithms(experiment: Experiment) -> dict[str, Algorithm]:
    """The methods to compare, with the same local solver and rounds worth the same work."""
    algorithms = {
        name: method_named(name).build(**_CLIENT_SIDE, **_OWN_ARGUMENTS.get(name, {}))
        for name in DEMO_METHODS
    }
    algorithms["fedacs"] = _at_common_pace(experiment, algorithms["fedacs"])
    return algorithms


def _at_common_pace(experiment: Experiment, algorithm: Algorithm) -> Algorithm:
    """FedACS with server steps as long as a mean over arrivals makes them.

    FedACS samples mostly clients with little work and counts lost updates as zero, so that its rounds would be worth a
    tenth of the others' (Weng 2025 I.2).
    """
    federation = replace(experiment, algorithm=algorithm).build()
    conditions = federation.world.conditions(0, algorithm.solver, federation.key)
    arrival, work = conditions.arrival, conditions.effective_steps
    assert arrival is not None
    assert work is not None
    usual, own = (
        step_length(method, weights=conditions.weights, arrival=arrival, effective_steps=work)
        for method in (experiment.algorithm, algorithm)
    )
    return replace(algorithm, server=replace(algorithm.server, lr=usual / own))
