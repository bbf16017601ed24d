"""The table of rules: complete, in agreement with what methods are known to correct, and as the biases demand."""

from __future__ import annotations

from itertools import product
from typing import Any, get_args, get_type_hints

import pytest

from fairlead.diagnostics.advice import RULES, SECURE_AGGREGATION, Situation, rule_for, same_cure
from fairlead.diagnostics.clients import Balance
from fairlead.diagnostics.evidence import Drifting
from fairlead.presets import METHODS, fedavg

CHOICES = [get_args(hint) for hint in get_type_hints(Situation).values()]
SITUATIONS = [Situation(*values) for values in product(*CHOICES)]
"""All there are."""


RARELY = {"returns": "rarely"}


@pytest.mark.parametrize(
    ("work", "links", "drift", "others", "preset"),
    [
        ("equal", "equal", "no", {}, "fedavg"),
        ("unequal", "unequal", "no", {"clients": "alike"}, "fedavg"),
        ("unequal", "equal", "no", {}, "scaffold"),
        ("equal", "unequal", "unknown", {"rates": "estimated"}, "scaffold"),
        ("equal", "equal", "yes", {}, "scaffold"),
        ("equal", "equal", "no", {"clients": "different", "cohort": "some"}, "scaffold"),
        ("equal", "equal", "no", {"clients": "unknown", "cohort": "some"}, "fedavg"),
        ("unequal", "unequal", "yes", {"solver": "not linear"}, "feddyn"),
        ("unequal", "equal", "no", {"solver": "not linear"}, "feddyn"),
        ("equal", "equal", "yes", {"solver": "clipped"}, None),
        ("unequal", "equal", "no", {"solver": "clipped"}, None),
        ("unequal", "equal", "no", RARELY, "fedavg"),
        ("unequal", "equal", "no", RARELY | {"bias": "large"}, "fednova"),
        ("unequal", "unequal", "no", RARELY | {"bias": "large"}, "fedacs"),
        ("unequal", "unequal", "no", RARELY | {"bias": "large", "rates": "estimated"}, "fednova"),
        ("unequal", "equal", "no", RARELY | {"bias": "large", "solver": "not linear"}, "fedavg"),
        ("equal", "equal", "unknown", {}, None),
        ("unknown", "unequal", "no", {}, None),
        ("unequal", "unknown", "no", {}, None),
        ("unequal", "unknown", "no", {"clients": "different"}, "scaffold"),
        ("unequal", "unequal", "no", {"reach": "not everybody"}, None),
        ("unequal", "equal", "yes", {"length": "too few rounds"}, None),
    ],
)
def test_the_rule_for(
    work: Balance, links: Balance, drift: Drifting, others: dict[str, Any], preset: str | None
) -> None:
    assert rule_for(Situation(work, links, drift, **others)).preset == preset


def test_what_is_advised_corrects_what_is_wrong_and_goes_with_the_clients() -> None:
    """Unless clients are alike, so that nothing is wrong, or return too rarely for a full correction."""
    for situation in SITUATIONS:
        preset = rule_for(situation).preset
        if preset is not None:
            if situation.clients != "alike" and situation.returns == "often":
                assert situation.causes <= set(METHODS[preset].corrects), situation
            own: dict[str, Any] = {"alpha": 0.1} if preset == "feddyn" else {}
            clip = 1.0 if situation.solver == "clipped" else None
            made = METHODS[preset].build(lr=0.1, cohort_size=3, clip=clip, **own)
            assert situation.rates == "told" or not made.sampler.needs_arrival


def test_nothing_is_advised_without_data() -> None:
    """Unless drift or different clients are known: control variates are right whatever work and links are."""
    for situation in SITUATIONS:
        known = "unknown" not in (situation.work, situation.links)
        if situation.length == "too few rounds" or (
            not known
            and situation.drift != "yes"
            and situation.clients == "unknown"
            and situation.bias == "small"
        ):
            assert rule_for(situation).preset is None, situation


def test_every_row_is_used_and_every_advised_preset_has_a_word_on_secure_aggregation() -> None:
    assert {id(rule_for(situation)) for situation in SITUATIONS} == {id(rule) for rule in RULES}
    assert {rule.preset for rule in RULES} - {None} == set(SECURE_AGGREGATION)


def test_alternatives_correct_the_same_causes() -> None:
    found = same_cure(Situation("unequal", "unequal", "no"), "fedacs")
    assert "communication_aware_fednova" in found
    assert not {"fedacs", "fednova", "fedau"} & set(found)
    assert same_cure(Situation("equal", "equal", "no"), fedavg.__name__) == ()
