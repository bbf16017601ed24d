"""Claims are judged by numbers, and a missing number leaves them open."""

from __future__ import annotations

import math

import pytest

from fairlead.reproductions.claims import (
    Best,
    Check,
    Claim,
    CurveAbove,
    Falling,
    Less,
    Near,
    Published,
    TableCell,
    When,
    below,
    judge,
    read_table,
    worded,
)
from fairlead.results.curves import Curve

A, B, C = (TableCell(row, "accuracy") for row in "abc")
HOLDS, FAILS, OPEN = Less(A, B), Less(B, A), Less(A, TableCell("d", "accuracy"))
RESULTS = {A: {0: 1.0, 1: 2.0, 2: 3.0}, B: {0: 2.0, 1: 3.1, 2: 3.9}, C: {0: 9.0}}


def test_less_compares_means_and_tells_noise() -> None:
    """Differences a − b are −1, −1.1, −0.9: mean −1, s = 0.1, t(2) = 4.303, half-width 0.1·4.303/√3 = 0.248."""
    found = Less(A, B).judge(RESULTS)
    assert found == Check(
        "a (accuracy) is below b (accuracy)",
        True,
        "2 against 3, −1.00 ± 0.25: beyond the noise",
        seeds=3,
        on=3,
        noise="beyond",
    )
    assert Less(B, A).judge(RESULTS).holds is False


def test_less_takes_factors_and_numbers() -> None:
    assert Less(A, B, 0.5).judge(RESULTS).holds is False
    assert Less(A, B, 0.7).judge(RESULTS).holds is True
    assert Less(A, 2.0).judge(RESULTS) == Check(
        "a (accuracy) is below 2", False, "2 against 2", seeds=3, on=1
    )
    assert Less(1.9, A).judge(RESULTS).holds is True


def test_a_difference_within_the_noise_is_called_so() -> None:
    """Differences −2 and 1.9 have mean −0.05 and a half-width of 12.7·2.76/√2 = 24.8."""
    noisy = {A: {0: 1.0, 1: 3.0}, B: {0: 3.0, 1: 1.1}}
    found = Less(A, B).judge(noisy)
    assert found.holds is True
    assert found.numbers.endswith("within the noise")
    assert found.noise == "within"
    assert (found.seeds, found.on) == (2, 1)


def test_targets_never_met_are_infinite() -> None:
    never = {A: {0: 10.0, 1: 12.0}, B: {0: 20.0, 1: math.inf}}
    assert Less(A, B).judge(never).holds is True
    assert Less(A, B).judge(never).noise is None
    assert Less(B, B).judge(never).holds is False


def test_near() -> None:
    assert Near(A, B, within=1.0).judge(RESULTS).holds is True
    assert Near(A, B, within=0.99).judge(RESULTS).holds is False
    assert Near(A, 2.5, within=0.5).judge(RESULTS).holds is True


def test_best_names_the_rival() -> None:
    """Only seed 0 is shared by all three, where they are 1, 2 and 9."""
    assert Best("c", "accuracy", ("a", "b")).judge(RESULTS) == Check(
        "c is the largest in accuracy", True, "9 against 2 of b", seeds=1, on=1, noise="one seed"
    )
    assert Best("b", "accuracy", ("a", "c")).judge(RESULTS).numbers == "2 against 9 of c"
    assert Best("a", "accuracy", ("b", "c"), smallest=True).judge(RESULTS).holds is True
    assert Best("b", "accuracy", ("a", "c"), smallest=True).judge(RESULTS).holds is False


def test_the_best_is_told_from_noise_against_its_rival() -> None:
    """Differences b − a are 1, 1.1, 0.9, with the half-width 0.248 of the paired difference."""
    found = Best("b", "accuracy", ("a",)).judge(RESULTS)
    assert (found.numbers, found.noise) == ("3 against 2 of a, +1.00 ± 0.25: beyond the noise", "beyond")


def test_falling_is_strict() -> None:
    assert Falling(("c", "b", "a"), "accuracy").judge(RESULTS).holds is True
    assert Falling(("b", "c", "a"), "accuracy").judge(RESULTS).holds is False
    assert Falling(("b", "b"), "accuracy").judge(RESULTS).holds is False


def curve(*values: float, first: int = 1) -> Curve:
    return Curve.of(enumerate(values, start=first))


LEVEL = curve(*[1.0] * 20)


def test_a_curve_is_above_another_in_a_share_of_the_rounds_and_at_the_end() -> None:
    """Of 20 rounds the first two do not count; of the other 18 nine are above by 2 and nine below by 1, mean ½."""
    half = curve(9.0, 9.0, *[0.0] * 9, *[3.0] * 9)
    found = CurveAbove(A, B, 0.5).judge({A: {0: half}, B: {0: LEVEL}})
    assert found == Check(
        "a (accuracy) is above b (accuracy) in 50% of the rounds and at the end",
        True,
        "50% of the rounds, +2 at the end, +0.5 on average",
        seeds=1,
        on=1,
        noise="one seed",
    )
    assert CurveAbove(A, B, 0.51).judge({A: {0: half}, B: {0: LEVEL}}).holds is False
    falls = curve(*[3.0] * 18, 0.0, 0.0)
    assert CurveAbove(A, B).judge({A: {0: falls}, B: {0: LEVEL}}).holds is False
    assert CurveAbove(B, A, 0.1).judge({A: {0: falls}, B: {0: LEVEL}}).holds is True
    assert CurveAbove(A, B, 0.0).judge({A: {0: LEVEL}, B: {0: LEVEL}}).holds is False


def test_curves_are_compared_over_seeds_and_told_from_noise() -> None:
    """Above by 1.0, 1.1 and 0.9, whose half-width is 0.248 as above; by 3 and −2.9 nothing can be told."""
    upper = {seed: curve(*[1 + gap] * 20) for seed, gap in enumerate((1.0, 1.1, 0.9))}
    found = CurveAbove(A, B).judge({A: upper, B: dict.fromkeys(range(3), LEVEL)})
    assert (found.holds, found.seeds, found.on, found.noise) == (True, 3, 3, "beyond")
    assert found.numbers.endswith("+1 on average, +1.00 ± 0.25: beyond the noise")
    unsteady = {0: curve(*[4.0] * 20), 1: curve(*[-1.9] * 20)}
    found = CurveAbove(A, B, 0.5).judge({A: unsteady, B: dict.fromkeys(range(2), LEVEL)})
    assert (found.holds, found.on, found.noise) == (True, 1, "within")


def test_only_rounds_measured_in_both_curves_count() -> None:
    """Rounds 11 to 20, of which the first is left out."""
    found = CurveAbove(A, B).judge({A: {0: curve(*range(20), first=11)}, B: {0: LEVEL}})
    assert found.numbers == "89% of the rounds, +8 at the end, +4 on average"


@pytest.mark.parametrize(
    ("values", "before", "after"),
    [
        ([float(round) for round in range(20)], True, False),
        ([-float(round) for round in range(20)], False, True),
        ([float(round + 3 * (-1) ** round) for round in range(20)], True, False),
        ([1.0] * 20, False, False),
        ([float(min(round, 19 - round)) for round in range(20)], False, False),
    ],
    ids=["rises", "falls", "rises unsteadily", "is level", "rises and falls"],
)
def test_a_curve_above_itself_half_a_run_before_rises(values: list[float], before: bool, after: bool) -> None:
    """Of 20 rounds there are ten pairs, ten apart; a roof is higher after in half of them and lower in the others."""
    results = {A: {0: curve(*values)}}
    moments: tuple[When, When] = ("half a run before", "half a run after")
    assert [CurveAbove(A, A, when=when).judge(results).holds for when in moments] == [before, after]
    assert CurveAbove(A, A, when="half a run before").statement == (
        "a (accuracy) is above a (accuracy) half a run before in 90% of the rounds and at the end"
    )


def test_figures_and_curves_are_judged_together() -> None:
    claims = (*below("a", "b", ["accuracy"]), *below("a", "b", ["curve"], 0.9))
    curves = {TableCell("a", "curve"): {0: LEVEL}, TableCell("b", "curve"): {0: curve(*[2.0] * 20)}}
    assert [type(claim) for claim in claims] == [Less, CurveAbove]
    assert judge(claims, {**RESULTS, **curves}).verdict == "holds"
    assert judge(claims, RESULTS).checks[1].missing == ("b (curve)", "a (curve)")


def test_missing_figures_leave_a_claim_open() -> None:
    found = Less(A, TableCell("d", "accuracy")).judge(RESULTS)
    assert found.holds is None
    assert (found.numbers, found.missing) == ("missing: d (accuracy)", ("d (accuracy)",))
    assert Falling(("b", "a", "d"), "accuracy").judge(RESULTS).holds is None


def test_the_best_of_some_may_lose_but_not_win() -> None:
    found = Best("b", "accuracy", ("a", "d")).judge(RESULTS)
    assert found.holds is None
    assert found.numbers == "3 against 2 of a, +1.00 ± 0.25: beyond the noise; missing: d (accuracy)"
    assert found.missing == ("d (accuracy)",)
    assert Best("a", "accuracy", ("b", "d")).judge(RESULTS).holds is False
    alone = Best("a", "accuracy", ("d", "e")).judge(RESULTS)
    assert (alone.holds, alone.numbers) == (None, "missing: d (accuracy), e (accuracy)")
    assert alone.missing == ("d (accuracy)", "e (accuracy)")
    assert Best("d", "accuracy", ("a", "b")).judge(RESULTS).holds is None


def test_figures_are_compared_over_the_seeds_that_they_share() -> None:
    """At seed 1, the only one of both, a is 2 and b 3.1; over all their seeds a would be the larger."""
    found = Less(A, B).judge({A: {0: 90.0, 1: 2.0}, B: {1: 3.1, 2: 3.9}})
    assert (found.holds, found.numbers, found.seeds) == (True, "2 against 3.1", 1)
    apart = Less(A, B).judge({A: {0: 1.0}, B: {1: 2.0}})
    assert (apart.holds, apart.numbers) == (None, "missing: a seed that all figures have")
    assert apart.missing == ("a seed that all figures have",)


@pytest.mark.parametrize(
    ("claims", "verdict", "reason"),
    [
        ([HOLDS, HOLDS], "holds", ""),
        ([FAILS, HOLDS], "does not hold", "1 of 2 comparisons fails, 1 holds."),
        ([FAILS, FAILS, OPEN], "does not hold", "2 of 3 comparisons fail, 1 lacks runs."),
        ([HOLDS, OPEN, OPEN, HOLDS], "open", "2 of 4 comparisons lack runs, 2 hold."),
        ([OPEN, OPEN], "open", "2 of 2 comparisons lack runs."),
    ],
)
def test_one_that_fails_is_enough_and_one_that_lacks_runs_leaves_the_rest_open(
    claims: list[Claim], verdict: str, reason: str
) -> None:
    found = judge(claims, RESULTS)
    assert (found.verdict, found.reason) == (verdict, reason)
    assert [check.statement for check in found.checks] == [claim.statement for claim in claims]


@pytest.mark.parametrize(
    ("verdict", "noises", "said"),
    [
        ("holds", ("within", "within"), "holds, within the noise over seeds"),
        ("holds", ("within", "beyond"), "holds, 1 of 2 comparisons within the noise over seeds"),
        ("holds", ("within", None), "holds, 1 of 2 comparisons within the noise over seeds"),
        ("holds", ("beyond", None), "holds"),
        ("holds", (None, None), "holds"),
        ("holds", ("one seed", None), "holds, but one seed cannot tell it from noise"),
        ("does not hold", ("within", "within"), "does not hold, within the noise over seeds"),
        (
            "does not hold",
            ("within", "beyond"),
            "does not hold, 1 of 2 failing comparisons within the noise over seeds",
        ),
        ("does not hold", ("beyond", None), "does not hold"),
        ("does not hold", ("one seed",), "does not hold, but one seed cannot tell it from noise"),
        ("open", ("within", None), "open"),
    ],
)
def test_what_decides_a_verdict_is_set_against_the_noise(
    verdict: str, noises: tuple[str | None, ...], said: str
) -> None:
    """A comparison that holds does not matter where others fail."""
    holds = verdict == "holds"
    others = [] if holds else [Check("another", True, "", noise="within")]
    assert worded(verdict, [*(Check("a claim", holds, "", noise=noise) for noise in noises), *others]) == said


def test_a_published_table() -> None:
    table = read_table("""
             accuracy
        a    52.4 ± 0.5
        b    3.0
    """)
    assert table == {A: Published(52.4, 0.5), B: Published(3.0, None)}
