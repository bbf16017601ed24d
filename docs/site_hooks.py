"""Hooks of MkDocs: pages that are generated, and pages of the repository that lie outside docs/."""

from __future__ import annotations

import re
from pathlib import Path

import api_pages
import method_pages
from mkdocs.config.defaults import MkDocsConfig
from mkdocs.exceptions import PluginError
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

ROOT = Path(__file__).parents[1]
OUTSIDE = (
    "CONTRIBUTING.md",
    "CHANGELOG.md",
    "SECURITY.md",
    "benchmarks/RESULTS.md",
    "reproductions/README.md",
    "examples/README.md",
)
"""Pages that belong beside the code, and are part of the site as well."""


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """Put the page of every method below that of all."""
    pages = [{name: f"methods/{name}.md"} for name in method_pages.METHODS]
    config.nav = [
        {"Methods": ["methods.md", *pages]} if "Methods" in entry else entry for entry in config.nav or []
    ]
    return config


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add what is not in docs/."""
    try:
        reference = api_pages.pages()
    except api_pages.IncompleteError as error:
        raise PluginError(str(error)) from error
    for path, text in {**reference, **method_pages.pages()}.items():
        files.append(File.generated(config, path, content=text))
    for path in OUTSIDE:
        files.append(File.generated(config, path, content=(ROOT / path).read_text(encoding="utf-8")))
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Fill in what is generated, and lead links of the repository to pages of the site."""
    markdown = method_pages.filled(markdown, linked=True)
    return re.sub(r"\]\(([^)#\s:]+\.(?:md|svg))", lambda link: f"]({_in_site(link[1], page.file)}", markdown)


def _in_site(link: str, source: File) -> str:
    """A link between two files of the repository as a link between two pages."""
    folder = ROOT if source.src_uri in OUTSIDE else ROOT / "docs"
    target = (folder / source.src_uri).parent.joinpath(link).resolve()
    inner = target.is_relative_to(ROOT / "docs")
    path = target.relative_to(ROOT / "docs" if inner else ROOT)
    return "/".join([".."] * source.src_uri.count("/") + [path.as_posix()])
