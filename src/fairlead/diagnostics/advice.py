"""Advice: the situation of a federation, the rule that fits it, and the effect that theory expects of the method.

The first rule that fits decides. Plain averaging weights clients by ω(1 − q)‖a‖₁. That moves the optimum only as far as
clients differ: the gap of gradients is at most √(χ² Σ Ω‖∇F_i − ∇F‖²). FedNova divides by ‖a‖₁, which stretches the
updates of short work and their noise; FedACS samples against both factors, which costs local steps and adds the noise
of draws. Control variates leave weights, steps and draws as they are and make the fixed point exact, but clients have
to come back. `benchmarks/advice.py` measures whether the advice helps.
"""

import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from importlib.resources import files
from typing import Literal, NamedTuple

from fairlead.diagnostics.clients import Balance, Confidence, weakest
from fairlead.diagnostics.diagnosis import (
    Advice,
    Decision,
    Diagnosis,
    Finding,
    Number,
    PredictedMethod,
    fits_in,
    predict_preset,
)
from fairlead.diagnostics.evidence import MIN_ROUNDS, Drifting, Evidence, Similarity
from fairlead.diagnostics.findings import (
    agreement,
    aware_weights,
    drift_confidence,
    drift_of,
    similarity_of,
    unequal_things,
)
from fairlead.diagnostics.objective import (
    chance_of_conditions,
    measured_weights,
    optimized_objective,
    theory_confidence,
)
from fairlead.optimizers.descent import SGD
from fairlead.presets import METHODS
from fairlead.presets.table import Correctable
from fairlead.text import percent

Rates = Literal["told", "estimated"]
Linearity = Literal["linear", "not linear", "clipped"]
Participants = Literal["everybody", "not everybody"]
Length = Literal["enough rounds", "too few rounds"]
Cohorts = Literal["all", "some"]
Returns = Literal["often", "rarely"]
Bias = Literal["large", "small"]
Trouble = Literal["yes", "no", "unknown"]


@dataclass(frozen=True)
class Situation:
    """The facts on which the advice depends."""

    work: Balance
    links: Balance
    drift: Drifting
    """Whether the clients' local steps fail to cancel at the optimum."""
    rates: Rates = "told"
    """Whether the server knows arrival rates before a round, or has to estimate them."""
    solver: Linearity = "linear"
    """Whether the clients' updates are linear in their gradients, so that ‖a‖₁ exists, and else whether they clip."""
    reach: Participants = "everybody"
    length: Length = "enough rounds"
    clients: Similarity = "unknown"
    """Whether the clients' gradients differ beyond chance."""
    cohort: Cohorts = "all"
    """Whether all clients are asked in every round."""
    returns: Returns = "often"
    """Whether a client is expected to take part at least once in the run, so that its memory is used."""
    bias: Bias = "small"
    """Whether plain averaging has χ² of at least 1: the bias may then exceed the clients' dissimilarity itself."""

    @property
    def trouble(self) -> Trouble:
        """Whether plain averaging suffers from the differences of clients."""
        if self.drift == "yes":
            return "yes"
        if "unknown" in (self.work, self.links) and self.clients != "different":
            return "unknown"
        drawn = self.cohort == "some" and self.clients == "different"
        return "yes" if drawn or "unequal" in (self.work, self.links) else "no"

    @property
    def causes(self) -> frozenset[Correctable]:
        """The causes that a method has to correct here."""
        causes: tuple[Correctable, ...] = ("work", "links", "drift")
        return frozenset(cause for cause in causes if getattr(self, cause) in ("unequal", "yes"))

    @property
    def missing(self) -> str:
        """The conditions that are not known, in words."""
        return " and ".join(name for name in ("work", "links") if getattr(self, name) == "unknown")


class Rule(NamedTuple):
    """A row: when it applies, the preset to use then (None: no advice), and why."""

    when: Mapping[str, str]
    """Facts of a situation; whatever is left out may be anything."""
    preset: str | None
    why: str
    evidence: str = ""
    """How the preset did where the rule applied, or that it rests on theory alone; empty without a preset."""
    cells: Sequence[str] = ()
    """The cells of the kept benchmark in which the rule applies."""

    def fits(self, situation: Situation) -> bool:
        return self.when.items() <= {**asdict(situation), "trouble": situation.trouble}.items()


_TABLE = tomllib.loads(files("fairlead.diagnostics").joinpath("advice.toml").read_text(encoding="utf-8"))
RULES = tuple(Rule(**{"when": {}, "preset": None, **each}) for each in _TABLE["rules"])
"""Tested by `benchmarks/advice.py`. FedAU is in no row: it lost to FedAvg in most federations there."""
SECURE_AGGREGATION: dict[str, str] = _TABLE["secure_aggregation"]


def rule_for(situation: Situation) -> Rule:
    """The row that decides."""
    return next(rule for rule in RULES if rule.fits(situation))


def same_cure(situation: Situation, preset: str) -> tuple[str, ...]:
    """Other presets whose limit does not depend on the causes found."""
    causes = situation.causes
    cures = [name for name, method in METHODS.items() if causes <= set(method.corrects) and name != preset]
    return tuple(cures) if causes else ()


_HARDLY = 0.02
"""Share of the weight that the present method may misplace beyond the advised one and still be kept."""
_NOTHING = 0.0005
"""Share of the weight that is written as 0%."""
_LARGE = 1.0
"""χ² from which the bias of plain averaging is large."""
_OTHER_LENGTH = 0.8
"""Ratio of step lengths below which, or above whose inverse, the server's learning rate compensates it."""


_PERSONAL = (
    "The method gives each client a model of its own, so no advice on weights applies. To ask whether one model is "
    'enough, diagnose the same clients with preset = "fedavg" and clients.holdout = 0.2.'
)


def diagnosis_of(evidence: Evidence, against: Sequence[str] = ()) -> Diagnosis:
    """Findings and advice on the evidence; `against` names presets to predict beside the advised one."""
    situation = situation_of(evidence)
    rule = rule_for(situation)
    personal = evidence.algorithm is not None and evidence.algorithm.solver.is_personal
    if personal or rule.preset is None:
        reason = (
            _PERSONAL
            if personal
            else f"No advice: {rule.why.format(missing=situation.missing, rounds=MIN_ROUNDS)}."
        )
        advised, advice = None, Advice("undecided", None, {}, None, reason, {}, "none")
    else:
        advised = predict_preset(rule.preset, evidence)
        advice = _advice(evidence, situation, rule, advised)
    return Diagnosis(
        source=evidence.source,
        rounds=evidence.rounds,
        clients=evidence.num_clients,
        findings=(
            *(Finding("assumption", said, {}, "low") for said in evidence.assumptions),
            *unequal_things(evidence),
            *optimized_objective(evidence),
            *aware_weights(evidence),
            *agreement(evidence),
        ),
        advice=advice,
        against=tuple(predict_preset(preset, evidence) for preset in against),
        evidence=evidence,
        advised=advised,
    )


def situation_of(evidence: Evidence) -> Situation:
    """The evidence as the rules read it."""
    solver = None if evidence.algorithm is None else evidence.algorithm.solver
    return Situation(
        work=evidence.work.verdict,
        links=evidence.links.verdict,
        drift=drift_of(evidence),
        rates="told" if evidence.rates_told else "estimated",
        solver="linear" if solver is None or solver.is_linear else "clipped" if solver.clip else "not linear",
        reach="not everybody" if evidence.unreachable else "everybody",
        length="enough rounds" if evidence.rounds >= MIN_ROUNDS else "too few rounds",
        clients=similarity_of(evidence),
        cohort="all" if evidence.cohort_size is None else "some",
        returns="often" if evidence.visits >= 1 else "rarely",
        # 0 where theory does not know χ² of plain averaging.
        bias="large" if (predict_preset("fedavg", evidence).chi_square or 0.0) >= _LARGE else "small",
    )


def _advice(evidence: Evidence, situation: Situation, rule: Rule, advised: PredictedMethod) -> Advice:
    expected, preset = _expected(evidence, advised), advised.preset
    measured = situation.clients == "different" or situation.drift == "yes"
    because = rule.why.format(clients_differ=f"clients {'' if measured else 'may '}differ")
    because = f"{because[:1].upper()}{because[1:]}"
    # Where plain averaging is enough, nothing is to be corrected.
    cures = () if preset == "fedavg" else same_cure(situation, preset)
    alternatives = tuple(name for name in cures if fits_in(name, evidence))
    confidence, decision = _confidence(evidence, situation), _decision(evidence, situation, rule, expected)
    kept_instead = decision == "keep" and preset != "fedavg"
    server_lr, remarks = None, [] if kept_instead else [f"Evidence: {rule.evidence}."]
    if decision == "keep":
        reason = _reason_to_keep(preset, because, evidence, expected)
    else:
        server_lr = _server_lr(evidence, expected)
        reason = _reason_to_change(preset, because, situation, evidence, expected)
        remarks += _remarks(evidence, preset, expected, server_lr)
    return Advice(
        decision,
        preset,
        advised.arguments,
        server_lr,
        reason,
        expected,
        confidence,
        alternatives,
        tuple(remarks),
    )


def _expected(evidence: Evidence, advised: PredictedMethod) -> dict[str, Number]:
    """The present method by theory, or as measured if theory has no weights, against the advised one."""
    report, price = evidence.consistency, evidence.price
    known = report.predicted_weights is not None
    length_now = None if report.predicted is None else report.predicted.step_length
    length_then = advised.surrogate.step_length
    return {
        "misplaced_now": report.predicted_total_variation if known else report.total_variation,
        "misplaced_then": advised.misplaced,
        "chi_square_now": report.predicted_chi_square if known else report.chi_square,
        "chi_square_then": advised.chi_square,
        "step_length_now": length_now,
        "step_length_then": length_then,
        "rounds_factor": length_now / length_then if length_now and length_then else None,
        "drift_price_now": None if price is None else price.rise,
        "drift_rounds": None if price is None else price.rounds,
        "rounds": max(evidence.work.rounds, evidence.links.rounds),
    }


def _decision(evidence: Evidence, situation: Situation, rule: Rule, expected: dict[str, Number]) -> Decision:
    """Keep the present method if it misplaces no more weight and suffers from neither drift nor the luck of cohorts."""
    corrections = () if evidence.algorithm is None else evidence.algorithm.solver.corrections
    if any(correction.restores_weights for correction in corrections):
        return "keep"
    drawn = situation.cohort == "some" and situation.clients == "different"
    if rule.preset != "fedavg" and (situation.drift == "yes" or drawn):
        return "change"
    now, then = expected["misplaced_now"], expected["misplaced_then"]
    return "change" if now is None or then is None or now > then + _slack(evidence) else "keep"


def _slack(evidence: Evidence) -> float:
    """Misplaced weight that is not worth a change: a small share, or the effect of chance."""
    measured_only = evidence.consistency.predicted_weights is None
    return max(_HARDLY, 2 * (evidence.chance if measured_only else chance_of_conditions(evidence)))


def _reason_to_keep(preset: str, because: str, evidence: Evidence, expected: dict[str, Number]) -> str:
    now, then = expected["misplaced_now"] or 0.0, expected["misplaced_then"] or 0.0
    kept = f"Keep the present method, which misplaces {percent(now)} of the weight"
    if preset == "fedavg":
        return f"{kept}. {because}."
    if now <= then + _NOTHING:
        return f"{kept}. The method for such clients, {preset}, would misplace no less."
    return (
        f"{kept}: {preset} would misplace {percent(then)}, and a difference of {percent(_slack(evidence))} or less "
        "hardly matters."
    )


def _reason_to_change(
    preset: str, because: str, situation: Situation, evidence: Evidence, expected: dict[str, Number]
) -> str:
    present, before = evidence.consistency.predicted, ""
    if present is not None and present.weights is None:
        before = f"{present.explanation} "
    elif not situation.causes:
        before = "The sampling or averaging of clients misplaces the weights. "
    return f"{before}Use {preset}. {because}. {_effect(evidence, expected)}"


def _effect(evidence: Evidence, expected: dict[str, Number]) -> str:
    rise, now, then = (expected[name] for name in ("drift_price_now", "misplaced_now", "misplaced_then"))
    if rise is not None:
        return (
            f"Expected: {expected['drift_rounds']} rounds of plain averaging raise the objective by {rise:.2g} above "
            f"its optimum, which is a fixed point of this method."
        )
    if then is None:
        return "Theory does not predict its effect here."
    if now is None:
        return f"Expected: it misplaces {percent(then)} of the weight."
    return f"Expected: misplaced weight {percent(now)}{_as_measured(evidence)} → {percent(then)}."


def _as_measured(evidence: Evidence) -> str:
    """The measured share of the present method, next to theory's."""
    if evidence.consistency.predicted_weights is None:
        return " (measured)"
    share = evidence.consistency.total_variation
    if share is None or measured_weights(evidence).confidence == "none":
        return ""
    return f" (measured {percent(share)})"


_NOTES: dict[str, str] = _TABLE["notes"]
_NOTES_ON = {
    **dict.fromkeys(("scaffold", "feddyn"), ("keeps", "stateless", "ages", "behind")),
    "fedacs": ("noise",),
}


def _remarks(
    evidence: Evidence, preset: str, expected: dict[str, Number], server_lr: float | None
) -> list[str]:
    factor, remarks = expected["rounds_factor"], []
    if factor is not None and _matters(factor):
        instead = "" if server_lr is None else f", or server.lr={server_lr:.2g} as below"
        remarks.append(
            f"A round of {preset} equals {expected['step_length_then']:.3g} local steps at the same learning rates, "
            f"against {expected['step_length_now']:.3g} now: the same progress takes {factor:.2g}× the rounds{instead}."
        )
    clients = evidence.num_clients
    asked = evidence.cohort_size or clients
    facts = {"preset": preset, "asked": asked, "clients": clients, "age": clients / asked}
    divides = evidence.work.verdict == "unequal" and fits_in("fednova", evidence)
    facts["stateless"] = (
        "fednova corrects the effect of unequal work alone" if divides else "keep plain averaging"
    )
    notes = [note for note in _NOTES_ON.get(preset, ()) if note != "ages" or evidence.cohort_size is not None]
    named = [_NOTES[note].format(**facts, secure=SECURE_AGGREGATION[preset]) for note in (*notes, "secure")]
    return [*remarks, *named]


def _matters(factor: float) -> bool:
    """Whether the step length differs so much that it must be compensated."""
    return not _OTHER_LENGTH <= factor <= 1 / _OTHER_LENGTH


def _server_lr(evidence: Evidence, expected: dict[str, Number]) -> float | None:
    """The server's learning rate that compensates another step length, if the server is plain SGD."""
    factor = expected["rounds_factor"]
    server = SGD(1.0) if evidence.algorithm is None else evidence.algorithm.server
    if factor is None or not _matters(factor) or not isinstance(server, SGD) or server.momentum:
        return None
    return float(f"{server.lr_at(0) * factor:.2g}")


def _confidence(evidence: Evidence, situation: Situation) -> Confidence:
    """The weakest of the findings that decided."""
    drift = drift_confidence(evidence)
    if situation.drift == "yes":
        grades = [drift]
    elif situation.clients == "alike" or (situation.trouble == "yes" and not situation.causes):
        grades = ["moderate"]
    else:
        grades = [evidence.work.confidence, evidence.links.confidence, theory_confidence(evidence)]
        if not situation.causes:
            grades.append(drift)
    if evidence.assumptions:
        grades.append("low")
    return weakest(*grades)
