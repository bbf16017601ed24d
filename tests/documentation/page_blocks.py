"""The pages of the repository and the fenced blocks on them."""

from __future__ import annotations

import re
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[2]


class Block(NamedTuple):
    """A fenced block."""

    language: str
    title: str | None
    """The file that it is shown as."""
    text: str
    excuse: str | None
    """Why it is not run: `<!-- not run: ... -->` above it."""


def pages() -> list[str]:
    """Every page, by its path in the repository."""
    folders = (".", "docs", "examples", "examples/flower_app", "benchmarks", "reproductions")
    found = [path for folder in folders for path in (ROOT / folder).glob("*.md")]
    return sorted(path.relative_to(ROOT).as_posix() for path in found)


def blocks(page: str) -> list[Block]:
    """All fenced blocks of a page, in order."""
    text = (ROOT / page).read_text(encoding="utf-8")
    fence = re.compile(
        r"(?:^<!-- not run: (?P<excuse>[^\n]*) -->\n)?"
        r"^```(?P<language>\w*)(?: title=\"(?P<title>[^\"]+)\")?\n(?P<text>.*?)^```$",
        flags=re.DOTALL | re.MULTILINE,
    )
    return [
        Block(match["language"], match["title"], match["text"], match["excuse"])
        for match in fence.finditer(text)
    ]
