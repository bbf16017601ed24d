"""The shape of the source: how large it is, how deep its imports go, and one meaning for every name."""

from __future__ import annotations

import ast
import io
import re
import subprocess
import sys
import tokenize
from collections import defaultdict
from functools import cache
from importlib import import_module
from pathlib import Path
from runpy import run_path

import pytest
from test_import_order import LAYERS, MODULES, imports_of

import fairlead

LIMITS = {
    "files": 230,
    "code lines": 35_010,
    "share of imports": 0.10,
    "chain": 25,
    "modules of a round": 60,
}
"""Caps. They rise only with features that users asked for, and fall with every clean-up."""


@cache
def code_and_import_lines(path: Path) -> tuple[int, int]:
    """Lines of code without blanks, comments and docstrings, and how many of them are import statements."""
    text = path.read_text(encoding="utf-8")
    strings, imports, code = set[int](), set[int](), set[int]()
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
            strings.update(range(node.lineno, (node.end_lineno or node.lineno) + 1))
        elif isinstance(node, ast.Import | ast.ImportFrom):
            imports.update(range(node.lineno, (node.end_lineno or node.lineno) + 1))
    layout = {
        tokenize.COMMENT,
        tokenize.NL,
        tokenize.NEWLINE,
        tokenize.INDENT,
        tokenize.DEDENT,
        tokenize.ENDMARKER,
    }
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type not in layout:
            code.update(range(token.start[0], token.end[0] + 1))
    return len(code - strings), len(imports)


def test_the_source_stays_small() -> None:
    counts = [code_and_import_lines(path) for path in MODULES.values()]
    code, imports = (sum(column) for column in zip(*counts, strict=True))
    assert len(MODULES) <= LIMITS["files"]
    assert code <= LIMITS["code lines"]
    assert imports / code < LIMITS["share of imports"]


def test_import_chains_stay_short() -> None:
    @cache
    def chain(module: str) -> tuple[str, ...]:
        return (
            module,
            *max((chain(other) for other in imports_of(module) & MODULES.keys()), key=len, default=()),
        )

    longest = max((chain(module) for module in MODULES), key=len)
    assert len(longest) <= LIMITS["chain"], " -> ".join(longest)


def loaded_by(module: str) -> list[str]:
    script = f"import sys, {module}; print(*(name for name in sys.modules if name.startswith('fairlead')))"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    return done.stdout.split()


def test_a_round_loads_little_and_neither_diagnostics_nor_ray() -> None:
    outside = ("fairlead.diagnostics", "fairlead.worlds.ray", "ray")
    assert [name for name in loaded_by("fairlead.federation") if name.startswith(outside)] == []
    assert len(loaded_by("fairlead.round")) <= LIMITS["modules of a round"]


def test_no_name_of_a_class_or_type_has_two_meanings() -> None:
    """Type aliases count as classes, unless two of them say the same."""
    places = defaultdict[str, dict[str, str]](dict)
    for module, path in MODULES.items():
        tree = ast.parse(path.read_text(encoding="utf-8"))
        for node in ast.walk(tree):
            if isinstance(node, ast.ClassDef):
                places[node.name.lstrip("_")][f"{module}:{node.lineno}"] = f"{module}:{node.lineno}"
        for node in tree.body:
            if isinstance(node, ast.Assign) and isinstance(node.value, ast.Subscript | ast.BinOp):
                for name in node.targets:
                    if isinstance(name, ast.Name) and re.fullmatch(r"_?[A-Z][a-z]\w*", name.id):
                        places[name.id.lstrip("_")][f"{module}:{node.lineno}"] = ast.unparse(node.value)
    assert {name: found for name, found in places.items() if len(set(found.values())) > 1} == {}


@pytest.mark.parametrize("name", ["fairlead", "fairlead.diagnostics", "fairlead.presets", "fairlead.testing"])
def test_a_front_door_is_one_table(name: str) -> None:
    """The stub names what is public, for Python as `CONTENTS` and for type checkers."""
    package = import_module(name)
    modules = fairlead.MODULES if package is fairlead else ()
    stub = MODULES[name].with_suffix(".pyi").read_text(encoding="utf-8")
    typed = {
        (node.module, alias.name)
        for node in ast.walk(ast.parse(stub))
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
    }
    listed = {
        (f"fairlead.{module}", public)
        for module, names in package.CONTENTS.items()
        for public in names.split()
    }
    assert typed == listed | {("fairlead", module) for module in modules}
    for module, public in listed:
        assert getattr(package, public) is getattr(import_module(module), public)
        assert getattr(getattr(package, public), "__module__", module) == module
    own = {"__version__"} if package is fairlead else set()
    assert sorted({public for _, public in listed} | {*modules, *own}) == dir(package)


def test_every_method_is_public() -> None:
    assert set(fairlead.presets.METHODS) <= set(dir(fairlead.presets))


@pytest.mark.parametrize(
    "name", ["start", "unknown", "table_in", "tensor_in", "refuse_unknown_classes", "Tensor"]
)
def test_nothing_is_public_by_accident(name: str) -> None:
    assert not hasattr(fairlead, name)


def test_the_map_is_up_to_date() -> None:
    """`make format` draws it anew after a change of the layers."""
    docs = Path(__file__).parents[1] / "docs"
    drawn = (docs / "map.svg").read_text(encoding="utf-8")
    assert drawn == run_path(str(docs / "map.py"))["drawing"]()
    assert [name for names in LAYERS for name in names if f">{name}</text>" not in drawn] == []
