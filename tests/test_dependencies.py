"""Every dependency that CI installs is pinned, to a version that the package allows."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parents[1]


def pins() -> dict[str, str]:
    """Versions in the constraints file by name."""
    found: dict[str, str] = {}
    for line in (ROOT / "constraints.txt").read_text().splitlines():
        if line and not line.startswith("#"):
            match = re.fullmatch(r"([A-Za-z0-9._-]+)==([0-9][A-Za-z0-9.+]*)", line)
            assert match, f"{line!r} is not a pin"
            name = canonicalize_name(match[1])
            assert name not in found, f"{name} is pinned twice"
            found[name] = match[2]
    return found


def wanted(extra: str | None = None) -> list[Requirement]:
    """What the core or an extra needs, extras of fairlead itself followed."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    listed = project["dependencies"] if extra is None else project["optional-dependencies"][extra]
    found = []
    for requirement in map(Requirement, listed):
        if requirement.name == "fairlead":
            found += [inner for name in requirement.extras for inner in wanted(name)]
        else:
            found.append(requirement)
    return found


def test_core_and_test_dependencies_are_pinned() -> None:
    pinned = pins()
    for requirement in (*wanted(), *wanted("test")):
        name = canonicalize_name(requirement.name)
        assert name in pinned, f"{name} has no pin in constraints.txt"
        assert requirement.specifier.contains(pinned[name]), (
            f"{name}=={pinned[name]} is not {requirement.specifier}"
        )


def test_every_dependency_has_an_upper_bound() -> None:
    """Of the core and of every extra: the next major version may break what we use."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    for requirement in (
        *wanted(),
        *(each for extra in project["optional-dependencies"] for each in wanted(extra)),
    ):
        operators = {specifier.operator for specifier in requirement.specifier}
        assert operators & {"<", "<=", "==", "~="}, f"{requirement} has no upper bound"
        assert operators & {">", ">=", "==", "~="}, f"{requirement} has no lower bound"
