"""Draws docs/map.svg: the rooms of the source, lowest layer at the bottom.

A room may import its own layer and those below it; `tests/test_import_order.py` holds the layers.
"""

from __future__ import annotations

import ast
from html import escape
from pathlib import Path

ROOT = Path(__file__).parents[1]
WIDTH, ROW, GAP, LABEL = 980, 32, 8, 96
READ_FIRST = {"round", "federation", "algorithm", "presets"}


def layers() -> tuple[tuple[str, ...], ...]:
    """The layers that the test of imports holds, from the bottom up."""
    tree = ast.parse((ROOT / "tests/test_import_order.py").read_text(encoding="utf-8"))
    (value,) = (
        node.value
        for node in tree.body
        if isinstance(node, ast.AnnAssign) and getattr(node.target, "id", "") == "LAYERS" and node.value
    )
    found: tuple[tuple[str, ...], ...] = ast.literal_eval(value)
    return found


def drawing() -> str:
    """The map as SVG."""
    rows = layers()
    height = len(rows) * (ROW + GAP) + GAP
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" font-family="sans-serif">',
        f'<rect width="{WIDTH}" height="{height}" fill="white"/>',
    ]
    for rank, rooms in enumerate(rows):
        y = height - (rank + 1) * (ROW + GAP)
        width = (WIDTH - LABEL - GAP) / len(rooms) - GAP
        note = {0: "no imports", len(rows) - 1: "commands"}.get(rank, "imports below")
        parts.append(f'<text x="{GAP}" y="{y + ROW / 2 + 4}" font-size="11" fill="#666">{note}</text>')
        for place, room in enumerate(rooms):
            x = LABEL + place * (width + GAP)
            fill = "#ffe8b3" if room in READ_FIRST else "#e3edf7"
            size = min(14.0, 1.55 * width / max(len(room), 8))
            parts += [
                f'<rect x="{x:.1f}" y="{y}" width="{width:.1f}" height="{ROW}" rx="5" fill="{fill}" stroke="#7a8ca0"/>',
                f'<text x="{x + width / 2:.1f}" y="{y + ROW / 2 + 5:g}" font-size="{size:.1f}" text-anchor="middle">'
                f"{escape(room)}</text>",
            ]
    return "\n".join([*parts, "</svg>", ""])


if __name__ == "__main__":
    (ROOT / "docs/map.svg").write_text(drawing(), encoding="utf-8")
