"""What the comparisons of a claim amount to."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Literal

from fairlead.reproductions.claims import Check, Claim, State, judged
from fairlead.reproductions.table import Cell, Results

Verdict = Literal["holds", "does not hold", "open", "not judged", "not run"]
"""Open: runs that a comparison needs are missing or failed; not judged: the scale cannot test the claim; not run:
there are no figures."""
_COUNTED: dict[State, tuple[str, str]] = {
    "fails": ("fails", "fail"),
    "lacks runs": ("lacks runs", "lack runs"),
    "needs failed runs": ("needs a run that failed", "need runs that failed"),
    "holds": ("holds", "hold"),
}
"""What one comparison does, and several."""


@dataclass(frozen=True)
class Judgement:
    """A verdict, why it is not simply "holds", and the comparisons behind it."""

    verdict: str
    """One of `Verdict`."""
    reason: str
    checks: tuple[Check, ...]


def judge(claims: Sequence[Claim], results: Results, failed: Collection[Cell] = ()) -> Judgement:
    """All claims against our figures: one that fails is enough, and one that lacks runs leaves the rest open."""
    checks = judged(claims, results, failed)
    held = {check.holds for check in checks}
    verdict: Verdict = "does not hold" if False in held else "open" if None in held else "holds"
    facts = [] if verdict == "holds" else [_tally(checks)]
    seeds = len(seeds_of(results))
    shared = [check.seeds for check in checks if check.holds is not None]
    fewest = min(shared, default=seeds)
    if fewest < seeds:
        which = "each comparison rests" if fewest == max(shared) else "some comparisons rest"
        facts.append(f"{which} on {fewest} of {seeds} seeds")
    told = "; ".join(facts)
    reason = f"{told[0].upper()}{told[1:]}." if told else ""
    return Judgement(verdict, reason, checks)


def worded(verdict: str, checks: Sequence[Check]) -> str:
    """A verdict, and where the comparisons that decide it stand to the noise over seeds."""
    if verdict not in ("holds", "does not hold"):
        return verdict
    deciding = [check.noise for check in checks if check.holds is (verdict == "holds")]
    within = deciding.count("within")
    if within == len(deciding) > 0:
        return f"{verdict}, within the noise over seeds"
    if within:
        what = "comparisons" if verdict == "holds" else "failing comparisons"
        return f"{verdict}, {within} of {len(deciding)} {what} within the noise over seeds"
    if set(deciding) - {None} == {"one seed"}:
        return f"{verdict}, but one seed cannot tell it from noise"
    return verdict


def _tally(checks: Sequence[Check]) -> str:
    """How many comparisons fail, lack runs or need some that failed, and hold."""
    told: list[str] = []
    for state, (one, many) in _COUNTED.items():
        number = sum(check.state == state for check in checks)
        if number:
            of_all = "" if told else f" of {len(checks)} comparisons"
            told.append(f"{number}{of_all} {one if number == 1 else many}")
    return ", ".join(told)


def seeds_of(results: Results) -> tuple[int, ...]:
    """All seeds of which there is a figure."""
    return tuple(sorted({seed for values in results.values() for seed in values}))
