"""What users are told to install: packages as the extras state them, and fairlead from its own folder.

The name `fairlead` on the package index belongs to another project.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest
from jinja2 import Template

ROOT = Path(__file__).parents[1]
SUFFIXES = {".md", ".py", ".toml", ".txt", ".ipynb", ".yml", ".jinja"}
FROM_THE_INDEX = re.compile(
    r"""pip\s+install\s+[^\n`\#]*(?<![\w./-])fairlead\b  # pip install fairlead, also behind options
    | ["'`]fairlead\s*(\[|[<>=~!])                     # "fairlead[flower]", "fairlead>=0.1"
    | ^\s*dependencies\s*=[^\]]*["']fairlead["']""",
    flags=re.VERBOSE | re.MULTILINE,
)


def files() -> Iterator[Path]:
    yield from ROOT.glob("*.md")
    for folder in ("docs", "examples", "src", "benchmarks", "reproductions"):
        yield from (path for path in (ROOT / folder).rglob("*") if path.suffix in SUFFIXES)


def test_nothing_installs_fairlead_from_the_package_index() -> None:
    found = [
        f"{path.relative_to(ROOT)}: {match[0]!r}"
        for path in files()
        for match in FROM_THE_INDEX.finditer(path.read_text(encoding="utf-8"))
    ]
    assert found == []


@pytest.mark.parametrize(
    "text",
    [
        "pip install fairlead",
        "python -m pip install -U 'fairlead[flower]'",
        "pip install torch fairlead",
        'dependencies = ["fairlead[flower]"]',
        'dependencies = ["flwr", "fairlead"]',
        "needs `fairlead[plots]`",
        '"fairlead>=0.1"',
    ],
)
def test_the_search_finds_such_advice(text: str) -> None:
    assert FROM_THE_INDEX.search(text)


@pytest.mark.parametrize("text", ["pip install -e '.[flower]'", "pip install .", "fairlead run spec.toml"])
def test_the_search_leaves_the_rest(text: str) -> None:
    assert FROM_THE_INDEX.search(text) is None


def test_pages_keep_a_clone_editable() -> None:
    """Without -e an extra would replace the editable install of `make demo` by a copy."""
    pages = [ROOT / "README.md", *(ROOT / "docs").glob("*.md")]
    found = [
        page.name for page in pages if re.search(r"pip\s+install\s+'?\.", page.read_text(encoding="utf-8"))
    ]
    assert found == []


def test_messages_ask_for_what_the_extras_state() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    stated = {requirement for extra in project["optional-dependencies"].values() for requirement in extra}
    told = {
        requirement
        for path in (ROOT / "src").rglob("*.py")
        for requirement in re.findall(r"pip install '([^']+)'", path.read_text(encoding="utf-8"))
    }
    assert {re.split("[<>=]", requirement)[0] for requirement in told} == {
        "aim",
        "datasets",
        "dp-accounting",
        "flwr",
        "matplotlib",
        "mlflow-skinny",
        "onnxscript",
        "pyarrow",
        "ray",
        "tensorboard",
        "transformers",
        "wandb",
    }
    assert told <= stated


def test_flower_apps_ask_for_the_same_versions() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    (torch,) = (requirement for requirement in project["dependencies"] if requirement.startswith("torch"))
    (flwr,) = (name for name in project["optional-dependencies"]["flower"] if name.startswith("flwr"))
    wanted = [flwr, torch]
    for app in ("examples/flower_app/pyproject.toml", "src/fairlead/flower/template/pyproject.toml.jinja"):
        text = Template((ROOT / app).read_text(encoding="utf-8")).render(clients=3)
        assert tomllib.loads(text)["project"]["dependencies"] == wanted
        assert "# fairlead itself is installed from its own folder" in text
