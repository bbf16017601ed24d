"""Weng 2025 on quadratics: where participation rules end under unequal work and links (Figs. 4 and 7)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import NamedTuple

import torch
from torch import Tensor

from fairlead import presets
from fairlead.algorithm import Algorithm
from fairlead.calibration import calibrated_lr
from fairlead.clients import Quadratics
from fairlead.corrections import Proximal
from fairlead.federation import Federation
from fairlead.optimizers import SGD, Exponential
from fairlead.randomness import Key
from fairlead.reproductions.claims import Best, Less
from fairlead.reproductions.closed_form import Balls, ClosedFormWorld, reach_of
from fairlead.reproductions.computed import Computed
from fairlead.reproductions.reproduction import Request, Scale
from fairlead.reproductions.table import Cell
from fairlead.settings import (
    Setting,
    fedacs_quadratics_dynamic,
    fedacs_quadratics_equal,
    fedacs_quadratics_static,
    fedacs_quadratics_unequal,
    fedacs_quadratics_varying,
)
from fairlead.testing.quadratic_theory import LocalWork

_ROUNDS: dict[Scale, int] = {"smoke": 20, "small": 120, "full": 2_000}
_FORESEEN: dict[Scale, int] = {"smoke": 20, "small": 100, "full": 1_000}
"""Rounds whose work and links the theory averages."""
_WARMING_UP = 30
"""Simulated rounds that are not counted."""

Coefficients = Callable[[Tensor, Tensor, Tensor], Tensor]
"""Mean coefficient of each client's update in a round, of ω, 1 − q and ‖a‖₁; the scale does not matter."""


def _uncorrected(weights: Tensor, arrival: Tensor, work: Tensor) -> Tensor:
    """ω(1 − q), (18)."""
    return weights * arrival


def _without_links(weights: Tensor, arrival: Tensor, work: Tensor) -> Tensor:
    """ω, (113)."""
    return weights


def _normalised(weights: Tensor, arrival: Tensor, work: Tensor) -> Tensor:
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
class _Rule:
    """A participation rule with a local solver: how the library runs it, and what theory says."""

    preset: str
    coefficients: Coefficients
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


def _balls(setting: Setting, seed: int) -> Balls:
    assert isinstance(setting.clients, Quadratics)
    problem = setting.clients.problem(Key.from_seed(seed).fold("data"))
    return Balls(problem.linear, setting.work, setting.link)


class _Theory(NamedTuple):
    """The mean move of a round, E[x⁺ − x] = pace·(limit − x), exact for every η (Weng 2025 (36))."""

    limit: Tensor
    pace: float


def _theory(rule: _Rule, algorithm: Algorithm, world: ClosedFormWorld, rounds: int, seed: int) -> _Theory:
    """Σ C_m κ_m (e_m − x) in the mean over rounds."""
    key, balls = Key.from_seed(seed), world.balls
    mass = torch.zeros(len(balls.centres), dtype=torch.float64)
    for round in range(rounds):
        facts = world.conditions(round, algorithm.solver, key)
        assert facts.arrival is not None
        assert facts.effective_steps is not None
        steps = balls.steps(balls.everyone, algorithm.solver, round, key)
        mass += rule.coefficients(facts.weights, facts.arrival, facts.effective_steps) * world.reach(steps)
    return _Theory(mass @ balls.centres / mass.sum(), float(mass.sum()) / rounds)


class _Simulation(NamedTuple):
    """A run, read with the pace that theory gives it.

    What a round moves beyond pace·(limit − x) has mean zero whatever came before, so that its mean has the error
    of independent draws although the models of a run depend on each other.
    """

    limit: Tensor
    apart: float
    """Standard errors between its limit and that of theory, as root mean square over the coordinates."""
    rms: float
    """√E‖x − x*‖²."""


def _simulated(
    algorithm: Algorithm, world: ClosedFormWorld, theory: _Theory, rounds: int, seed: int
) -> _Simulation:
    federation = Federation(algorithm, world, seed)
    for _ in federation.train(_WARMING_UP):
        pass
    path = torch.stack([federation.params, *(federation.params for _ in federation.train(rounds))])
    beyond = path.diff(dim=0) - theory.pace * (theory.limit - path[:-1])
    errors = beyond.std(0) / rounds**0.5
    return _Simulation(
        theory.limit + beyond.mean(0) / theory.pace,
        float((beyond.mean(0) / errors).square().mean().sqrt()),
        float((path - world.balls.optimum).square().sum(1).mean().sqrt()),
    )


def _calibrated(rule: _Rule, setting: Setting, balls: Balls) -> float:
    """The learning rate that makes steps as long as FedAvg's (Weng 2025 I.2)."""
    algorithm = rule.algorithm(setting, setting.solver.optimizer.lr)
    key = Key.from_seed(0)
    return calibrated_lr(
        rule.preset,
        setting.solver.optimizer.lr,
        weights=balls.weights,
        arrival=balls.arrival(balls.everyone, 0, key),
        effective_steps=balls.steps(balls.everyone, algorithm.solver, 0, key).to(torch.float64),
    )


def _measure(
    rules: Mapping[str, _Rule], panels: Mapping[str, Setting], request: Request, seed: int, *, calibrate: str
) -> Mapping[Cell, float]:
    """Bias by theory, by simulation, and how far these are apart, for every rule and panel.

    Learning rates are calibrated in the panel that is so called.
    """
    figures: dict[Cell, float] = {}
    rounds = _ROUNDS[request.scale]
    for panel, setting in panels.items():
        balls = _balls(setting, seed)
        for name, rule in rules.items():
            lr = _calibrated(rule, setting, balls) if panel == calibrate else setting.solver.optimizer.lr
            algorithm = rule.algorithm(setting, lr)
            world = ClosedFormWorld(balls, reach_of(replace(rule.local, lr=lr)), balls.optimum)
            theory = _theory(rule, algorithm, world, _FORESEEN[request.scale], seed)
            found = _simulated(algorithm, world, theory, rounds, seed)
            figures[Cell(name, f"{panel}: bias")] = float((theory.limit - balls.optimum).norm())
            figures[Cell(name, f"{panel}: simulated")] = float((found.limit - balls.optimum).norm())
            figures[Cell(name, f"{panel}: apart, in errors")] = found.apart
            figures[Cell(name, f"{panel}: rms")] = found.rms
    return figures


_SOLVERS = {
    "FedAvg": _Rule("importance_sampling", _uncorrected),
    "proximal": _Rule("importance_sampling", _uncorrected, replace(_SGD, mu=1.0)),
    "decayed": _Rule("importance_sampling", _uncorrected, replace(_SGD, decay=0.995)),
    "momentum": _Rule("importance_sampling", _uncorrected, replace(_SGD, momentum=0.3)),
    "FedACS": _Rule("fedacs", _sampled),
}
_FIGURE_4_PANELS = {
    "equal": fedacs_quadratics_equal(),
    "unequal": fedacs_quadratics_unequal(),
    "varying": fedacs_quadratics_varying(),
}
_RULES = {
    "FedAvg": _Rule("importance_sampling", _uncorrected),
    "c-a-FedAvg": _Rule("communication_aware_fedavg", _without_links),
    "FedVarp": _Rule("fedvarp_stale", _without_links),
    "FedNova": _Rule("anonymous_fednova", _normalised),
    "FedAU": _Rule("fedau", _without_links),
    "FedACS": _Rule("fedacs", _sampled),
}
_FIGURE_7_PANELS = {"static": fedacs_quadratics_static(), "dynamic": fedacs_quadratics_dynamic()}
_APART = 3.0
"""Standard errors that a simulated limit may be away from theory."""

_RUN_LONG: dict[Scale, str] = {
    "smoke": "theory, and 20 simulated rounds of each rule",
    "small": "theory, and 120 simulated rounds of each rule after 30 others",
    "full": "theory, and 2,000 simulated rounds of each rule after 30 others",
}

FIGURE_4 = Computed(
    name="weng2025_figure_4",
    reference="weng2025fedacs",
    where="Fig. 4",
    claim="Under unequal work and links FedAvg misses the optimum with every local solver, and FedACS reaches it.",
    claims=(
        *(Less(Cell(name, "equal: bias"), 0.01) for name in _SOLVERS),
        *(
            Less(Cell("FedACS", f"{panel}: bias"), Cell(name, f"{panel}: bias"), 0.1)
            for panel in ("unequal", "varying")
            for name in _SOLVERS
            if name != "FedACS"
        ),
        *(
            Less(Cell(name, f"{panel}: apart, in errors"), _APART)
            for panel in _FIGURE_4_PANELS
            for name in _SOLVERS
        ),
    ),
    differences=(
        "The paper does not say how steps and losses are paired, nor what a decay rate of 0.005 means: T_m = m and "
        "q_m = 0.01 m here, and each step 0.995 times the one before.",
    ),
    compute=lambda request, seed: _measure(_SOLVERS, _FIGURE_4_PANELS, request, seed, calibrate=""),
    what=_RUN_LONG,
    judged_at=("small", "full"),
)

FIGURE_7 = Computed(
    name="weng2025_figure_7",
    reference="weng2025fedacs",
    where="Fig. 7",
    claim="FedACS ends closest to the optimum, followed by FedNova and then by rules that correct links alone.",
    claims=(
        *(
            Best(
                "FedACS", f"{panel}: bias", tuple(name for name in _RULES if name != "FedACS"), smallest=True
            )
            for panel in _FIGURE_7_PANELS
        ),
        *(
            Less(Cell("FedNova", f"{panel}: bias"), Cell("c-a-FedAvg", f"{panel}: bias"))
            for panel in _FIGURE_7_PANELS
        ),
        *(
            Less(Cell("c-a-FedAvg", f"{panel}: bias"), Cell("FedAvg", f"{panel}: bias"))
            for panel in _FIGURE_7_PANELS
        ),
        *(
            Less(Cell(name, f"{panel}: apart, in errors"), _APART)
            for panel in _FIGURE_7_PANELS
            for name in _RULES
        ),
    ),
    differences=(
        "Closest means the mean model. By root mean square, which counts the noise of sampling, FedACS with its "
        "calibrated learning rate is behind FedNova.",
        "The static panel has the learning rates of I.2, by which all rules step as far as FedAvg; in the dynamic "
        "panel, where the paper calibrates in every round, all have the same one.",
        "FedVarp removes the bias of links, as (115) says and other than the paper's text.",
    ),
    compute=lambda request, seed: _measure(_RULES, _FIGURE_7_PANELS, request, seed, calibrate="static"),
    what=_RUN_LONG,
    judged_at=("small", "full"),
)
