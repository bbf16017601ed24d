"""Modules with parts of a user's own: servers and nodes read the spec anew, and must import them too."""

from __future__ import annotations

import re
import subprocess
import sys
from dataclasses import fields, is_dataclass
from pathlib import Path

from fairlead.component import Component
from fairlead.errors import FieldError


def own_modules(value: object) -> set[str]:
    """Modules outside fairlead that define parts of an experiment, or functions that it names."""
    if isinstance(value, str):
        named = re.fullmatch(r"([A-Za-z_][\w.]*):[A-Za-z_]\w*", value)
        return {named[1]} if named and named[1] in sys.modules else set()
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
    """Copy modules that are one file into the folder of an app; packages and what else they need must be installed."""
    copies = []
    for module in sorted(modules):
        source = sys.modules[module].__file__
        if "." not in module and source is not None and Path(source).name == f"{module}.py":
            copies.append(folder / f"{module}.py")
            copies[-1].write_bytes(Path(source).read_bytes())
    return copies


def refuse_without_imports(modules: set[str], package: Path) -> None:
    """Raise if an end of an app does not import what its spec needs: its processes would not know the parts."""
    for end in ("client_app", "server_app") if modules else ():
        code = f"import sys, {package.name}.{end}; print(*sys.modules)"
        done = subprocess.run(
            [sys.executable, "-c", code], capture_output=True, text=True, check=False, cwd=package.parent
        )
        if done.returncode:
            reason = done.stderr.strip().splitlines()[-1:] or ["it ended without a word"]
            raise FieldError(
                f"{package.name}.{end} must be importable from {package.parent}, got {reason[0]}."
            )
        for module in sorted(modules - set(done.stdout.split())):
            raise FieldError(
                f"{package / '__init__.py'} must have the line `import {module}`: servers and nodes read spec.toml "
                "anew, which names parts of that module."
            )
