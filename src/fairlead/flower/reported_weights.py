"""What clients say of themselves decides how much they count, and must not decide over those who lie."""

from __future__ import annotations

from fairlead.aggregators import Aggregator
from fairlead.aggregators.base import refuse_claimed_weights
from fairlead.worlds.objective_weights import Weights


def are_self_reported(weights: Weights | None) -> bool:
    """Whether ω follows the sizes that clients report, which it does unless a spec says otherwise."""
    return weights is None or (isinstance(weights, str) and weights == "examples")


def refuse_reported_weights(aggregator: Aggregator, weights: Weights | None) -> None:
    """Refuse before any client is waited for what the first round would refuse."""
    if are_self_reported(weights):
        refuse_claimed_weights(aggregator)
