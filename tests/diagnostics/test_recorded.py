"""Records that a real federation logged: what they need, what is made of them, and how they are refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from constructed import experiment, minimal_lines, write_lines

import fairlead as fl
from fairlead.errors import FieldError
from fairlead.experiments.record_io import Recorded, read_recorded, record_to_line

ROUND: dict[str, Any] = {"round": 0, "asked": [7, 900, 40], "arrived": [900, 7], "num_steps": [4, 2]}


def read(folder: Path, *lines: dict[str, Any]) -> Recorded:
    return read_recorded(write_lines(folder / "records.jsonl", lines))


def called(found: Recorded) -> list[str]:
    assert found.names is not None
    return list(map(str, found.names))


def test_clients_are_numbered_in_the_order_of_their_ids(tmp_path: Path) -> None:
    weights = {"weights": {"7": 10, "40": 30, "900": 60}, "names": {"40": "Ulm"}}
    found = read(tmp_path, {**ROUND, **weights})
    assert found.weights.tolist() == pytest.approx([0.1, 0.3, 0.6])
    assert called(found) == ["7", "Ulm", "900"]
    (record,) = found.records
    assert (record.asked, record.arrived, record.num_steps) == ((0, 2, 1), (2, 0), (4, 2))
    (record,) = read(tmp_path, {**ROUND, "late": {"900": 3}}).records
    assert record.late == {2: 3}


def test_what_lines_leave_out_is_assumed_and_said(tmp_path: Path) -> None:
    """Arrivals are averaged by weight: of 900 and 7 with 60 and 10, six sevenths and one."""
    bare = read(tmp_path, ROUND)
    assert [said.split(":")[0] for said in bare.assumptions] == [
        "The lines have no weights",
        "The lines have no coefficients",
        "The lines have no effective_steps",
    ]
    assert bare.weights.tolist() == pytest.approx([1 / 3] * 3)
    weighed = read(tmp_path, {**ROUND, "weights": {"7": 10, "40": 30, "900": 60}})
    assert weighed.records[0].coefficients == pytest.approx((6 / 7, 1 / 7))
    told = {"effective_steps": [3.5, 2.0], "coefficients": [0.5, 0.5]}
    full = read(tmp_path, {**ROUND, **told, "weights": {"7": 1, "40": 1, "900": 1}})
    assert full.assumptions == ()
    assert full.records[0].effective_steps == (3.5, 2.0)


def test_clients_that_only_the_server_remembers_count_too(tmp_path: Path) -> None:
    """Their updates came before the lines begin, as in the log of a server that was started again."""
    found = read(tmp_path, {**ROUND, "remembered": {"3": 0.25}})
    assert called(found) == ["3", "7", "40", "900"]
    assert dict(found.records[0].remembered) == {0: 0.25}


def test_weights_may_come_when_they_are_known(tmp_path: Path) -> None:
    later = {"round": 3, "asked": [40], "arrived": [], "num_steps": [], "weights": {"40": 2}}
    found = read(tmp_path, {**ROUND, "weights": {"7": 1, "900": 1}}, later)
    assert found.weights.tolist() == [0.25, 0.5, 0.25]


def test_the_lines_of_a_run_are_such_records(tmp_path: Path) -> None:
    records = list(experiment().build().train(4))
    path = tmp_path / "records.jsonl"
    path.write_text("\n".join(map(record_to_line, records)) + "\n")
    assert list(read_recorded(path).records) == records


def test_names_are_used_in_statements(tmp_path: Path) -> None:
    lines = minimal_lines(list(experiment(work=fl.FixedSteps((1, 2, 3, 9) * 3)).build().train(8)))
    lines[0]["names"] = {str(client): f"ward {client}" for client in range(12)}
    found = fl.diagnose(write_lines(tmp_path / "records.jsonl", lines))
    clients = found.finding("clients")
    assert clients is not None
    assert "client 'ward 11' (" in clients.statement


def test_assumptions_lower_the_confidence(tmp_path: Path) -> None:
    lines = minimal_lines(list(experiment(work=fl.FixedSteps((1, 2, 3, 9) * 3)).build().train(40)))
    found = fl.diagnose(write_lines(tmp_path / "records.jsonl", lines))
    assert (found.advice.preset, found.advice.confidence) == ("scaffold", "low")
    assert "In Python: fl.presets.scaffold(lr=...)" in str(found)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"num_steps": [1]}, "num_steps must have one number for each of 2 clients, got 1."),
        ({"coefficients": [1.0]}, "coefficients must have one number for each of 2 clients, got 1."),
        ({"multiplicity": [1]}, "multiplicity must have one number for each of 3 clients, got 1."),
        ({"num_steps": [1, 0]}, "num_steps must be at least 1, got 0."),
        ({"multiplicity": [1, 1, -1]}, "multiplicity must be at least 1, got -1."),
        ({"effective_steps": [1.0, 0.0]}, "effective_steps must be finite and above 0, got 0."),
        ({"effective_steps": ["inf", 1.0]}, "effective_steps must be finite and above 0, got inf."),
        ({"coefficients": [0.5, "nan"]}, "coefficients must be finite, got nan."),
        ({"remembered": {"7": "inf"}}, "coefficients must be finite, got inf."),
        ({"arrived": [900, 8]}, "client 8 arrived but was not asked."),
        ({"late": {"40": 1}}, "client 40 is late but has not arrived."),
        ({"asked": [7, 7, 900]}, "asked must name each client once; multiplicity says how often."),
        ({"weights": {"7": -1}}, "weights must be numbers of at least 0 by client, got {'7': -1}."),
        ({"weights": [1, 2, 3]}, "weights must be numbers of at least 0 by client, got [1, 2, 3]."),
        ({"names": {"Ulm": "7"}}, "the id of a client must be a whole number, got 'Ulm'."),
    ],
)
def test_lines_that_contradict_themselves(tmp_path: Path, change: dict[str, Any], message: str) -> None:
    with pytest.raises(FieldError) as refusal:
        read(tmp_path, {**ROUND, **change})
    assert str(refusal.value) == f"Line 1 of {tmp_path / 'records.jsonl'}: {message}"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "{path} holds no records."),
        ("\n\n", "{path} holds no records."),
        ('{"round": 0, "asked": [0', "Line 1 of {path} is damaged or incomplete."),
        ("[1, 2]\n", "Line 1 of {path} is not the record of a round."),
        (
            '{"round": 0, "asked": [0]}\n',
            "Line 1 of {path} lacks arrived, num_steps: a round needs round, asked, arrived, num_steps.",
        ),
        (
            '{"round": "one", "asked": [0], "arrived": [0], "num_steps": [1]}\n',
            "Line 1 of {path} is not the record of a round.",
        ),
        (
            '{"round": 0, "asked": 3, "arrived": [0], "num_steps": [1]}\n',
            "Line 1 of {path} is not the record of a round.",
        ),
        (
            '{"round": 1, "asked": [0], "arrived": [], "num_steps": []}\n' * 2,
            "The rounds in {path} must ascend.",
        ),
        (
            '{"round": 0, "asked": [0, 5], "arrived": [], "num_steps": [], "weights": {"0": 1}}\n',
            "Client 5 in {path} has no weight, although other clients have one: add it to weights.",
        ),
        (
            '{"round": 0, "asked": [0], "arrived": [], "num_steps": [], "weights": {"0": 0}}\n',
            "The weights in {path} must not all be 0.",
        ),
    ],
)
def test_files_that_are_no_records(tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "records.jsonl"
    path.write_text(text)
    with pytest.raises(FieldError) as refusal:
        read_recorded(path)
    assert str(refusal.value) == message.format(path=path)


def test_files_that_cannot_be_read(tmp_path: Path) -> None:
    with pytest.raises(FieldError, match="cannot be read: No such file or directory"):
        read_recorded(tmp_path / "absent.jsonl")
    (tmp_path / "bytes.jsonl").write_bytes(b"\xff\xfe")
    with pytest.raises(FieldError, match="is not UTF-8 text"):
        read_recorded(tmp_path / "bytes.jsonl")
