"""What is unequal: findings on data, work and links."""

from __future__ import annotations

import math
from collections.abc import Iterator

import torch
from torch import Tensor

from fairlead.diagnostics.consistency import total_variation
from fairlead.diagnostics.diagnosis import Finding, Number
from fairlead.diagnostics.evidence import DataSkew, Evidence
from fairlead.diagnostics.spread import COVERED, Spread
from fairlead.diagnostics.wording import counted, percent


def unequal_things(evidence: Evidence) -> Iterator[Finding]:
    """Findings on data, where they are at hand, on work and on links."""
    if evidence.data is not None:
        yield from _data(evidence, evidence.data)
    yield _work(evidence)
    yield _links(evidence)


def _data(evidence: Evidence, data: DataSkew) -> Iterator[Finding]:
    sizes = data.sizes[evidence.weights > 0].to(torch.float64)
    cv = float(sizes.std(unbiased=False) / sizes.mean())
    least, most = int(sizes.min()), int(sizes.max())
    numbers: dict[str, Number] = {
        "coefficient_of_variation": cv,
        "least": least,
        "most": most,
        "examples": int(sizes.sum()),
        "clients": len(sizes),
    }
    held = counted(least, "example") if least == most else f"between {least} and {most} examples"
    yield Finding(
        "sizes",
        f"Data sizes: {counted(len(sizes), 'client')} with {held} each (coefficient of variation {cv:.2f}).",
        numbers,
        "high",
    )
    if data.label_counts is not None:
        skew, chance = label_skew(data.label_counts, evidence.weights)
        yield Finding(
            "labels",
            f"Labels: a client's mix differs from that of all by {percent(skew)} on average, where chance would "
            f"make it {percent(chance)}.",
            {"label_skew": skew, "by_chance": chance, "clients": len(sizes)},
            "high",
        )


def label_skew(counts: Tensor, weights: Tensor) -> tuple[float, float]:
    """Mean distance of the clients' label mixes from the common one, and what chance would make of it.

        skew = Σ ω_i ½ Σ_k |p_ik − p_k|,   p_k = Σ ω_i p_ik,   chance = Σ ω_i Σ_k √(p_k(1 − p_k)/(2πn_i))

    Symbols: p_ik the share of label k among the n_i examples of client i. Chance is the mean of the normal
    approximation for examples dealt at random.
    """
    kept = (weights > 0) & (counts.sum(1) > 0)
    held, omega = counts[kept].to(torch.float64), weights[kept] / weights[kept].sum()
    sizes = held.sum(1)
    mixes = held / sizes[:, None]
    common = omega @ mixes
    skew = omega @ (mixes - common).abs().sum(1) / 2
    chance = (omega @ sizes.rsqrt()) * (common * (1 - common) / (2 * math.pi)).sqrt().sum()
    return float(skew), float(chance)


def _work(evidence: Evidence) -> Finding:
    linear = evidence.algorithm is None or evidence.algorithm.solver.is_linear
    # Steps of a solver without ‖a‖₁ do not say how far a client pulls the mean.
    alone = misplaced_alone(evidence.work, evidence.weights) if linear else None
    unit = "effective local steps a round" if linear else "local steps a round"
    return Finding(
        "work",
        _spread_statement("Work", unit, evidence.work, alone),
        _spread_numbers(evidence.work, alone),
        evidence.work.confidence,
    )


def _links(evidence: Evidence) -> Finding:
    how = "of updates arrive, as the world tells" if evidence.rates_told else "of updates arrived"
    alone = misplaced_alone(evidence.links, evidence.weights)
    return Finding(
        "links",
        _spread_statement("Links", how, evidence.links, alone, share=True),
        _spread_numbers(evidence.links, alone),
        evidence.links.confidence,
    )


def misplaced_alone(spread: Spread, weights: Tensor) -> float | None:
    """½ Σ |ω_i − Ω_i| for Ω ∝ ωx: what plain averaging would misplace if nothing else were unequal."""
    known = ~spread.values.isnan()
    mass = torch.where(known, weights * spread.values, 0.0)
    if not bool(mass.sum() > 0):
        return None
    kept = torch.where(known, weights, 0.0)
    return total_variation(kept / kept.sum(), mass / mass.sum())


def _spread_statement(
    name: str, unit: str, spread: Spread, alone: float | None, *, share: bool = False
) -> str:
    over = f"over {counted(spread.rounds, 'round')}"
    if spread.verdict == "unknown":
        if int((~spread.values.isnan()).sum()) < 2:
            return f"{name}: not known; fewer than two clients were observed {over}."
        if math.isnan(spread.cv) or spread.covered < COVERED:
            return (
                f"{name}: not known {over}, in which clients with {percent(spread.covered)} of the weight were "
                "observed often enough."
            )
        return (
            f"{name}: not known; {over} the coefficient of variation is {spread.cv:.2f}, and one of "
            f"{spread.at_most:.2f} could hide behind chance."
        )
    low, high = spread.extremes
    ends = (percent(low), percent(high)) if share else (f"{low:.3g}", f"{high:.3g}")
    figures = ends[0] if ends[0] == ends[1] else f"{ends[0]} to {ends[1]}"
    if spread.verdict == "unequal":
        told = f"{name}: unequal, {figures} {unit} {over} (coefficient of variation {spread.cv:.2f})"
        if alone is None:
            return f"{told}."
        return f"{told}; plain averaging would misplace {percent(alone)} of the weight for this alone."
    allowed = "" if spread.chance == 0 else f", and no more than {spread.at_most:.2f} can hide behind chance"
    return f"{name}: equal, {figures} {unit} {over} (coefficient of variation {spread.cv:.2f}{allowed})."


def _spread_numbers(spread: Spread, alone: float | None) -> dict[str, Number]:
    known = not math.isnan(spread.cv)
    low, high = spread.extremes if known else (None, None)
    return {
        "coefficient_of_variation": spread.cv if known else None,
        "by_chance": spread.chance if known else None,
        "at_most": spread.at_most if known else None,
        "p_value": spread.p_value,
        "least": low,
        "most": high,
        "misplaced_alone": alone,
        "weight_observed": spread.covered,
        "rounds": spread.rounds,
        "clients": int((~spread.values.isnan()).sum()),
    }
