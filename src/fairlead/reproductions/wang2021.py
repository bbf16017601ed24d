"""Wang 2021: Lemmas 1 and 5, Theorem 4 and Figs. 2, 4 on quadratics; Fig. 5 on Synthetic(1, 1), Table I on CIFAR-10."""

import math
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import torch

from fairlead import presets, settings
from fairlead.algorithm import Algorithm
from fairlead.clients.quadratics import Quadratics
from fairlead.clients.synthetic import SyntheticLogistic
from fairlead.conditions.work import FixedSteps, NormalSteps
from fairlead.diagnostics.consistency import chi_square, predicted_consistency
from fairlead.experiments.experiment import Experiment
from fairlead.models.convolutional import VGG11
from fairlead.optimizers.base import Milestones
from fairlead.randomness import Key
from fairlead.reproductions import trained
from fairlead.reproductions.claims import Falling, Less, Near, TableCell, below, published_table
from fairlead.reproductions.data_sets import CIFAR10_AUGMENTED
from fairlead.reproductions.reproduction import Computation, Request, Scale, words
from fairlead.reproductions.trained import Size, TableColumn, TableRow, TrainedTable
from fairlead.settings import Setting
from fairlead.theory.convergence import convergence_factors


def _experiment(setting: Setting, algorithm: Algorithm, rounds: int, seed: int) -> Experiment:
    assert setting.clients is not None
    return Experiment(
        setting.clients,
        algorithm,
        rounds,
        work=setting.work,
        seed=seed,
        evaluate_every=0,
        dtype="float64",
        lanes=32,
    )


_STEPS, _LR = (1, 2, 3, 5, 7), 0.1
_TO_LIMIT, _TO_SURROGATE, _BIAS = "distance to (31)", "(31) from (5)", "distance to x*"
_LEMMA_METHODS = {
    "FedAvg": presets.fedavg(lr=_LR, steps=1, batch_size=None),
    "FedProx": presets.fedprox(mu=1.0, lr=_LR, steps=1, batch_size=None),
    "FedNova": presets.fednova(lr=_LR, steps=1, batch_size=None),
}


def _lemma_1(request: Request, seed: int) -> Mapping[TableCell, float]:
    source = Quadratics(len(_STEPS), dim=4, conditioning=3.0)
    problem = source.problem(Key.from_seed(seed).fold("data"))
    setting = replace(settings.fednova_quadratics_equal(), clients=source, work=FixedSteps(_STEPS))
    figures = {}
    for name, algorithm in _LEMMA_METHODS.items():
        federation = _experiment(setting, algorithm, rounds=120, seed=seed).build()
        list(federation.train())
        mu = 1.0 if name == "FedProx" else 0.0
        limit = problem.limit(_STEPS, _LR, mu=mu, normalize=name == "FedNova")
        figures[TableCell(name, _TO_LIMIT)] = float((federation.params - limit).norm())
        figures[TableCell(name, _BIAS)] = float((federation.params - problem.optimum).norm())
    work = torch.tensor(_STEPS, dtype=torch.float64)
    surrogate = problem.minimizer(problem.weights * work / (problem.weights @ work))
    for lr in (1e-3, 1e-4):
        gap = float((problem.limit(_STEPS, lr) - surrogate).norm())
        figures[TableCell(f"FedAvg, η = {lr:g}, over η", _TO_SURROGATE)] = gap / lr
    return figures


LEMMA_1 = Computation(
    **words("wang2021_lemma_1"),
    claims=(
        *(Less(TableCell(name, _TO_LIMIT), 1e-6) for name in _LEMMA_METHODS),
        Less(TableCell("FedNova", _BIAS), TableCell("FedAvg", _BIAS), 0.5),
        # The gap over η tends to a constant: (5) is approached in proportion to η.
        Near(
            TableCell("FedAvg, η = 0.0001, over η", _TO_SURROGATE),
            TableCell("FedAvg, η = 0.001, over η", _TO_SURROGATE),
            within=0.2,
        ),
    ),
    compute=_lemma_1,
)


_FLOOR = "‖∇F‖² over χ²κ²"


def _lemma_5(request: Request, seed: int) -> Mapping[TableCell, float]:
    problem, steps = Quadratics(linear=((2.0,), (-2.0,))).problem(Key.from_seed(seed)), (1, 4)
    shares = torch.tensor(steps, dtype=torch.float64) / sum(steps)
    gradients = problem.gradients(torch.zeros(1, dtype=torch.float64))
    floor = chi_square(problem.weights, shares) * (shares @ (gradients - shares @ gradients).square())
    figures = {}
    for name in ("FedAvg", "FedNova"):
        limit = problem.limit(steps, 1e-4, normalize=name == "FedNova")
        gradient = problem.weights @ problem.gradients(limit)
        figures[TableCell(name, _FLOOR)] = float(gradient.square() / floor)
    return figures


LEMMA_5 = Computation(
    **words("wang2021_lemma_5"),
    claims=(Near(TableCell("FedAvg", _FLOOR), 1.0, within=1e-3), Less(TableCell("FedNova", _FLOOR), 1e-6)),
    compute=_lemma_5,
)


_ROUNDS = (0, 10, 100, 1000, 10_000)
_CASES = {"FedAvg": (1, 10.0), "FedNova, s = 2": (1, 10.0), "no noise": (1, 0.0), "ten times m": (10, 10.0)}
"""Copies of the clients of Lemma 1, and σ²."""
_OVER_BOUND, _SPEED, _LIMIT = "error over (83), T = {}", "slope of log error in log T", "τ_eff over its limit"
_SCALED, _ALPHA = "error times mτ̄T", "FedProx's best α over ∛2 √(m/τ̄)/T^(1/6)"
_PROX = "m = {:g}, τ̄ = {:g}, T = {:g}"
_SIZES = ((10, 1e4, 1e6), (1e3, 1e4, 1e6), (10, 1e6, 1e6), (10, 1e4, 1e8))


def _theorem_4(request: Request, seed: int) -> Mapping[TableCell, float]:
    figures, solver = {}, _LEMMA_METHODS["FedAvg"].solver
    drawn = torch.from_numpy(Key.from_seed(seed).generator().normal(size=len(_STEPS)))
    for name, (copies, noise) in _CASES.items():
        steps, centers = torch.tensor(_STEPS).double().repeat(copies), drawn.repeat(copies)
        weights = torch.full_like(steps, 1 / len(steps))
        coefficients = weights * 2 * steps.mean() / steps if "Nova" in name else weights
        shares = coefficients * steps / (coefficients @ steps)
        factors = convergence_factors(solver, steps, coefficients, shares, weights)
        assert factors is not None
        target, tau_eff = shares @ centers, factors.tau_eff
        drift = 1.5 * noise * factors.b + 3 * float(shares @ (centers - target).square()) * factors.c
        # L = c = 1, so that γ = 1/ν: the least that (53) allows. The start is as far away as (79) allows.
        gamma = 12 * math.sqrt(3) * max(_STEPS) / tau_eff
        mean, variance, errors = target, torch.zeros(()), []
        for round in range(_ROUNDS[-1] + 1):
            time = tau_eff * (round + gamma)
            bound = 36 * noise * factors.a / (time * len(steps)) + 216 * drift / time**2
            mean = mean if round else target + math.sqrt(2 * bound)
            if round in _ROUNDS:
                errors.append(float((mean - target) ** 2 + variance) / 2)
                figures[TableCell(name, _OVER_BOUND.format(round))] = errors[-1] / bound
            # Mean and variance of a round with η = 6/time, exactly: all is linear in the model and the noise.
            lr = 6 / time
            pull, kept = coefficients * (1 - (1 - lr) ** steps), (1 - lr) ** 2
            added = noise * lr**2 * coefficients**2 @ (1 - kept**steps) / (1 - kept)
            mean, variance = mean - pull @ (mean - centers), (1 - pull.sum()) ** 2 * variance + added
        figures[TableCell(name, "s")] = 1 / factors.slowdown
        figures[TableCell(name, _SPEED)] = math.log10(errors[-1] / errors[-2])
        figures[TableCell(name, _SCALED)] = errors[-1] * float(steps.sum()) * _ROUNDS[-1]
        if not noise:
            figures[TableCell(name, _LIMIT)] = tau_eff * gamma * math.sqrt(errors[0] / (216 * drift))
    alphas = torch.logspace(-6, 0, 60_001, dtype=torch.float64)
    for m, work, rounds in _SIZES:
        # (9) for σ = 0, κ = 1 and equal steps, with C = ‖a‖₁(‖a‖₁ − 1) of (51).
        norm = (1 - (1 - alphas) ** work) / alphas
        best = (work / norm / math.sqrt(m * work * rounds) + m * norm * (norm - 1) / (work * rounds)).argmin()
        expected = 2 ** (1 / 3) * math.sqrt(m / work) / rounds ** (1 / 6)
        figures[TableCell(_PROX.format(m, work, rounds), _ALPHA)] = float(alphas[best]) / expected
    return figures


THEOREM_4 = Computation(
    **words("wang2021_theorem_4"),
    claims=(
        *(Less(TableCell(name, _OVER_BOUND.format(at)), 1 + 1e-9) for name in _CASES for at in _ROUNDS),
        *(Near(TableCell(name, _SPEED), -1.0 if noise else -2.0, 0.1) for name, (_, noise) in _CASES.items()),
        Near(TableCell("no noise", _LIMIT), 1.0, within=1e-9),
        Near(TableCell("ten times m", _SCALED), TableCell("FedAvg", _SCALED), within=1.0),
        *(Near(TableCell(_PROX.format(*sizes), _ALPHA), 1.0, within=0.1) for sizes in _SIZES),
    ),
    compute=_theorem_4,
)


_PANELS = {
    "equal steps": settings.fednova_quadratics_equal(),
    "random steps": settings.fednova_quadratics_random(),
}
_EARLY = 10
"""Rounds after which speed is compared, when nobody has reached the last digits yet."""
_FIGURE_2_METHODS = {
    "FedAvg": TableRow("fedavg"),
    "FedProx": TableRow("fedprox", {"mu": 1.0}),
    "VRLSGD": TableRow("vrlsgd"),
    "FedNova": TableRow("fednova"),
}


def _shrunk(setting: Setting, scale: Scale) -> Setting:
    """A panel of Fig. 2 with fewer clients, steps and rounds; as published at full scale."""
    if scale == "full":
        return setting
    rounds = 20 if scale == "smoke" else 60
    schedule = Milestones((rounds // 2, rounds * 3 // 4), gamma=0.2)
    optimizer = replace(setting.solver.optimizer, schedule=schedule)
    work = NormalSteps(6.0, 3.0, low=1, high=18) if isinstance(setting.work, NormalSteps) else setting.work
    return replace(
        setting,
        rounds=rounds,
        solver=replace(setting.solver, optimizer=optimizer, steps=6),
        clients=Quadratics(num_clients=10, dim=5, spread=0.1, start=1.0),
        work=work,
    )


def _figure_2(request: Request, seed: int) -> Mapping[TableCell, float]:
    figures = {}
    for panel, published in _PANELS.items():
        setting = _shrunk(published, request.scale)
        assert isinstance(setting.clients, Quadratics)
        assert setting.rounds is not None
        optimum = setting.clients.problem(Key.from_seed(seed).fold("data")).optimum
        for name, row in _FIGURE_2_METHODS.items():
            federation = _experiment(setting, row.algorithm(setting), setting.rounds, seed).build()
            for rounds, place in ((_EARLY, f"{panel}, early"), (setting.rounds, panel)):
                list(federation.train(rounds - federation.state.round))
                figures[_squared(name, place)] = float((federation.params - optimum).square().sum())
    return figures


def _squared(method: str, panel: str) -> TableCell:
    return TableCell(method, f"‖x − x*‖², {panel}")


FIGURE_2 = Computation(
    **words("wang2021_figure_2"),
    claims=(
        *(Less(_squared(name, "equal steps"), 1e-6) for name in _FIGURE_2_METHODS),
        Less(_squared("FedAvg", "equal steps, early"), _squared("FedProx", "equal steps, early")),
        Near(_squared("FedNova", "equal steps"), _squared("FedAvg", "equal steps"), within=1e-15),
        Less(_squared("FedNova", "random steps"), _squared("FedAvg", "random steps"), 0.1),
        Less(_squared("FedNova", "random steps"), _squared("FedProx", "random steps"), 0.1),
        Less(_squared("FedAvg", "random steps"), _squared("VRLSGD", "random steps"), 0.1),
    ),
    compute=_figure_2,
    judged_at=("small", "full"),
)


_ALPHAS = (0.0, 0.1, 0.2, 0.5, 1.0)
_CHI_SQUARE, _SLOWDOWN, _VARIANCE = "weight bias", "slowdown", "relative variance"


def _row(alpha: float) -> str:
    return f"α = {alpha:g}"


def _figure_4(request: Request, seed: int) -> Mapping[TableCell, float]:
    setting = settings.fednova_quadratics_fixed()
    side = setting.client_side()
    figures = {}
    methods: dict[str, Algorithm] = {"FedNova": presets.fednova(**side)}
    for alpha in _ALPHAS:
        mu = alpha / setting.solver.optimizer.lr
        methods[_row(alpha)] = presets.fedprox(mu=mu, **side) if alpha else presets.fedavg(**side)
    for name, algorithm in methods.items():
        world = _experiment(setting, algorithm, rounds=1, seed=seed).build().world
        report = predicted_consistency(algorithm, world, rounds=1)
        assert report.predicted_chi_square is not None
        assert report.factors is not None
        figures[TableCell(name, _CHI_SQUARE)] = report.predicted_chi_square
        figures[TableCell(name, _SLOWDOWN)] = report.factors.slowdown
        figures[TableCell(name, _VARIANCE)] = report.factors.a
    assert isinstance(setting.work, FixedSteps)
    steps = setting.work.steps
    figures[TableCell("mean steps", _SLOWDOWN)] = sum(steps) / len(steps)
    return figures


FIGURE_4 = Computation(
    **words("wang2021_figure_4"),
    claims=(
        Falling(tuple(map(_row, _ALPHAS)), _CHI_SQUARE),
        Falling(tuple(map(_row, reversed(_ALPHAS))), _SLOWDOWN),
        Near(TableCell(_row(1.0), _CHI_SQUARE), 0.0, within=1e-12),
        Near(TableCell(_row(1.0), _SLOWDOWN), TableCell("mean steps", _SLOWDOWN), within=1e-9),
        Near(TableCell("FedNova", _CHI_SQUARE), 0.0, within=1e-12),
        Near(TableCell("FedNova", _SLOWDOWN), 1.0, within=1e-12),
        *(Less(TableCell(_row(alpha), _VARIANCE), 1 + 1e-9) for alpha in _ALPHAS),
    ),
    compute=_figure_4,
)


def _on_all_examples(setting: Setting) -> Setting:
    """Without a test set, so that the loss is that of training, as the figure has it."""
    assert isinstance(setting.clients, SyntheticLogistic)
    return replace(setting, clients=replace(setting.clients, test_fraction=0.0))


_FIGURE_5 = {
    "all asked": TableColumn(_on_all_examples(settings.fednova_synthetic())),
    "30 % asked": TableColumn(_on_all_examples(settings.fednova_synthetic_partial())),
    "30 % asked, random epochs": TableColumn(_on_all_examples(settings.fednova_synthetic_random())),
}

FIGURE_5 = TrainedTable(
    **words("wang2021_figure_5"),
    claims=below(["FedNova"], ["FedAvg"], _FIGURE_5),
    columns=_FIGURE_5,
    rows={"FedAvg": TableRow("fedavg"), "FedNova": TableRow("fednova")},
    statistics={"": trained.late_loss},
    sizes={
        "smoke": Size(2),
        "small": Size(
            60, clients=SyntheticLogistic(1.0, 1.0, num_clients=30, max_examples=300, test_fraction=0.0)
        ),
        "full": Size(200),
    },
)


_DECAY = {"weight_decay": 1e-4}
_MOMENTUM: dict[str, Any] = {"momentum": 0.9, "lr": 0.02, **_DECAY}
_EQUAL, _RANDOM = "E = 2", "E ~ U(2, 5)"


def _with_proximal(mu: float) -> dict[str, TableRow]:
    """The rows of both columns; the best μ differs between them."""
    return {
        "FedAvg": TableRow("fedavg", _DECAY),
        "FedNova": TableRow("fednova", _DECAY),
        "FedAvg, momentum": TableRow("fedavg", _MOMENTUM),
        "FedNova, momentum": TableRow("fednova", _MOMENTUM),
        "FedAvg, proximal": TableRow("fedprox", {"mu": mu, **_DECAY}),
        "FedNova, proximal": TableRow("fednova", {"mu": mu, "tau_eff": "steps", **_DECAY}),
    }


_VARIANTS = {
    "FedAvg, VR": TableRow("scaffold", _DECAY),
    "FedNova, VR": TableRow("fednova_vr", _DECAY),
    "FedNova, momentum and VR": TableRow("fednova_vr", _MOMENTUM),
    "FedNova, server momentum": TableRow("fednova", {"server_momentum": 0.9, **_DECAY}),
    "FedNova, hybrid momentum": TableRow("fednova", {"server_momentum": 0.9, **_MOMENTUM}),
}

_COLUMNS = {
    name: TableColumn(setting, "cifar10", VGG11(), CIFAR10_AUGMENTED, rows=rows)
    for name, setting, rows in (
        (_EQUAL, settings.fednova_equal_epochs(), _with_proximal(0.005)),
        (_RANDOM, settings.fednova_random_epochs(), {**_with_proximal(0.001), **_VARIANTS}),
    )
}

TABLE_1 = TrainedTable(
    **words("wang2021_table_1"),
    claims=tuple(
        claim
        for name in _COLUMNS
        for solver in ("", ", momentum", ", proximal")
        for claim in below([f"FedAvg{solver}"], [f"FedNova{solver}"], [name])
    ),
    published=published_table("wang2021_table_1"),
    columns=_COLUMNS,
    statistics={"": trained.final_accuracy},
    sizes={
        "smoke": Size(1, examples=640, model=VGG11(width=4)),
        "small": Size(20, examples=10_000, model=VGG11(width=16)),
        "full": Size(100),
    },
)
