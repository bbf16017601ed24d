"""Findings of a diagnosis on inequality (data, work, links) and on agreement between clients."""

import math
from collections.abc import Iterator, Sequence
from typing import Literal

import torch
from torch import Tensor

from fairlead.diagnostics.clients import COVERED, ClientOverview, Confidence, Inequality
from fairlead.diagnostics.consensus import ConsensusReport
from fairlead.diagnostics.consistency import total_variation
from fairlead.diagnostics.diagnosis import Finding, Number
from fairlead.diagnostics.diversity import consensus_dynamics
from fairlead.diagnostics.evidence import Drifting, Evidence, Similarity
from fairlead.records import RoundRecord
from fairlead.text import counted, percent

_ALIKE = 0.5
"""Share of the variance of gradients that may be hidden by chance where clients are called alike."""
_NAMED = 3
"""Clients named."""


def mean_aware_weights(records: Sequence[RoundRecord], num_clients: int) -> Tensor | None:
    """The mean over rounds of each client's share in AWARE's direction, (N,) with sum 1; None without such a round.

    The share is λ_i, and λ_i/‖m_i‖ scaled to sum 1 where rows are scaled to length 1 (`FedAWARE.rows`).
    """
    told = _rounds_of(records)
    total = torch.zeros(num_clients, dtype=torch.float64)
    for record in told:
        shares = torch.tensor(list(record.remembered.values()), dtype=torch.float64)
        total[list(record.remembered)] += shares / shares.sum()
    return total / len(told) if told else None


def aware_weights(evidence: Evidence) -> Iterator[Finding]:
    """The clients with most of AWARE's weight, the number of clients that a step uses, and the duality gap."""
    told = _rounds_of(evidence.records)
    shares = mean_aware_weights(told, evidence.num_clients)
    if shares is None:
        return
    order = shares.argsort(descending=True, stable=True)[:_NAMED]
    leading: dict[str, Number] = {
        evidence.label(client): float(shares[client]) for client in order.tolist() if shares[client] > 0
    }
    # Not the fact of that name, which counts clusters if the memory has them.
    support = sum(len(record.remembered) for record in told) / len(told)
    gap = max(record.facts["aware_gap"] for record in told)
    whom = ", ".join(f"{name} ({percent(share or 0.0)})" for name, share in leading.items())
    yield Finding(
        "aware",
        f"AWARE's weights: over {counted(len(told), 'round')} a step uses {support:.3g} of "
        f"{counted(evidence.num_clients, 'client')} on average, mostly {whom}; the duality gap is at most {gap:.2g}.",
        {
            "share": leading,
            "support": support,
            "duality_gap": gap,
            "rounds": len(told),
            "clients": evidence.num_clients,
        },
        "low",
    )


def _rounds_of(records: Sequence[RoundRecord]) -> list[RoundRecord]:
    """Rounds in which AWARE has a direction."""
    return [r for r in records if sum(r.remembered.values()) > 0 and "aware_gap" in r.facts]


def agreement(evidence: Evidence) -> Iterator[Finding]:
    """Findings on the consensus test, or the reason for its absence, on the updates, and on full gradients."""
    yield from _dissimilarity(evidence)
    yield _consensus(evidence)
    yield from _diversity(evidence)
    yield from _dynamics(evidence)
    yield from _gradients(evidence)
    yield from _personal(evidence)


def similarity_of(evidence: Evidence) -> Similarity:
    """Whether the clients' gradients differ, as far as known."""
    found = evidence.dissimilarity
    if isinstance(found, str):
        return "unknown"
    if found.between > found.margin:
        return "different"
    return "alike" if found.at_most <= _ALIKE else "unknown"


def _dissimilarity(evidence: Evidence) -> Iterator[Finding]:
    found = evidence.dissimilarity
    if isinstance(found, str):
        yield Finding("dissimilarity", f"Gradients: not tested, because {found}.", {}, "none")
        return
    words = {
        "different": f"differ beyond chance, by {percent(found.share)} of their variance",
        "alike": f"do not differ beyond chance; it could hide at most {percent(found.at_most)} of their variance",
        "unknown": "may or may not differ beyond chance: the clients or their examples are too few to tell",
    }
    yield Finding(
        "dissimilarity",
        f"Gradients at the present model: clients {words[similarity_of(evidence)]}.",
        {"share": found.share, "at_most": found.at_most, "between": found.between, "noise": found.noise},
        "high" if similarity_of(evidence) != "unknown" else "low",
    )


def drift_of(evidence: Evidence) -> Drifting:
    """Whether the clients' local steps fail to cancel, as far as known."""
    if evidence.most_steps == 1:
        return "no"
    if evidence.consensus is None or evidence.consensus.verdict == "not enough data to say":
        return "unknown"
    return "yes" if evidence.consensus.verdict == "drift matters" else "no"


def drift_confidence(evidence: Evidence) -> Confidence:
    """Confidence in the answer of `drift_of`."""
    if evidence.most_steps == 1:
        return "high"
    if drift_of(evidence) == "unknown":
        return "none"
    return "low" if evidence.fits_all else "moderate"


def _consensus(evidence: Evidence) -> Finding:
    if evidence.most_steps == 1:
        said = "Consensus: every update is a single local step, and a single step cannot drift."
        if evidence.data is None:
            said += f" The data were not examined, because {evidence.no_consensus}."
        return Finding("consensus", said, {"steps": 1, "rounds": evidence.rounds}, "high")
    report = evidence.consensus
    if report is None:
        said = f"Consensus: not tested, because {evidence.no_consensus}."
        return Finding("consensus", said, {"clients": 0}, "none")
    worst = max(report.drifts, key=lambda drift: (drift.steps > 1, drift.low))
    said = f"Consensus over {report.num_clients} clients: {_verdict(evidence, report)}: {report.reason}"
    if evidence.fits_all:
        said += " The model fits all data at that point, so the test says little about training."
    return Finding(
        "consensus",
        said,
        {
            "share": None if math.isnan(worst.share) else worst.share,
            "low": worst.low,
            "high": worst.high,
            "steps": worst.steps,
            "average_drift": worst.average,
            "bound": worst.bound,
            "gradient_norm": report.gradient_norm,
            "dissimilarity": report.dissimilarity,
            "confidence_level": report.confidence,
            "clients": report.num_clients,
        },
        drift_confidence(evidence),
    )


def _verdict(evidence: Evidence, report: ConsensusReport) -> str:
    """The verdict; if work or links may be unequal too, it covers only drift."""
    alone = evidence.work.verdict == evidence.links.verdict == "equal"
    if report.verdict == "FedAvg is enough here" and not alone:
        return "drift of local steps is harmless here"
    return report.verdict


def _diversity(evidence: Evidence) -> Iterator[Finding]:
    eluds = [r.elud for r in evidence.records if r.elud is not None and math.isfinite(r.elud)]
    if not eluds:
        return
    mean = sum(eluds) / len(eluds)
    cosine = _mean_cosine(evidence)
    beside = "" if cosine is None else f"; the mean cosine between two clients' updates is {cosine:.2f}"
    yield Finding(
        "diversity",
        f"Diversity: e-LUD is {mean:.3g} on average over {counted(len(eluds), 'round')} (1 if all updates "
        f"agree){beside}.",
        {"elud": mean, "mean_cosine": cosine, "rounds": len(eluds), "clients": evidence.num_clients},
        "low",
    )


def _dynamics(evidence: Evidence) -> Iterator[Finding]:
    """Client consensus dynamics, and the distance of updates from their mean, if recorded."""
    told = [r for r in evidence.records if r.consensus is not None and r.client_lr and r.num_steps]
    distances = [r.drift_norm / r.update_norm for r in told if r.update_norm and r.drift_norm is not None]
    if not distances:
        return
    found = consensus_dynamics(told)
    rho, apart = sum(found.rho) / len(told), sum(distances) / len(distances)
    yield Finding(
        "dynamics",
        f"Consensus dynamics: an update's distance from the mean of its round is {apart:.2f} of its length; ρ, the "
        f"squared length of the weighted mean, is {rho:.3g} on average over {counted(len(told), 'round')} "
        f"(Ψ = {found.psi:.3g}).",
        {
            "distance_from_mean": apart,
            "rho": rho,
            "psi": found.psi,
            "psi_applied": found.psi_applied,
            "rounds": len(told),
            "clients": evidence.num_clients,
        },
        "low",
    )


def _gradients(evidence: Evidence) -> Iterator[Finding]:
    """The latest figures of full gradients, if the run computed them."""
    computed = [(record.round + 1, record.gradients) for record in evidence.records if record.gradients]
    if not computed:
        return
    done, found = computed[-1]
    length, ratio = found.surrogate_norm, found.surrogate_diversity
    known = length is not None and ratio is not None
    beside = f"; under the weights of that round's step {length:.3g} and {ratio:.3g}" if known else ""
    yield Finding(
        "gradients",
        f"Full gradients after {counted(done, 'round')}: the objective's gradient has length {found.norm:.3g}, and the "
        f"clients' diversity is {found.diversity:.3g} (1 if all agree){beside}.",
        {
            "gradient_norm": found.norm,
            "gradient_diversity": found.diversity,
            "surrogate_gradient_norm": found.surrogate_norm,
            "surrogate_gradient_diversity": found.surrogate_diversity,
            "rounds": done,
            "clients": evidence.num_clients,
        },
        "high",
    )


def _personal(evidence: Evidence) -> Iterator[Finding]:
    """Whether one model for all is enough, or that clients must hold out examples to tell."""
    gain, data, method = evidence.personal, evidence.data, evidence.algorithm
    if gain is None:
        if data and data.num_test and data.test_sizes is None and method and not method.solver.is_personal:
            cure = "Set clients.holdout = 0.2 to measure whether one model for all is enough."
            why = "Personal gain: unknown, because clients hold out no examples."
            yield Finding("personal", f"{why} {cure}", {}, "none")
        return
    low, high = gain.mean - gain.margin, gain.mean + gain.margin
    said = {
        "not enough": "one model for all is not enough; compare with fedavg_finetuned, fedper and ditto",
        "enough": "one model for all is enough",
        "unknown": "that may be noise, so it is open whether one model for all is enough",
    }
    yield Finding(
        "personal",
        f"Personal gain: on held-out examples of {len(gain.gains)} clients, the {gain.metric} of their own models "
        f"differs from that of the mean model by {gain.mean:+.3f} ({low:+.3f} to {high:+.3f}; above 0 is better): "
        f"{said[gain.verdict]}.",
        {
            "gain": gain.mean,
            "low": low,
            "high": high,
            "worst": float(gain.gains.min()),
            "best": float(gain.gains.max()),
            "share_gaining": float((gain.gains > 0).double().mean()),
            "clients": len(gain.gains),
        },
        "low" if gain.verdict == "unknown" else "moderate",
    )


def _mean_cosine(evidence: Evidence) -> float | None:
    """Σ coherence over Σ pairs of all rounds that record it."""
    told = [r for r in evidence.records if r.coherence is not None and math.isfinite(r.coherence)]
    pairs = sum(math.comb(len(record.arrived), 2) for record in told)
    return sum(record.coherence or 0.0 for record in told) / pairs if pairs else None


def unequal_things(evidence: Evidence) -> Iterator[Finding]:
    """Findings on data, if available, on work and on links."""
    if evidence.data is not None:
        yield from _data(evidence, evidence.data)
    linear = evidence.algorithm is None or evidence.algorithm.solver.is_linear
    unit = f"{'effective ' if linear else ''}local steps per round"
    # Without ‖a‖₁, steps do not measure how strongly a client pulls the mean.
    yield _inequality("work", unit, evidence.work, evidence.weights if linear else None)
    how = "of updates expected to arrive" if evidence.rates_told else "of updates arrived"
    yield _inequality("links", how, evidence.links, evidence.weights, share=True)


def _data(evidence: Evidence, data: ClientOverview) -> Iterator[Finding]:
    sizes = data.sizes[evidence.weights > 0].to(torch.float64)
    cv = float(sizes.std(unbiased=False) / sizes.mean())
    least, most = int(sizes.min()), int(sizes.max())
    extent: dict[str, Number] = {"coefficient_of_variation": cv, "least": least, "most": most}
    held = counted(least, "example") if least == most else f"{least} to {most} examples"
    yield Finding(
        "sizes",
        f"Data sizes: {counted(len(sizes), 'client')} with {held} each (coefficient of variation {cv:.2f}).",
        extent | {"examples": int(sizes.sum()), "clients": len(sizes)},
        "high",
    )
    if data.label_counts is not None:
        skew, chance = label_skew(data.label_counts, evidence.weights)
        yield Finding(
            "labels",
            f"Labels: a client's label mix differs from the overall mix by {percent(skew)} on average; random "
            f"assignment would give {percent(chance)}.",
            {"label_skew": skew, "by_chance": chance, "clients": len(sizes)},
            "high",
        )


def label_skew(counts: Tensor, weights: Tensor) -> tuple[float, float]:
    """Mean distance of the clients' label mixes from the overall mix, and its value by chance.

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


def misplaced_alone(spread: Inequality, weights: Tensor) -> float | None:
    """½ Σ |ω_i − Ω_i| for Ω ∝ ωx: the weight that plain averaging misplaces if nothing else is unequal."""
    known = ~spread.values.isnan()
    mass = torch.where(known, weights * spread.values, 0.0)
    if not bool(mass.sum() > 0):
        return None
    kept = torch.where(known, weights, 0.0)
    return total_variation(kept / kept.sum(), mass / mass.sum())


def _inequality(
    kind: Literal["work", "links"],
    unit: str,
    found: Inequality,
    weights: Tensor | None,
    *,
    share: bool = False,
) -> Finding:
    known, observed = not math.isnan(found.cv), int((~found.values.isnan()).sum())
    alone = None if weights is None else misplaced_alone(found, weights)
    low, high = found.extremes if known else (None, None)
    return Finding(
        kind,
        f"{kind.capitalize()}: {_statement(unit, found, observed, alone, share=share)}.",
        {
            "coefficient_of_variation": found.cv if known else None,
            "by_chance": found.chance if known else None,
            "at_most": found.at_most if known else None,
            "p_value": found.p_value,
            "least": low,
            "most": high,
            "misplaced_alone": alone,
            "weight_observed": found.covered,
            "rounds": found.rounds,
            "clients": observed,
        },
        found.confidence,
    )


def _statement(unit: str, found: Inequality, observed: int, alone: float | None, *, share: bool) -> str:
    over = f"over {counted(found.rounds, 'round')}"
    if observed < 2:
        return f"unknown; fewer than two clients were observed {over}"
    if math.isnan(found.cv) or found.covered < COVERED:
        share_seen = percent(found.covered)
        return f"unknown; {over} only clients with {share_seen} of the weight were observed often enough"
    variation = f"coefficient of variation {found.cv:.2f}"
    if found.verdict == "unknown":
        return (
            f"unknown; {over} the coefficient of variation is {found.cv:.2f}, and chance could hide one of up to "
            f"{found.at_most:.2f}"
        )
    ends = [percent(end) if share else f"{end:.3g}" for end in found.extremes]
    figures = f"{found.verdict}, {' to '.join(dict.fromkeys(ends))} {unit} {over}"
    if found.verdict == "unequal":
        told = f"{figures} ({variation})"
        if alone is None:
            return told
        return f"{told}; plain averaging would misplace {percent(alone)} of the weight because of this alone"
    allowed = "" if found.chance == 0 else f"; chance could hide at most {found.at_most:.2f}"
    return f"{figures} ({variation}{allowed})"
