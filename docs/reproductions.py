"""Writes the tables of docs/reproducing.md, docs/reproductions.md and reproductions/README.md from the kept outcomes.

python docs/reproductions.py
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path

from fairlead.reproductions import OMITTED, REPRODUCTIONS
from fairlead.reproductions.claims import Check, worded
from fairlead.reproductions.reproduction import SCALES, Outcome, load_outcomes

ROOT = Path(__file__).parents[1]
KEPT = ROOT / "reproductions"
BEGIN, END = "<!-- begin {} -->", "<!-- end {} -->"


def gallery() -> str:
    """Every entry with the verdicts that are kept."""
    kept = {(outcome.name, outcome.scale): outcome for outcome in load_outcomes(KEPT)}
    lines = ["| name | published in | claim | needs | small | full |", "|---|---|---|---|---|---|"]
    for entry in REPRODUCTIONS.values():
        verdicts = [_verdict(kept.get((entry.name, scale))) for scale in ("small", "full")]
        needs = ", ".join(f"`{name}`" for name in entry.needs) or "–"
        cells = [f"`{entry.name}`", f"{entry.paper}, {entry.where}", entry.claim, needs, *verdicts]
        lines.append(f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in cells)} |")
    return "\n".join(lines)


def left_out() -> str:
    """What is not in the gallery, and why."""
    return "\n".join(f"- {omitted.paper}, {omitted.where}: {omitted.reason}" for omitted in OMITTED)


def differences() -> str:
    """Known reasons why figures differ, paper by paper, each once."""
    by_paper: dict[str, dict[str, None]] = {}
    for entry in REPRODUCTIONS.values():
        by_paper.setdefault(entry.paper, {}).update(dict.fromkeys(entry.differences))
    return "\n\n".join(
        f"**{paper}**\n\n" + "\n".join(f"- {difference}" for difference in known)
        for paper, known in by_paper.items()
    )


def log() -> str:
    """What was run, where and for how long."""
    lines = [
        "| reproduction | scale | verdict | seeds | time | machine | date |",
        "|---|---|---|---|---|---|---|",
    ]
    outcomes = load_outcomes(KEPT)
    names, scales = list(REPRODUCTIONS), list[str](SCALES)
    for outcome in sorted(outcomes, key=lambda each: (names.index(each.name), scales.index(each.scale))):
        seeds = ", ".join(map(str, outcome.seeds))
        lines.append(
            f"| `{outcome.name}` | {outcome.scale} | {_verdict(outcome)} | {seeds} | {outcome.seconds:.0f} s | "
            f"{outcome.machine}{_precision(outcome)} | {outcome.date} |"
        )
    return "\n".join(lines)


def _precision(outcome: Outcome) -> str:
    return "" if outcome.precision == "full" else f", {outcome.precision}"


def _verdict(outcome: Outcome | None) -> str:
    """On the printed form, and on another one where that was judged too."""
    if outcome is None:
        return "not run"
    printed = _how_far(outcome.verdict, outcome.checks)
    if outcome.released is None:
        return printed
    other = _how_far(outcome.released.verdict, outcome.released.checks)
    return f"{printed}; {REPRODUCTIONS[outcome.name].released_as}: {other}"


def _how_far(verdict: str, checks: Sequence[Check]) -> str:
    """A verdict with how far it has come where runs are missing, and what noise leaves of it."""
    if verdict != "open":
        return worded(verdict, checks)
    held, count = sum(check.holds is True for check in checks), len(checks)
    lack = "lack runs" if any(check.state == "lacks runs" for check in checks) else "need runs that failed"
    if not held:
        return f"open: all {count} comparisons {lack}"
    return f"open: {held} of {count} comparisons hold, the others {lack}"


def replaced(text: str, name: str, content: str) -> str:
    """A page with what stands between two marks replaced."""
    begin, end = BEGIN.format(name), END.format(name)
    before, rest = text.split(begin)
    _, after = rest.split(end)
    return f"{before}{begin}\n\n{content}\n\n{end}{after}"


def pages() -> Iterable[tuple[Path, str]]:
    """All pages as they should be."""
    tables = {
        ROOT / "docs" / "reproducing.md": {"gallery": gallery, "differences": differences},
        ROOT / "docs" / "reproductions.md": {"left out": left_out},
        KEPT / "README.md": {"log": log},
    }
    for page, contents in tables.items():
        text = page.read_text(encoding="utf-8")
        for name, content in contents.items():
            text = replaced(text, name, content())
        yield page, text


if __name__ == "__main__":
    for path, text in pages():
        path.write_text(text, encoding="utf-8")
