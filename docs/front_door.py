"""Writes `__init__.pyi` of every package with a table of public names, for type checkers and editors."""

from importlib import import_module
from pathlib import Path
from types import ModuleType

PACKAGES = ("fairlead", "fairlead.diagnostics", "fairlead.presets", "fairlead.testing")


def stub(package: ModuleType) -> str:
    """One import for every module in `CONTENTS`."""
    modules = getattr(package, "MODULES", ())
    lines = [
        '"""Generated from the table in `__init__.py` by `python docs/front_door.py`."""\n',
        *(f"from fairlead import {name} as {name}" for name in modules),
        *(
            f"from fairlead.{module} import " + ", ".join(f"{name} as {name}" for name in names.split())
            for module, names in sorted(package.CONTENTS.items())
        ),
        "\nCONTENTS: dict[str, str]",
    ]
    if modules:
        lines.append("MODULES: tuple[str, ...]\n__version__: str")
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    for name in PACKAGES:
        found = import_module(name)
        Path(str(found.__file__)).with_suffix(".pyi").write_text(stub(found), encoding="utf-8")
