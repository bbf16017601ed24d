"""The documentation builds without a warning, needs nothing from a network, and leaves no public name out."""

from __future__ import annotations

import inspect
import re
import subprocess
import sys
from importlib import import_module
from pathlib import Path
from xml.etree import ElementTree

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


def test_every_method_has_a_page_with_its_costs_and_typeset_equations(site: Path) -> None:
    table = (site / "methods.html").read_text(encoding="utf-8")
    for name in fairlead.presets.METHODS:
        text = (site / "methods" / f"{name}.html").read_text(encoding="utf-8")
        assert f'href="methods/{name}.html"' in table
        equations = re.findall(r"<math.*?</math>", text, flags=re.DOTALL)
        assert len(equations) >= 4
        for equation in equations:
            ElementTree.fromstring(equation)
            # Every subscript and fraction is drawn, and none is left as text.
            assert not re.search(r">[_/]<", equation), (name, equation)
    row = re.search(r"<tr>\s*<td><a href=\"methods/scaffold.html\">.*?</tr>", table, flags=re.DOTALL)
    assert row is not None
    assert re.findall(r"<td>([^<]*)</td>", row[0])[:6] == ["work, links, drift", "d", "2d", "2d", "d", "sums"]
    scaffold = (site / "methods" / "scaffold.html").read_text(encoding="utf-8")
    assert (
        'alttext="g ← g − c_i + c c_i⁺ = c_i − c + (x − y_i)/(η‖a_i‖₁) c ← c + Σ_R ω_i (c_i⁺ − c_i)"'
        in scaffold
    )
    assert 'alttext="d = Σ_R p̂_i Δ_i, p̂_i = importance_i/Σ_R importance_j"' in scaffold
    fedexp = (site / "methods" / "fedexp.html").read_text(encoding="utf-8")
    assert 'alttext="d ← η_g d, η_g = max(1, Σ_R p̂_i‖Δ_i‖² / (2(‖Σ_R p̂_i Δ_i‖² + ε)))"' in fedexp
    assert '<h3 id="Extrapolation">' in fedexp
    compressed = (site / "methods" / "fedavg_compressed.html").read_text(encoding="utf-8")
    assert (
        0 < compressed.index('alttext="Δ_i = y_i − x"') < compressed.index('alttext="p = Δ_i + e_i, upload q')
    )
    assert "It sends the change" not in compressed


def test_a_method_has_its_cells_of_the_benchmark(site: Path) -> None:
    """Those of docs/benchmark.md, in its order of cells."""
    table = (ROOT / "docs" / "benchmark.md").read_text(encoding="utf-8")
    figure = r"\**[\d.]+ ± [\d.]+\**(?: better| worse)?"
    found = re.findall(rf"^\| `scaffold` \| ({figure}(?: \| {figure})*) \|$", table, flags=re.MULTILINE)
    expected = [cell.replace("*", "") for row in found for cell in row.split(" | ")]
    assert len(expected) == 16
    page = re.sub("</?strong>", "", (site / "methods" / "scaffold.html").read_text(encoding="utf-8"))
    rows = re.findall(r"<tr>\s*<td><code>(\S+/\S+)</code></td>\s*<td>(.*?)</td>\s*<td>(.*?)</td>", page)
    assert [here for cell, here, _ in rows][: len(expected)] == expected
    assert rows[0][0] == "digits-mlp/data"
    assert rows[0][2] == "90.0 ± 2.8"


def test_equations_have_the_structure_that_is_written(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(ROOT / "docs"))
    typeset = import_module("equations").typeset

    def rows(block: str) -> list[str]:
        return re.findall(r"<mtd><mrow>(.*?)</mrow></mtd>", typeset(block))

    low = "<msub><mi>{}</mi><mi>{}</mi></msub>".format
    assert rows("Σ_R ω_i x_i/(η K)") == [
        f"<munder><mo>∑</mo><mi>R</mi></munder>{low('ω', 'i')}"
        f"<mfrac>{low('x', 'i')}<mrow><mi>η</mi><mi>K</mi></mrow></mfrac>"
    ]
    # A sum below a fraction takes the product behind it, and nothing more.
    assert rows("n/Σ ω_j n_j + c") == [
        f"<mfrac><mi>n</mi><mrow><mo>∑</mo>{low('ω', 'j')}{low('n', 'j')}</mrow></mfrac><mo>+</mo><mi>c</mi>"
    ]
    assert rows("v̂ once y² is known") == [
        '<mover accent="true"><mi>v</mi><mo>^</mo></mover><mtext>\xa0once\xa0</mtext><msup><mi>y</mi><mo>2</mo></msup>'
        "<mtext>\xa0is known</mtext>"
    ]
    assert "<mtext>over = &quot;asked&quot;</mtext>" in typeset('x     (over = "asked")')


def test_the_page_of_methods_has_its_table_as_a_file() -> None:
    text = (ROOT / "docs" / "methods.md").read_text(encoding="utf-8")
    assert all(f"| `{name}` |" in text for name in fairlead.presets.METHODS)
