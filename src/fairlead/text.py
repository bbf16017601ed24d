"""Clients and figures as sentences name them."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fairlead.errors import DataError

ClientNames = NDArray[np.str_]
"""(N,) names in one array of fixed width, so that a million clients are not a million objects."""

_BYTES_AT_MOST = 2**30
_SHOWN_AT_MOST = 28
"""Characters of a name shown to people."""
_HEAD = 17
"""Characters kept of a long name's beginning; the rest of those shown are its end, where ids differ."""


def names_from(values: NDArray[Any]) -> ClientNames:
    """Ids or names of any type as an array of names; whole numbers have no decimals, however stored."""
    if values.dtype.kind == "f":
        wide = values.astype(np.float64)
        values = (
            wide.astype(np.int64) if ((wide == np.floor(wide)) & (np.abs(wide) < 2**63)).all() else values
        )
    texts = values.tolist() if values.dtype.kind in "OS" else None
    if texts is not None:
        texts = [text.decode(errors="replace") if isinstance(text, bytes) else str(text) for text in texts]
        longest = max(map(len, texts), default=0)
    else:
        values = values.astype(np.str_)
        longest = int(np.char.str_len(values).max(initial=0))
    if 4 * longest * len(values) > _BYTES_AT_MOST:
        raise DataError(
            f"{len(values)} clients have names of up to {longest} characters, which take more than 1 GiB: name "
            "them by something shorter."
        )
    names = np.array(values if texts is None else texts, dtype=f"<U{max(longest, 1)}")
    # Half a pair of surrogates cannot be written to any file or terminal.
    codes = names.view(np.uint32)
    codes[(codes >= 0xD800) & (codes <= 0xDFFF)] = 0xFFFD
    return names


def given_names(names: Sequence[str] | None, num_clients: int) -> ClientNames | None:
    """Names given by the user, one distinct name per client."""
    if names is None:
        return None
    array = names_from(np.asarray(names, dtype=object))
    if array.shape != (num_clients,):
        raise DataError(f"names must be one for each of {num_clients} clients, got {len(array)}.")
    distinct, counts = np.unique(array, return_counts=True)
    if len(distinct) < num_clients:
        raise DataError(f"names must differ, got '{shown(str(distinct[counts > 1][0]))}' for two clients.")
    return array


def joined(parts: list[ClientNames]) -> ClientNames:
    """Names made of several, such as "Hamlet / GHOST"."""
    names = parts[0]
    for part in parts[1:]:
        names = np.char.add(np.char.add(names, " / "), part)
    return names


def shown(name: str) -> str:
    """A name in one short line: without its middle if it is long, without control characters."""
    printable = "".join(
        character if character.isprintable() else "\N{REPLACEMENT CHARACTER}" for character in name
    )
    if len(printable) <= _SHOWN_AT_MOST:
        return printable
    return printable[:_HEAD] + "…" + printable[_HEAD + 1 - _SHOWN_AT_MOST :]


def called(client: int, names: ClientNames | None) -> str:
    """A client in a sentence: 3, or 'Ulm' where it has a name."""
    return str(client) if names is None else f"'{shown(str(names[client]))}'"


def label(client: int, names: ClientNames | None) -> str:
    """A client with that word before it: client 3, or client 'Ulm'."""
    return f"client {called(client, names)}"


LEAST_DIVERGENCE = 1e-9
"""A smaller χ² is a rounding error of 0."""


def listed(clients: Sequence[object], most: int = 5) -> str:
    """`none`, `3`, `3 and 7`, or the first few, `most`, and how many more there are."""
    if not clients:
        return "none"
    if len(clients) == 1:
        return str(clients[0])
    if len(clients) <= most:
        return f"{', '.join(map(str, clients[:-1]))} and {clients[-1]}"
    return f"{', '.join(map(str, clients[:most]))} and {len(clients) - most} more"


def of_clients(clients: Sequence[object]) -> str:
    """`client 3`, or `clients 3 and 7`."""
    return f"{'client' if len(clients) == 1 else 'clients'} {listed(clients)}"


def counted(number: int, noun: str) -> str:
    """`1 round`, `20 rounds`."""
    return f"{number} {noun}{'' if number == 1 else 's'}"


def percent(share: float) -> str:
    """A share as a percentage, with a decimal only between 0.05 % and 10 %."""
    return f"{share:.0%}" if share < 0.0005 or share >= 0.1 else f"{share:.1%}"


def divergence(chi_square: float, digits: int = 2) -> str:
    """A χ², with rounding errors of 0 shown as 0."""
    return "0" if abs(chi_square) < LEAST_DIVERGENCE else f"{chi_square:.{digits}g}"
