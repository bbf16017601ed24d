"""Which objective is optimised: findings on ω against Ω, by theory and as measured."""

from __future__ import annotations

import math
from collections.abc import Iterator

from fairlead.diagnostics.consistency import chi_square, total_variation
from fairlead.diagnostics.diagnosis import Finding, Number
from fairlead.diagnostics.evidence import COVERED, Confidence, Evidence, weakest
from fairlead.diagnostics.rules import MIN_ROUNDS
from fairlead.records import Exactness
from fairlead.text import counted, listed, percent
from fairlead.text import divergence as written
from fairlead.theory.expected_round import LARGE_COHORT
from fairlead.theory.prediction import has_no_weights

_NAMED = 3
"""Clients named at either end."""
_MISPLACED = 0.01
"""Share of the weight below which nobody is said to gain or lose."""
_GRADE: dict[Exactness, str] = {
    "exact": "",
    "sampled": "",
    "large cohorts": ", for large cohorts",
    "long run": ", in the long run",
}


def optimised_objective(evidence: Evidence) -> Iterator[Finding]:
    """Findings on the weights of the present method, and on who gains, loses or is never heard."""
    if evidence.consistency.predicted is not None:
        yield _foreseen(evidence)
    yield measured_weights(evidence)
    who = _who(evidence)
    if who is not None:
        yield who
    if evidence.consistency.unheard:
        yield _unheard(evidence, evidence.consistency.unheard)


def _foreseen(evidence: Evidence) -> Finding:
    report = evidence.consistency
    theory, share, divergence = (
        report.predicted,
        report.predicted_total_variation,
        report.predicted_chi_square,
    )
    assert theory is not None
    if share is None or divergence is None:
        certain = evidence.algorithm is not None and has_no_weights(evidence.algorithm, evidence.weights)
        said = f"By theory: {theory.explanation}"
        return Finding("foreseen", said, {"misplaced_weight": None}, "high" if certain else "none")
    chance = chance_of_conditions(evidence)
    hedge = ""
    if _MISPLACED < share < 2 * chance:
        hedge = ", no more than the chance of the rounds looked at"
    return Finding(
        "foreseen",
        f"By theory: the present method gives {percent(share)} of the weight to other clients than asked "
        f"(chi-square {written(divergence)}){_GRADE[theory.exactness]}{hedge}.",
        {
            "misplaced_weight": share,
            "chi_square": divergence,
            "by_chance": chance,
            "rounds": max(evidence.work.rounds, evidence.links.rounds),
            "clients": evidence.num_clients,
        },
        "high"
        if report.restored
        else weakest(evidence.work.confidence, evidence.links.confidence, theory_confidence(evidence)),
    )


def theory_confidence(evidence: Evidence) -> Confidence:
    """How far theory's weights can be relied upon if work and links are as they seem."""
    theory = evidence.consistency.predicted
    if theory is None or theory.exactness != "large cohorts":
        return "high"
    arrived = sum(len(record.arrived) for record in evidence.records)
    return "high" if arrived >= LARGE_COHORT * evidence.rounds else "moderate"


def chance_of_conditions(evidence: Evidence) -> float:
    """Share of the weight that theory misplaces because work and links vary in the rounds looked at.

    ½ E|N(0, s²)| = s/√(2π),   s² the sum of both figures' squared coefficients of variation by chance
    """
    spread = math.hypot(evidence.work.chance, evidence.links.chance)
    return 0.0 if math.isnan(spread) else spread / math.sqrt(2 * math.pi)


def measured_weights(evidence: Evidence) -> Finding:
    """The weights that the rounds run really gave, next to what chance would do."""
    report, chance, rounds = evidence.consistency, evidence.chance, evidence.rounds
    share, divergence = report.total_variation, report.chi_square
    numbers: dict[str, Number] = {
        "misplaced_weight": share,
        "chi_square": divergence,
        "by_chance": chance,
        "rounds": rounds,
        "clients": evidence.num_clients,
    }
    if rounds < MIN_ROUNDS:
        said = f"Measured: {counted(rounds, 'round')} cannot tell the weights; {MIN_ROUNDS} are needed."
        return Finding("measured", said, numbers, "none")
    asked = sorted({client for record in evidence.records for client in record.asked})
    covered = float(evidence.weights[asked].sum())
    if covered < COVERED:
        said = (
            f"Measured: clients with {percent(covered)} of the weight were asked in {rounds} rounds, which are too "
            "few to tell the weights."
        )
        return Finding("measured", said, {**numbers, "weight_asked": covered}, "none")
    if report.restored:
        said = "Measured: every client was heard, and corrections restore the weights of those by design."
        return Finding("measured", said, numbers, "high")
    if share is None or divergence is None:
        return Finding("measured", "Measured: these rounds have no weights to measure.", numbers, "none")
    went = f"Measured: over {rounds} rounds {percent(share)} of the weight went to other clients than asked"
    if share < 2 * chance:
        said = f"{went}, which is no more than chance would do ({percent(chance)} on average)."
        return Finding("measured", said, numbers, "low")
    said = f"{went} (chi-square {written(divergence)}); chance alone would misplace {percent(chance)}."
    return Finding("measured", said, numbers, "moderate" if chance > 0 else "high")


def _who(evidence: Evidence) -> Finding | None:
    """The clients at either end of Ω/ω, by theory where there is one, else as measured."""
    report, weights = evidence.consistency, evidence.weights
    surrogate = report.predicted_weights
    foreseen = surrogate is not None
    if surrogate is None and evidence.rounds >= MIN_ROUNDS:
        surrogate = report.surrogate
    by_chance = chance_of_conditions(evidence) if foreseen else evidence.chance
    if surrogate is None or total_variation(weights, surrogate) < max(_MISPLACED, 2 * by_chance):
        return None
    clients = weights.nonzero().flatten()
    ratio = (surrogate / weights)[clients]
    order = ratio.argsort(stable=True)
    most = [int(place) for place in order.flip(0)[:_NAMED] if ratio[place] > 1]
    least = [int(place) for place in order[:_NAMED] if ratio[place] < 1]

    def told(places: list[int]) -> dict[str, Number]:
        return {evidence.label(int(clients[place])): float(ratio[place]) for place in places}

    gaining, losing = told(most), told(least)
    divergence = chi_square(weights, surrogate)
    source = "By theory" if foreseen else "As measured"
    return Finding(
        "clients",
        f"{source} (chi-square {written(divergence)}), who counts too much: {_times(gaining)}; who too little: "
        f"{_times(losing)}; in times their weight.",
        {
            "gain": gaining,
            "lose": losing,
            "gaining": int((ratio > 1).sum()),
            "losing": int((ratio < 1).sum()),
            "clients": len(clients),
            "chi_square": divergence,
        },
        _foreseen(evidence).confidence if foreseen else measured_weights(evidence).confidence,
    )


def _times(ratios: dict[str, Number]) -> str:
    return ", ".join(f"{name} ({ratio:.2f})" for name, ratio in ratios.items())


def _unheard(evidence: Evidence, unheard: tuple[int, ...]) -> Finding:
    share = float(evidence.weights[list(unheard)].sum())
    asked = {client for record in evidence.records for client in record.asked}
    never = sum(client not in asked for client in unheard)
    silent = f"; {never} of {len(unheard)} were never asked" if never else ""
    return Finding(
        "unheard",
        f"Unheard: nothing arrived in {counted(evidence.rounds, 'round')} from "
        f"{listed([*map(evidence.label, unheard)])}, who should have {percent(share)} of the weight{silent}.",
        {"clients": len(unheard), "never_asked": never, "weight": share, "rounds": evidence.rounds},
        "high",
    )
