"""`import fairlead` is light: torch and numpy are loaded when a name that needs them is used."""

from __future__ import annotations

import subprocess
import sys

SCRIPT = """
import sys
import fairlead
heavy = [name for name in ("torch", "numpy", "rich", "typer", "safetensors") if name in sys.modules]
assert not heavy, heavy
assert fairlead.__version__
fairlead.SGD(lr=0.1)
assert "torch" in sys.modules
"""


def test_import_loads_nothing_heavy() -> None:
    done = subprocess.run([sys.executable, "-c", SCRIPT], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_unknown_names_are_attribute_errors() -> None:
    import fairlead

    assert not hasattr(fairlead, "FedNoFa")
    assert not hasattr(fairlead, "_private")
    assert not hasattr(fairlead, "Tensor")
