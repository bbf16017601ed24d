"""Advice: the situation of a federation, the rule that fits it, and the effect that theory expects of the method.

The first rule that fits decides. Rules follow the table of biases: plain averaging weights clients by
ω(1 − q)‖a‖₁, FedNova removes ‖a‖₁, methods that know or learn arrival rates remove 1 − q, FedACS removes
both, and control variates make the fixed point exact in any case.
"""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Literal, NamedTuple, TypedDict

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
from fairlead.diagnostics.evidence import MIN_ROUNDS, Drifting, Evidence
from fairlead.diagnostics.findings import agreement, aware_weights, drift_confidence, drift_of, unequal_things
from fairlead.diagnostics.objective import (
    chance_of_conditions,
    measured_weights,
    optimized_objective,
    theory_confidence,
)
from fairlead.optimizers.descent import SGD
from fairlead.presets import METHODS, Correctable
from fairlead.text import percent

Rates = Literal["told", "estimated"]
Linearity = Literal["linear", "not linear", "clipped"]
Participants = Literal["everybody", "not everybody"]
Length = Literal["enough rounds", "too few rounds"]


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

    @property
    def causes(self) -> frozenset[Correctable]:
        """The causes that a method has to correct here."""
        causes: tuple[Correctable, ...] = ("work", "links", "drift")
        return frozenset(cause for cause in causes if getattr(self, cause) in ("unequal", "yes"))

    @property
    def missing(self) -> str:
        """The conditions that are not known, in words."""
        return " and ".join(name for name in ("work", "links") if getattr(self, name) == "unknown")


class Case(TypedDict, total=False):
    """The situations that a rule is meant for; whatever is left out may be anything."""

    work: Balance
    links: Balance
    drift: Drifting
    rates: Rates
    solver: Linearity
    reach: Participants
    length: Length


class Rule(NamedTuple):
    """A row: when it applies, the preset to use then (None: no advice), and why."""

    case: Case
    preset: str | None
    why: str

    def fits(self, situation: Situation) -> bool:
        return self.case.items() <= asdict(situation).items()


_NO_MEASURE = (
    "work is unequal, but updates that are not linear in the gradients have no measure of it to divide by: use SGD "
    "without clipping on the clients, or give all clients the same number of steps"
)
RULES: tuple[Rule, ...] = (
    Rule(
        Case(length="too few rounds"),
        None,
        f"fewer than {MIN_ROUNDS} rounds were measured, too few for any advice",
    ),
    Rule(
        Case(reach="not everybody"),
        None,
        "no update ever arrives from some clients of positive weight, and no method can make up for that: repair "
        "their links, or give them weight 0",
    ),
    Rule(
        Case(drift="yes", solver="clipped"),
        None,
        "local steps do not cancel at the optimum, and no method finds it by clipped gradients, which balance "
        "elsewhere: use SGD without clipping on the clients",
    ),
    Rule(
        Case(drift="yes", solver="not linear"),
        "feddyn",
        "local steps do not cancel at the optimum, and a dynamic penalty aligns clients whatever their solver",
    ),
    Rule(
        Case(drift="yes"),
        "scaffold",
        "local steps do not cancel at the optimum; control variates take the drift out, and with it the effect "
        "of unequal work and links",
    ),
    Rule(Case(work="unequal", solver="not linear"), None, _NO_MEASURE),
    Rule(Case(work="unequal", solver="clipped"), None, _NO_MEASURE),
    Rule(
        Case(work="unequal", links="unequal", rates="told"),
        "fedacs",
        "both work and links are unequal, and the server knows arrival rates: it asks a client more often if less "
        "of its work arrives",
    ),
    Rule(
        Case(work="unequal", links="unequal"),
        "fedacs_estimated",
        "both work and links are unequal, and the server has to estimate arrival rates and work during the run",
    ),
    Rule(
        Case(work="unequal", links="equal"),
        "fednova",
        "only work is unequal: updates are divided by the work behind them",
    ),
    Rule(
        Case(work="equal", links="unequal", rates="told", solver="linear"),
        "fedacs",
        "only links are unequal, and the server knows arrival rates: it asks a client more often if more of its "
        "updates are lost",
    ),
    Rule(
        Case(work="equal", links="unequal"),
        "fedau",
        "only links are unequal: the server learns from absences how much weight an update needs",
    ),
    Rule(
        Case(work="equal", links="equal", drift="no"),
        "fedavg",
        "work and links are equal and local steps cancel at the optimum, so plain averaging is enough",
    ),
    Rule(
        Case(work="equal", links="equal"),
        None,
        "work and links are equal, so plain averaging keeps the weights; whether drift matters is not known, and "
        "no finding calls for another method",
    ),
    Rule(Case(), None, "there is not enough data on {missing} for any advice"),
)

SECURE_AGGREGATION: dict[str, str] = {
    "fedavg": "the server needs only the sum",
    "fednova": "clients divide by their own work before they send",
    "fedacs": "the server needs only the sum",
    "fedacs_estimated": "the server needs the sum, the list of arrivals, and the work that each of them reports",
    "fedau": "the server needs the sum and the list of arrivals, since an update's weight is known before the round",
    "scaffold": "the server needs the sums of two vectors",
    "feddyn": "the server needs only the sum",
}
"""What each advised preset needs on a server that may see sums only; sums are enough for all of them."""


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
_OTHER_LENGTH = 0.8
"""Ratio of step lengths below which, or above whose inverse, the server's learning rate compensates it."""


def diagnosis_of(evidence: Evidence, against: Sequence[str] = ()) -> Diagnosis:
    """Findings and advice on the evidence; `against` names presets to predict beside the advised one."""
    situation = situation_of(evidence)
    rule = rule_for(situation)
    if rule.preset is None:
        reason = f"No advice: {rule.why.format(missing=situation.missing)}."
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
    )


def _advice(evidence: Evidence, situation: Situation, rule: Rule, advised: PredictedMethod) -> Advice:
    expected, preset = _expected(evidence, advised), advised.preset
    because = f"{rule.why[:1].upper()}{rule.why[1:]}"
    alternatives = tuple(name for name in same_cure(situation, preset) if fits_in(name, evidence))
    confidence, decision = _confidence(evidence, situation), _decision(evidence, situation, expected)
    if decision == "keep":
        reason = _reason_to_keep(preset, because, evidence, expected)
        return Advice(decision, preset, advised.arguments, None, reason, expected, confidence, alternatives)
    server_lr = _server_lr(evidence, expected)
    reason = _reason_to_change(preset, because, situation, evidence, expected)
    remarks = tuple(_remarks(evidence, preset, expected, server_lr))
    return Advice(
        decision, preset, advised.arguments, server_lr, reason, expected, confidence, alternatives, remarks
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


def _decision(evidence: Evidence, situation: Situation, expected: dict[str, Number]) -> Decision:
    """Keep the present method if it misplaces no more weight and tolerates the drift."""
    now, then = expected["misplaced_now"], expected["misplaced_then"]
    if now is None or then is None or now > then + _slack(evidence):
        return "change"
    corrections = () if evidence.algorithm is None else evidence.algorithm.solver.corrections
    steady = any(correction.restores_weights for correction in corrections)
    return "change" if situation.drift == "yes" and not steady else "keep"


def _slack(evidence: Evidence) -> float:
    """Misplaced weight that is not worth a change: a small share, or the effect of chance."""
    measured_only = evidence.consistency.predicted_weights is None
    return max(_HARDLY, 2 * (evidence.chance if measured_only else chance_of_conditions(evidence)))


def _reason_to_keep(preset: str, because: str, evidence: Evidence, expected: dict[str, Number]) -> str:
    now, then = expected["misplaced_now"] or 0.0, expected["misplaced_then"] or 0.0
    kept = f"Keep the present method, which misplaces {percent(now)} of the weight"
    if now <= then + _NOTHING:
        return f"{kept}. {because} ({preset})."
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


_NOTES = {
    "keeps": "With {preset} every client keeps a vector of the model's size between rounds.",
    "ages": "{asked} of {clients} clients are asked in a round, so a client's vector is about {age:.0f} rounds old "
    "when it is used.",
    "behind": "If no client may be left behind, fedaware_ridge gives more weight to clients whose updates oppose the "
    "others', instead of aiming at the objective's weights.",
    "noise": "{preset} draws clients with replacement, which adds sampling noise: a larger cohort_size reduces it.",
    "secure": "Under secure aggregation: {secure}.",
}
_NOTES_ON = {
    **dict.fromkeys(("scaffold", "feddyn"), ("keeps", "ages", "behind")),
    **dict.fromkeys(("fedacs", "fedacs_estimated"), ("noise",)),
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
    else:
        grades = [evidence.work.confidence, evidence.links.confidence, theory_confidence(evidence)]
        if not situation.causes:
            grades.append(drift)
    if evidence.assumptions:
        grades.append("low")
    return weakest(*grades)
