"""The examples run, here with fewer rounds and seeds; the Flower app has its test in tests/flower."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from page_blocks import ROOT

EXAMPLES = ROOT / "examples"


def run_in_process_of_its_own(code: str, folder: Path) -> str:
    """Examples define parts that other tests would find."""
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join([str(EXAMPLES), str(ROOT / "src")]),
        "OMP_NUM_THREADS": "1",
        "MPLBACKEND": "agg",
        "TMPDIR": str(folder),
    }
    done = subprocess.run(
        [sys.executable, "-W", "error::DeprecationWarning", "-c", code],
        capture_output=True,
        text=True,
        check=False,
        cwd=folder,
        env=environment,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_quickstart(tmp_path: Path) -> None:
    said = run_in_process_of_its_own("import quickstart; quickstart.main(rounds=2)", tmp_path)
    assert said.startswith("round 2: accuracy 0.")
    assert "of the objective's weight" in said


def test_comparing_methods(tmp_path: Path) -> None:
    code = "import compare_methods; compare_methods.main(rounds=1, seeds=(0, 1))"
    lines = run_in_process_of_its_own(code, tmp_path).splitlines()
    assert [line.split()[0] for line in lines[:5]] == ["method", "FedAvg", "FedNova", "FedACS", "SCAFFOLD"]
    assert any(line.startswith("FedNova: ") for line in lines)
    assert sum("objective" in line for line in lines[-4:]) == 4


def test_a_custom_correction_reduces_to_the_proximal_term(tmp_path: Path) -> None:
    """r = 0 forgets the last update, as the docstring says; with r = 1 the example ends below the other two."""
    code = """
import torch
from custom_correction import RememberedPull, main
import fairlead as fl

found = main(rounds=8)
assert found["RememberedPull"] < found["no pull"] < found["Proximal"], found
gradient, local, anchor, last = (torch.randn(3, 5) for _ in range(4))
forgetful = RememberedPull(mu=0.3, recall=0.0).correct(gradient, local, anchor, {"last_update": last}, {})
assert torch.allclose(forgetful, fl.Proximal(mu=0.3).correct(gradient, local, anchor, {}, {}))
"""
    lines = run_in_process_of_its_own(code, tmp_path).splitlines()
    assert [line.split("  ")[0] for line in lines] == ["no pull", "Proximal", "RememberedPull"]


def test_lora_sends_adapters_and_learns(tmp_path: Path) -> None:
    pytest.importorskip("peft")
    said = run_in_process_of_its_own("import lora; assert lora.main() > 0.8", tmp_path)
    # Two layers, queries and values: 4 adapters of 4·(32 + 32) numbers, and a head of 32·2 + 2.
    assert said.startswith(f"{4 * 4 * 64 + 66} of ")
    assert f"{4 * (4 * 4 * 64 + 66)} bytes by a client" in said


def test_the_table_is_the_one_that_its_script_makes(tmp_path: Path) -> None:
    code = f"import sys; sys.path.insert(0, {str(EXAMPLES / 'own_table')!r})\n"
    code += "from pathlib import Path\nimport make_table\nmake_table.main(Path('made.csv'))"
    run_in_process_of_its_own(code, tmp_path)
    assert (tmp_path / "made.csv").read_bytes() == (EXAMPLES / "own_table" / "patients.csv").read_bytes()


def test_the_notebook_runs_from_top_to_bottom(tmp_path: Path) -> None:
    notebook = json.loads((EXAMPLES / "full_study.ipynb").read_text(encoding="utf-8"))
    cells = ["".join(cell["source"]) for cell in notebook["cells"] if cell["cell_type"] == "code"]
    scale, *rest = cells
    assert scale == "ROUNDS = 60\nSEEDS = range(5)"
    said = run_in_process_of_its_own("\n".join(["ROUNDS, SEEDS = 2, range(2)", *rest]), tmp_path)
    assert "FedAvg optimized another objective" in said
    (page,) = re.findall(r"^/.*report\.html$", said, flags=re.MULTILINE)
    assert "Fast and slow clients" in Path(page).read_text(encoding="utf-8")
    assert re.search(r" objective of the final model, 2 seeds", said)
    assert not any(cell.get("outputs") for cell in notebook["cells"]), "outputs are not kept"
