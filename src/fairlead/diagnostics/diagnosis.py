"""`Diagnosis`: findings, advice, and the numbers behind both."""

import shlex
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import TYPE_CHECKING, Any, Literal, get_args

import tomli_w
from torch import Tensor

from fairlead.algorithm import Algorithm
from fairlead.charts.display import Display, Displayed
from fairlead.corrections.drift import Proximal
from fairlead.diagnostics.clients import Confidence
from fairlead.diagnostics.consistency import chi_square, total_variation
from fairlead.diagnostics.evidence import Evidence
from fairlead.errors import ClashError, FieldError
from fairlead.local_solver import LocalSolver
from fairlead.optimizers.descent import SGD
from fairlead.plain_data import NONE
from fairlead.presets import ClientSide, method_named
from fairlead.samplers.fixed import FullParticipation
from fairlead.text import counted, listed
from fairlead.theory.prediction import Surrogate, implied_surrogate

if TYPE_CHECKING:
    from matplotlib.figure import Figure

PresetArgument = float | int | bool | None
Arguments = Mapping[str, PresetArgument]

_USUAL: Mapping[str, Arguments] = {"fedprox": {"mu": 0.01}, "feddyn": {"alpha": 0.01}, "ditto": {"mu": 0.1}}
"""Required arguments of presets, at the values of their papers."""
_UNKNOWN_LR = 0.1
"""Only for theory: to first order the weights do not depend on it."""
_DEFAULT_BATCH = 32
"""Of every preset (`ClientSide.batch_size`)."""


@dataclass(frozen=True, eq=False)
class PredictedMethod:
    """A preset under the conditions of the present method."""

    preset: str
    arguments: Arguments
    weights: Tensor
    """ω, (N,)."""
    surrogate: Surrogate

    @property
    def chi_square(self) -> float | None:
        """χ²(ω‖Ω); None if theory has no Ω."""
        found = self.surrogate.weights
        return None if found is None else chi_square(self.weights, found)

    @property
    def misplaced(self) -> float | None:
        """½ Σ |ω_i − Ω_i|; None if theory has no Ω."""
        found = self.surrogate.weights
        return None if found is None else total_variation(self.weights, found)


def predict_preset(preset: str, evidence: Evidence) -> PredictedMethod:
    """Ω of a preset with the clients' solver and the cohort size of the present method."""
    arguments = arguments_for(preset, evidence)
    try:
        algorithm = _planted(preset, arguments, evidence.algorithm)
    except ClashError as error:
        surrogate = Surrogate(None, None, "exact", str(error))
    else:
        surrogate = implied_surrogate(algorithm, evidence.expected_conditions(algorithm.solver))
    return PredictedMethod(preset, arguments, evidence.weights, surrogate)


def fits_in(preset: str, evidence: Evidence) -> bool:
    """Whether a preset works with the present clients and with what the server knows of their links."""
    try:
        algorithm = _planted(preset, arguments_for(preset, evidence), evidence.algorithm)
    except ClashError:
        return False
    needs_rates = algorithm.sampler.needs_arrival or algorithm.aggregator.needs_arrival
    return evidence.rates_told or not needs_rates


def arguments_for(preset: str, evidence: Evidence) -> Arguments:
    """The arguments that give a preset the present method's clients; without lr where it is not known."""
    present, own = evidence.algorithm, dict(_USUAL.get(preset, {}))
    found: dict[str, PresetArgument] = {}
    if present is not None:
        found = _client_side(present.solver)
        proximal = [part.mu for part in present.solver.corrections if isinstance(part, Proximal)]
        if proximal and preset in ("fedprox", "fednova"):
            own["mu"] = proximal[0]
    recorded = next((record.client_lr for record in evidence.records if record.client_lr), None)
    if recorded is not None:
        found.setdefault("lr", recorded)
    return {**found, **_cohort(preset, evidence), **own}


def _client_side(solver: LocalSolver) -> dict[str, PresetArgument]:
    """A solver as arguments of presets; defaults are left out."""
    optimizer = solver.optimizer
    found: dict[str, PresetArgument] = {"lr": optimizer.lr_at(0)}
    if isinstance(optimizer, SGD):
        found |= {n: getattr(optimizer, n) for n in ("momentum", "nesterov", "dampening", "weight_decay")}
    found |= {"epochs": solver.epochs, "steps": solver.steps, "clip": solver.clip}
    kept: dict[str, PresetArgument] = {name: value for name, value in found.items() if value}
    if solver.batch_size != _DEFAULT_BATCH:
        kept["batch_size"] = solver.batch_size
    return kept


def _cohort(preset: str, evidence: Evidence) -> dict[str, int]:
    """cohort_size if the present method asks only some clients, or the preset draws with replacement."""
    asked, present = evidence.cohort_size, evidence.algorithm
    if present is not None and isinstance(present.sampler, FullParticipation):
        asked = None
    if asked is None and _draws_with_replacement(preset):
        asked = int((evidence.weights > 0).sum())
    return {} if asked is None or preset == "full_participation" else {"cohort_size": asked}


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
    made = method_named(preset).build(lr=_UNKNOWN_LR, **_server_side(arguments))
    return replace(made, solver=replace(present.solver, corrections=made.solver.corrections))


def _server_side(arguments: Arguments) -> dict[str, PresetArgument]:
    """The arguments that do not concern the clients' work."""
    clients = set(ClientSide.__annotations__) - {"cohort_size"}
    return {name: value for name, value in arguments.items() if name not in clients}


@dataclass(frozen=True)
class SpecFile:
    """The spec that a diagnosis is about."""

    path: str
    name: str
    """Of its own algorithm in a comparison."""
    overrides: tuple[str, ...] = ()


_UnequalKind = Literal["assumption", "sizes", "labels", "work", "links"]
_ObjectiveKind = Literal["foreseen", "measured", "clients", "unheard", "aware"]
_AgreementKind = Literal["dissimilarity", "consensus", "diversity", "dynamics", "gradients", "personal"]
FindingKind = _UnequalKind | _ObjectiveKind | _AgreementKind
Number = float | int | None
Numbers = Mapping[str, Number | Mapping[str, Number]]
Decision = Literal["change", "keep", "undecided"]

SECTIONS: Mapping[str, tuple[FindingKind, ...]] = {
    "What is unequal": get_args(_UnequalKind),
    "Which objective is optimized": get_args(_ObjectiveKind),
    "Whether clients agree": get_args(_AgreementKind),
}


@dataclass(frozen=True)
class Finding:
    """One statement with its named numbers."""

    kind: FindingKind
    statement: str
    evidence: Numbers
    confidence: Confidence


@dataclass(frozen=True)
class Advice:
    """The preset to use, the reason, and the expected effect."""

    decision: Decision
    preset: str | None
    """The best preset here, even if it is already used; None without enough data."""
    arguments: Arguments
    """Of the preset, so that clients work as now."""
    server_lr: float | None
    """Learning rate of the server with which a round moves as far as now; None for the preset's own."""
    reason: str
    expected: Mapping[str, Number]
    """Misplaced weight, chi-square and step length of the present method and of the preset, by theory."""
    confidence: Confidence
    """In the weights that decided, not in the speed of the method."""
    alternatives: tuple[str, ...] = ()
    """Other presets that correct the same causes."""
    remarks: tuple[str, ...] = ()

    @property
    def python(self) -> str | None:
        """`fl.presets.fedacs(lr=0.05, cohort_size=20)`, an unknown lr left open; None unless a change is advised."""
        if self.decision != "change":
            return None
        named = [f"{name}={value!r}" for name, value in self.arguments.items()]
        if "lr" not in self.arguments:
            named.insert(0, "lr=...")
        call = f"fl.presets.{self.preset}({', '.join(named)})"
        if self.server_lr is None:
            return call
        return f"dataclasses.replace({call}, server=fl.SGD(lr={self.server_lr!r}))"

    @property
    def toml(self) -> str | None:
        """The preset as the `[algorithm]` of a spec; None unless a change is advised and its lr is known."""
        if self.decision != "change" or "lr" not in self.arguments:
            return None
        plain = {name: _plain(value) for name, value in self.arguments.items()}
        table = tomli_w.dumps({"algorithm": {"preset": self.preset} | plain})
        return table if self.server_lr is None else f"{table}server.lr = {self.server_lr!r}\n"

    def command(self, spec: SpecFile) -> str | None:
        """`fairlead compare` of the present method with the preset; None unless a change is advised.

        The preset takes its client side from the spec.
        """
        if self.decision != "change" or self.preset is None:
            return None
        methods = [spec.name, ":".join([self.preset, *self.values])]
        changes = [part for change in spec.overrides for part in ("--set", change)]
        return shlex.join(["fairlead", "compare", spec.path, "--methods", ",".join(methods), *changes])

    @property
    def values(self) -> tuple[str, ...]:
        """The preset's own arguments, and `server_lr`, as values behind its name in a list of methods."""
        return () if self.preset is None else listed_values(self.preset, self.arguments, self.server_lr)


def listed_values(preset: str, arguments: Arguments, server_lr: float | None = None) -> tuple[str, ...]:
    """The arguments that a preset does not take from a spec, as values behind its name in a list of methods."""
    own = _server_side(arguments) | ({} if server_lr is None else {"server.lr": server_lr})
    if not _draws_with_replacement(preset):
        own.pop("cohort_size", None)
    return tuple(
        f"{name}={tomli_w.dumps({'': _plain(value)}).split(' = ')[1].strip()}" for name, value in own.items()
    )


def _plain(value: PresetArgument) -> float | int | bool | str:
    return NONE if value is None else value


@dataclass(frozen=True, eq=False)
class Diagnosis(Displayed):
    """Findings and advice on one federation; `print` it, or take `to_dict` for programs."""

    source: str
    rounds: int
    clients: int
    findings: tuple[Finding, ...]
    advice: Advice
    against: tuple[PredictedMethod, ...]
    """Presets that were asked about."""
    evidence: Evidence = field(repr=False)
    advised: PredictedMethod | None = field(repr=False)
    """The advised preset under the present conditions; None without advice."""
    spec: SpecFile | None = None
    """Where the experiment is written, if it is."""

    @property
    def command(self) -> str | None:
        """The command that tries the advice; None without a spec or a change."""
        return None if self.spec is None else self.advice.command(self.spec)

    def finding(self, kind: FindingKind) -> Finding | None:
        """The statement of a kind, if there is one."""
        return next((finding for finding in self.findings if finding.kind == kind), None)

    def to_dict(self) -> dict[str, object]:
        """All of it as plain data, infinities included."""
        code = {"python": self.advice.python, "toml": self.advice.toml, "command": self.command}
        return {
            "source": self.source,
            "rounds": self.rounds,
            "clients": self.clients,
            "findings": [asdict(finding) for finding in self.findings],
            "advice": asdict(self.advice) | code,
            "against": [
                {
                    "preset": method.preset,
                    "chi_square": method.chi_square,
                    "misplaced_weight": method.misplaced,
                    "step_length": method.surrogate.step_length,
                    "says": method.surrogate.explanation,
                }
                for method in self.against
            ],
        }

    def __repr__(self) -> str:
        return f"<Diagnosis of {self.source}: {self.advice.preset or 'no advice'}>"

    @property
    def _title(self) -> str:
        return (
            f"Diagnosis of {self.source}: {counted(self.clients, 'client')}, {counted(self.rounds, 'round')}"
        )

    def display(self) -> Display:
        advice = " ".join([self.advice.reason, *self.advice.remarks])
        sure = [_sure(finding.confidence, "") for finding in self.findings]
        table = {"finding": [finding.statement for finding in self.findings], "confidence": sure}
        code = "" if self.advice.python is None else f"In Python: {self.advice.python}"
        return Display(self._title, tuple(filter(None, (advice, code))), table)

    def rows(self) -> list[dict[str, Any]]:
        """The findings."""
        return [asdict(finding) for finding in self.findings]

    def plot(self) -> "Figure":
        """The weights asked for, those optimized now, and those under the advice."""
        from fairlead.diagnostics.plots import draw_weights

        return draw_weights(self)

    def __str__(self) -> str:
        lines = [self._title]
        for title, kinds in SECTIONS.items():
            told = [finding for kind in kinds for finding in self.findings if finding.kind == kind]
            if told:
                lines += ["", title]
                lines += [f"- {finding.statement} [{_sure(finding.confidence)}]" for finding in told]
        advice = self.advice
        sure = "" if advice.preset is None else f" [{_sure(advice.confidence, 'confidence in the weights:')}]"
        lines += ["", "Advice", f"- {advice.reason}{sure}"]
        lines += [f"- {remark}" for remark in advice.remarks]
        if advice.alternatives:
            lines.append(f"- Other presets that correct the same causes: {listed(advice.alternatives)}.")
        if self.command is not None:
            lines.append(f"- To try it: {self.command}")
        if advice.python is not None:
            lines.append(f"- In Python: {advice.python}")
        if advice.toml is not None:
            lines += ["- In a spec:", *(f"    {line}" for line in advice.toml.splitlines())]
        return "\n".join(lines)


def _sure(confidence: Confidence, what: str = "confidence") -> str:
    return "not enough data" if confidence == "none" else f"{what} {confidence}".strip()
