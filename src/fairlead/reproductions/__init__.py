"""The gallery of published results: each by name, with the claim it tests and a verdict computed from its runs.

>>> from pathlib import Path
>>> from fairlead.reproductions.reproduction import Request
>>> outcome = reproduction_named("wang2021_figure_4").reproduce(Request(out=Path("runs")))
>>> outcome.verdict
'holds'
"""

from collections.abc import Iterator
from dataclasses import dataclass
from types import ModuleType

from fairlead.errors import require_name
from fairlead.reproductions import closed_form, wang2021, wang2024, weng2025, zeng2023, zeng2025
from fairlead.reproductions.reproduction import Reproduction, cited, gallery


def _found(module: ModuleType) -> Iterator[Reproduction]:
    """The reproductions that a module defines, alone or in tuples, in their order."""
    for value in vars(module).values():
        for each in value if isinstance(value, tuple) else (value,):
            if isinstance(each, Reproduction):
                yield each


_PAPERS = (wang2021, wang2024, zeng2023, zeng2025, weng2025, closed_form)
REPRODUCTIONS: dict[str, Reproduction] = {entry.name: entry for paper in _PAPERS for entry in _found(paper)}
"""By name, paper by paper."""


@dataclass(frozen=True)
class Omitted:
    """A published result that is not in the gallery."""

    reference: str
    where: str
    reason: str

    @property
    def paper(self) -> str:
        """The paper as text cites it."""
        return cited(self.reference)


OMITTED = tuple(Omitted(**each) for each in gallery()["omitted"])


def reproduction_named(name: str) -> Reproduction:
    """The reproduction of that name."""
    every = "`fairlead list reproductions` shows all."
    require_name(name, REPRODUCTIONS, "a reproduction", otherwise=every)
    return REPRODUCTIONS[name]
