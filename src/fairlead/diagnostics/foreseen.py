"""What theory expects of another method in the place of the present one, under the same conditions."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from torch import Tensor

from fairlead.algorithm import Algorithm
from fairlead.corrections import Proximal
from fairlead.diagnostics.consistency import chi_square, total_variation
from fairlead.diagnostics.evidence import Evidence
from fairlead.diagnostics.surrogate import Surrogate, implied_surrogate
from fairlead.errors import ClashError, FieldError
from fairlead.local_solver import LocalSolver
from fairlead.methods import ClientSide, method_named
from fairlead.optimizers import SGD
from fairlead.samplers import FullParticipation

Arguments = Mapping[str, float | int | bool | None]

_USUAL: Mapping[str, Arguments] = {"fedprox": {"mu": 0.01}, "feddyn": {"alpha": 0.01}}
"""Arguments that a preset cannot do without, at values its papers use."""
_UNKNOWN_LR = 0.1
"""For theory's sake only: to first order the weights do not depend on it."""


@dataclass(frozen=True, eq=False)
class Foreseen:
    """A preset under the conditions of the present method."""

    preset: str
    arguments: Arguments
    weights: Tensor
    """ω, (N,)."""
    surrogate: Surrogate

    @property
    def chi_square(self) -> float | None:
        """χ²(ω‖Ω); None where theory has no Ω."""
        found = self.surrogate.weights
        return None if found is None else chi_square(self.weights, found)

    @property
    def misplaced(self) -> float | None:
        """½ Σ |ω_i − Ω_i|; None where theory has no Ω."""
        found = self.surrogate.weights
        return None if found is None else total_variation(self.weights, found)

    @property
    def step_length(self) -> float | None:
        """Local gradient steps that a round is worth on average; None where theory does not need them."""
        return step_length(self.surrogate)


def step_length(surrogate: Surrogate) -> float | None:
    """Σ C_i‖a_i‖₁, or None where Ω follows without it."""
    facts = surrogate.contributions
    return None if facts is None else float(facts.mass.sum())


def foresee(preset: str, evidence: Evidence) -> Foreseen:
    """Ω of a preset with the clients' solver and the cohort size of the present method."""
    arguments = arguments_for(preset, evidence)
    try:
        algorithm = _planted(preset, arguments, evidence.algorithm)
    except ClashError as error:
        return Foreseen(preset, arguments, evidence.weights, Surrogate(None, None, "exact", str(error)))
    surrogate = implied_surrogate(algorithm, evidence.foresight(algorithm.solver))
    return Foreseen(preset, arguments, evidence.weights, surrogate)


def fits_in(preset: str, evidence: Evidence) -> bool:
    """Whether a preset goes with the present clients, and with what the server is told of their links."""
    try:
        algorithm = _planted(preset, arguments_for(preset, evidence), evidence.algorithm)
    except ClashError:
        return False
    needs_rates = algorithm.sampler.needs_arrival or algorithm.aggregator.needs_arrival
    return evidence.rates_told or not needs_rates


def arguments_for(preset: str, evidence: Evidence) -> Arguments:
    """The arguments that give a preset the present method's clients; without lr where nobody told it."""
    own = dict(_USUAL.get(preset, {}))
    present = evidence.algorithm
    found: dict[str, float | int | bool | None] = {}
    if present is not None:
        found = _client_side(present.solver)
        proximal = [part.mu for part in present.solver.corrections if isinstance(part, Proximal)]
        if proximal and preset in ("fedprox", "fednova"):
            own["mu"] = proximal[0]
    recorded = next((record.client_lr for record in evidence.records if record.client_lr), None)
    if recorded is not None:
        found.setdefault("lr", recorded)
    return {**found, **_cohort(preset, evidence), **own}


def _client_side(solver: LocalSolver) -> dict[str, float | int | bool | None]:
    """What the arguments of presets can say of a solver; defaults are left out."""
    optimizer = solver.optimizer
    found: dict[str, float | int | bool | None] = {"lr": optimizer.lr_at(0)}
    if isinstance(optimizer, SGD):
        found |= {name: getattr(optimizer, name) for name in ("momentum", "nesterov", "weight_decay")}
    found |= {"epochs": solver.epochs, "steps": solver.steps, "clip": solver.clip}
    kept: dict[str, float | int | bool | None] = {name: value for name, value in found.items() if value}
    if solver.batch_size != _DEFAULT_BATCH:
        kept["batch_size"] = solver.batch_size
    return kept


_DEFAULT_BATCH = 32
"""Of every preset (`ClientSide.batch_size`)."""


def _cohort(preset: str, evidence: Evidence) -> dict[str, int]:
    """cohort_size where the present method asks only some, or where the preset draws with replacement."""
    asked = evidence.cohort_size
    present = evidence.algorithm
    if present is not None and isinstance(present.sampler, FullParticipation):
        asked = None
    if preset == "full_participation":
        return {}
    if asked is None and _draws_with_replacement(preset):
        asked = int((evidence.weights > 0).sum())
    return {} if asked is None else {"cohort_size": asked}


def _draws_with_replacement(preset: str) -> bool:
    try:
        method_named(preset).build(lr=_UNKNOWN_LR, **_USUAL.get(preset, {}))
    except FieldError:
        return True
    return False


def _planted(preset: str, arguments: Arguments, present: Algorithm | None) -> Algorithm:
    """The preset's server and corrections with the present clients' own optimizer, schedules included."""
    if present is None:
        return method_named(preset).build(**{"lr": _UNKNOWN_LR, **arguments})
    solver = set(ClientSide.__annotations__) - {"cohort_size"}
    server = {name: value for name, value in arguments.items() if name not in solver}
    made = method_named(preset).build(lr=_UNKNOWN_LR, **server)
    return replace(made, solver=replace(present.solver, corrections=made.solver.corrections))
