"""Every part that the library has keeps the contract of its role; new ones are found by themselves."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from part_examples import examples

import fairlead as fl
from fairlead import presets
from fairlead.component import Component, parts_of
from fairlead.references import REFERENCES
from fairlead.testing import CHECKS, check_part, check_preset

CHECKED_FOLDERS = (
    *("samplers", "optimizers", "corrections", "aggregators", "transforms"),
    *("conditions", "clients.partitioners"),
)
"""Where parts live that can be checked alone; models, data sources and tasks need each other."""


def library_parts(role: type[Component]) -> list[type[Component]]:
    """Final parts of a role, those that tests define left out."""
    return [cls for cls in parts_of(role).values() if cls.__module__.startswith("fairlead.")]


PARTS = [cls for role in CHECKS if role is not fl.Algorithm for cls in library_parts(role)]


def traced(header: str, column: str) -> Callable[[Path], Path]:
    """Writes a trace of seven clients over two rounds."""

    def write(folder: Path) -> Path:
        lines = [header]
        for round in range(2):
            for client in range(7):
                value = (client + round) % 2 if column == "arrives" else client + round + 1
                lines.append(f"{round},{client},{value}")
        path = folder / "trace.csv"
        path.write_text("\n".join(lines) + "\n")
        return path

    return write


FROM_FILES: dict[str, Callable[[Path], Path]] = {
    "TraceLink": traced("round,client,arrives", "arrives"),
    "TraceWork": traced("round,client,steps", "steps"),
}
"""Parts that read a file, and who writes one for them."""


def instances(cls: Any, folder: Path) -> tuple[Component, ...]:
    if cls.__name__ in FROM_FILES:
        return (cls(path=str(FROM_FILES[cls.__name__](folder))),)
    found: tuple[Component, ...] = examples(cls)
    return found


@pytest.mark.parametrize("cls", PARTS, ids=lambda cls: cls.__name__)
def test_every_part_keeps_its_contract(cls: type[Component], tmp_path: Path) -> None:
    """If this fails for lack of an example, `part_examples.examples` says what to do."""
    for part in instances(cls, tmp_path):
        check_part(part)


@pytest.mark.parametrize("name", presets.METHODS)
def test_every_preset_keeps_its_contract(name: str) -> None:
    check_preset(presets.METHODS[name].build)


def test_every_part_of_these_folders_has_a_check() -> None:
    """A part outside all roles would be tested by nothing here."""
    folders = tuple(f"fairlead.{folder}." for folder in CHECKED_FOLDERS)
    parts = [cls for cls in library_parts(Component) if cls.__module__.startswith(folders)]
    assert len(parts) >= 40
    assert [cls.__name__ for cls in parts if not issubclass(cls, tuple(CHECKS))] == []


def test_every_role_has_parts() -> None:
    assert all(library_parts(role) for role in CHECKS)


@pytest.mark.parametrize("cls", PARTS, ids=lambda cls: cls.__name__)
def test_every_part_is_documented_and_names_known_papers(cls: type[Component]) -> None:
    assert (cls.__doc__ or "").strip()
    assert not (cls.__doc__ or "").startswith(f"{cls.__name__}("), "a docstring, not the dataclass's default"
    assert set(cls.references) <= set(REFERENCES)


@pytest.mark.parametrize("cls", PARTS, ids=lambda cls: cls.__name__)
def test_every_part_is_found_at_the_top(cls: type[Component]) -> None:
    """`fairlead.X` is where users look first."""
    assert getattr(fl, cls.__name__) is cls


def test_every_method_names_known_papers() -> None:
    for name, method in presets.METHODS.items():
        assert method.references, name
        assert set(method.references) <= set(REFERENCES)
