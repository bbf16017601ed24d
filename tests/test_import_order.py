"""Modules import downwards only: records and roles below, worlds and rounds above, commands on top."""

from __future__ import annotations

import ast
from functools import cache
from pathlib import Path

import pytest

SOURCE = Path(__file__).parents[1] / "src"

LAYERS: tuple[tuple[str, ...], ...] = (
    ("errors", "text", "references", "results.estimates"),
    ("numerics", "randomness", "memory.budget", "charts"),
    ("component", "client_table"),
    ("records", "metrics", "models", "plain_data"),
    ("parameters", "reply_checks", "stopping"),
    ("memory",),
    ("task", "optimizers", "corrections", "aggregators", "samplers", "transforms"),
    ("local_solver", "checkpoint", "round_record", "privacy"),
    ("algorithm", "clients"),
    ("presets", "conditions"),
    ("settings", "worlds", "theory"),
    ("round", "memory.run_budget"),
    ("federation",),
    ("diagnostics",),
    ("testing", "experiments"),
    ("results", "flower"),
    ("reports",),
    ("reproductions",),
    ("cli",),
    ("__main__",),
)
"""From the bottom up; a module may import its own layer and those before it."""

ROLES = ("optimizers", "corrections", "aggregators", "samplers", "transforms")


def module_of(path: Path) -> str:
    parts = path.relative_to(SOURCE).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


MODULES = {module_of(path): path for path in (SOURCE / "fairlead").rglob("*.py")}


class _Imports(ast.NodeVisitor):
    """Modules of the library that a file imports when it is run; those for type checking are left out."""

    def __init__(self) -> None:
        self.found: set[str] = set()

    def visit_If(self, node: ast.If) -> None:
        if not (isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING"):
            self.generic_visit(node)

    def visit_FunctionDef(self, node: ast.FunctionDef) -> None:
        """Imports inside functions are made when they are needed, and break no cycle on import."""

    def visit_ImportFrom(self, node: ast.ImportFrom) -> None:
        assert node.level == 0, "imports are absolute"
        for alias in node.names:
            inner = f"{node.module}.{alias.name}"
            self._add(inner if inner in MODULES else str(node.module))

    def visit_Import(self, node: ast.Import) -> None:
        for alias in node.names:
            self._add(alias.name)

    def _add(self, module: str) -> None:
        if module.split(".")[0] == "fairlead" and module != "fairlead":
            self.found.add(module)


@cache
def imports_of(module: str) -> frozenset[str]:
    visitor = _Imports()
    visitor.visit(ast.parse(MODULES[module].read_text(encoding="utf-8")))
    return frozenset(visitor.found - {module})


def layer_of(module: str) -> int:
    """The layer that names the module itself, or else its room."""
    inner, room = module.removeprefix("fairlead."), module.split(".")[1]
    ranks = {name: rank for rank, names in enumerate(LAYERS) for name in names}
    return ranks.get(inner, ranks[room])


def folder_of(module: str) -> str:
    return ".".join(module.split(".")[:2])


@pytest.mark.parametrize("module", sorted(MODULES.keys() - {"fairlead"}))
def test_no_module_imports_upwards(module: str) -> None:
    own = layer_of(module)
    assert [other for other in imports_of(module) if layer_of(other) > own] == []


def test_imports_form_no_cycle() -> None:
    done: set[str] = set()

    def walk(module: str, path: tuple[str, ...]) -> None:
        assert module not in path, " -> ".join((*path[path.index(module) :], module))
        if module not in done:
            for other in imports_of(module):
                walk(other, (*path, module))
            done.add(module)

    for module in MODULES:
        walk(module, ())
    assert done == set(MODULES)


@pytest.mark.parametrize("role", ROLES)
def test_no_part_sees_a_part_of_another_role(role: str) -> None:
    """Only records cross: a sampler knows no aggregator, an optimizer no correction."""
    others = {f"fairlead.{other}" for other in ROLES} - {f"fairlead.{role}"}
    seen = [
        (module, other)
        for module in MODULES
        if folder_of(module) == f"fairlead.{role}"
        for other in imports_of(module)
        if folder_of(other) in others
    ]
    assert seen == []


def test_the_round_knows_no_concrete_part_or_world() -> None:
    """One page for every method: only bases and records."""
    concrete = {
        other
        for other in imports_of("fairlead.round")
        if folder_of(other) in {f"fairlead.{role}" for role in (*ROLES, "worlds")}
        and not other.endswith(".base")
    }
    assert concrete == set()


def test_every_module_has_a_layer() -> None:
    folders = {folder_of(module) for module in MODULES} - {"fairlead"}
    assert {f"fairlead.{name}" for names in LAYERS for name in names if "." not in name} == folders
