"""Runs on disk: kept, resumed to the bit, never overwritten."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from small_runs import METHODS, KilledError, experiment, kill_after

import fairlead as fl
from fairlead.checkpoint.store import checkpointed_rounds
from fairlead.errors import CheckpointError, CheckpointWarning, FieldError, NonFiniteError, RunFolderError
from fairlead.experiments.provenance import git_commit


@pytest.mark.parametrize("name", METHODS)
@pytest.mark.parametrize("killed_after", [1, 5])
def test_a_resumed_run_is_the_uninterrupted_one(tmp_path: Path, name: str, killed_after: int) -> None:
    """Killed before the first checkpoint or two rounds after one: the same records and parameters."""
    whole = fl.run_experiment(experiment(name), tmp_path / "whole", checkpoint_every=3)
    with pytest.raises(KilledError):
        fl.run_experiment(
            experiment(name), tmp_path / "cut", checkpoint_every=3, on_round=kill_after(killed_after)
        )
    resumed = fl.run_experiment(experiment(name), tmp_path / "cut", resume=True, checkpoint_every=3)
    assert resumed.outcome == "finished"
    assert resumed.federation.records == whole.federation.records
    assert (
        fl.load_records(tmp_path / "cut") == fl.load_records(tmp_path / "whole") == whole.federation.records
    )
    assert torch.equal(resumed.federation.params, whole.federation.params)
    surrogates = [run.federation.consistency().surrogate for run in (resumed, whole)]
    assert surrogates[0] is None or torch.equal(surrogates[0], surrogates[1])  # type: ignore[arg-type]


def test_a_run_leaves_its_spec_records_provenance_and_checkpoint(tmp_path: Path) -> None:
    run = fl.run_experiment(experiment(), tmp_path / "run")
    store = fl.RunFolder(tmp_path / "run")
    assert sorted(path.name for path in store.path.iterdir()) == [
        "checkpoint", "clients.json", "model.safetensors", "provenance.json", "rounds.jsonl", "spec.toml",
        "summary.json",
    ]  # fmt: skip
    assert store.experiment() == experiment()
    assert store.records() == run.federation.records
    (start,) = store.provenance()
    assert (start.first_round, start.next_round, start.outcome) == (0, 7, "finished")
    assert (start.fairlead, start.torch, start.seed) == (fl.__version__, torch.__version__, 0)
    assert start.engine in ("BatchedEngine(lanes=16, backend='stacked')", "LoopEngine()")
    assert start.engine_reason
    assert start.threads == torch.get_num_threads()
    assert start.ended is not None
    assert start.ended >= start.started
    fresh = experiment().build()
    fresh.resume(store.checkpoint)
    assert torch.equal(fresh.params, run.federation.params)


def test_records_are_on_disk_as_each_round_ends(tmp_path: Path) -> None:
    seen: list[int] = []
    fl.run_experiment(
        experiment(),
        tmp_path / "run",
        on_round=lambda record: seen.append(len(fl.load_records(tmp_path / "run"))),
    )
    assert seen == [1, 2, 3, 4, 5, 6, 7]


def test_a_folder_that_holds_a_run_is_not_overwritten(tmp_path: Path) -> None:
    fl.run_experiment(experiment(rounds=2), tmp_path)
    before = (tmp_path / "rounds.jsonl").read_bytes()
    with pytest.raises(
        RunFolderError, match=r"already holds a run of 2 rounds, which fairlead run .* resumes"
    ):
        fl.run_experiment(experiment(rounds=2), tmp_path)
    assert (tmp_path / "rounds.jsonl").read_bytes() == before


def test_a_users_own_spec_is_not_overwritten(tmp_path: Path) -> None:
    (tmp_path / "spec.toml").write_text("# mine\n")
    with pytest.raises(RunFolderError, match="already holds files of the same names as a run's"):
        fl.run_experiment(experiment(rounds=2), tmp_path)
    assert (tmp_path / "spec.toml").read_text() == "# mine\n"


def test_a_run_without_a_finished_round_may_be_replaced(tmp_path: Path) -> None:
    diverging = replace(experiment(), algorithm=fl.presets.fedavg(lr=1e30, steps=3))
    with pytest.raises(NonFiniteError):
        fl.run_experiment(diverging, tmp_path)
    (start,) = fl.RunFolder(tmp_path).provenance()
    assert start.outcome.startswith("failed: In round 1 the updates of clients")
    fl.run_experiment(experiment(rounds=2), tmp_path)
    assert [start.outcome for start in fl.RunFolder(tmp_path).provenance()] == ["finished"]
    assert len(fl.load_records(tmp_path)) == 2


def test_a_summary_of_no_rounds_does_not_outlive_a_new_run(tmp_path: Path) -> None:
    """The new run fails, and would otherwise count as finished."""
    fl.run_experiment(experiment(rounds=2), tmp_path)
    shutil.rmtree(tmp_path / "checkpoint")
    (tmp_path / "rounds.jsonl").write_text("")
    diverging = replace(experiment(), algorithm=fl.presets.fedavg(lr=1e30, steps=3))
    with pytest.raises(NonFiniteError):
        fl.run_experiment(diverging, tmp_path)
    assert fl.RunFolder(tmp_path).summary() is None


def test_resuming_another_experiment_is_refused(tmp_path: Path) -> None:
    fl.run_experiment(experiment(rounds=2), tmp_path)
    other = replace(experiment(rounds=2), link=fl.PerfectLink(), seed=1, evaluate_every=1)
    with pytest.raises(RunFolderError, match="a different link, seed and evaluate_every: resume it"):
        fl.run_experiment(other, tmp_path, resume=True)


def test_a_run_can_be_lengthened_but_not_shortened(tmp_path: Path) -> None:
    fl.run_experiment(experiment(rounds=2), tmp_path / "grown")
    grown = fl.run_experiment(experiment(rounds=4), tmp_path / "grown", resume=True)
    whole = fl.run_experiment(experiment(rounds=4), tmp_path / "whole")
    assert grown.federation.records == whole.federation.records
    assert torch.equal(grown.federation.params, whole.federation.params)
    assert fl.RunFolder(tmp_path / "grown").experiment().rounds == 4
    starts = fl.RunFolder(tmp_path / "grown").provenance()
    assert [(start.first_round, start.next_round) for start in starts] == [(0, 2), (2, 4)]
    with pytest.raises(RunFolderError, match="is already 4 rounds long: 3 are too few"):
        fl.run_experiment(experiment(rounds=3), tmp_path / "grown", resume=True)


def test_resuming_a_finished_run_does_nothing(tmp_path: Path) -> None:
    fl.run_experiment(experiment(rounds=2), tmp_path)
    before = contents(tmp_path)
    again = fl.run_experiment(experiment(rounds=2), tmp_path, resume=True)
    assert again.outcome == "finished"
    assert len(again.federation.records) == 2
    assert contents(tmp_path) == before


def contents(folder: Path) -> dict[str, tuple[int, bytes]]:
    """The files of a run with the time of their last change."""
    files = [file for file in folder.iterdir() if file.is_file() and "lock" not in file.name]
    return {file.name: (file.stat().st_mtime_ns, file.read_bytes()) for file in files}


@pytest.mark.parametrize("rounds", [2, 5])
def test_a_finished_run_without_a_checkpoint_keeps_its_rounds(tmp_path: Path, rounds: int) -> None:
    """As `fairlead reproduce` leaves them: it cannot be resumed, and loses nothing in the attempt."""
    fl.run_experiment(experiment(rounds=2), tmp_path)
    shutil.rmtree(tmp_path / "checkpoint")
    before = contents(tmp_path)
    with pytest.raises(RunFolderError, match="is finished and kept no checkpoint"):
        fl.run_experiment(experiment(rounds=rounds), tmp_path, resume=True)
    assert contents(tmp_path) == before


def test_resuming_a_finished_run_keeps_its_summary(tmp_path: Path) -> None:
    """The notice on the objective too: client 1 does nine times the work of client 0."""
    two = fl.Quadratics(linear=((0.0,), (4.0,)), start=0.0)
    unequal = fl.Experiment(two, fl.presets.fedavg(lr=0.01, steps=1), 12, work=fl.FixedSteps((1, 9)))
    first = fl.run_experiment(unequal, tmp_path).summary
    assert first is not None
    assert first.notice is not None
    assert fl.run_experiment(unequal, tmp_path, resume=True).summary == first


def test_resuming_an_empty_folder_starts(tmp_path: Path) -> None:
    assert len(fl.run_experiment(experiment(rounds=2), tmp_path / "new", resume=True).federation.records) == 2


def test_a_line_cut_short_is_dropped(tmp_path: Path) -> None:
    whole = fl.run_experiment(experiment(), tmp_path, checkpoint_every=3)
    file = tmp_path / "rounds.jsonl"
    file.write_bytes(file.read_bytes()[:-20])
    assert fl.load_records(tmp_path) == whole.federation.records[:-1]


def test_what_comes_after_the_checkpoint_is_computed_again(tmp_path: Path) -> None:
    """A crash in the middle of a line after a checkpoint: resuming gives every round once."""
    whole = fl.run_experiment(experiment(), tmp_path / "whole", checkpoint_every=3)
    with pytest.raises(KilledError):
        fl.run_experiment(experiment(), tmp_path / "cut", checkpoint_every=3, on_round=kill_after(5))
    with (tmp_path / "cut" / "rounds.jsonl").open("a") as file:
        file.write('{"round":5,"asked":[0')
    told: list[str] = []
    fl.run_experiment(experiment(), tmp_path / "cut", resume=True, on_recovery=told.append)
    assert fl.load_records(tmp_path / "cut") == whole.federation.records
    assert told == [
        "Resuming after round 3, the last checkpoint: 2 later rounds are recomputed, and a last line that "
        "was cut short is dropped."
    ]


def test_a_run_that_lost_nothing_is_resumed_without_a_word(tmp_path: Path) -> None:
    told: list[str] = []
    fl.run_experiment(experiment(rounds=2), tmp_path)
    fl.run_experiment(experiment(rounds=4), tmp_path, resume=True, on_recovery=told.append)
    assert told == []


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda lines: [*lines[:3], b"garbage", *lines[4:]], "Line 4 of .*rounds.jsonl is damaged"),
        (lambda lines: [*lines[:3], b"\xff\xff", *lines[4:]], "Line 4 of .*rounds.jsonl is damaged"),
        (lambda lines: [lines[1], lines[0], *lines[2:]], "Line 1 of .* should be round 1, and is round 2"),
        (lambda lines: lines[:2], "holds 2 rounds, but the checkpoint was made after 7: this run cannot"),
    ],
)
def test_damaged_records_are_reported(tmp_path: Path, damage: Any, message: str) -> None:
    fl.run_experiment(experiment(), tmp_path)
    file = tmp_path / "rounds.jsonl"
    lines = damage(file.read_bytes().split(b"\n")[:-1])
    file.write_bytes(b"".join(line + b"\n" for line in lines))
    with pytest.raises(RunFolderError, match=message):
        fl.run_experiment(experiment(), tmp_path, resume=True)


def cut_newest(folder: Path) -> None:
    """Damage the tensors of the newest checkpoint."""
    newest = max((folder / "checkpoint").glob("manifest-*.json"))
    tensors = folder / "checkpoint" / json.loads(newest.read_text())["tensors"]
    tensors.write_bytes(tensors.read_bytes()[:-1])


def test_a_damaged_checkpoint_is_reported(tmp_path: Path) -> None:
    fl.run_experiment(experiment(), tmp_path)
    cut_newest(tmp_path)
    with pytest.raises(CheckpointError, match="checksum"):
        fl.run_experiment(experiment(), tmp_path, resume=True)


def test_a_run_goes_on_from_the_last_checkpoint_that_is_whole(tmp_path: Path) -> None:
    """Checkpoints of rounds 2, 4, 6 and 7, of which three are kept; 7 is damaged, and 6 is used."""
    whole = fl.run_experiment(experiment(), tmp_path / "whole")
    fl.run_experiment(experiment(), tmp_path / "cut", checkpoint_every=2)
    checkpoints = tmp_path / "cut" / "checkpoint"
    assert checkpointed_rounds(checkpoints) == [7, 6, 4]
    cut_newest(tmp_path / "cut")
    told: list[str] = []
    resumed = fl.run_experiment(experiment(), tmp_path / "cut", resume=True, on_recovery=told.append)
    damage, again = told
    assert damage.startswith("The newest checkpoint cannot be used, and the one of round 6 is used instead: ")
    assert damage.endswith("is damaged: its checksum does not match.")
    assert again == "Resuming after round 6, the last checkpoint: 1 later round is recomputed."
    assert torch.equal(resumed.federation.params, whole.federation.params)
    assert fl.load_records(tmp_path / "cut") == whole.federation.records
    cut_newest(tmp_path / "cut")
    with pytest.warns(CheckpointWarning, match="the one of round 6 is used instead"):
        fl.run_experiment(experiment(), tmp_path / "cut", resume=True)


def test_links_in_a_run_folder_are_refused(tmp_path: Path) -> None:
    """A run must not write through them; the folder itself may be one."""
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "run").symlink_to(tmp_path / "elsewhere")
    fl.run_experiment(experiment(rounds=1), tmp_path / "run")
    for name in ("rounds.jsonl", "checkpoint", "spec.toml", "provenance.json", "summary.json"):
        moved = (tmp_path / "run" / name).rename(tmp_path / name)
        (tmp_path / "run" / name).symlink_to(moved)
        with pytest.raises(RunFolderError, match=f"{name} is a symbolic link, and a run writes to its own"):
            fl.run_experiment(experiment(rounds=2), tmp_path / "run", resume=True)
        (tmp_path / "run" / name).unlink()
        moved.rename(tmp_path / "run" / name)


def test_a_run_of_any_length_keeps_its_records_on_disk(tmp_path: Path) -> None:
    """They read as a list would: by place, from the end, in slices, one after the other."""
    log = fl.run_experiment(experiment(), tmp_path).federation.records
    kept = fl.load_records(tmp_path)
    assert not isinstance(log, list)
    assert [record.round for record in log] == list(range(7))
    assert (log[0], log[-1], log[2:4]) == (kept[0], kept[-1], kept[2:4])
    assert list(reversed(log)) == kept[::-1]
    as_any: Any = log
    assert as_any == kept
    assert as_any != kept[:-1]
    with pytest.raises(IndexError):
        log[7]


def test_a_damaged_provenance_is_reported(tmp_path: Path) -> None:
    fl.run_experiment(experiment(rounds=1), tmp_path)
    (tmp_path / "provenance.json").write_text("[{}]")
    with pytest.raises(RunFolderError, match=r"provenance.json is damaged"):
        fl.run_experiment(experiment(rounds=2), tmp_path, resume=True)


def test_folders_that_cannot_be_used_say_so(tmp_path: Path) -> None:
    with pytest.raises(RunFolderError, match=r"rounds.jsonl cannot be read: No such file or directory\."):
        fl.load_records(tmp_path / "absent")
    (tmp_path / "file").write_text("")
    with pytest.raises(RunFolderError, match=r"cannot be written: Not a directory\."):
        fl.run_experiment(experiment(rounds=1), tmp_path / "file" / "run")
    with pytest.raises(FieldError, match="checkpoint_every must be at least 1, got 0"):
        fl.run_experiment(experiment(rounds=1), tmp_path / "run", checkpoint_every=0)


def test_the_commit_of_the_working_directory_is_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert git_commit() is None
    git = shutil.which("git")
    assert git is not None
    identity = ["-c", "user.name=x", "-c", "user.email=x@x"]
    for command in (["init", "-q"], [*identity, "commit", "-q", "--allow-empty", "-m", "first"]):
        subprocess.run([git, *command], check=True)
    commit = git_commit()
    assert commit is not None
    assert len(commit) == 40
    (tmp_path / "file").write_text("a")
    subprocess.run([git, "add", "file"], check=True)
    assert git_commit() == commit + "-dirty"


def test_a_folder_in_use_is_refused(tmp_path: Path) -> None:
    """By another process while it runs; not after that process was killed."""
    script = (
        "import sys, time, pathlib, fairlead as fl\n"
        "with fl.RunFolder(pathlib.Path(sys.argv[1])).claimed():\n"
        "    print('claimed', flush=True)\n"
        "    time.sleep(60)\n"
    )
    other = subprocess.Popen([sys.executable, "-c", script, str(tmp_path)], stdout=subprocess.PIPE, text=True)
    assert other.stdout is not None
    assert other.stdout.readline() == "claimed\n"
    with pytest.raises(RunFolderError, match=r"is in use by another process: wait for it to end, or choose"):
        fl.run_experiment(experiment(rounds=1), tmp_path)
    other.kill()
    other.communicate()
    assert len(fl.run_experiment(experiment(rounds=1), tmp_path).federation.records) == 1


def test_folders_that_do_not_note_threads_can_be_read(tmp_path: Path) -> None:
    """As those of versions before the field came."""
    fl.run_experiment(experiment(), tmp_path)
    store = fl.RunFolder(tmp_path)
    (start,) = json.loads(store.provenance_file.read_text())
    del start["threads"]
    store.provenance_file.write_text(json.dumps([start]))
    (read,) = store.provenance()
    assert read.threads is None
    assert read.outcome == "finished"
