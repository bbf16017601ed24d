"""Studies: many runs in one folder, side by side, resumed, and none lost by the failure of another."""

from __future__ import annotations

import os
import signal
import threading
from dataclasses import replace
from pathlib import Path

import pytest
import torch

import fairlead as fl
from fairlead.checkpoint.store import checkpointed_rounds
from fairlead.errors import FieldError, RunFolderError
from fairlead.experiments.study import folder_name
from fairlead.experiments.workers import (
    Advanced,
    Began,
    Checkpoints,
    Ended,
    Event,
    Said,
    default_jobs,
    run_in_workers,
    visible_device,
)
from fairlead.worlds.device import shared_gpus

EXPERIMENT = fl.Experiment(
    fl.Digits(4), fl.presets.fedavg(lr=0.1, steps=2), rounds=3, link=fl.BernoulliLink(0.3), evaluate_every=0
)


def planned(*seeds: int, lr: float = 0.1, rounds: int = 3) -> list[fl.PlannedRun]:
    return [
        fl.PlannedRun(
            f"lr-{lr:g}/seed-{seed}",
            {"lr": lr, "seed": seed},
            replace(EXPERIMENT, algorithm=fl.presets.fedavg(lr=lr, steps=2), seed=seed, rounds=rounds),
        )
        for seed in seeds
    ]


class Watched:
    """Keeps what a study tells."""

    def __init__(self) -> None:
        self.events: list[tuple[str, Event]] = []

    def __call__(self, run: fl.PlannedRun, event: Event) -> None:
        self.events.append((run.folder, event))

    def ends(self) -> dict[str, Ended]:
        return {folder: event for folder, event in self.events if isinstance(event, Ended)}


def test_the_index_is_complete_after_an_error_in_the_middle(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A pause of a day follows the first write."""
    monkeypatch.setattr("fairlead.experiments.workers._INDEX_EVERY", 1e9)

    def watch(run: fl.PlannedRun, event: Event) -> None:
        if run.folder == "lr-0.1/seed-2" and isinstance(event, Ended):
            raise RuntimeError("the screen is gone")

    with pytest.raises(RuntimeError, match="screen"):
        fl.run_study(fl.StudyFolder(tmp_path), planned(0, 1, 2, 3), jobs=1, watch=watch)
    outcomes = [run.outcome for run in fl.StudyFolder(tmp_path).runs()]
    assert outcomes == ["finished", "finished", "finished", "waiting"]


def test_runs_side_by_side_are_those_one_after_another(tmp_path: Path) -> None:
    """Two processes and this one: the same records for every run, every event in its order, the same failure."""
    runs, watched = [*planned(0, 1), *planned(0, lr=0.01)], Watched()
    here, there = fl.StudyFolder(tmp_path / "here"), fl.StudyFolder(tmp_path / "there")
    outcomes = fl.run_study(here, [*planned(0, lr=1e30), *runs], jobs=1)
    assert fl.run_study(there, [*planned(0, lr=1e30), *runs], jobs=2, watch=watched) == outcomes
    assert outcomes.pop("lr-1e+30/seed-0").startswith("failed: In round 1 the updates of clients")
    assert set(outcomes.values()) == {"finished"}
    for run in runs:
        assert here.store(run).records() == there.store(run).records()
        assert len(here.store(run).records()) == 3
        told = [type(event) for folder, event in watched.events if folder == run.folder]
        assert told[0] is Began
        assert told[-2:] == [Advanced, Ended]
    assert there.runs() == here.runs()
    assert [(run.labels, run.outcome) for run in there.runs()[1:]] == [
        (run.labels, "finished") for run in runs
    ]


def test_what_is_done_is_not_run_again(tmp_path: Path) -> None:
    study, watched = fl.StudyFolder(tmp_path), Watched()
    fl.run_study(study, planned(0), jobs=1)
    before = study.store(planned(0)[0]).provenance()
    assert fl.run_study(study, planned(0, 1), jobs=1, watch=watched) == {
        "lr-0.1/seed-0": "finished",
        "lr-0.1/seed-1": "finished",
    }
    assert study.store(planned(0)[0]).provenance() == before
    assert {folder: end.before for folder, end in watched.ends().items()} == {
        "lr-0.1/seed-0": True,
        "lr-0.1/seed-1": False,
    }
    assert [run.folder for run in study.runs()] == ["lr-0.1/seed-0", "lr-0.1/seed-1"]


def test_a_mistake_of_ours_is_told_with_its_traceback(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(self: fl.Experiment) -> None:
        raise ZeroDivisionError("a mistake")

    error, study = tmp_path / "lr-0.1" / "seed-0" / "error.txt", fl.StudyFolder(tmp_path)
    with monkeypatch.context() as patched:
        patched.setattr(fl.Experiment, "load", fail)
        (outcome,) = fl.run_study(study, planned(0), jobs=1).values()
    assert outcome == "failed: ZeroDivisionError: a mistake (see error.txt in its folder)"
    assert "Traceback" in error.read_text()
    assert fl.run_study(study, planned(0), jobs=1) == {"lr-0.1/seed-0": "finished"}
    assert not error.exists()


def test_a_process_that_dies_loses_only_its_own_run(tmp_path: Path) -> None:
    """Kill the worker of one long run: the run is told as failed, and the next one is run all the same."""
    killed: list[int] = []
    study = fl.StudyFolder(tmp_path)

    def watch(run: fl.PlannedRun, event: Event) -> None:
        if run.labels["lr"] == 0.01 and isinstance(event, Advanced) and not killed:
            workers = [int(name) for name in os.listdir("/proc") if name.isdigit() and _is_child(name)]
            holding = [pid for pid in workers if _holds(pid, study.store(run).rounds_file)]
            killed.extend(holding)
            os.kill(holding[0], signal.SIGKILL)

    outcomes = fl.run_study(
        study, [*planned(0, lr=0.01, rounds=100_000), *planned(0, 1, 2)], jobs=2, watch=watch
    )
    assert len(killed) == 1
    assert outcomes.pop("lr-0.01/seed-0") == "failed: its process ended with exit status -9"
    assert set(outcomes.values()) == {"finished"}


def _is_child(pid: str) -> bool:
    try:
        return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1]) == os.getpid()
    except OSError:
        return False


def _holds(pid: int, file: Path) -> bool:
    return any(Path(link).resolve() == file.resolve() for link in Path(f"/proc/{pid}/fd").iterdir())


@pytest.mark.parametrize("jobs", [1, 2])
def test_an_interrupt_stops_all_runs_and_they_go_on(tmp_path: Path, jobs: int) -> None:
    runs, told, rounds = planned(0, 1, 2, rounds=5000), list[str](), list[int]()

    def watch(run: fl.PlannedRun, event: Event) -> None:
        if isinstance(event, Advanced) and not told:
            os.kill(os.getpid(), signal.SIGTERM)

    study = fl.StudyFolder(tmp_path / "cut")
    outcomes = fl.run_study(study, runs, jobs=jobs, watch=watch, on_interrupt=lambda: told.append("stopping"))
    assert told == ["stopping"]
    assert "interrupted" in outcomes.values()
    assert "waiting" in outcomes.values()
    assert [run.outcome for run in study.runs()] == list(outcomes.values())
    for run in runs:
        # A second process may be stopped before its run has begun.
        if outcomes[run.folder] == "interrupted" and study.store(run).rounds_file.exists():
            rounds.append(len(study.store(run).records()))
            assert checkpointed_rounds(study.store(run).checkpoint)[0] == rounds[-1] < 5000
    shorter = planned(0, 1, 2, rounds=max(rounds) + 2)
    whole = fl.StudyFolder(tmp_path / "whole")
    assert set(fl.run_study(study, shorter, jobs=jobs).values()) == {"finished"}
    fl.run_study(whole, shorter, jobs=1)
    for run in shorter:
        assert study.store(run).records() == whole.store(run).records()


def test_lost_rounds_of_a_run_are_told(tmp_path: Path) -> None:
    study, watched = fl.StudyFolder(tmp_path), Watched()
    fl.run_study(study, planned(0), jobs=1)
    with study.store(planned(0)[0]).rounds_file.open("a") as file:
        file.write('{"round":3')
    fl.run_study(study, planned(0, rounds=4), jobs=1, watch=watched)
    (said,) = (event for _, event in watched.events if isinstance(event, Said))
    assert "a last line that was cut short is dropped" in said.text


def test_data_are_loaded_once_for_runs_that_share_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two learning rates at each of two seeds: two loads instead of four."""
    loads: list[int] = []
    load = fl.Experiment.load

    def counted(self: fl.Experiment) -> object:
        loads.append(self.seed)
        return load(self)

    monkeypatch.setattr(fl.Experiment, "load", counted)
    runs = [run for seed in (0, 1) for lr in (0.1, 0.01) for run in planned(seed, lr=lr)]
    fl.run_study(fl.StudyFolder(tmp_path), runs, jobs=1)
    assert loads == [0, 1]


def test_another_experiment_in_a_folder_is_refused_before_anything_is_run(tmp_path: Path) -> None:
    study = fl.StudyFolder(tmp_path)
    fl.run_study(study, planned(1), jobs=1)
    other = replace(planned(1)[0], experiment=replace(planned(1)[0].experiment, link=fl.PerfectLink()))
    with pytest.raises(
        RunFolderError, match="seed-1 is another experiment, with a different link: resume it"
    ):
        fl.run_study(study, [*planned(0), other], jobs=1)
    assert not study.store(planned(0)[0]).path.exists()


def test_refusals(tmp_path: Path) -> None:
    study = fl.StudyFolder(tmp_path)
    with pytest.raises(FieldError, match="jobs must be at least 1, got 0"):
        fl.run_study(study, planned(0), jobs=0)
    with pytest.raises(FieldError, match="checkpoint_every must be at least 1, got 0"):
        fl.run_study(study, planned(0), checkpoint_every=0)
    with pytest.raises(RunFolderError, match=r"runs.json cannot be read: No such file or directory\."):
        study.runs()
    study.index_file.write_text("[{}]")
    with pytest.raises(RunFolderError, match=r"runs.json is damaged"):
        study.runs()


def test_one_process_per_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    on_gpu = [replace(run, experiment=replace(run.experiment, device="cuda")) for run in planned(0, 1, 2, 3)]
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 3)
    assert default_jobs(on_gpu) == 3
    assert default_jobs(on_gpu[:2]) == 2
    assert [visible_device(n, 3, {})["CUDA_VISIBLE_DEVICES"] for n in range(4)] == ["0", "1", "2", "0"]
    chosen = {"CUDA_VISIBLE_DEVICES": "4, 7"}
    assert [visible_device(n, 2, chosen)["CUDA_VISIBLE_DEVICES"] for n in range(3)] == ["4", "7", "4"]
    assert visible_device(1, 1, {}) == {}


def test_processes_share_a_gpu_by_mps(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A stand-in for NVIDIA's control program logs its calls: a server starts in a folder of its own and ends."""
    control, log = tmp_path / "nvidia-cuda-mps-control", tmp_path / "log"
    control.write_text(
        f'#!/bin/sh\necho "$1 $CUDA_MPS_PIPE_DIRECTORY" >> {log}\n[ -n "$1" ] || cat >> {log}\n'
    )
    control.chmod(0o755)
    monkeypatch.delenv("CUDA_MPS_PIPE_DIRECTORY", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    with shared_gpus() as variables:
        place = variables["CUDA_MPS_PIPE_DIRECTORY"]
        assert Path(place).is_dir()
        assert log.read_text() == f"-d {place}\n"
    assert log.read_text() == f"-d {place}\n {place}\nquit\n"
    assert not Path(place).exists()
    control.write_text("#!/bin/sh\nexit 1\n")
    with shared_gpus() as variables:
        assert variables == {}
    monkeypatch.setenv("CUDA_MPS_PIPE_DIRECTORY", "/var/run/mps")
    with shared_gpus() as variables:
        assert variables == {"CUDA_MPS_PIPE_DIRECTORY": "/var/run/mps"}


def test_more_processes_than_gpus_are_announced(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The GPU is pretended, so that the runs fail in their processes."""
    monkeypatch.delenv("CUDA_MPS_PIPE_DIRECTORY", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)
    on_gpu = [replace(run, experiment=replace(run.experiment, device="cuda")) for run in planned(0, 1)]
    watched = Watched()
    run_in_workers(
        fl.StudyFolder(tmp_path),
        on_gpu,
        jobs=2,
        checkpoints=Checkpoints(10, keep=True),
        watch=watched,
        stop=threading.Event(),
    )
    said = [event.text for _, event in watched.events if isinstance(event, Said)]
    assert said == ["2 processes take turns on a GPU: NVIDIA MPS is not available."]
    assert sum(isinstance(event, Ended) for _, event in watched.events) == 2


def test_folders_bear_the_names_of_their_runs() -> None:
    assert folder_name("fedprox:mu=0.1") == "fedprox,mu=0.1"
    names = [folder_name(text) for text in ("a=[32, 64]", "a=[32_64]", "x" * 300, "..", "a/b")]
    assert len(set(names)) == 5
    assert all("/" not in name and not name.startswith(".") and len(name) < 120 for name in names)
