"""The table of rules: complete, in agreement with what methods are known to correct, and as the biases demand."""

from __future__ import annotations

from itertools import product
from typing import Any, get_args, get_type_hints

import pytest

from fairlead.diagnostics.advice import RULES, SECURE_AGGREGATION, Situation, rule_for, same_cure
from fairlead.presets import METHODS, fedavg

CHOICES = [get_args(hint) for hint in get_type_hints(Situation).values()]
SITUATIONS = [Situation(*values) for values in product(*CHOICES)]
"""All there are."""


@pytest.mark.parametrize(
    ("situation", "preset"),
    [
        (Situation("equal", "equal", "no"), "fedavg"),
        (Situation("unequal", "equal", "no"), "fednova"),
        (Situation("unequal", "equal", "unknown"), "fednova"),
        (Situation("equal", "unequal", "no"), "fedacs"),
        (Situation("equal", "unequal", "no", rates="estimated"), "fedau"),
        (Situation("unequal", "unequal", "no"), "fedacs"),
        (Situation("unequal", "unequal", "unknown", rates="estimated"), "fedacs_estimated"),
        (Situation("equal", "equal", "yes"), "scaffold"),
        (Situation("unequal", "unequal", "yes"), "scaffold"),
        (Situation("equal", "equal", "yes", solver="not linear"), "feddyn"),
        (Situation("equal", "equal", "yes", solver="clipped"), None),
        (Situation("equal", "unequal", "no", solver="not linear"), "fedau"),
        (Situation("equal", "unequal", "no", solver="clipped"), "fedau"),
        (Situation("unequal", "equal", "no", solver="not linear"), None),
        (Situation("unequal", "equal", "no", solver="clipped"), None),
        (Situation("equal", "equal", "unknown"), None),
        (Situation("unknown", "unequal", "no"), None),
        (Situation("unequal", "unknown", "no"), None),
        (Situation("unequal", "unequal", "no", reach="not everybody"), None),
        (Situation("unequal", "equal", "yes", length="too few rounds"), None),
    ],
)
def test_the_rule_for(situation: Situation, preset: str | None) -> None:
    assert rule_for(situation).preset == preset


def test_what_is_advised_corrects_what_is_wrong_and_goes_with_the_clients() -> None:
    for situation in SITUATIONS:
        preset = rule_for(situation).preset
        if preset is not None:
            assert situation.causes <= set(METHODS[preset].corrects), situation
            own: dict[str, Any] = {"alpha": 0.1} if preset == "feddyn" else {}
            clip = 1.0 if situation.solver == "clipped" else None
            made = METHODS[preset].build(lr=0.1, cohort_size=3, clip=clip, **own)
            assert situation.rates == "told" or not made.sampler.needs_arrival


def test_nothing_is_advised_without_data() -> None:
    """Unless drift is known to matter, for which control variates are right whatever work and links are."""
    for situation in SITUATIONS:
        known = "unknown" not in (situation.work, situation.links)
        if situation.length == "too few rounds" or (not known and situation.drift != "yes"):
            assert rule_for(situation).preset is None, situation


def test_every_row_is_used_and_every_advised_preset_has_a_word_on_secure_aggregation() -> None:
    assert {id(rule_for(situation)) for situation in SITUATIONS} == {id(rule) for rule in RULES}
    assert {rule.preset for rule in RULES} - {None} == set(SECURE_AGGREGATION)


def test_alternatives_correct_the_same_causes() -> None:
    found = same_cure(Situation("unequal", "unequal", "no"), "fedacs")
    assert "communication_aware_fednova" in found
    assert not {"fedacs", "fednova", "fedau"} & set(found)
    assert same_cure(Situation("equal", "equal", "no"), fedavg.__name__) == ()
