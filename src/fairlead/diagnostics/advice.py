"""From evidence to advice: the situation, the rule that fits it, and what theory expects of following it."""

from __future__ import annotations

from collections.abc import Sequence

from fairlead.diagnostics.diagnosis import (
    Advice,
    Decision,
    Diagnosis,
    Finding,
    Foreseen,
    Number,
    fits_in,
    foresee,
    step_length,
)
from fairlead.diagnostics.evidence import Confidence, Evidence, weakest
from fairlead.diagnostics.findings import agreement, aware_weights, drift_confidence, drift_of, unequal_things
from fairlead.diagnostics.objective import (
    chance_of_conditions,
    measured_weights,
    optimised_objective,
    theory_confidence,
)
from fairlead.diagnostics.rules import (
    MIN_ROUNDS,
    SECURE_AGGREGATION,
    Situation,
    missing_data,
    rule_for,
    same_cure,
)
from fairlead.optimizers.sgd import SGD
from fairlead.presets import Cause
from fairlead.text import percent

_HARDLY = 0.02
"""Share of the weight that the present method may misplace beyond the advised one and still be kept."""
_NOTHING = 0.0005
"""Share of the weight that is written as 0%."""
_OTHER_LENGTH = 0.8
"""Ratio of step lengths below which, or above whose inverse, the server's learning rate makes up for it."""


def diagnosis_of(evidence: Evidence, against: Sequence[str] = ()) -> Diagnosis:
    """Findings and advice on the evidence; `against` names presets to look at beside the advised one."""
    situation = situation_of(evidence)
    rule = rule_for(situation)
    advised = None if rule.preset is None else foresee(rule.preset, evidence)
    return Diagnosis(
        source=evidence.source,
        rounds=evidence.rounds,
        clients=evidence.num_clients,
        findings=_findings(evidence),
        advice=_undecided(situation, rule.why) if advised is None else _advice(evidence, situation, advised),
        against=tuple(foresee(preset, evidence) for preset in against),
        evidence=evidence,
        advised=advised,
    )


def _findings(evidence: Evidence) -> tuple[Finding, ...]:
    """All statements that the evidence allows, and for each question left open why it is."""
    return (
        *(Finding("assumption", said, {}, "low") for said in evidence.assumptions),
        *unequal_things(evidence),
        *optimised_objective(evidence),
        *aware_weights(evidence),
        *agreement(evidence),
    )


def situation_of(evidence: Evidence) -> Situation:
    """The evidence as the rules read it."""
    algorithm = evidence.algorithm
    return Situation(
        work=evidence.work.verdict,
        links=evidence.links.verdict,
        drift=drift_of(evidence),
        rates="told" if evidence.rates_told else "estimated",
        solver="linear" if algorithm is None or algorithm.solver.is_linear else "not linear",
        reach="not everybody" if evidence.unreachable else "everybody",
        length="enough rounds" if evidence.rounds >= MIN_ROUNDS else "too few rounds",
    )


def _undecided(situation: Situation, why: str) -> Advice:
    reason = f"No advice: {why.format(missing=missing_data(situation))}."
    return Advice("undecided", None, {}, None, reason, {}, "none")


def _advice(evidence: Evidence, situation: Situation, advised: Foreseen) -> Advice:
    why = rule_for(situation).why
    expected = _expected(evidence, advised)
    decision = _decision(evidence, situation, expected)
    server_lr = None if decision == "keep" else _server_lr(evidence, expected)
    others = same_cure(situation, advised.preset)
    return Advice(
        decision=decision,
        preset=advised.preset,
        arguments=advised.arguments,
        server_lr=server_lr,
        reason=_reason(decision, advised.preset, why, situation.causes, evidence, expected),
        expected=expected,
        confidence=_confidence(evidence, situation),
        alternatives=tuple(name for name in others if fits_in(name, evidence)),
        remarks=() if decision == "keep" else tuple(_remarks(evidence, advised, expected, server_lr)),
    )


def _decision(evidence: Evidence, situation: Situation, expected: dict[str, Number]) -> Decision:
    """Keep the present method if it misplaces no more weight and bears the drift that there is."""
    now, then = expected["misplaced_now"], expected["misplaced_then"]
    if now is None or then is None or now > then + _slack(evidence):
        return "change"
    corrections = () if evidence.algorithm is None else evidence.algorithm.solver.corrections
    steady = any(correction.restores_weights for correction in corrections)
    return "change" if situation.drift == "yes" and not steady else "keep"


def _slack(evidence: Evidence) -> float:
    """Misplaced weight that is not worth a change: little, or what chance may account for."""
    measured_only = evidence.consistency.predicted_weights is None
    chance = evidence.chance if measured_only else chance_of_conditions(evidence)
    return max(_HARDLY, 2 * chance)


def _reason(
    decision: Decision,
    preset: str,
    why: str,
    causes: frozenset[Cause],
    evidence: Evidence,
    expected: dict[str, Number],
) -> str:
    because = f"{why[:1].upper()}{why[1:]}"
    if decision == "keep":
        now = expected["misplaced_now"]
        assert now is not None
        kept = f"Keep the present method, which misplaces {percent(now)} of the weight"
        if now > (expected["misplaced_then"] or 0.0) + _NOTHING:
            slack = percent(_slack(evidence))
            return (
                f"{kept}: {preset} would misplace {percent(expected['misplaced_then'] or 0.0)}, and a difference of "
                f"{slack} or less hardly matters."
            )
        return f"{kept}. {because} ({preset})."
    present = evidence.consistency.predicted
    before = f"{present.explanation} " if present is not None and present.weights is None else ""
    if not causes and not before:
        before = "The weights are misplaced by the way clients are sampled or averaged. "
    return f"{before}Use {preset}. {because}. {_effect(evidence, expected)}"


def _effect(evidence: Evidence, expected: dict[str, Number]) -> str:
    rise = expected["drift_price_now"]
    if rise is not None:
        return (
            f"Expected: {expected['drift_rounds']} rounds of plain averaging raise the objective by {rise:.2g} over "
            f"its optimum, which is a fixed point of this method."
        )
    now, then = expected["misplaced_now"], expected["misplaced_then"]
    if then is None:
        return "Theory does not tell its effect here."
    if now is None:
        return f"Expected: it misplaces {percent(then)} of the weight."
    return f"Expected: misplaced weight {percent(now)}{_as_measured(evidence)} → {percent(then)}."


def _as_measured(evidence: Evidence) -> str:
    """What the rounds run say of the present method, beside theory where there is one."""
    if evidence.consistency.predicted_weights is None:
        return " (measured)"
    share = evidence.consistency.total_variation
    if share is None or measured_weights(evidence).confidence == "none":
        return ""
    return f" (measured {percent(share)})"


def _expected(evidence: Evidence, advised: Foreseen) -> dict[str, Number]:
    """The present method as theory has it, or as measured where theory has nothing, against the advised one."""
    report = evidence.consistency
    foreseen = report.predicted_weights is not None
    present = report.predicted
    length_now, length_then = None if present is None else step_length(present), advised.step_length
    return {
        "misplaced_now": report.predicted_total_variation if foreseen else report.total_variation,
        "misplaced_then": advised.misplaced,
        "chi_square_now": report.predicted_chi_square if foreseen else report.chi_square,
        "chi_square_then": advised.chi_square,
        "step_length_now": length_now,
        "step_length_then": length_then,
        "rounds_factor": length_now / length_then if length_now and length_then else None,
        "drift_price_now": None if evidence.price is None else evidence.price.rise,
        "drift_rounds": None if evidence.price is None else evidence.price.rounds,
        "rounds": max(evidence.work.rounds, evidence.links.rounds),
    }


def _remarks(
    evidence: Evidence, advised: Foreseen, expected: dict[str, Number], server_lr: float | None
) -> list[str]:
    preset, remarks = advised.preset, []
    factor = expected["rounds_factor"]
    if factor is not None and _matters(factor):
        instead = "" if server_lr is None else f", or server.lr={server_lr:.2g} as below"
        remarks.append(
            f"A round of {preset} is worth {expected['step_length_then']:.3g} local steps at the same learning rates, "
            f"against {expected['step_length_now']:.3g} now: to come as far takes ×{factor:.2g} rounds{instead}."
        )
    asked = evidence.cohort_size
    if preset in ("scaffold", "feddyn"):
        remarks.append(f"With {preset} every client keeps a vector of the model's size between rounds.")
        if asked is not None:
            remarks.append(
                f"{asked} of {evidence.num_clients} clients are asked in a round, so that what a client keeps is "
                f"about {evidence.num_clients / asked:.0f} rounds old when it is used."
            )
        remarks.append(
            'Where no client may be left behind, fedaware with rows="unit" aims at a point that no direction improves '
            "for all of them, instead of at the weights asked for."
        )
    elif preset in ("fedacs", "fedacs_estimated"):
        remarks.append(
            f"{preset} draws clients with replacement, which adds the noise of sampling: a larger cohort_size "
            "makes it smaller."
        )
    remarks.append(f"Under secure aggregation: {SECURE_AGGREGATION[preset]}.")
    return remarks


def _matters(factor: float) -> bool:
    """Whether rounds differ so much in length that something must make up for it."""
    return not _OTHER_LENGTH <= factor <= 1 / _OTHER_LENGTH


def _server_lr(evidence: Evidence, expected: dict[str, Number]) -> float | None:
    """The server's learning rate that makes up for rounds of another length, where the server is plain."""
    factor = expected["rounds_factor"]
    server = SGD(1.0) if evidence.algorithm is None else evidence.algorithm.server
    if factor is None or not _matters(factor) or not isinstance(server, SGD) or server.momentum:
        return None
    return float(f"{server.lr_at(0) * factor:.2g}")


def _confidence(evidence: Evidence, situation: Situation) -> Confidence:
    """The weakest of the findings that decided."""
    drift = drift_confidence(evidence)
    grades = [evidence.work.confidence, evidence.links.confidence]
    if situation.drift == "yes":
        grades = [drift]
    elif not situation.causes:
        grades.append(drift)
    if situation.drift != "yes":
        grades.append(theory_confidence(evidence))
    if evidence.assumptions:
        grades.append("low")
    return weakest(*grades)
