"""Whether clients agree: findings on drift and on the diversity of updates."""

from __future__ import annotations

import math
from collections.abc import Iterator

from fairlead.diagnostics.consensus import ConsensusReport
from fairlead.diagnostics.diagnosis import Finding
from fairlead.diagnostics.diversity import consensus_dynamics
from fairlead.diagnostics.evidence import Evidence
from fairlead.diagnostics.rules import Drifting
from fairlead.diagnostics.spread import Confidence
from fairlead.diagnostics.wording import counted


def agreement(evidence: Evidence) -> Iterator[Finding]:
    """Findings on the consensus test, or why there is none, on the updates, and on full gradients if there are."""
    yield _consensus(evidence)
    yield from _diversity(evidence)
    yield from _dynamics(evidence)
    yield from _gradients(evidence)


def drift_of(evidence: Evidence) -> Drifting:
    """Whether the clients' local steps fail to cancel, as far as it is known."""
    if evidence.most_steps == 1:
        return "no"
    if evidence.consensus is None or evidence.consensus.verdict == "not enough data to say":
        return "unknown"
    return "yes" if evidence.consensus.verdict == "drift matters" else "no"


def drift_confidence(evidence: Evidence) -> Confidence:
    """How far the answer of `drift_of` can be relied upon."""
    if evidence.most_steps == 1:
        return "high"
    if drift_of(evidence) == "unknown":
        return "none"
    return "low" if evidence.fits_all else "moderate"


def _consensus(evidence: Evidence) -> Finding:
    if evidence.most_steps == 1:
        said = "Consensus: every update is a single local step, and a single step cannot drift."
        if evidence.data is None:
            said += f" The data were not looked at, since {evidence.no_consensus}."
        return Finding("consensus", said, {"steps": 1, "rounds": evidence.rounds}, "high")
    report = evidence.consensus
    if report is None:
        said = f"Consensus: not tested, since {evidence.no_consensus}."
        return Finding("consensus", said, {"clients": 0}, "none")
    tested = [drift for drift in report.drifts if drift.steps > 1] or list(report.drifts)
    worst = max(tested, key=lambda drift: drift.low)
    vacuous = " The model fits all data there, which says little of the way." if evidence.fits_all else ""
    return Finding(
        "consensus",
        f"Consensus over {report.num_clients} clients: {_verdict(evidence, report)}: {report.reason}{vacuous}",
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
    """The verdict; where work or links may be unequal as well, it speaks of drift alone."""
    alone = evidence.work.verdict == evidence.links.verdict == "equal"
    if report.verdict == "FedAvg is enough here" and not alone:
        return "drift of local steps does no harm here"
    return report.verdict


def _diversity(evidence: Evidence) -> Iterator[Finding]:
    eluds = [
        record.elud for record in evidence.records if record.elud is not None and math.isfinite(record.elud)
    ]
    if not eluds:
        return
    mean = sum(eluds) / len(eluds)
    cosine = _mean_cosine(evidence)
    beside = "" if cosine is None else f", and two clients' updates have a cosine of {cosine:.2f} on average"
    yield Finding(
        "diversity",
        f"Diversity: e-LUD is {mean:.3g} on average over {counted(len(eluds), 'round')} (1 where all updates "
        f"agree){beside}.",
        {"elud": mean, "mean_cosine": cosine, "rounds": len(eluds), "clients": evidence.num_clients},
        "low",
    )


def _dynamics(evidence: Evidence) -> Iterator[Finding]:
    """Client consensus dynamics, and how far updates lie from their mean, where the rounds tell it."""
    told = [r for r in evidence.records if r.consensus is not None and r.client_lr and r.num_steps]
    distances = [
        record.drift_norm / record.update_norm
        for record in told
        if record.update_norm and record.drift_norm is not None
    ]
    if not distances:
        return
    found = consensus_dynamics(told)
    rho, apart = sum(found.rho) / len(told), sum(distances) / len(distances)
    yield Finding(
        "dynamics",
        f"Consensus dynamics: updates lie {apart:.2f} of their length from the mean of their round; ρ, the squared "
        f"length of the weighted mean, is {rho:.3g} on average over {counted(len(told), 'round')} "
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
    """The latest figures of full gradients, where the run was asked for them."""
    told = [
        (record.round + 1, record.gradients) for record in evidence.records if record.gradients is not None
    ]
    if not told:
        return
    done, found = told[-1]
    length, ratio = found.surrogate_norm, found.surrogate_diversity
    known = length is not None and ratio is not None
    beside = f"; under the weights of that round's step {length:.3g} and {ratio:.3g}" if known else ""
    yield Finding(
        "gradients",
        f"Full gradients after {counted(done, 'round')}: the objective's has length {found.norm:.3g}, and the clients' "
        f"diversity is {found.diversity:.3g} (1 where all agree){beside}.",
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


def _mean_cosine(evidence: Evidence) -> float | None:
    """Σ coherence over Σ pairs of all rounds that tell it."""
    told = [
        (record.coherence, len(record.arrived) * (len(record.arrived) - 1) / 2)
        for record in evidence.records
        if record.coherence is not None and math.isfinite(record.coherence)
    ]
    pairs = sum(number for _, number in told)
    return sum(coherence for coherence, _ in told) / pairs if pairs else None
