"""Writes src/fairlead/__init__.pyi: the table of public names in the form that type checkers and editors read."""

from pathlib import Path

import fairlead

STUB = Path(__file__).parents[1] / "src/fairlead/__init__.pyi"


def stub() -> str:
    """One import for every module in `CONTENTS`."""
    lines = [
        '"""Generated from the table in `__init__.py` by `python docs/front_door.py`."""\n',
        *(f"from fairlead import {name} as {name}" for name in fairlead.MODULES),
        *(
            f"from fairlead.{module} import " + ", ".join(f"{name} as {name}" for name in names.split())
            for module, names in sorted(fairlead.CONTENTS.items())
        ),
        "\n__version__: str\nMODULES: tuple[str, ...]\nCONTENTS: dict[str, str]",
    ]
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    STUB.write_text(stub(), encoding="utf-8")
