"""What a client checks before it works for a server, and what it remembers."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from flwr.app import Array, Context, Message, MessageType, RecordDict
from flwr.supercore.task_identity import TaskIdentity
from small_federation import build_model, get_data

import fairlead as fl
from fairlead.errors import ClashError, FieldError
from fairlead.flower import ClientLimits, make_client_app
from fairlead.flower.client import ClientMemory
from fairlead.flower.messages import (
    ModelForm,
    Question,
    RequestError,
    evaluation_request,
    refusal_in,
    unchecked_reply,
)
from fairlead.parameters import FlatModule
from fairlead.plain_data import to_plain
from fairlead.records import Broadcast

VALUES, ARRAYS = "fairlead.values", "fairlead.arrays"
RUN = "0123456789abcdef"
MODEL = FlatModule(build_model())
DIM = sum(MODEL.sizes)


def question(
    *, run: str = RUN, round: int = 0, base: int = 0, attempt: int = 1, solver: fl.LocalSolver | None = None
) -> RecordDict:
    solver = solver or fl.presets.scaffold(lr=0.1).solver
    key = fl.Key.from_seed(0)
    shared = {n: v for c in solver.corrections for n, v in c.initial_shared(torch.zeros(DIM)).items()}
    return Question(
        run=run,
        attempt=attempt,
        client=1,
        base=base,
        num_steps=3,
        batch_size=4,
        batches=key.fold("batches"),
        noise=key.fold("noise"),
        order=Broadcast(round, solver, MODEL.initial_params(), torch.zeros(0), shared),
    ).to_records()


def asked(content: RecordDict, folder: Path, limits: ClientLimits | None = None) -> RecordDict:
    """The answer of client 1."""
    TaskIdentity.run_id = TaskIdentity.node_id = TaskIdentity.task_id = 1
    app = make_client_app(build_model, get_data, limits=limits, folder=folder)
    message = Message(content, 7, MessageType.TRAIN)
    return app(message, Context(1, 7, {"client-id": 1}, RecordDict(), {})).content


@pytest.mark.parametrize("device", ["meta", "cuda:99", "cdua", "", None])
def test_a_device_that_the_client_lacks_is_refused(device: Any) -> None:
    with pytest.raises(FieldError) as caught:
        make_client_app(build_model, get_data, device=device)
    assert str(caught.value) == (
        "make_client_app.device must be 'cpu' or a CUDA device of this machine, which has "
        f"{torch.cuda.device_count() or 'none'}, got {device!r}."
    )


def test_float64_is_refused_on_mps(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.backends.mps, "is_available", lambda: True)
    make_client_app(build_model, get_data, device="mps")
    with pytest.raises(ClashError, match=r"^device='mps' computes in float32 alone: leave dtype, precision"):
        make_client_app(build_model, get_data, device="mps", dtype=torch.float64)


def test_a_client_trains_on_the_rest_of_its_examples_and_evaluates_on_those_held_out() -> None:
    """Client 1 has 7 examples, of which it holds out round(0.3·7) = 2."""
    TaskIdentity.run_id = TaskIdentity.node_id = TaskIdentity.task_id = 1
    app = make_client_app(build_model, get_data, holdout=0.3)
    context = Context(1, 7, {"client-id": 1}, RecordDict(), {})

    def examples(content: RecordDict, kind: str) -> object:
        return app(Message(content, 7, kind), context).content.config_records[VALUES]["num_examples"]

    params, buffers = MODEL.initial_params(), MODEL.initial_buffers()
    asked = [evaluation_request(params, buffers, on_training_data=training) for training in (True, False)]
    assert [examples(content, MessageType.EVALUATE) for content in asked] == [5, 2]
    with pytest.raises(FieldError, match="takes get_test_data or holdout, not both"):
        make_client_app(build_model, get_data, get_test_data=get_data, holdout=0.3)


def test_mods_of_flower_are_around_every_message() -> None:
    TaskIdentity.run_id = TaskIdentity.node_id = TaskIdentity.task_id = 1
    seen: list[str] = []

    def note(message: Message, context: Context, call_next: Callable[[Message, Context], Message]) -> Message:
        seen.append(message.metadata.message_type)
        return call_next(message, context)

    app = make_client_app(build_model, get_data, mods=[note])
    introduced = app(
        Message(RecordDict(), 7, MessageType.QUERY), Context(1, 7, {"client-id": 1}, RecordDict(), {})
    )
    assert introduced.content.config_records[VALUES]["num_examples"] == 7
    assert seen == [MessageType.QUERY]


def value(name: str, given: object) -> Callable[[RecordDict], None]:
    def change(content: RecordDict) -> None:
        content.config_records[VALUES][name] = given  # type: ignore[assignment]

    return change


def array(name: str, given: Array) -> Callable[[RecordDict], None]:
    def change(content: RecordDict) -> None:
        content.array_records[ARRAYS][name] = given

    return change


LYING = Array(torch.zeros(DIM))
LYING.data = LYING.data.replace(b"(51,), ", b"(7777777777777,), ")
BAD: dict[str, tuple[Callable[[RecordDict], None], str]] = {
    "too many steps": (value("num_steps", 11), "too many steps"),
    "no steps": (value("num_steps", 0), "too many steps"),
    "a huge batch": (value("batch_size", 6), "batch too large"),
    "another client": (value("client", 2), "wrong client"),
    "a solver nobody knows": (value("solver", '{"optimizer": {"type": "Evil"}}'), "unknown solver"),
    "a solver that is no JSON": (value("solver", "{"), "unknown solver"),
    "a run that is a path": (value("run", "../../../etc"), "malformed"),
    "a negative base": (value("base", -1), "malformed"),
    "steps in words": (value("num_steps", "many"), "malformed"),
    "a short key": (value("batches", b"123"), "malformed"),
    "a model of another size": (array("params", Array(torch.zeros(DIM + 1))), "wrong shape"),
    "a model of another type": (array("params", Array(torch.zeros(DIM).double())), "wrong dtype"),
    "a header that lies": (array("params", LYING), "lying header"),
    "a model of NaN": (array("params", Array(torch.full((DIM,), float("nan")))), "not finite"),
    "an array too many": (array("extra", Array(torch.zeros(1))), "malformed"),
    "a memory that is not there": (value("base", 9), "memory lost"),
}


@pytest.mark.parametrize("name", BAD)
def test_what_a_client_refuses(name: str, tmp_path: Path) -> None:
    change, reason = BAD[name]
    content = question()
    change(content)
    refused = refusal_in(asked(content, tmp_path, ClientLimits(steps=10, batch_size=5)))
    assert refused is not None
    assert refused[0] == reason


def test_memory_beyond_the_limit_is_refused(tmp_path: Path) -> None:
    """SCAFFOLD remembers one vector: 51 parameters of 4 bytes."""
    refused = refusal_in(asked(question(), tmp_path, ClientLimits(memory_bytes=203)))
    assert refused == ("memory too large", "0 to 203 bytes of memory are allowed, got 204.")
    assert refusal_in(asked(question(), tmp_path, ClientLimits(memory_bytes=204))) is None


def test_steps_times_batch_size_are_limited(tmp_path: Path) -> None:
    """Three steps of four examples; each number alone is allowed."""
    refused = refusal_in(asked(question(), tmp_path, ClientLimits(examples=11)))
    assert refused == ("too many examples", "1 to 11 examples a round are allowed, got 12.")
    assert refusal_in(asked(question(), tmp_path, ClientLimits(examples=12))) is None


def test_what_is_remembered_is_closed_to_other_users(tmp_path: Path) -> None:
    asked(question(), tmp_path)
    assert (tmp_path / RUN / "client-1").stat().st_mode & 0o077 == 0


def test_asking_again_gives_the_same_answer_again(tmp_path: Path) -> None:
    """Work after work: a repeated question starts from its base, not from what the first asking left."""
    first = unchecked_reply(asked(question(), tmp_path))
    again = unchecked_reply(asked(question(attempt=2), tmp_path))
    assert first == again
    later = unchecked_reply(asked(question(round=4, base=1, attempt=2), tmp_path))
    once_more = unchecked_reply(asked(question(round=4, base=1, attempt=3), tmp_path))
    assert later == once_more
    assert later.arrays["delta"] != first.arrays["delta"]


def test_a_question_of_a_dead_server_is_refused(tmp_path: Path) -> None:
    asked(question(round=0, attempt=1), tmp_path)
    asked(question(round=1, base=1, attempt=2), tmp_path)
    refused = refusal_in(asked(question(round=5, base=0, attempt=1), tmp_path))
    assert refused is not None
    assert refused[0] == "out of date"
    # The memory that the living server counts on is still there.
    assert refusal_in(asked(question(round=2, base=2, attempt=2), tmp_path)) is None


def test_two_versions_are_kept_and_damage_is_an_error(tmp_path: Path) -> None:
    memory = ClientMemory.of(tmp_path, RUN, 3)
    rows = {"control": torch.arange(3.0)}
    with memory.claimed(1, 0):
        memory.write(1, rows, base=0)
    with memory.claimed(1, 4):
        memory.write(5, {"control": torch.ones(3)}, base=1)
    with memory.claimed(1, 6):
        memory.write(7, {"control": torch.zeros(3)}, base=5)
    lengths, like = {"control": 3}, torch.zeros(0)
    assert memory.read(5, lengths, like)["control"].tolist() == [1.0, 1.0, 1.0]
    assert memory.read(7, lengths, like)["control"].tolist() == [0.0, 0.0, 0.0]
    with pytest.raises(RequestError, match="Version 1 of the memory is not on this client's disk"):
        memory.read(1, lengths, like)
    with pytest.raises(RequestError, match="of another method"):
        memory.read(5, {"control": 4}, like)
    (file,) = (tmp_path / RUN / "client-3").glob("5-*")
    file.write_bytes(file.read_bytes()[:-1] + b"\x01")
    with pytest.raises(RequestError, match="Version 5 of the memory is damaged"):
        memory.read(5, lengths, like)


def test_memory_of_the_runs_longest_without_work_is_removed(tmp_path: Path) -> None:
    """Two runs may be remembered: the third pushes the first out, and nothing of others beside it."""
    first, second, third = ("aaaaaaaa", "bbbbbbbb", "cccccccc")
    (tmp_path / first / "client-2").mkdir(parents=True)
    (tmp_path / "notes" / "client-1").mkdir(parents=True)
    (tmp_path / "notes" / "client-1" / "latest.json").write_text("mine")
    for time, run in enumerate((first, second, third)):
        assert refusal_in(asked(question(run=run), tmp_path, ClientLimits(runs=2))) is None
        os.utime(tmp_path / run / "client-1" / "latest.json", (time, time))
    assert {folder.parent.name for folder in tmp_path.glob("*/client-1")} == {second, third, "notes"}
    assert (tmp_path / first / "client-2").exists()
    again = refusal_in(asked(question(run=first, round=1, base=1), tmp_path, ClientLimits(runs=2)))
    assert again == ("memory lost", "Version 1 of the memory is not on this client's disk.")
    assert not (tmp_path / second).exists()


def test_runs_without_memory_push_none_out(tmp_path: Path) -> None:
    """Two SCAFFOLD runs may be remembered, and are after four FedAvg runs; of the first of those nothing stays."""
    remembering, plain = ("aaaaaaaa", "bbbbbbbb"), ("cccccccc", "dddddddd", "eeeeeeee", "ffffffff")
    limits, fedavg = ClientLimits(runs=2), fl.presets.fedavg(lr=0.1).solver
    for time, run in enumerate((*remembering, *plain)):
        solver = None if run in remembering else fedavg
        assert refusal_in(asked(question(run=run, solver=solver), tmp_path, limits)) is None
        os.utime(tmp_path / run / "client-1" / "latest.json", (time, time))
    assert {folder.name for folder in tmp_path.iterdir()} == {*remembering, *plain[1:]}
    for run in remembering:
        assert refusal_in(asked(question(run=run, round=1, base=1), tmp_path, limits)) is None


def test_one_run_is_always_remembered(tmp_path: Path) -> None:
    limits = ClientLimits(runs=1)
    asked(question(run="aaaaaaaa"), tmp_path, limits)
    asked(question(run="bbbbbbbb"), tmp_path, limits)
    assert refusal_in(asked(question(run="bbbbbbbb", round=1, base=1), tmp_path, limits)) is None
    assert [folder.name for folder in tmp_path.iterdir()] == ["bbbbbbbb"]


def test_questions_travel_whole() -> None:
    solver = fl.LocalSolver(fl.SGD(0.1, momentum=0.9), steps=2, corrections=(fl.Proximal(0.3),), clip=2.0)
    content = question(solver=solver)
    read = Question.from_records(content, ModelForm.of(MODEL, torch.float32), torch.device("cpu"))
    assert read.order.solver == solver
    assert torch.equal(read.order.anchor, MODEL.initial_params())
    text = content.config_records[VALUES]["solver"]
    assert isinstance(text, str)
    assert json.loads(text) == to_plain(solver, fl.LocalSolver)
