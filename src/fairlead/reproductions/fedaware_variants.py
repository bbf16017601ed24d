"""FedAWARE as Zeng 2023 and Zeng 2025 print it, and as released."""

from __future__ import annotations

from dataclasses import replace

from fairlead.reproductions.trained import Entrant

PRINTED = {"alpha": 0.5}
"""Arguments of `fedaware` and `with_aware`."""
_RELEASED = {"start": "all_seen", "rows": "unit", "first_visit": "scaled"}
DIFFERENCE = (
    "The released FedAWARE scales every row to unit length, takes FedAvg's step until all clients were heard, and α "
    'of their first updates: so do methods "with unit rows", which are judged as released. It also hears all of them '
    "in the first ten rounds, and credits most updates, and the weights of FedAvg's steps, to another client of the "
    "same round; here clients are drawn at random, and updates are their own."
)


def released_row(name: str) -> str:
    """What the released variant of a method is called."""
    return f"{name} with unit rows"


def released(entrant: Entrant) -> Entrant:
    """The released variant of a method with AWARE, be it the aggregator or the projection."""
    if entrant.aware is not None:
        return replace(entrant, aware={**entrant.aware, **_RELEASED})
    return replace(entrant, arguments={**entrant.arguments, **_RELEASED})
