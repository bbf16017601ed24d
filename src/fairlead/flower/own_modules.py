"""Modules with parts of a user's own: servers and nodes read the spec anew, and must import them too."""

from __future__ import annotations

import re
import sys
from dataclasses import fields, is_dataclass
from pathlib import Path

from fairlead.component import Component
from fairlead.errors import FieldError


def own_modules(value: object) -> set[str]:
    """Modules outside fairlead that define parts of an experiment."""
    if isinstance(value, tuple):
        return {module for item in value for module in own_modules(item)}
    if not isinstance(value, Component) or not is_dataclass(value):
        return set()
    found = {module for field in fields(value) for module in own_modules(getattr(value, field.name))}
    module = type(value).__module__
    if module == "__main__":
        raise FieldError(
            f"{type(value).__name__} must be defined in a module that an app can import, got a script."
        )
    return found if module.split(".")[0] == "fairlead" else {*found, module}


def bring_modules(modules: set[str], folder: Path) -> list[Path]:
    """Copy modules that are one file into the folder of an app; packages are left to be installed."""
    copies = []
    for module in sorted(modules):
        source = sys.modules[module].__file__
        if "." not in module and source is not None and not source.endswith("__init__.py"):
            copies.append(folder / f"{module}.py")
            copies[-1].write_bytes(Path(source).read_bytes())
    return copies


def refuse_without_imports(modules: set[str], package: Path) -> None:
    """Raise if an app does not import what its spec needs: its processes would not know the parts."""
    sources = [file.read_text(encoding="utf-8") for file in package.rglob("*.py")]
    for module in sorted(modules):
        line = re.compile(rf"^\s*(import|from)\s+{re.escape(module)}\b", re.MULTILINE)
        if not any(line.search(source) for source in sources):
            raise FieldError(
                f"{package / '__init__.py'} must have the line `import {module}`: servers and nodes read spec.toml "
                "anew, which names parts of that module."
            )
