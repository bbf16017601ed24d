"""Which objective is optimized: findings on ω against Ω, predicted and measured."""

import math
from collections.abc import Iterator

from torch import Tensor

from fairlead.diagnostics.clients import COVERED, Confidence, weakest
from fairlead.diagnostics.consistency import chi_square, total_variation
from fairlead.diagnostics.diagnosis import Finding, Number
from fairlead.diagnostics.evidence import MIN_ROUNDS, Evidence
from fairlead.text import counted, listed, percent
from fairlead.text import divergence as written
from fairlead.theory.prediction import LARGE_COHORT, has_no_weights

_NAMED = 3
"""Clients named at each end."""
_MISPLACED = 0.01
"""Share of misplaced weight below which no client is named."""
_GRADE = {"large cohorts": ", for large cohorts", "long run": ", in the long run"}
"""Of theory's mean coefficients, where they are neither exact nor sampled."""


def optimized_objective(evidence: Evidence) -> Iterator[Finding]:
    """Findings on the weights of the present method, and on clients that gain, lose or never arrive."""
    if evidence.consistency.predicted is not None:
        yield _predicted(evidence)
    yield measured_weights(evidence)
    yield from _who(evidence)
    if evidence.consistency.unheard:
        yield _never_arrived(evidence, evidence.consistency.unheard)


def _predicted(evidence: Evidence) -> Finding:
    report = evidence.consistency
    theory, share = report.predicted, report.predicted_total_variation
    divergence = report.predicted_chi_square
    assert theory is not None
    if share is None or divergence is None:
        certain = evidence.algorithm is not None and has_no_weights(evidence.algorithm, evidence.weights)
        confidence: Confidence = "high" if certain else "none"
        return Finding("foreseen", f"Predicted: {theory.explanation}", {"misplaced_weight": None}, confidence)
    chance = chance_of_conditions(evidence)
    within = _MISPLACED < share < 2 * chance
    hedge = ", within the chance variation of the rounds considered" if within else ""
    grades = evidence.work.confidence, evidence.links.confidence, theory_confidence(evidence)
    return Finding(
        "foreseen",
        f"Predicted: the present method misplaces {percent(share)} of the weight (chi-square {written(divergence)})"
        f"{_GRADE.get(theory.exactness, '')}{hedge}.",
        {
            "misplaced_weight": share,
            "chi_square": divergence,
            "by_chance": chance,
            "rounds": max(evidence.work.rounds, evidence.links.rounds),
            "clients": evidence.num_clients,
        },
        "high" if report.restored else weakest(*grades),
    )


def theory_confidence(evidence: Evidence) -> Confidence:
    """Confidence in theory's weights, given the work and links."""
    theory = evidence.consistency.predicted
    if theory is None or theory.exactness != "large cohorts":
        return "high"
    return "high" if evidence.tally.arrived.sum() >= LARGE_COHORT * evidence.rounds else "moderate"


def chance_of_conditions(evidence: Evidence) -> float:
    """Share of the weight that theory misplaces because work and links vary in the rounds considered.

    ½ E|N(0, s²)| = s/√(2π),   s² the sum of both figures' squared coefficients of variation by chance
    """
    spread = math.hypot(evidence.work.chance, evidence.links.chance)
    return 0.0 if math.isnan(spread) else spread / math.sqrt(2 * math.pi)


def measured_weights(evidence: Evidence) -> Finding:
    """The weights measured in the rounds run, next to the effect of chance."""
    report, chance, rounds = evidence.consistency, evidence.chance, evidence.rounds
    share, divergence = report.total_variation, report.chi_square
    covered = float(evidence.weights[evidence.tally.asked > 0].sum())
    numbers: dict[str, Number] = {
        "misplaced_weight": share,
        "chi_square": divergence,
        "by_chance": chance,
        "rounds": rounds,
        "clients": evidence.num_clients,
    }
    confidence: Confidence = "none"
    if rounds < MIN_ROUNDS:
        told = f"{counted(rounds, 'round')} cannot show the weights; at least {MIN_ROUNDS} are needed."
    elif covered < COVERED:
        numbers["weight_asked"] = covered
        asked = f"clients with only {percent(covered)} of the weight were asked in {rounds} rounds"
        told = f"{asked}, which are too few to show the weights."
    elif report.restored:
        told = (
            "updates of every client arrived, and the method's corrections restore their weights by design."
        )
        confidence = "high"
    elif share is None or divergence is None:
        told = "these rounds have no weights to measure."
    else:
        went, by_chance = (
            f"over {rounds} rounds {percent(share)} of the weight was misplaced",
            percent(chance),
        )
        if share < 2 * chance:
            told, confidence = f"{went}, within the range of chance ({by_chance} on average).", "low"
        else:
            told = f"{went} (chi-square {written(divergence)}); chance alone would misplace {by_chance}."
            confidence = "moderate" if chance > 0 else "high"
    return Finding("measured", f"Measured: {told}", numbers, confidence)


def _who(evidence: Evidence) -> Iterator[Finding]:
    """The clients at both ends of Ω/ω, by theory if it has weights, else as measured."""
    report, weights = evidence.consistency, evidence.weights
    surrogate, source, by_chance = report.predicted_weights, "Predicted", chance_of_conditions(evidence)
    if surrogate is None and evidence.rounds >= MIN_ROUNDS:
        surrogate, source, by_chance = report.surrogate, "Measured", evidence.chance
    if surrogate is None or total_variation(weights, surrogate) < max(_MISPLACED, 2 * by_chance):
        return
    clients = weights.nonzero().flatten()
    ratio = (surrogate / weights)[clients]
    order = ratio.argsort(stable=True)

    def named(places: Tensor) -> dict[str, Number]:
        return {evidence.label(int(clients[place])): float(ratio[place]) for place in places}

    top, bottom = order.flip(0)[:_NAMED], order[:_NAMED]
    gaining, losing = named(top[ratio[top] > 1]), named(bottom[ratio[bottom] < 1])
    divergence = chi_square(weights, surrogate)
    yield Finding(
        "clients",
        f"{source} (chi-square {written(divergence)}): over-weighted: {_times(gaining)}; under-weighted: "
        f"{_times(losing)}.",
        {
            "gain": gaining,
            "lose": losing,
            "gaining": int((ratio > 1).sum()),
            "losing": int((ratio < 1).sum()),
            "clients": len(clients),
            "chi_square": divergence,
        },
        (_predicted if source == "Predicted" else measured_weights)(evidence).confidence,
    )


def _times(ratios: dict[str, Number]) -> str:
    """Each client with its factor, to two digits or as many as tell it from 1; rounding errors are left out."""
    texts = {
        name: next((text for digits in range(2, 8) if (text := f"{ratio:.{digits}g}") != "1"), "")
        for name, ratio in ratios.items()
    }
    return ", ".join(f"{name} ({text}×)" for name, text in texts.items() if text) or "none"


def _never_arrived(evidence: Evidence, clients: tuple[int, ...]) -> Finding:
    share = float(evidence.weights[list(clients)].sum())
    never = int((evidence.tally.asked[list(clients)] == 0).sum())
    silent = f"; {never} of {len(clients)} were never asked" if never else ""
    return Finding(
        "unheard",
        f"Absent: no update arrived in {counted(evidence.rounds, 'round')} from "
        f"{listed([*map(evidence.label, clients)])}, with {percent(share)} of the objective's weight{silent}.",
        {"clients": len(clients), "never_asked": never, "weight": share, "rounds": evidence.rounds},
        "high",
    )
