"""Clients and figures as sentences name them."""

from __future__ import annotations

from collections.abc import Sequence

LEAST_DIVERGENCE = 1e-9
"""A χ² below is what rounding leaves of 0."""
_NAMED = 5
"""Clients that a sentence names one by one, at most."""


def listed(clients: Sequence[object]) -> str:
    """`none`, `3`, `3 and 7`, or the first few and how many more there are."""
    if not clients:
        return "none"
    if len(clients) == 1:
        return str(clients[0])
    if len(clients) <= _NAMED:
        return f"{', '.join(map(str, clients[:-1]))} and {clients[-1]}"
    return f"{', '.join(map(str, clients[:_NAMED]))} and {len(clients) - _NAMED} more"


def of_clients(clients: Sequence[object]) -> str:
    """`client 3`, or `clients 3 and 7`."""
    return f"{'client' if len(clients) == 1 else 'clients'} {listed(clients)}"


def counted(number: int, noun: str) -> str:
    """`1 round`, `20 rounds`."""
    return f"{number} {noun}{'' if number == 1 else 's'}"


def percent(share: float) -> str:
    """A share of a whole, with a digit after the point only where it says something."""
    return f"{share:.0%}" if share < 0.0005 or share >= 0.1 else f"{share:.1%}"


def divergence(chi_square: float, digits: int = 2) -> str:
    """A χ², in which what rounding leaves of 0 is 0."""
    return "0" if abs(chi_square) < LEAST_DIVERGENCE else f"{chi_square:.{digits}g}"
