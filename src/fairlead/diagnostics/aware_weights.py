"""Whom AWARE follows: its weights λ over a run, whether it aggregates or projects another method's step."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import torch
from torch import Tensor

from fairlead.diagnostics.diagnosis import Finding, Number
from fairlead.diagnostics.evidence import Evidence
from fairlead.diagnostics.wording import counted, percent
from fairlead.records import RoundRecord

_NAMED = 3
"""Clients named."""


def mean_aware_weights(records: Sequence[RoundRecord], num_clients: int) -> Tensor | None:
    """The mean over rounds of each client's share in AWARE's direction, (N,) with sum 1; None without such a round.

    The share is λ_i, and λ_i/‖m_i‖ scaled to sum 1 where rows are scaled to length 1 (`FedAWARE.rows`).
    """
    told = _rounds_of(records)
    if not told:
        return None
    total = torch.zeros(num_clients, dtype=torch.float64)
    for record in told:
        shares = torch.tensor(list(record.remembered.values()), dtype=torch.float64)
        total[torch.tensor(list(record.remembered), dtype=torch.int64)] += shares / shares.sum()
    return total / len(told)


def aware_weights(evidence: Evidence) -> Iterator[Finding]:
    """Who has most of AWARE's weight, on how many clients a round rests, and how exact its solution is."""
    told = _rounds_of(evidence.records)
    shares = mean_aware_weights(told, evidence.num_clients)
    if shares is None:
        return
    order = shares.argsort(descending=True, stable=True)[:_NAMED]
    leading: dict[str, Number] = {
        evidence.label(client): float(shares[client]) for client in order.tolist() if shares[client] > 0
    }
    # Not the fact of that name, which counts clusters where the memory has some.
    support = sum(len(record.remembered) for record in told) / len(told)
    gap = max(record.facts["aware_gap"] for record in told)
    whom = ", ".join(f"{name} ({percent(share or 0.0)})" for name, share in leading.items())
    yield Finding(
        "aware",
        f"AWARE's weights: over {counted(len(told), 'round')} a step rests on {support:.3g} of "
        f"{counted(evidence.num_clients, 'client')} on average, most of it on {whom}; the duality gap is at most "
        f"{gap:.2g}.",
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
