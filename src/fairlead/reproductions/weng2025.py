"""Weng 2025: limits on quadratics (Figs. 4, 7), rounds and steps to a target (Tables 1, 4, 5, Figs. 6, 9, 10)."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from itertools import product
from math import inf, sqrt
from typing import Literal

import torch
from torch import Tensor

from fairlead import presets, settings
from fairlead.algorithm import Algorithm
from fairlead.clients.quadratics import Quadratics
from fairlead.corrections.drift import Proximal
from fairlead.experiments.experiment import Experiment
from fairlead.federation import Federation
from fairlead.models.base import MLP, LogisticRegression
from fairlead.models.convolutional import PooledCNN, UnpooledCNN
from fairlead.optimizers.base import Exponential
from fairlead.optimizers.descent import SGD
from fairlead.randomness import Key
from fairlead.reproductions import trained
from fairlead.reproductions.claims import Best, Less, Near, Published, TableCell, below
from fairlead.reproductions.closed_form import ClosedFormWorld, reach_of
from fairlead.reproductions.reproduction import Computation, Request, Scale, words
from fairlead.reproductions.trained import Size, TableColumn, TableRow, TrainedTable
from fairlead.settings import Setting
from fairlead.theory.convergence import calibrated_lr
from fairlead.theory.prediction import calibration
from fairlead.theory.quadratics import LocalWork

_ROUNDS: dict[Scale, int] = {"smoke": 20, "small": 120, "full": 2_000}
_FORESEEN: dict[Scale, int] = {"smoke": 20, "small": 100, "full": 1_000}
"""Rounds whose work and links the theory averages."""
_WARMING_UP = 30
"""Simulated rounds that are not counted."""

_CALIBRATED = ("FedACS", "c-a-FedAvg", "FedVarp")
"""Those whose learning rate I.2 changes."""

RuleCoefficients = Callable[[Tensor, Tensor, Tensor], Tensor]
"""Mean coefficient of each client's update in a round, of ω, 1 − q and ‖a‖₁; the scale does not matter."""


def _uncorrected(weights: Tensor, arrival: Tensor, work: Tensor) -> Tensor:
    """ω(1 − q), (18)."""
    return weights * arrival


def _without_links(weights: Tensor, arrival: Tensor, work: Tensor) -> Tensor:
    """ω, (113)."""
    return weights


def _normalized(weights: Tensor, arrival: Tensor, work: Tensor) -> Tensor:
    """ω(1 − q)T_eff/‖a‖ with T_eff = Σω(1 − q)‖a‖/Σω(1 − q), (116)."""
    share = weights * arrival
    return share / work * (share @ work) / share.sum()


def _sampled(weights: Tensor, arrival: Tensor, work: Tensor) -> Tensor:
    """p(1 − q) with p ∝ ω/((1 − q)‖a‖), (15)."""
    chance = weights / (arrival * work)
    return chance / chance.sum() * arrival


_SGD = LocalWork(lr=1.0, num_steps=1)
"""Its learning rate and steps are the setting's."""


@dataclass(frozen=True)
class _TheoryRule:
    """A rule of participation with a local solver: how the library runs it, and what theory says."""

    preset: str
    coefficients: RuleCoefficients
    local: LocalWork = _SGD

    def algorithm(self, setting: Setting, lr: float) -> Algorithm:
        algorithm = presets.method_named(self.preset).build(**{**setting.client_side(), "lr": lr})
        solver = replace(
            algorithm.solver,
            optimizer=SGD(lr, momentum=self.local.momentum),
            corrections=(Proximal(self.local.mu),) if self.local.mu else (),
            step_schedule=Exponential(self.local.decay),
        )
        return replace(algorithm, solver=solver)


def _theory(
    rule: _TheoryRule, algorithm: Algorithm, world: ClosedFormWorld, rounds: int, seed: int
) -> tuple[Tensor, float]:
    """Limit and pace of the mean move of a round, E[x⁺ − x] = pace·(limit − x), exact for every η (Weng 2025 (36)).

    It is Σ C_m κ_m (e_m − x) in the mean over rounds.
    """
    mass = torch.zeros(len(world.centers), dtype=torch.float64)
    for round in range(rounds):
        facts = world.conditions(round, algorithm.solver, Key.from_seed(seed))
        arrival, work, steps = facts.arrival, facts.effective_steps, facts.num_steps
        assert arrival is not None
        assert work is not None
        assert steps is not None
        mass += rule.coefficients(facts.weights, arrival, work) * world.reach(steps)
    return mass @ world.centers / mass.sum(), float(mass.sum()) / rounds


def _simulated(
    algorithm: Algorithm, world: ClosedFormWorld, limit: Tensor, pace: float, rounds: int, seed: int
) -> dict[str, float]:
    """Figures of a run, read with the pace that theory gives it.

    Its bias; the standard errors between its limit and that of theory, as root mean square over the coordinates; and
    √E‖x − x*‖². What a round moves beyond pace·(limit − x) has mean zero whatever came before, so that its mean has
    the error of independent draws although the models of a run depend on each other.
    """
    federation = Federation(algorithm, world, seed)
    list(federation.train(_WARMING_UP))
    path = torch.stack([federation.params, *(federation.params for _ in federation.train(rounds))])
    beyond = path.diff(dim=0) - pace * (limit - path[:-1])
    errors = beyond.std(0) / rounds**0.5
    return {
        "simulated": float((limit + beyond.mean(0) / pace - world.optimum).norm()),
        "apart, in errors": float((beyond.mean(0) / errors).square().mean().sqrt()),
        "rms": float((path - world.optimum).square().sum(1).mean().sqrt()),
    }


def _measure(
    rules: Mapping[str, _TheoryRule],
    panels: Mapping[str, Setting],
    request: Request,
    seed: int,
    *,
    calibrate: str,
) -> Mapping[TableCell, float]:
    """Bias by theory, by simulation, and how far these are apart, for every rule and panel.

    Learning rates are calibrated in the panel that is so called.
    """
    figures: dict[TableCell, float] = {}
    rounds = _ROUNDS[request.scale]
    for panel, setting in panels.items():
        assert isinstance(setting.clients, Quadratics)
        problem = setting.clients.problem(Key.from_seed(seed).fold("data"))
        world_of = partial(ClosedFormWorld, problem.linear, setting.work, setting.link)
        for name, rule in rules.items():
            lr = setting.solver.optimizer.lr
            algorithm = rule.algorithm(setting, lr)
            if panel == calibrate and name in _CALIBRATED:
                conditions = world_of(reach_of(rule.local)).conditions(0, algorithm.solver, Key.from_seed(0))
                lr *= calibration(algorithm, conditions)
                algorithm = rule.algorithm(setting, lr)
            world = world_of(reach_of(replace(rule.local, lr=lr)))
            limit, pace = _theory(rule, algorithm, world, _FORESEEN[request.scale], seed)
            found = {
                "bias": float((limit - world.optimum).norm()),
                **_simulated(algorithm, world, limit, pace, rounds, seed),
            }
            figures |= {TableCell(name, f"{panel}: {figure}"): value for figure, value in found.items()}
    return figures


_SOLVERS = {
    "FedAvg": _TheoryRule("importance_sampling", _uncorrected),
    "proximal": _TheoryRule("importance_sampling", _uncorrected, replace(_SGD, mu=1.0)),
    "decayed": _TheoryRule("importance_sampling", _uncorrected, replace(_SGD, decay=0.995)),
    "momentum": _TheoryRule("importance_sampling", _uncorrected, replace(_SGD, momentum=0.3)),
    "FedACS": _TheoryRule("fedacs", _sampled),
}
_FIGURE_4_PANELS = {
    "equal": settings.fedacs_quadratics_equal(),
    "unequal": settings.fedacs_quadratics_unequal(),
    "varying": settings.fedacs_quadratics_varying(),
}
_RULES = {
    "FedAvg": _TheoryRule("importance_sampling", _uncorrected),
    "c-a-FedAvg": _TheoryRule("communication_aware_fedavg", _without_links),
    "FedVarp": _TheoryRule("fedvarp_stale", _without_links),
    "FedNova": _TheoryRule("anonymous_fednova", _normalized),
    "FedAU": _TheoryRule("fedau", _without_links),
    "FedACS": _TheoryRule("fedacs", _sampled),
}
_FIGURE_7_PANELS = {
    "static": settings.fedacs_quadratics_static(),
    "dynamic": settings.fedacs_quadratics_dynamic(),
}
_BIASES = [f"{panel}: bias" for panel in _FIGURE_7_PANELS]


def _as_theory_says(panels: Iterable[str], rules: Iterable[str]) -> list[Less]:
    """Simulated limits are at most three standard errors away from those of theory."""
    pairs = product(panels, rules)
    return [Less(TableCell(name, f"{panel}: apart, in errors"), 3.0) for panel, name in pairs]


FIGURE_4 = Computation(
    **words("weng2025_figure_4"),
    claims=(
        *(Less(TableCell(name, "equal: bias"), 0.01) for name in _SOLVERS),
        *(
            Less(TableCell("FedACS", f"{panel}: bias"), TableCell(name, f"{panel}: bias"), 0.1)
            for panel in ("unequal", "varying")
            for name in _SOLVERS
            if name != "FedACS"
        ),
        *_as_theory_says(_FIGURE_4_PANELS, _SOLVERS),
    ),
    compute=lambda request, seed: _measure(_SOLVERS, _FIGURE_4_PANELS, request, seed, calibrate=""),
    judged_at=("small", "full"),
)

FIGURE_7 = Computation(
    **words("weng2025_figure_7"),
    claims=(
        *(Best("FedACS", bias, tuple(_RULES)[:-1], smallest=True) for bias in _BIASES),
        *below(["FedNova"], ["c-a-FedAvg"], _BIASES),
        *below(["c-a-FedAvg"], ["FedAvg"], _BIASES),
        *_as_theory_says(_FIGURE_7_PANELS, _RULES),
    ),
    compute=lambda request, seed: _measure(_RULES, _FIGURE_7_PANELS, request, seed, calibrate="static"),
    judged_at=("small", "full"),
)


_LOWER, _DISTANCE, _GRADIENT, _UPPER = "‖∇F(x̃)‖/L", "‖x̃ − x*‖", "‖∇F(x̃)‖", "√χ²·κ"


def _inconsistency(request: Request, seed: int) -> Mapping[TableCell, float]:
    """Both sides of Corollary 2.1 at x̃ = argmin Σ Ω_m F_m.

    κ² = Σ Ω_m‖∇F_m(x̃)‖² is the least that Assumption 3 allows. The clients are twenty quadratics of condition 10
    with the work and links of Fig. 7, and the two of G.3.
    """
    figures: dict[TableCell, float] = {}
    many = Quadratics(num_clients=20, dim=10, conditioning=10.0).problem(Key.from_seed(seed).fold("data"))
    two = Quadratics(linear=((-1.0,), (1.0,))).problem(Key.from_seed(seed))
    steps, arrival = torch.arange(1.0, 40.0, 2.0, dtype=torch.float64), torch.linspace(0.6, 0.98, 20).double()
    for name, rule in {**_RULES, "two clients": _RULES["FedAvg"]}.items():
        problem = two if name == "two clients" else many
        count = len(problem.weights)
        surrogate = rule.coefficients(problem.weights, arrival[:count], steps[:count]) * steps[:count]
        surrogate /= surrogate.sum()
        gradients = problem.gradients(problem.minimizer(surrogate))
        chi_square = float(((problem.weights - surrogate).square() / surrogate).sum())
        slope = float((problem.weights @ gradients).norm())
        smoothness = float(torch.linalg.eigvalsh(problem.hessians).max())
        figures[TableCell(name, _LOWER)] = slope / smoothness
        figures[TableCell(name, _DISTANCE)] = float((problem.minimizer(surrogate) - problem.optimum).norm())
        figures[TableCell(name, _GRADIENT)] = slope
        figures[TableCell(name, _UPPER)] = sqrt(chi_square * float(surrogate @ gradients.square().sum(1)))
    return figures


_BIASED = ("FedAvg", "c-a-FedAvg", "FedNova")
COROLLARY_2_1 = Computation(
    **words("weng2025_corollary_2_1"),
    claims=(
        *(Less(TableCell(name, _LOWER), TableCell(name, _DISTANCE)) for name in _BIASED),
        *(Less(TableCell(name, _GRADIENT), TableCell(name, _UPPER)) for name in _BIASED),
        Near(TableCell("two clients", _GRADIENT), TableCell("two clients", _UPPER), within=1e-12),
        Less(TableCell("FedACS", _DISTANCE), 1e-12),
    ),
    compute=_inconsistency,
)


_RIVALS = ("FedAvg", "c-a-FedAvg", "FedVarp", "FedNova")
"""Those that the paper's text claims to surpass throughout; OS is faster in some of its own columns."""


def _methods(
    calibrate: Literal["clients", "server"] | None = "clients",
    work: Literal["steps", "epochs"] = "steps",
    only: Iterable[str] = (),
) -> dict[str, TableRow]:
    """The methods of the tables, or some of them."""
    counted = {"work": work}
    rows = {
        "FedACS": TableRow("fedacs", counted, calibrate=calibrate),
        "FedAvg": TableRow("importance_sampling"),
        "c-a-FedAvg": TableRow("communication_aware_fedavg", calibrate=calibrate),
        "FedVarp": TableRow("fedvarp_stale", calibrate=calibrate),
        "FedNova": TableRow("anonymous_fednova", counted),
        "FedNova, renormalized": TableRow("anonymous_fednova", {**counted, "renormalized": True}),
        "FedAU": TableRow("fedau"),
        "OS": TableRow("optimal_sampling"),
    }
    return {name: rows[name] for name in only or rows}


def _calibrated_once(experiment: Experiment) -> Experiment:
    """The experiment with the learning rate of I.2 at the mean work and arrival rates of the first 20 rounds."""
    algorithm = experiment.algorithm
    solver, optimizer = algorithm.solver, algorithm.solver.optimizer
    federation = replace(experiment, device="cpu").build()
    ahead = [federation.world.conditions(round, solver, federation.key) for round in range(20)]
    arrival = torch.stack([each.arrival for each in ahead if each.arrival is not None]).mean(0)
    work = torch.stack([each.effective_steps for each in ahead if each.effective_steps is not None]).mean(0)
    weights = ahead[0].weights
    lr = calibrated_lr(algorithm, optimizer.lr, weights=weights, arrival=arrival, effective_steps=work)
    solver = replace(solver, optimizer=replace(optimizer, lr=lr))
    return replace(experiment, algorithm=replace(algorithm, solver=solver))


_TRAINED_ROUNDS, _STEPS, _ACCURACY = "rounds", "thousand local steps", "accuracy"
_STATISTICS = {
    _TRAINED_ROUNDS: trained.rounds_to_target,
    _STEPS: trained.steps_to_target,
    _ACCURACY: trained.last_five_accuracy,
}
_SMALL = {"mnist": Size(150, examples=20_000, model=MLP((64,)))}
_SMALL_COLOR = Size(40, examples=2_500, model=PooledCNN(channels=(8, 8), hidden=(64,)))
"""A minute or two a run on one core. Clients train for up to 39 epochs in batches of up to 1,024 examples."""
_TITLES = {"mnist": "MNIST", "cifar10": "CIFAR-10", "cinic10": "CINIC-10"}
_TARGETS = {"mnist": 0.70, "cifar10": 0.40, "cinic10": 0.35}


def _readings(data: str, setting: Setting, other: Setting | None) -> dict[str, TableColumn]:
    """The columns of a table: the closest reading of the paper first, then others that differ from it in one respect.

    Of MNIST `other` has the other order of classes. Columns with another calibration or another count of work have only
    the methods on which these have an effect.
    """
    title = _TITLES[data]
    models = {"mnist": PooledCNN((10, 20), (50,), 0.2), "cinic10": PooledCNN(hidden=(512, 256), dropout=0.2)}
    closest = TableColumn(setting, data, models.get(data, PooledCNN()))
    server, once = (_methods(calibrate, only=_CALIBRATED) for calibrate in ("server", None))
    columns = {
        "": closest,
        ", server step": replace(closest, rows=server),
        ", calibrated once": replace(closest, rows=once, adjust=_calibrated_once),
    }
    if other is None:
        epochs = _methods(work="epochs", only=("FedACS", "FedNova", "FedNova, renormalized"))
        columns[", T in epochs"] = replace(closest, rows=epochs)
    else:
        columns[", classes in order"] = replace(closest, setting=other)
        columns[", printed network"] = replace(closest, model=UnpooledCNN(), stand_in=LogisticRegression())
    return {f"{title}{reading}": column for reading, column in columns.items()}


def _entry(
    table: int,
    data: str,
    setting: Setting,
    rounds: tuple[float, ...],
    target: float | None = None,
    alpha: float | None = None,
    other: Setting | None = None,
) -> TrainedTable:
    """A column of a table of rounds to a target, for a data set or a skew of its labels, in all readings.

    The paper's `rounds` stand in the order of FedACS, `_RIVALS`, FedAU and OS.
    """
    title = _TITLES[data]
    columns = _readings(data, setting, other)
    target = target or _TARGETS[data]
    published = dict(zip(("FedACS", *_RIVALS, "FedAU", "OS"), rounds, strict=True))
    published["FedNova, renormalized"] = published["FedNova"]
    return TrainedTable(
        **words(f"weng2025_table_{table}_{data if alpha is None else f'alpha_{alpha}'}"),
        claims=(
            *below(["FedACS"], _RIVALS, [f"{title}: {_TRAINED_ROUNDS}"]),
            *below(_RIVALS, ["FedACS"], [f"{title}: {_ACCURACY}"]),
        ),
        published={
            TableCell(row, f"{name}: {_TRAINED_ROUNDS}"): Published(published[row])
            for name, column in columns.items()
            for row in column.rows or published
        },
        columns={name: replace(column, target=target) for name, column in columns.items()},
        rows=_methods(),
        statistics=_STATISTICS,
        on_mean_curve="rounds, mean curve",
        sizes={"smoke": Size(1, examples=400), "small": _SMALL.get(data, _SMALL_COLOR), "full": Size(200)},
        # The targets of color images are out of reach of the short runs.
        judged_at=("small", "full") if data == "mnist" else ("full",),
    )


def _one_class(setting: Callable[..., Setting], table: int, *rounds: float) -> TrainedTable:
    return _entry(table, "mnist", setting(), rounds, other=setting(in_order=True))


_dynamic, _static = settings.fedacs_dynamic, settings.fedacs_static
TABLES_1_4_AND_5 = (
    _one_class(settings.fedacs_dynamic_one_class, 1, 68, 93, 84, 115, 99, inf, 72),
    _entry(1, "cifar10", _dynamic(), (100, 143, 130, 165, 161, inf, 80)),
    _entry(1, "cinic10", _dynamic(), (55, 74, 67, 104, 100, inf, 65)),
    _one_class(settings.fedacs_static_one_class, 4, 64, 92, 68, 92, 103, inf, inf),
    _entry(4, "cifar10", _static(), (68, 112, 101, 148, 117, inf, 72)),
    _entry(4, "cinic10", _static(), (36, 57, 55, 73, 83, inf, 47)),
    _entry(5, "cifar10", _dynamic(0.05), (107, 149, 142, inf, inf, inf, 110), 0.35, alpha=0.05),
    _entry(5, "cifar10", _dynamic(0.2), (51, 88, 88, 156, 125, inf, 54), 0.35, alpha=0.2),
    _entry(5, "cifar10", _dynamic(0.35), (36, 88, 90, 159, 94, inf, 32), 0.40, alpha=0.35),
)
