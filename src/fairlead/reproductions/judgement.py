"""What the comparisons of a claim amount to."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from fairlead.reproductions.claims import Check, Claim, judged
from fairlead.reproductions.table import Results

Verdict = Literal["holds", "does not hold", "not run"]


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
    count, failing = len(checks), sum(check.holds is False for check in checks)
    missing = [check for check in checks if check.holds is None]
    facts = [f"{failing} of {count} comparisons fail"] if failing else []
    if missing:
        held = count - failing - len(missing)
        lacking = f"{len(missing)} of {count} comparisons lack runs"
        facts.append(f"{lacking} and {held} hold" if held else lacking)
        facts.append(f"the first has {missing[0].numbers}")
    seeds = len(seeds_of(results))
    fewest = min((check.seeds for check in checks if check.holds is not None), default=seeds)
    if fewest < seeds:
        facts.append(f"some comparisons rest on {fewest} of {seeds} seeds")
    told = "; ".join(facts)
    reason = f"{told[0].upper()}{told[1:]}." if told else ""
    verdict: Verdict = "does not hold" if failing else "not run" if missing else "holds"
    return Judgement(verdict, reason, checks)


def seeds_of(results: Results) -> tuple[int, ...]:
    """All seeds of which there is a figure."""
    return tuple(sorted({seed for values in results.values() for seed in values}))
