"""Wang 2024: Theorems 2 and 3 on linear regression, the IID twin (Fig. 1) and drift against its bound (Figs. 3, 4)."""

import math
from collections.abc import Mapping
from dataclasses import replace
from itertools import permutations, product
from statistics import linear_regression

import torch
from torch import Tensor

from fairlead import presets
from fairlead.clients.partitioners import IidPartitioner, NaturalIdPartitioner, ReshuffledPartitioner
from fairlead.clients.source import Excerpt
from fairlead.clients.synthetic import LinearRegressionProblem, SyntheticRegression
from fairlead.diagnostics.consensus import ConsensusReport, consensus_test
from fairlead.experiments.experiment import Experiment
from fairlead.federation import Federation
from fairlead.local_solver import LocalSolver
from fairlead.models.base import LogisticRegression, Model
from fairlead.models.convolutional import FedAvgCNN, PooledCNN, ResNet18
from fairlead.optimizers.descent import SGD
from fairlead.randomness import Key
from fairlead.reproductions.claims import Falling, Less, Near, TableCell
from fairlead.reproductions.data_sets import source_of
from fairlead.reproductions.reproduction import Computation, Request, Scale, words
from fairlead.reproductions.trained import Size, TableColumn, TableRow, TrainedTable, last_tenth_accuracy
from fairlead.settings import Setting, consensus_cifar100, consensus_femnist
from fairlead.task import Task
from fairlead.worlds.simulated import SimulatedWorld

_LR, _DRIFT_STEPS = 0.3, 10
_LOCAL_STEPS = (1, 2, 5, 10, 50)
_RADIUS, _SLOPE = "factor of a round", "slope of log ρ in log M"
_RUN, _NOISELESS = "run from closed form", "distance to w* without noise"


def _theorem_3(request: Request, seed: int) -> Mapping[TableCell, float]:
    key = Key.from_seed(seed)
    figures = {}
    repetitions, populations = (10, (16, 128, 1024)) if request.scale == "smoke" else (40, (32, 256, 2048))
    logs = []
    for num_clients in populations:
        source = SyntheticRegression(num_clients=num_clients, num_examples=4, dim=3)
        problems = [source.problem(key.fold("repetition", number)) for number in range(repetitions)]
        drifts = [math.log(each.drift(_LR, _DRIFT_STEPS, at=each.truth)) for each in problems]
        logs.append(sum(drifts) / repetitions)
    line = linear_regression([math.log(count) for count in populations], logs)
    figures[TableCell("Local GD", _SLOPE)] = line.slope
    source = SyntheticRegression(num_clients=100, num_examples=5, dim=10)
    problem = source.problem(key.fold("data"))
    for steps in _LOCAL_STEPS:
        eigenvalues = torch.linalg.eigvalsh(problem.contraction(_LR, steps))
        figures[TableCell(f"H = {steps}", _RADIUS)] = float(eigenvalues.abs().max())
    algorithm = presets.fedavg(lr=_LR, steps=_DRIFT_STEPS, batch_size=None)
    for noise, rounds, column in ((1.0, 5, _RUN), (0.0, 60, _NOISELESS)):
        source = SyntheticRegression(num_clients=20, num_examples=5, dim=4, noise=noise)
        problem = source.problem(key.fold("data"))
        experiment = Experiment(source, algorithm, rounds, seed=seed, evaluate_every=0, dtype="float64")
        federation = experiment.build()
        list(federation.train())
        start = torch.zeros_like(problem.truth)
        expected = problem.local_gd(start, _LR, _DRIFT_STEPS, rounds) if noise else problem.truth
        figures[TableCell("FedAvg", column)] = float((federation.params - expected).norm())
    return figures


THEOREM_3 = Computation(
    **words("wang2024_theorem_3"),
    claims=(
        Near(TableCell("Local GD", _SLOPE), -0.5, within=0.1),
        Falling(tuple(f"H = {steps}" for steps in _LOCAL_STEPS), _RADIUS),
        Less(TableCell("FedAvg", _RUN), 1e-9),
        Less(TableCell("FedAvg", _NOISELESS), 1e-3),
    ),
    compute=_theorem_3,
)


_DELTA, _OVER_11, _OVER_9, _ROUNDS = "E‖δ_c‖²", "E‖δ_c‖² over (11)", "‖w − w*‖² over (9)", (10, 100, 300)


def _moments(problem: LinearRegressionProblem, orders: Tensor, lr: float, w: Tensor) -> tuple[float, ...]:
    """E_c‖δ_c(w)‖², E_c Var Ĝ_c(w) and the largest σ² on the way, over all orders of single examples."""
    noise, local = 0.0, w.expand(len(orders), len(problem.inputs), -1)
    for taken in orders.T:
        errors = (problem.inputs @ local[..., None]).squeeze(-1) - problem.targets
        gradients = errors[..., None] * problem.inputs
        noise = max(noise, float(gradients.var(2, correction=0).sum(-1).max()))
        local = local - lr * gradients[torch.arange(len(orders)), :, taken]
    pseudo = (w - local) / (lr * orders.shape[1])
    bias = pseudo.mean(0) - problem.pseudo_gradients(w, lr, orders.shape[1])
    return float(bias.square().sum(1).mean()), float(pseudo.var(0, correction=0).sum(1).mean()), noise


def _theorem_2(request: Request, seed: int) -> Mapping[TableCell, float]:
    figures, source = {}, SyntheticRegression(num_clients=20, num_examples=4, dim=2, shift=0.0)
    problem = source.problem(Key.from_seed(seed).fold("data"))
    start, optimum = torch.zeros_like(problem.truth), problem.optimum
    low, high = (float(end) for end in torch.linalg.eigvalsh(problem.curvatures).aminmax())
    lr = min(1 / high, 1 / (4 * low))
    # Both ways to take four steps on four examples; the library's is the second, which the run needs.
    ways = {"independent": product(range(4), repeat=4), "shuffled": permutations(range(4))}
    for name, way in ways.items():
        orders = torch.tensor(list(way))
        found = zip(*(_moments(problem, orders, lr, w) for w in (start, optimum)), strict=True)
        bias, variance, noise = map(max, found)
        figures[TableCell(name, _DELTA)] = bias
        figures[TableCell(name, _OVER_11)] = bias / (3 * (lr * high) ** 2 * noise)
    algorithm = presets.fedavgm(server_momentum=0.0, server_lr=1 / 8, lr=lr, steps=4, batch_size=1)
    run = Experiment(source, algorithm, 1, seed=seed, evaluate_every=0, dtype="float64").build()
    floor = lr / low * variance / 20 + 20 / low**2 * (bias + problem.drift(lr, 4) ** 2)
    for rounds in _ROUNDS:
        list(run.train(rounds - run.state.round))
        fading = (1 - lr * low / 4) ** rounds * (start - optimum).square().sum()
        error = (run.params - optimum).square().sum() / (fading + floor)
        figures[TableCell(f"T = {rounds}", _OVER_9)] = float(error)
    return figures


THEOREM_2 = Computation(
    **words("wang2024_theorem_2"),
    claims=(
        Less(TableCell("independent", _DELTA), 1e-20),
        Less(TableCell("shuffled", _OVER_11), 1.0),
        *(Less(TableCell(f"T = {rounds}", _OVER_9), 1.0) for rounds in _ROUNDS),
    ),
    compute=_theorem_2,
)


_PEOPLE = Setting(
    None, LocalSolver(SGD(0.1), epochs=1, batch_size=20), cohort_size=10, partition=NaturalIdPartitioner()
)
"""FedAvg on many people as Reddi et al. (2021) run it, whose set-up the paper takes."""


def _twins(name: str, data: str) -> TrainedTable:
    return TrainedTable(
        **words(name),
        claims=(Near(TableCell("FedAvg", "natural"), TableCell("FedAvg", "IID twin"), within=2.0),),
        columns={
            "natural": TableColumn(_PEOPLE, data, FedAvgCNN()),
            "IID twin": TableColumn(replace(_PEOPLE, partition=ReshuffledPartitioner()), data, FedAvgCNN()),
        },
        rows={"FedAvg": TableRow("fedavg")},
        statistics={"": last_tenth_accuracy},
        sizes={"smoke": Size(1, examples=600), "small": Size(60), "full": Size(500)},
    )


FIGURE_1_FEMNIST = _twins("wang2024_figure_1_femnist", "femnist")
FIGURE_1_MNIST = _twins("wang2024_figure_1_mnist", "mnist_writers")

_STEPS = (2, 10, 20)
_EXAMPLES: dict[Scale, int | None] = {"smoke": 1_500, "small": 6_000, "full": None}
_RATIO, _LEFT = "drift over its bound", "gradient left over dissimilarity"
_CENTRAL = Setting(1, LocalSolver(SGD(0.1), epochs=1, batch_size=50), partition=IidPartitioner())
"""All examples in one place, so that a round is an epoch of mini-batch SGD."""
_SPLITS = {"natural": ("femnist", consensus_femnist()), "artificial": ("cifar100", consensus_cifar100())}
_NARROW = ResNet18(groups=4, width=8)


def _world(data: str, setting: Setting, model: Model, request: Request, seed: int) -> SimulatedWorld:
    source, examples = source_of(data, request.data), _EXAMPLES[request.scale]
    dealt = setting.deal(source if examples is None else Excerpt(source, examples))
    task, algorithm = Task(model), presets.fedavg(lr=0.1)
    world = Experiment(dealt, algorithm, 1, task=task, seed=seed, device=request.device).build().world
    assert isinstance(world, SimulatedWorld)
    return world


def _ratios(row: str, report: ConsensusReport) -> dict[TableCell, float]:
    return {TableCell(row, f"{_RATIO}, H = {drift.steps}"): drift.ratio for drift in report.drifts}


def _at_optimum(request: Request, seed: int) -> Mapping[TableCell, float]:
    figures: dict[TableCell, float] = {}
    for name, (data, setting) in _SPLITS.items():
        model = PooledCNN() if name == "natural" else ResNet18() if request.scale == "full" else _NARROW
        central = _world(data, _CENTRAL, model, request, seed)
        run = Federation(presets.fedavg(**_CENTRAL.client_side()), central, seed)
        list(run.train(1 if request.scale == "smoke" else 20))
        world, lr = _world(data, setting, model, request, seed), setting.solver.optimizer.lr
        asked = min(setting.cohort_size or 0, world.population.num_clients)
        report = consensus_test(world, run.params, lr, steps=_STEPS, clients=asked, centered=False)
        figures[TableCell(name, _LEFT)] = report.gradient_norm / report.dissimilarity
        figures |= _ratios(name, report)
    return figures


def _on_the_way(request: Request, seed: int) -> Mapping[TableCell, float]:
    figures: dict[TableCell, float] = {}
    world = _world("femnist", _PEOPLE, LogisticRegression(), request, seed)
    run = Federation(presets.fedavg(**_PEOPLE.client_side()), world, seed)
    for place, rounds in (("earlier round", 2), ("later round", 4)):
        count = rounds if request.scale == "smoke" else 25 * rounds
        list(run.train(count - run.state.round))
        figures |= _ratios(place, consensus_test(world, run.params, 0.1, steps=_STEPS))
    return figures


FIGURE_3 = Computation(
    **words("wang2024_figure_3"),
    claims=(
        *(Less(TableCell("natural", f"{_RATIO}, H = {steps}"), 0.2) for steps in _STEPS),
        *(Less(0.5, TableCell("artificial", f"{_RATIO}, H = {steps}")) for steps in _STEPS),
    ),
    compute=_at_optimum,
    needs=("femnist", "cifar100"),
    on_device=True,
    judged_at=("full",),
)

FIGURE_4 = Computation(
    **words("wang2024_figure_4"),
    claims=tuple(
        Less(TableCell(place, f"{_RATIO}, H = {steps}"), 0.5)
        for place in ("earlier round", "later round")
        for steps in _STEPS
    ),
    compute=_on_the_way,
    needs=("femnist",),
    on_device=True,
    judged_at=("small", "full"),
)
