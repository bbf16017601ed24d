"""Wang 2024: Theorem 3 on linear regression."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import torch

from fairlead import presets
from fairlead.clients import SyntheticRegression
from fairlead.experiments.experiment import Experiment
from fairlead.randomness import Key
from fairlead.reproductions.claims import Falling, Less, Near
from fairlead.reproductions.computed import Computed
from fairlead.reproductions.reproduction import Request
from fairlead.reproductions.table import Cell

_LR, _DRIFT_STEPS = 0.3, 10
_LOCAL_STEPS = (1, 2, 5, 10, 50)
_RADIUS, _SLOPE = "factor of a round", "slope of log ρ in log M"
_RUN, _NOISELESS = "run from closed form", "distance to w* without noise"


def _slope(x: Sequence[float], y: Sequence[float]) -> float:
    """Of the least-squares line."""
    mean_x, mean_y = sum(x) / len(x), sum(y) / len(y)
    rise = sum((a - mean_x) * (b - mean_y) for a, b in zip(x, y, strict=True))
    return rise / sum((a - mean_x) ** 2 for a in x)


def _theorem_3(request: Request, seed: int) -> Mapping[Cell, float]:
    key = Key.from_seed(seed)
    figures = {}
    repetitions, populations = (10, (16, 128, 1024)) if request.scale == "smoke" else (40, (32, 256, 2048))
    logs = []
    for num_clients in populations:
        source = SyntheticRegression(num_clients=num_clients, num_examples=4, dim=3)
        problems = [source.problem(key.fold("repetition", number)) for number in range(repetitions)]
        drifts = [math.log(each.drift(_LR, _DRIFT_STEPS, at=each.truth)) for each in problems]
        logs.append(sum(drifts) / repetitions)
    figures[Cell("Local GD", _SLOPE)] = _slope([math.log(count) for count in populations], logs)
    source = SyntheticRegression(num_clients=100, num_examples=5, dim=10)
    problem = source.problem(key.fold("data"))
    for steps in _LOCAL_STEPS:
        eigenvalues = torch.linalg.eigvalsh(problem.contraction(_LR, steps))
        figures[Cell(f"H = {steps}", _RADIUS)] = float(eigenvalues.abs().max())
    algorithm = presets.fedavg(lr=_LR, steps=_DRIFT_STEPS, batch_size=None)
    for noise, rounds, column in ((1.0, 5, _RUN), (0.0, 60, _NOISELESS)):
        source = SyntheticRegression(num_clients=20, num_examples=5, dim=4, noise=noise)
        problem = source.problem(key.fold("data"))
        experiment = Experiment(source, algorithm, rounds, seed=seed, evaluate_every=0, dtype="float64")
        federation = experiment.build()
        for _ in federation.train():
            pass
        start = torch.zeros_like(problem.truth)
        expected = problem.local_gd(start, _LR, _DRIFT_STEPS, rounds) if noise else problem.truth
        figures[Cell("FedAvg", column)] = float((federation.params - expected).norm())
    return figures


THEOREM_3 = Computed(
    name="wang2024_theorem_3",
    reference="wang2024unreasonable",
    where="Theorem 3, (16)-(18)",
    claim="Where clients share p(y | x), local steps have no bias in the limit of many clients, and more of them "
    "converge in fewer rounds.",
    claims=(
        Near(Cell("Local GD", _SLOPE), -0.5, within=0.1),
        Falling(tuple(f"H = {steps}" for steps in _LOCAL_STEPS), _RADIUS),
        Less(Cell("FedAvg", _RUN), 1e-9),
        Less(Cell("FedAvg", _NOISELESS), 1e-3),
    ),
    differences=(
        "(16) prints the mean of G_c − ∇F_c, which is that of G_c only for M → ∞; ρ here is ‖E_c G_c(w*)‖.",
        "Rounds are compared at the same step η; gradient descent alone could take longer ones.",
    ),
    compute=_theorem_3,
    what="linear regression with 32 to 2,048 clients, 40 draws each; local steps of gradient descent from 1 to 50",
)
