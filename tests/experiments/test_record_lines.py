"""Round records as strict JSON: nothing is lost, nothing is unreadable."""

from __future__ import annotations

import json
import math
from dataclasses import fields, replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import fairlead as fl
from fairlead.errors import FieldError
from fairlead.experiments.record_io import record_from_line, record_to_line

FLOATS = st.floats(allow_nan=False)
NAMED_FLOATS = st.dictionaries(st.text(max_size=5), FLOATS, max_size=3)
IDS = st.lists(st.integers(0, 2**40), max_size=4).map(tuple)
NUMBERS = st.lists(FLOATS, max_size=4).map(tuple)

EVALUATIONS = st.builds(
    fl.Evaluation,
    loss=FLOATS,
    metrics=NAMED_FLOATS,
    client_loss=st.none() | NUMBERS,
    client_metrics=st.dictionaries(st.text(max_size=5), NUMBERS, max_size=2),
)
RECORDS = st.builds(
    fl.RoundRecord,
    round=st.integers(0, 10**9),
    asked=IDS,
    multiplicity=IDS,
    arrived=IDS,
    num_steps=IDS,
    effective_steps=st.none() | NUMBERS,
    coefficients=st.none() | NUMBERS,
    remembered=st.dictionaries(st.integers(0, 2**40), FLOATS, max_size=3),
    train_loss=st.none() | FLOATS,
    direction_norm=FLOATS,
    step_norm=FLOATS,
    elud=st.none() | FLOATS,
    bytes_down=st.integers(0, 2**50),
    bytes_up=st.integers(0, 2**50),
    facts=NAMED_FLOATS,
    evaluation=st.none() | EVALUATIONS,
    seconds=FLOATS,
)


def _refuse(constant: str) -> Any:
    raise AssertionError(f"{constant} is not JSON")


@given(record=RECORDS)
def test_records_read_back_to_the_same_bits(record: fl.RoundRecord) -> None:
    line = record_to_line(record)
    json.loads(line, parse_constant=_refuse)
    assert "\n" not in line
    read = record_from_line(line)
    assert read == record
    assert repr(read) == repr(record)


def _record() -> fl.RoundRecord:
    experiment = fl.Experiment(fl.Quadratics(num_clients=3), fl.presets.scaffold(lr=0.1, steps=2), rounds=1)
    (record,) = experiment.build().train(1, evaluate_every=1, per_client=True)
    return record


def test_nan_and_infinities_are_strings() -> None:
    evaluation = fl.Evaluation(math.nan, {"accuracy": -math.inf}, (math.nan, 1.0))
    record = replace(_record(), elud=math.inf, train_loss=None, evaluation=evaluation)
    table = json.loads(record_to_line(record), parse_constant=_refuse)
    assert (table["elud"], table["train_loss"]) == ("inf", None)
    assert (table["evaluation"]["loss"], table["evaluation"]["metrics"]) == ("nan", {"accuracy": "-inf"})
    read = record_from_line(record_to_line(record))
    assert repr(read) == repr(record)


def test_a_real_record_keeps_every_field() -> None:
    record = _record()
    assert set(json.loads(record_to_line(record))) == {field.name for field in fields(record)}
    assert record_from_line(record_to_line(record)) == record


@pytest.mark.parametrize(
    "change",
    [
        {"round": "3"},
        {"round": True},
        {"asked": 3},
        {"asked": ["a"]},
        {"train_loss": "fast"},
        {"remembered": {"x": 1.0}},
        {"remembered": [1.0]},
        {"evaluation": {"loss": 1.0}},
        {"facts": 3},
    ],
)
def test_lines_that_are_no_records_are_refused(change: dict[str, object]) -> None:
    table = json.loads(record_to_line(_record()))
    with pytest.raises(FieldError, match="This is not the record of a round"):
        record_from_line(json.dumps({**table, **change}))


@pytest.mark.parametrize("line", ["", "[]", "3", "{", "{}", "null"])
def test_other_json_is_refused(line: str) -> None:
    with pytest.raises(FieldError, match="This is not the record of a round"):
        record_from_line(line)
