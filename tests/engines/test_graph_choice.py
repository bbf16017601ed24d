"""Which back end captured graphs get: by rule, by a trial or as asked for; times are made up here."""

from __future__ import annotations

import pytest
import torch
from torch import nn

import fairlead as fl
from fairlead.errors import ClashError, EngineError
from fairlead.parameters import FlatModule
from fairlead.task import cross_entropy
from fairlead.worlds.base import EngineName
from fairlead.worlds.engines import choice
from fairlead.worlds.engines.base import Objective
from fairlead.worlds.engines.choice import EngineChoice, choose_engine
from fairlead.worlds.engines.graphs import GraphEngine
from fairlead.worlds.engines.loop import LoopEngine
from fairlead.worlds.engines.paths import Backend

DENSE = nn.Sequential(nn.Linear(4, 5), nn.ReLU(), nn.Linear(5, 3))
CONVOLUTIONAL = nn.Sequential(nn.Unflatten(1, (1, 4)), nn.Conv1d(1, 3, 4), nn.Flatten())
OTHER = nn.Sequential(nn.Linear(4, 6), nn.LayerNorm(6), nn.Linear(6, 3))


def elsewhere(model: nn.Module) -> Objective:
    """An objective that is not on a CPU; nothing of it is computed."""
    data = fl.ClientData(torch.zeros(3, 4), torch.zeros(3, dtype=torch.int64), torch.tensor([0, 3]))
    flat = FlatModule(model).to(torch.device("meta"), torch.float32)
    return Objective(flat, cross_entropy, data, draws_noise=False, channels_last=False, marks_missing=False)


@pytest.fixture
def tried(monkeypatch: pytest.MonkeyPatch) -> list[Backend]:
    """Trials that were made: branches take 3 us, stacked products 2 us."""
    made: list[Backend] = []

    def seconds_per_step(objective: Objective, backend: Backend) -> float:
        made.append(backend)
        return {"branches": 3e-6, "stacked": 2e-6}[backend]

    monkeypatch.setattr(choice, "refuse_unbatchable", lambda objective, backend: None)
    monkeypatch.setattr(choice, "seconds_per_step", seconds_per_step)
    # Not to be asked of a device on which nothing is computed.
    monkeypatch.setattr(torch, "is_autocast_enabled", lambda device_type: False)
    return made


def backend_of(chosen: EngineChoice) -> Backend:
    assert isinstance(chosen.engine, GraphEngine)
    return chosen.engine.backend


@pytest.mark.usefixtures("tried")
@pytest.mark.parametrize(
    ("model", "backend", "reason"),
    [
        (DENSE, "stacked", "dense layers of several clients are computed as one"),
        (CONVOLUTIONAL, "branches", "convolutions of several clients run side by side, not as one"),
        (OTHER, "stacked", "measured for a step of eight clients: branches 3 us, stacked 2 us"),
    ],
    ids=["dense", "convolutional", "other"],
)
def test_auto(model: nn.Module, backend: Backend, reason: str) -> None:
    chosen = choose_engine("auto", elsewhere(model), 4)
    assert (backend_of(chosen), chosen.reason) == (backend, reason)


def test_no_time_decides_where_repetitions_must_agree(tried: list[Backend]) -> None:
    chosen = choose_engine("auto", elsewhere(OTHER), 4, reproducible=True)
    assert backend_of(chosen) == "branches"
    assert "times differ between repetitions" in chosen.reason
    assert tried == ["branches"]


@pytest.mark.usefixtures("tried")
@pytest.mark.parametrize(("name", "backend"), [("batched", "stacked"), ("branches", "branches")])
def test_as_asked_for(name: EngineName, backend: Backend) -> None:
    for model in (DENSE, CONVOLUTIONAL, OTHER):
        chosen = choose_engine(name, elsewhere(model), 4)
        assert (backend_of(chosen), chosen.reason) == (backend, "asked for")


def test_what_cannot_be_captured_is_run_one_by_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """By "auto", with the reason; who asked for graphs is told."""

    def refuse(objective: Objective, backend: Backend) -> None:
        raise EngineError("It branches on values.")

    monkeypatch.setattr(choice, "refuse_unbatchable", refuse)
    for model in (DENSE, CONVOLUTIONAL, OTHER):
        chosen = choose_engine("auto", elsewhere(model), 4)
        assert isinstance(chosen.engine, LoopEngine)
        assert chosen.reason == "It branches on values."
        with pytest.raises(EngineError, match="branches on values"):
            choose_engine("branches", elsewhere(model), 4)


@pytest.mark.usefixtures("tried")
@pytest.mark.parametrize(
    ("name", "model", "backend"),
    [
        ("auto", DENSE, "stacked"),
        ("batched", DENSE, "stacked"),
        ("branches", DENSE, "branches"),
        ("auto", CONVOLUTIONAL, "branches"),
        ("auto", OTHER, "branches"),
    ],
)
def test_closed_forms_and_branches_are_compiled(name: EngineName, model: nn.Module, backend: Backend) -> None:
    chosen = choose_engine(name, elsewhere(model), 4, compiled=True)
    assert backend_of(chosen) == backend
    assert isinstance(chosen.engine, GraphEngine)
    assert chosen.engine.compiled


@pytest.mark.usefixtures("tried")
@pytest.mark.parametrize(("name", "model"), [("loop", DENSE), ("batched", CONVOLUTIONAL)])
def test_engines_that_cannot_compile_say_so(name: EngineName, model: nn.Module) -> None:
    with pytest.raises(
        ClashError, match=rf"compile=True .*engine='{name}'.* use engine='branches' or 'auto'"
    ):
        choose_engine(name, elsewhere(model), 4, compiled=True)
