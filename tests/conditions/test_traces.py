"""Traces: there and back, replay of a run, and one sentence for every way in which a file can be broken."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

import fairlead as fl
from fairlead.conditions.links import LinkModel, TraceLink
from fairlead.conditions.traces import TraceEntry, read_trace, trace_of, write_trace
from fairlead.conditions.work import TraceWork
from fairlead.errors import FieldError

SOLVER = fl.LocalSolver(fl.SGD(lr=0.1), epochs=1, batch_size=10)
KEY = fl.Key.from_seed(0)
ENTRIES = [
    TraceEntry(0, 0, 5, 4, 1),
    TraceEntry(0, 2, 7, None, 0),
    TraceEntry(2, 0, 1, None, 0),
    TraceEntry(2, 1, 0, None, 1),
    TraceEntry(1, 7, None, None, 1),
]


def work_of(model: TraceWork, clients: list[int], round: int) -> list[list[int]]:
    ids = torch.tensor(clients)
    work = model.workload(ids, torch.full_like(ids, 20), SOLVER, round, KEY)
    return [work.num_steps.tolist(), work.batch_sizes.tolist()]


@pytest.mark.parametrize("ending", ["csv", "jsonl"])
def test_traces_survive_being_written(tmp_path: Path, ending: str) -> None:
    path = tmp_path / f"trace.{ending}"
    write_trace(path, ENTRIES)
    assert read_trace(path) == ENTRIES


@pytest.mark.parametrize("ending", ["csv", "jsonl"])
def test_work_is_replayed_and_starts_over(tmp_path: Path, ending: str) -> None:
    path = tmp_path / f"trace.{ending}"
    write_trace(path, ENTRIES)
    absent, hold = TraceWork(str(path), missing="absent"), TraceWork(str(path), missing="hold")
    for first in (0, 3, 300):
        assert work_of(absent, [0, 1, 2, 7], first) == [[5, 0, 7, 0], [4, 10, 10, 10]]
        assert work_of(absent, [0, 1, 2, 7], first + 2) == [[1, 0, 0, 0], [10, 10, 10, 10]]
        assert work_of(hold, [0, 2], first + 1) == [[5, 7], [4, 10]]
        assert work_of(hold, [0, 1, 2], first + 2) == [[1, 0, 7], [10, 10, 10]]


def test_links_are_replayed(tmp_path: Path) -> None:
    path = tmp_path / "trace.csv"
    write_trace(path, ENTRIES)

    def arrives(link: LinkModel, clients: list[int], round: int) -> list[bool]:
        arrived: list[bool] = link.arrives(torch.tensor(clients), round, KEY).tolist()
        return arrived

    lost: LinkModel = TraceLink(str(path), missing="lost")
    there = TraceLink(str(path), missing="arrives")
    assert arrives(lost, [0, 1, 2], 0) == [True, False, False]
    assert arrives(there, [0, 1, 2], 0) == [True, True, False]
    assert arrives(TraceLink(str(path), missing="hold"), [0, 2], 4) == [True, False]
    assert arrives(TraceLink(str(path)), [7], 1) == [True]
    assert lost.arrival(torch.arange(3), 0, KEY, None) is None


def test_gaps_are_refused_unless_they_mean_something(tmp_path: Path) -> None:
    path = tmp_path / "trace.csv"
    write_trace(path, ENTRIES)
    with pytest.raises(FieldError, match=r"trace.csv has no entry for client 1 in round 0: add one, or"):
        work_of(TraceWork(str(path)), [0, 1], 3)
    with pytest.raises(FieldError, match=r"client 9 in round 2: .* TraceLink.missing\."):
        TraceLink(str(path), missing="hold").arrives(torch.tensor([9]), 2, KEY)
    with pytest.raises(FieldError, match=r"client 7 in round 0"):
        TraceLink(str(path), missing="hold").arrives(torch.tensor([7]), 0, KEY)


def test_clients_without_examples_do_nothing(tmp_path: Path) -> None:
    path = tmp_path / "trace.csv"
    path.write_text("round,client,steps,batch_size\n0,0,3,8\n0,1,3,8\n")
    work = TraceWork(str(path)).workload(torch.arange(2), torch.tensor([0, 5]), SOLVER, 0, KEY)
    assert work.num_steps.tolist() == [0, 3]
    assert work.batch_sizes.tolist() == [0, 5]


def test_a_changed_file_is_read_again(tmp_path: Path) -> None:
    path = tmp_path / "trace.csv"
    path.write_text("round,client,steps\n0,0,3\n")
    assert work_of(TraceWork(str(path)), [0], 0)[0] == [3]
    path.write_text("round,client,steps\n0,0,44\n")
    assert work_of(TraceWork(str(path)), [0], 0)[0] == [44]


def test_a_run_can_be_replayed_from_its_records(tmp_path: Path) -> None:
    """Another run that meets the trace of a first one sees the same arrivals after the same steps."""
    problem = fl.Quadratics(num_clients=6).problem(KEY)
    algorithm = fl.presets.fedavg(lr=0.1, steps=3, cohort_size=4)

    def run(work: fl.WorkModel, link: fl.LinkModel) -> list[fl.RoundRecord]:
        world = fl.SimulatedWorld(problem.task(), problem.data(), work=work, link=link)
        return list(fl.Federation(algorithm, world, seed=5).train(8))

    first = run(fl.RandomSteps(1, 9), fl.BernoulliLink(0.4))
    path = tmp_path / "run.jsonl"
    write_trace(path, trace_of(first))
    # Steps of clients that were lost were not seen; whatever they do is lost again.
    again = run(TraceWork(str(path), missing="absent"), TraceLink(str(path)))
    assert any(record.arrived != record.asked for record in first)
    for one, other in zip(first, again, strict=True):
        assert (one.asked, one.arrived, one.num_steps) == (other.asked, other.arrived, other.num_steps)
        assert one.step_norm == other.step_norm


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("t.csv", "", r"The trace .*t.csv has no entries\."),
        ("t.csv", "round,client,steps\n", r"The trace .*t.csv has no entries\."),
        ("t.csv", "round,steps\n0,1\n", r"t.csv, line 1: the column 'client' is missing\."),
        (
            "t.csv",
            "round,client,stpes\n0,0,1\n",
            r"line 1: 'stpes' is not a column of a trace. Did you mean 's",
        ),
        ("t.csv", "round,client,client\n0,0,1\n", r"line 1: the column 'client' appears twice\."),
        ("t.csv", "round,client,steps\n0,0,1\n0,1\n", r"line 3: it must have 3 values, got 2\."),
        (
            "t.csv",
            "round,client,steps\n0,0,x\n",
            r"line 2: steps must be a whole number of at least 0, got 'x'",
        ),
        (
            "t.csv",
            "round,client,steps\n0,-1,4\n",
            r"line 2: client must be a whole number of at least 0, got '-1",
        ),
        (
            "t.csv",
            "round,client,steps\n0,0,1.5\n",
            r"line 2: steps must be a whole number of at least 0, got '1.5",
        ),
        (
            "t.csv",
            "round,client,batch_size\n0,0,0\n",
            r"line 2: batch_size must be a whole number of at least 1",
        ),
        ("t.csv", "round,client,arrives\n0,0,2\n", r"line 2: arrives must be a whole number 0 or 1, got '2'"),
        ("t.csv", "round,client,steps\n,0,1\n", r"line 2: round and client must both be given\."),
        (
            "t.csv",
            "round,client,steps\n0,0,1\n\n0,0,2\n",
            r"line 4: client 0 already has an entry for round 0\.",
        ),
        ("t.csv", 'round,client,steps\n0,0,"1\n', r"t.csv, line 2: "),
        ("t.csv", "round,client,batch_size\n0,0,3\n", r"The trace .*t.csv has no values of steps\."),
        (
            "t.jsonl",
            '{"round": 0, "client": 0, "steps": 1}\nnonsense\n',
            r"line 2 cannot be read as JSON: ",
        ),
        ("t.jsonl", "[1, 2]\n", r"line 1: it must be a JSON object, got \[1, 2\]\."),
        ("t.jsonl", '{"round": 0, "steps": 1}\n', r"line 1: the column 'client' is missing\."),
        ("t.jsonl", '{"round": 0, "client": true, "steps": 1}\n', r"line 1: client must be a whole number"),
        ("t.jsonl", '{"round": 0, "client": 0, "steps": 1e3}\n', r"line 1: steps must be a whole number"),
    ],
)
def test_broken_traces_say_what_and_where(tmp_path: Path, name: str, text: str, message: str) -> None:
    path = tmp_path / name
    path.write_text(text)
    with pytest.raises(FieldError, match=message) as caught:
        TraceWork(str(path), missing="absent").workload(torch.arange(1), torch.tensor([5]), SOLVER, 0, KEY)
    assert name in str(caught.value)
    assert "\n" not in str(caught.value)


def test_files_that_cannot_be_read(tmp_path: Path) -> None:
    missing = tmp_path / "nowhere.csv"
    with pytest.raises(
        FieldError, match=r"The trace .*nowhere.csv cannot be read: No such file or directory\."
    ):
        work_of(TraceWork(str(missing)), [0], 0)
    binary = tmp_path / "binary.csv"
    binary.write_bytes(b"round,client\n\xff\xfe")
    with pytest.raises(FieldError, match=r"The trace .*binary.csv cannot be read: it is not UTF-8 text"):
        read_trace(binary)
    with pytest.raises(
        FieldError, match=r"TraceWork.path must be a file name that ends in .csv or .jsonl, got 'a"
    ):
        TraceWork("a.xlsx")
    with pytest.raises(
        FieldError, match=r"TraceLink.missing must be one of 'refuse', 'hold', 'lost', 'arrives'"
    ):
        TraceLink("a.csv", missing="maybe")  # type: ignore[arg-type]
    with pytest.raises(FieldError, match=r"A trace must be a file that ends in .csv or .jsonl, got"):
        write_trace(tmp_path / "a.txt", ENTRIES)


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("nowhere.csv", r"The trace .*nowhere.csv cannot be read: No such file or directory\."),
        ("other.csv", r".*other.csv, line 1: 'who' is not a column of a trace\."),
    ],
)
def test_a_world_refuses_a_trace_that_it_could_not_replay(tmp_path: Path, name: str, reason: str) -> None:
    """Before the first round, also where the condition is inside another one."""
    (tmp_path / "other.csv").write_text("who,round,client\na,0,0\n")
    problem, path = fl.Quadratics(num_clients=3).problem(KEY), str(tmp_path / name)
    for conditions, part in (
        ({"work": TraceWork(path)}, "TraceWork"),
        ({"link": TraceLink(path)}, "TraceLink"),
        ({"link": fl.CombinedLink((fl.BernoulliLink(0.5), TraceLink(path)))}, "TraceLink"),
    ):
        with pytest.raises(FieldError, match=rf"In {part}.path: {reason}"):
            fl.SimulatedWorld(problem.task(), problem.data(), **conditions)


def test_boolean_arrivals_are_read_from_json(tmp_path: Path) -> None:
    path = tmp_path / "t.jsonl"
    path.write_text(
        '{"round": 0, "client": 0, "arrives": true}\n\n{"round": 0, "client": 1, "arrives": false}\n'
    )
    assert TraceLink(str(path)).arrives(torch.arange(2), 0, KEY).tolist() == [True, False]
