"""Federated optimization when clients differ.

Names are imported when they are first used: `import fairlead` alone does not load torch. `__init__.pyi` lists them.
"""

import re
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any

__version__ = "0.1.0"

MODULES = ("diagnostics", "errors", "presets", "settings", "testing")
"""Public modules, as attributes of the package."""


def front_door(
    package: str, file: str, modules: tuple[str, ...] = (), own: tuple[str, ...] = ()
) -> tuple[dict[str, str], list[str], Callable[[], list[str]], Callable[[str], Any]]:
    """`CONTENTS`, `__all__`, `__dir__` and `__getattr__` of a package, whose stub beside `file` lists its public names.

    `modules` are public too, and names of its `own`.
    """
    contents: dict[str, str] = {}
    stub = Path(file).with_suffix(".pyi").read_text(encoding="utf-8")
    for module, names in re.findall(r"^from fairlead\.([\w.]+) import (.+)", stub, re.MULTILINE):
        listed = " ".join(re.findall(r"(\w+) as", names))
        contents[module] = f"{contents.get(module, '')} {listed}".lstrip()
    module_of = {name: f"fairlead.{module}" for module, names in contents.items() for name in names.split()}
    public = [*modules, *module_of]

    def load(name: str) -> Any:
        if name in modules:
            return import_module(f"{package}.{name}")
        if name in module_of:
            return getattr(import_module(module_of[name]), name)
        raise AttributeError(f"module {package!r} has no attribute {name!r}")

    return contents, public, lambda: sorted([*public, *own]), load


CONTENTS, __all__, __dir__, __getattr__ = front_door("fairlead", __file__, MODULES, own=("__version__",))
"""`CONTENTS` are the public names by the module that defines them; parts are discovered from this table too."""
