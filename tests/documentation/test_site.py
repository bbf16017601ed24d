"""The documentation builds without a warning, needs nothing from a network, and leaves no public name out."""

from __future__ import annotations

import inspect
import re
import subprocess
import sys
from importlib import import_module
from pathlib import Path

import pytest
from page_blocks import ROOT

import fairlead


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(folder)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=ROOT)
    assert done.returncode == 0, done.stderr + done.stdout
    return folder


def test_nothing_is_loaded_from_elsewhere(site: Path) -> None:
    """Links may lead out; what a page loads by itself may not."""
    pages = list(site.rglob("*.html"))
    assert len(pages) > 40
    for page in pages:
        text = page.read_text(encoding="utf-8")
        loaded = re.findall(r"<(?:script|img|iframe)[^>]*\ssrc=\"?([^\"\s>]+)", text)
        loaded += re.findall(
            r"<link[^>]*rel=\"?(?:stylesheet|preconnect|preload)[^>]*href=\"?([^\"\s>]+)", text
        )
        assert not [address for address in loaded if re.match(r"(https?:)?//", address)], page


def test_every_public_name_is_in_the_reference(site: Path) -> None:
    anchors = {
        anchor
        for page in (site / "reference").glob("*.html")
        for anchor in re.findall(r"<h2 id=\"([^\"]+)\"", page.read_text(encoding="utf-8"))
    }
    public = {name for name in dir(fairlead) if not inspect.ismodule(getattr(fairlead, name))}
    assert public - {"__version__"} <= anchors
    for home in ("diagnostics", "errors", "presets", "reports", "settings", "testing", "flower"):
        module = import_module(f"fairlead.{home}")
        own = {
            name
            for name, value in vars(module).items()
            if getattr(value, "__module__", "").startswith(module.__name__) and not name.startswith("_")
        }
        assert own - {"annotations"} <= anchors, home


def test_the_build_ends_at_a_name_that_is_left_out_or_says_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(ROOT / "docs"))
    api_pages = import_module("api_pages")
    without = [group for group in api_pages.GROUPS if group.file not in ("aggregators", "flower")]
    monkeypatch.setattr(api_pages, "GROUPS", tuple(without))
    with pytest.raises(api_pages.IncompleteError, match=r"on no page of the API reference: .*FedNova"):
        api_pages.pages()

    class SilentError(Exception):
        pass

    monkeypatch.setattr(fairlead.errors, "SilentError", SilentError, raising=False)
    monkeypatch.setattr(SilentError, "__module__", "fairlead.errors")
    (errors,) = (group for group in without if group.file == "errors")
    monkeypatch.setattr(api_pages, "GROUPS", (errors,))
    monkeypatch.setattr(fairlead, "__dir__", lambda: ["__version__"])
    with pytest.raises(api_pages.IncompleteError, match=r"fairlead\.errors\.SilentError has no docstring"):
        api_pages.pages()


def test_methods_are_on_their_page_with_equation_and_cost(site: Path) -> None:
    text = (site / "methods.html").read_text(encoding="utf-8")
    for name in fairlead.presets.METHODS:
        assert f'id="{name}"' in text
    row = re.search(r"<tr>\s*<td><a href=\"#scaffold\">.*?</tr>", text, flags=re.DOTALL)
    assert row is not None
    assert re.findall(r"<td>([^<]*)</td>", row[0])[:6] == ["work, links, drift", "d", "2d", "2d", "d", "sums"]
    assert "c ← c + Σ_R ω_i (c_i⁺ − c_i)" in text


def test_the_page_of_methods_has_its_table_as_a_file() -> None:
    text = (Path(__file__).parents[2] / "docs" / "methods.md").read_text(encoding="utf-8")
    assert all(f"| [`{name}`](#{name}) |" in text for name in fairlead.presets.METHODS)
