"""What clients say of themselves decides how much they count, and must not decide over those who lie."""

from __future__ import annotations

from fairlead.aggregators import Aggregator
from fairlead.errors import ClashError


def refuse_reported_weights(aggregator: Aggregator, weights: str | tuple[float, ...] | None) -> None:
    """Raise if one client could outweigh all others under an aggregator that is to withstand a minority."""
    if aggregator.robust and weights in (None, "examples"):
        raise ClashError(
            f"{type(aggregator).__name__} withstands clients with a minority of the weight, and on Flower each says "
            "itself how many examples it has, so that one could claim most of it: write weights = 'uniform'."
        )
