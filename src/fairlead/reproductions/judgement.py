"""What the comparisons of a claim amount to."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from fairlead.reproductions.claims import Check, Claim, judged
from fairlead.reproductions.table import Results

Verdict = Literal["holds", "does not hold", "open", "not judged", "not run"]
"""Open: runs that a comparison needs are missing; not judged: the scale cannot test the claim; not run: there are no
figures."""


@dataclass(frozen=True)
class Judgement:
    """A verdict, why it is not simply "holds", and the comparisons behind it."""

    verdict: str
    """One of `Verdict`."""
    reason: str
    checks: tuple[Check, ...]


def judge(claims: Sequence[Claim], results: Results) -> Judgement:
    """All claims against our figures: one that fails is enough, and one that lacks runs leaves the rest open."""
    checks = judged(claims, results)
    held = {check.holds for check in checks}
    verdict: Verdict = "does not hold" if False in held else "open" if None in held else "holds"
    facts = [] if verdict == "holds" else [_tally(checks)]
    seeds = len(seeds_of(results))
    fewest = min((check.seeds for check in checks if check.holds is not None), default=seeds)
    if fewest < seeds:
        facts.append(f"some comparisons rest on {fewest} of {seeds} seeds")
    told = "; ".join(facts)
    reason = f"{told[0].upper()}{told[1:]}." if told else ""
    return Judgement(verdict, reason, checks)


def worded(verdict: str, checks: Sequence[Check]) -> str:
    """A verdict, and where a claim that holds stands to the noise over seeds."""
    noises = [check.noise for check in checks if check.noise is not None]
    within = noises.count("within")
    if verdict != "holds" or not noises:
        return verdict
    if within == len(noises) == len(checks):
        return "holds, within the noise over seeds"
    if within:
        return f"holds, {within} of {len(checks)} comparisons within the noise over seeds"
    return "holds, but one seed cannot tell it from noise" if set(noises) == {"one seed"} else verdict


def _tally(checks: Sequence[Check]) -> str:
    """How many comparisons fail, lack runs and hold."""
    told: list[str] = []
    for holds, one, many in (
        (False, "fails", "fail"),
        (None, "lacks runs", "lack runs"),
        (True, "holds", "hold"),
    ):
        number = sum(check.holds is holds for check in checks)
        if number:
            of_all = "" if told else f" of {len(checks)} comparisons"
            told.append(f"{number}{of_all} {one if number == 1 else many}")
    return ", ".join(told)


def seeds_of(results: Results) -> tuple[int, ...]:
    """All seeds of which there is a figure."""
    return tuple(sorted({seed for values in results.values() for seed in values}))
