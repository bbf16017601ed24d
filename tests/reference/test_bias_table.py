"""Where each method comes to rest when clients do unequal work, have unequal links, or both.

The table of surrogate weights (which objective Σ Ω_i F_i a method really minimizes, and whether unequal
work or links can change it) is measured here on the library itself and compared with theory, and with what
`presets.METHODS` claims of every method. Three clients in two dimensions have local optima several units
apart. How the limit is measured depends on the method:

- A method that is an affine function of the model (and of what it broadcasts), with random but independent
  coefficients, has a stationary mean: the fixed point of the *mean* map. One round from d + 1 points and for
  each pattern of arrivals determines that map exactly, and the fixed point follows from a linear system, for
  a learning rate as small as one likes. Drawing 200,000 times with replacement leaves no other noise.
- Methods that learn (arrival rates, intervals) are first taught by a periodic link of the same rates.
- Methods with memory that remove the variance of participation come to rest: they are simply run.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache
from itertools import product
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from transcriptions import smallest_in_hull

from fairlead.algorithm import Algorithm
from fairlead.clients.quadratics import QuadraticProblem
from fairlead.conditions.links import BernoulliLink, LinkModel, PerfectLink, ScriptedLink
from fairlead.conditions.work import FixedSteps
from fairlead.federation import Federation
from fairlead.presets import METHODS
from fairlead.randomness import Key
from fairlead.records import ServerState
from fairlead.round import initial_state, run_round
from fairlead.worlds.simulated import SimulatedWorld

Array = NDArray[np.float64]

HESSIANS = np.array([np.diag([1.0, 0.5]), np.diag([0.4, 1.0]), np.array([[0.7, 0.2], [0.2, 0.7]])])
OPTIMA = np.array([[2.0, -1.0], [-2.0, 0.5], [0.5, 2.5]])
LINEAR = np.einsum("ijk,ik->ij", HESSIANS, OPTIMA)
OMEGA = np.array([0.5, 0.3, 0.2])
PROBLEM = QuadraticProblem(*(torch.from_numpy(part) for part in (HESSIANS, LINEAR, OMEGA)))
OPTIMUM: Array = PROBLEM.optimum.numpy()

TINY, LARGE, DRAWS = 1e-5, 0.3, 200_000


@dataclass(frozen=True)
class Setting:
    """How unequal the clients are."""

    steps: tuple[int, int, int]
    rates: tuple[float, float, float]

    @property
    def work(self) -> Array:
        return np.array(self.steps, dtype=float)

    @property
    def periodic_link(self) -> LinkModel:
        """Arrivals whose frequencies and intervals are exactly those of the rates."""
        return PerfectLink() if min(self.rates) == 1 else ScriptedLink(PERIOD, self.rates)

    def patterns(self) -> list[tuple[float, tuple[int, ...]]]:
        """Probability of each set of arrivals."""
        found = []
        for bits in product((0, 1), repeat=3):
            chance = float(np.prod([r if b else 1 - r for r, b in zip(self.rates, bits, strict=True)]))
            if chance > 0:
                found.append((chance, tuple(i for i in range(3) if bits[i])))
        return found


EQUAL = Setting((3, 3, 3), (1.0, 1.0, 1.0))
WORK = Setting((1, 3, 6), (1.0, 1.0, 1.0))
LINKS = Setting((3, 3, 3), (1.0, 0.5, 0.25))
BOTH = Setting((1, 3, 6), (1.0, 0.5, 0.25))
SETTINGS = {"equal": EQUAL, "work": WORK, "links": LINKS, "both": BOTH}


PERIOD = ((0,), (0, 1), (0,), (0, 1, 2))
"""Rates of 1, 1/2 and 1/4."""


@cache
def world(setting: Setting, link: LinkModel, start: float = 0.0) -> SimulatedWorld:
    return SimulatedWorld(
        PROBLEM.task(start),
        PROBLEM.data(),
        work=FixedSteps(setting.steps),
        link=link,
        weights=PROBLEM.weights,
        dtype=torch.float64,
    )


def mean_round(algorithm: Algorithm, setting: Setting, state: ServerState, z: Array) -> Array:
    """E[z⁺] over the arrivals of a round, z the model and whatever the corrections broadcast."""
    names, dim = list(state.shared), len(state.params)
    parts = torch.from_numpy(z).reshape(-1, dim).unbind()
    at_z = replace(state, params=parts[0], shared=dict(zip(names, parts[1:], strict=True)))
    mean = np.zeros_like(z)
    for chance, pattern in setting.patterns():
        place = world(setting, ScriptedLink((pattern,), setting.rates))
        after, _ = run_round(algorithm, place, at_z, Key.from_seed(1))
        mean += chance * torch.cat([after.params, *(after.shared[name] for name in names)]).numpy()
    return mean


def mean_limit(algorithm: Algorithm, setting: Setting, taught: ServerState | None = None) -> Array:
    """The model at the fixed point of the mean map; `taught` is a state whose parts have learned."""
    state = taught or initial_state(algorithm, world(setting, PerfectLink()), Key.from_seed(0))
    dim = len(state.params) * (1 + len(state.shared))
    origin = mean_round(algorithm, setting, state, np.zeros(dim))
    columns = [mean_round(algorithm, setting, state, unit) - origin for unit in np.eye(dim)]
    rest = np.linalg.solve(np.eye(dim) - np.array(columns, dtype=np.float64).T, origin)
    return np.asarray(rest[: len(state.params)], dtype=np.float64)


def run_in(algorithm: Algorithm, setting: Setting, link: LinkModel, rounds: int) -> tuple[Array, ServerState]:
    """The mean model of the last four rounds, a whole `PERIOD`, and the last state."""
    training = Federation(algorithm, world(setting, link), seed=0)
    path = [training.params.numpy() for _ in training.train(rounds)]
    return np.array(path[-4:]).mean(0), training.state


def minimizer(weights: Array) -> Array:
    return PROBLEM.minimizer(torch.from_numpy(weights / weights.sum())).numpy()


def distance(x: Array, y: Array) -> float:
    return float(np.linalg.norm(x - y))


def received(setting: Setting) -> Array:
    """E[p̂_i]: the share of each client in the mean over those that arrive."""
    shares = np.zeros(3)
    for chance, pattern in setting.patterns():
        present = np.isin(np.arange(3), pattern)
        shares += chance * present * OMEGA / OMEGA[present].sum()
    return shares


def normalized_received(setting: Setting) -> Array:
    """E[τ_eff p̂_i]/τ_i: FedNova's coefficient, whose τ_eff depends on who arrives."""
    shares = np.zeros(3)
    for chance, pattern in setting.patterns():
        present = np.isin(np.arange(3), pattern)
        share = present * OMEGA / OMEGA[present].sum()
        shares += chance * (share @ setting.work) * share / setting.work
    return shares


def asked(setting: Setting) -> Array:
    """ω(1 − q): a lost update counts as zero."""
    shares: Array = OMEGA * np.array(setting.rates)
    return shares


def mixed_by_momentum(setting: Setting) -> Array:
    """FedCM: α E[p̂_i] + (1 − α) E[Σp̂τ] E[p̂_i]/τ_i.

    At rest Δ = E Σp̂∇F, and the step Σp̂_iτ_i[α∇F_i + (1 − α)Δ] is zero on average; the cohort of a round
    is independent of the one that made Δ.
    """
    share = received(setting)
    return ALPHA * share + (1 - ALPHA) * (share @ setting.work) * share / setting.work


ALPHA = 0.5
DRAWN = {"cohort_size": DRAWS}
LINEAR_SERVER = {"eps": 1e6, "server_lr": 1e6}
"""ε far above √v: the step is then proportional to the first moment, as the mean map needs."""


@dataclass(frozen=True)
class Averaging:
    """A method with a mean map: the mean coefficient of Δ_i, and rounds in which it learns."""

    coefficient: Callable[[Setting], Array]
    arguments: dict[str, Any]
    lessons: int = 0

    @property
    def tolerance(self) -> float:
        return 0.02 if "cohort_size" in self.arguments else 1e-4

    def limit(self, name: str, setting: Setting, lr: float = TINY) -> Array:
        algorithm = METHODS[name].build(lr=lr, **self.arguments)
        if not self.lessons:
            return mean_limit(algorithm, setting)
        pupil = METHODS[name].build(lr=lr, **({"cohort_size": 60} if "cohort_size" in self.arguments else {}))
        _, taught = run_in(pupil, setting, setting.periodic_link, self.lessons)
        return mean_limit(algorithm, setting, taught)

    def theory(self, setting: Setting) -> Array:
        """Ω_i ∝ coefficient_i‖a_i‖₁, exact as η → 0."""
        return minimizer(self.coefficient(setting) * setting.work)

    def drift(self, name: str) -> float:
        """Distance to the optimum for equal clients and a large learning rate."""
        return distance(replace(self, lessons=0).limit(name, EQUAL, lr=LARGE), OPTIMUM)


@dataclass(frozen=True)
class Resting:
    """A method that comes to rest under random losses, and where."""

    theory: Callable[[Setting], Array]
    arguments: dict[str, Any]

    @property
    def tolerance(self) -> float:
        return 0.02 if "cohort_size" in self.arguments else 1e-6

    def limit(self, name: str, setting: Setting) -> Array:
        algorithm = METHODS[name].build(lr=LARGE, **self.arguments)
        link = BernoulliLink(tuple(1 - rate for rate in setting.rates))
        return run_in(algorithm, setting, link, rounds=40 if min(setting.rates) == 1 else 100)[0]

    def drift(self, name: str) -> float:
        """Distance to the optimum for equal clients and a large learning rate."""
        return distance(self.limit(name, EQUAL), OPTIMUM)


@dataclass(frozen=True)
class Echoing:
    """FedAWE: periodic losses, and the limit η → 0 from two learning rates."""

    tolerance: float = 0.02

    def limit(self, name: str, setting: Setting) -> Array:
        whole, half = (
            run_in(METHODS[name].build(lr=lr), setting, setting.periodic_link, rounds)[0]
            for lr, rounds in ((0.1, 60), (0.05, 120))
        )
        return 2 * half - whole

    def theory(self, setting: Setting) -> Array:
        return minimizer(OMEGA * setting.work)

    def drift(self, name: str) -> float:
        """Distance to the optimum for equal clients and a large learning rate."""
        return distance(run_in(METHODS[name].build(lr=LARGE), EQUAL, PerfectLink(), 60)[0], OPTIMUM)


def reach(setting: Setting, lr: float) -> Array:
    """K_i = [I − (I − ηH_i)^τ_i]H_i⁻¹, so that x − y_i = K_i∇F_i(x)."""
    eye = np.eye(2)
    powers = [np.linalg.matrix_power(eye - lr * H, t) for H, t in zip(HESSIANS, setting.steps, strict=True)]
    return np.array([(eye - power) @ np.linalg.inv(H) for H, power in zip(HESSIANS, powers, strict=True)])


def remembered(setting: Setting) -> Array:
    """The root of Σ ω_i K_i(e_i − H_i x): where FedAvg rests on perfect links."""
    moves = OMEGA[:, None, None] * reach(setting, LARGE)
    root: Array = np.linalg.solve((moves @ HESSIANS).sum(0), np.einsum("ijk,ik->j", moves, LINEAR))
    return root


def at_optimum(setting: Setting) -> Array:
    return OPTIMUM


TABLE: dict[str, Averaging | Resting | Echoing] = {
    "anonymous_fednova": Averaging(lambda s: asked(s) / s.work, DRAWN),
    "communication_aware_fedavg": Averaging(lambda s: OMEGA, DRAWN),
    "communication_aware_fednova": Averaging(lambda s: OMEGA / s.work, DRAWN),
    "fedacs": Averaging(lambda s: OMEGA / s.work, DRAWN),
    "fedacs_estimated": Averaging(lambda s: OMEGA / s.work, DRAWN, lessons=150),
    "fedadagrad": Averaging(received, LINEAR_SERVER),
    "fedadam": Averaging(received, LINEAR_SERVER),
    "fedams": Averaging(received, {"option": 2, **LINEAR_SERVER}),
    "fedaware_na": Resting(remembered, {}),
    "fedau": Averaging(lambda s: OMEGA, {}, lessons=8),
    "fedavg": Averaging(received, {}),
    "fedavgm": Averaging(received, {}),
    "fedawe": Echoing(),
    "fedcm": Averaging(mixed_by_momentum, {"alpha": ALPHA}),
    "fedexp": Averaging(received, {"eps": 1e6}),
    "feddyn": Resting(at_optimum, {"alpha": 1.0}),
    "fednova": Averaging(normalized_received, {}),
    "fednova_vr": Resting(at_optimum, {}),
    "fedprox": Averaging(received, {"mu": 0.5}),
    "fedvarp": Resting(remembered, {}),
    "fedvarp_stale": Resting(remembered, {"cohort_size": 20_000}),
    "fedyogi": Averaging(received, LINEAR_SERVER),
    "full_participation": Averaging(asked, {}),
    "importance_sampling": Averaging(asked, DRAWN),
    "mifa": Resting(remembered, {}),
    "optimal_sampling": Averaging(asked, DRAWN),
    "scaffold": Resting(at_optimum, {}),
    "uniform_sampling": Averaging(asked, {}),
    "vrlsgd": Resting(lambda s: minimizer(OMEGA * s.work), {}),
}


@cache
def limit(name: str, setting: Setting) -> Array:
    return TABLE[name].limit(name, setting)


PARETO: dict[str, dict[str, Any]] = {"fedaware": {}, "fedmgda_plus": {"epsilon": 1.0, "server_lr": 0.2}}
ON_UNIT_ROWS = {"fedaware_published", "fedaware_ridge"}
"""Methods whose steps have a length of their own; `tests/aware/test_regularized_hull.py` has them."""
"""Methods without surrogate weights: they stop wherever no direction helps every client."""
ROBUST = {"coordinate_median", "geometric_median", "krum", "multi_krum", "norm_bounded_mean", "trimmed_mean"}
"""Methods without surrogate weights whose limits `tests/robust` has."""


COMPRESSED = {"fedavg_compressed"}
"""Methods that circle their limit, which `tests/client_methods/test_compression.py` averages."""
BY_LOSS = {"power_of_choice"}
"""Methods without surrogate weights: they draw by the losses of clients, which depend on the model."""
AS_FEDAVG = {"apfl", "ditto", "fedavg_finetuned"}
"""Methods whose global model is that of FedAvg to the bit, as `tests/reductions` shows."""
OTHER_OBJECTIVE = {"fedbn", "fedper", "fedrep", "per_fedavg", "pfedme"}
"""Methods without surrogate weights: clients keep parameters of their own, or descend another loss."""
TIMED = {"fedbuff"}
"""Methods whose weights follow the time that clients take: `test_fedbuff_events.py` has them."""


def test_every_method_has_its_row() -> None:
    others = ON_UNIT_ROWS | ROBUST | BY_LOSS | COMPRESSED | AS_FEDAVG | OTHER_OBJECTIVE | TIMED
    assert set(TABLE) | set(PARETO) | others == set(METHODS)


@pytest.mark.parametrize("name", PARETO)
def test_pareto_methods_stop_where_no_direction_helps_all(name: str) -> None:
    """At rest some convex combination of the updates is zero, but which one depends on the start.

    Started far out on either side, the model stops at two different points, neither the optimum.
    """
    ends = []
    for begin in (-4.0, 4.0):
        algorithm = METHODS[name].build(lr=LARGE, **PARETO[name])
        training = Federation(algorithm, world(WORK, PerfectLink(), begin), seed=0)
        for _ in training.train(100):
            pass
        ends.append(training.params.numpy())
        updates = np.einsum("ijk,ik->ij", reach(WORK, LARGE), HESSIANS @ ends[-1] - LINEAR)
        assert np.linalg.norm(smallest_in_hull(updates) @ updates) < 1e-3
    assert min(distance(end, OPTIMUM) for end in ends) > 0.3
    assert distance(*ends) > 0.3
    assert METHODS[name].corrects == ()


@pytest.mark.parametrize("cause", ["equal", "work", "links", "both"])
@pytest.mark.parametrize("name", TABLE)
def test_limit_is_the_one_that_theory_predicts(name: str, cause: str) -> None:
    """Exact for methods that rest; for the others up to the noise of sampling and O(η)."""
    row, setting = TABLE[name], SETTINGS[cause]
    assert distance(limit(name, setting), row.theory(setting)) < row.tolerance


@pytest.mark.parametrize("name", TABLE)
def test_claims_of_the_preset_hold_and_are_complete(name: str) -> None:
    """`corrects` names exactly the causes that do not move the limit.

    Local optima lie about three units apart, and every bias of the table is several tenths here.
    """
    claimed, equal = METHODS[name].corrects, limit(name, EQUAL)
    moved = {cause: distance(limit(name, SETTINGS[cause]), equal) for cause in ("work", "links")}
    moved["drift"] = TABLE[name].drift(name)
    for cause, shift in moved.items():
        assert shift < 0.02 if cause in claimed else shift > 0.05, (cause, shift)
