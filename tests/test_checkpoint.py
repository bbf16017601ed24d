"""Checkpoints: whole or refused, and going on from one repeats every bit."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from dataclasses import replace
from hashlib import sha256
from pathlib import Path

import pytest
import torch

import fairlead as fl
from fairlead.checkpoint.store import checkpointed_rounds, has_checkpoint, load_state, save_state
from fairlead.client_table import table_in
from fairlead.errors import CheckpointError, CheckpointWarning

PROBLEM = fl.Quadratics(num_clients=5, dim=3, conditioning=3.0).problem(fl.Key.from_seed(0))


def federation(algorithm: fl.Algorithm | None = None, seed: int = 0, **world: object) -> fl.Federation:
    """SCAFFOLD under random work and heavy losses, unless told otherwise."""
    made = fl.SimulatedWorld(
        PROBLEM.task(),
        PROBLEM.data(),
        work=fl.RandomSteps(1, 4),
        link=fl.BernoulliLink(0.5),
        **{"dtype": torch.float64, **world},  # type: ignore[arg-type]
    )
    return fl.Federation(algorithm or fl.presets.scaffold(lr=0.1, cohort_size=3), made, seed)


def trained(rounds: int) -> fl.Federation:
    run = federation()
    list(run.train(rounds))
    return run


@pytest.mark.parametrize("rounds", [0, 1, 7])
def test_scaffold_with_losses_goes_on_bit_for_bit(rounds: int, tmp_path: Path) -> None:
    whole, part = trained(rounds + 8), trained(rounds)
    part.save(tmp_path)
    resumed = federation()
    resumed.resume(tmp_path)
    list(resumed.train(8))
    assert torch.equal(whole.params, resumed.params)
    assert torch.equal(whole.state.shared["control_mean"], resumed.state.shared["control_mean"])
    everyone = torch.arange(5)
    tables = [table_in(run.state.memory, "control").read(everyone) for run in (whole, resumed)]
    assert torch.equal(*tables)
    assert whole.records[rounds:] == resumed.records


def test_every_server_state_goes_on_bit_for_bit(tmp_path: Path) -> None:
    """Adam's moments and step counter, and a transform, belong to the state too."""
    algorithm = fl.Algorithm(
        fl.LocalSolver(fl.SGD(0.1), steps=2),
        transforms=(fl.Clip(0.1),),
        server=fl.Adam(0.1, schedule=fl.Cosine(20)),
    )
    runs = [federation(algorithm) for _ in range(3)]
    list(runs[0].train(6))
    list(runs[1].train(3))
    runs[1].save(tmp_path)
    runs[2].resume(tmp_path)
    list(runs[2].train(3))
    assert torch.equal(runs[0].params, runs[2].params)


def test_the_last_few_checkpoints_are_kept(tmp_path: Path) -> None:
    run = federation()
    for _ in run.train(5):
        run.save(tmp_path, keep=2)
    assert checkpointed_rounds(tmp_path) == [5, 4]
    assert len(list(tmp_path.iterdir())) == 4
    other = federation()
    other.resume(tmp_path)
    assert other.state.round == 5
    with pytest.raises(CheckpointError, match="At least 1 checkpoint must be kept, got 0"):
        run.save(tmp_path, keep=0)


def test_a_run_that_went_back_replaces_what_came_later(tmp_path: Path) -> None:
    run = federation()
    for _ in run.train(4):
        run.save(tmp_path)
    trained(3).save(tmp_path)
    assert checkpointed_rounds(tmp_path) == [3, 2]


@pytest.mark.parametrize("name", ["a flipped bit", "half a manifest", "another round", "a later format"])
def test_the_checkpoint_before_a_damaged_one_is_used_and_told(name: str, tmp_path: Path) -> None:
    run = federation()
    list(run.train(2))
    run.save(tmp_path / "checkpoint")
    list(run.train(1))
    run.save(tmp_path / "newest")
    damage, sentence = DAMAGE[name]
    damage(tmp_path / "newest")
    for path in (tmp_path / "newest").iterdir():
        path.rename(tmp_path / "checkpoint" / path.name)
    other = federation()
    with pytest.warns(CheckpointWarning, match=f"newest checkpoint cannot .* round 2 is used.*{sentence}"):
        other.resume(tmp_path / "checkpoint")
    list(other.train(1))
    assert torch.equal(other.params, run.params)
    other.save(tmp_path / "checkpoint")
    assert checkpointed_rounds(tmp_path / "checkpoint") == [3, 2]
    federation().resume(tmp_path / "checkpoint")


def test_checkpoints_of_the_first_format_are_read(tmp_path: Path) -> None:
    """One `manifest.json` without a checksum of its own; the next save writes the current format beside it."""
    run = trained(2)
    run.save(tmp_path)
    facts = json.loads(manifest_of(tmp_path).read_text())
    del facts["checksum"]
    manifest_of(tmp_path).unlink()
    (tmp_path / "manifest.json").write_text(json.dumps({**facts, "format": 1}, indent=2))
    other = federation()
    other.resume(tmp_path)
    assert other.state.round == 2
    assert torch.equal(other.params, run.params)
    for _ in other.train(3):
        other.save(tmp_path, keep=3)
    assert checkpointed_rounds(tmp_path) == [5, 4, 3]
    assert not (tmp_path / "manifest.json").exists()


def test_rows_of_clients_that_do_not_exist_are_refused(tmp_path: Path) -> None:
    """A file may be whole and vouched for, and yet not be ours."""
    state = federation(fl.presets.fedavg(lr=0.1)).state
    for clients in ([0, 9], [0, -1], [1, 1]):
        table = fl.ClientTable.create(10, 3).write(torch.tensor([3, 4]), torch.ones(2, 3))
        store = table._store
        store.clients = torch.tensor(clients)
        save_state(replace(state, aggregator={"last": table}), tmp_path, "x")
        fresh = replace(state, aggregator={"last": fl.ClientTable.create(5, 3)})
        with pytest.raises(CheckpointError, match="does not fit this algorithm and model: aggregator/last"):
            load_state(fresh, tmp_path, "x")


def test_equal_states_give_equal_files(tmp_path: Path) -> None:
    for name in ("one", "other"):
        trained(4).save(tmp_path / name)
    contents = [
        {path.name: path.read_bytes() for path in (tmp_path / name).iterdir()} for name in ("one", "other")
    ]
    assert contents[0] == contents[1]


def test_tensors_that_parts_share_are_saved_twice(tmp_path: Path) -> None:
    state = federation().state
    shared = replace(state, shared={"control_mean": state.params})
    save_state(shared, tmp_path, "x")
    loaded = load_state(federation().state, tmp_path, "x")
    assert torch.equal(loaded.shared["control_mean"], loaded.params)


def test_a_restored_table_stays_where_its_rows_are_kept(tmp_path: Path) -> None:
    """A table in a file, or in bf16, must not come back into memory as something else."""

    def with_table(folder: Path) -> fl.ServerState:
        table = fl.ClientTable.create(5, 3, dtype=torch.bfloat16, folder=folder)
        return replace(federation(fl.presets.fedavg(lr=0.1)).state, aggregator={"last": table})

    state = with_table(tmp_path / "rows")
    table = table_in(state.aggregator, "last").write(torch.tensor([4, 1]), torch.ones(2, 3))
    save_state(replace(state, aggregator={"last": table}), tmp_path / "checkpoint", "x")
    loaded = load_state(with_table(tmp_path / "other"), tmp_path / "checkpoint", "x")
    restored = table_in(loaded.aggregator, "last")
    assert restored.rows.dtype == torch.bfloat16
    assert restored.clients.tolist() == [4, 1]
    (path,) = (tmp_path / "other").iterdir()
    assert path.stat().st_size == 2 * 3 * 2


def test_resuming_forgets_the_records_of_rounds_to_come(tmp_path: Path) -> None:
    """A run that goes back must not count its later rounds twice in reports."""
    run = federation()
    list(run.train(2))
    run.save(tmp_path)
    list(run.train(3))
    run.resume(tmp_path)
    list(run.train(1))
    assert [record.round for record in run.records] == [0, 1, 2]


def manifest_of(folder: Path) -> Path:
    return max(folder.glob("manifest-*.json"))


def change_manifest(**changes: object) -> Callable[[Path], None]:
    """Another manifest that vouches for itself: only its content tells that something is wrong."""

    def damage(folder: Path) -> None:
        facts = {**json.loads(manifest_of(folder).read_text()), **changes}
        del facts["checksum"]
        checksum = sha256(json.dumps(facts).encode()).hexdigest()
        manifest_of(folder).write_text(json.dumps({**facts, "checksum": checksum}, indent=2) + "\n")

    return damage


def edit_manifest(old: str, new: str) -> Callable[[Path], None]:
    def damage(folder: Path) -> None:
        text = manifest_of(folder).read_text()
        assert old in text
        manifest_of(folder).write_text(text.replace(old, new))

    return damage


def flip_a_byte(folder: Path) -> None:
    (path,) = folder.glob("state-*.safetensors")
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)


def remove_tensors(folder: Path) -> None:
    for path in folder.glob("state-*.safetensors"):
        path.unlink()


DAMAGE: dict[str, tuple[Callable[[Path], object], str]] = {
    "a flipped bit": (flip_a_byte, "is damaged: its checksum does not match"),
    "no tensors": (remove_tensors, "cannot be read: No such file"),
    "no manifest": (lambda folder: manifest_of(folder).unlink(), "There is no checkpoint in"),
    "half a manifest": (lambda folder: manifest_of(folder).write_text('{"format": 2,'), "is damaged"),
    "bytes": (lambda folder: manifest_of(folder).write_bytes(b"\xff\xfe\x00{"), "is damaged"),
    "nested without end": (lambda folder: manifest_of(folder).write_text("[" * 100_000), "is damaged"),
    "a list": (lambda folder: manifest_of(folder).write_text("[]"), "is not the manifest of a fairlead"),
    "another round": (edit_manifest('"round": 3', '"round": 2'), "is damaged: its checksum does not match"),
    "white space": (edit_manifest('": ', '":'), "is damaged: its checksum does not match"),
    "another name": (
        lambda folder: manifest_of(folder).rename(folder / "manifest-00000009.json"),
        "is damaged: its checksum does not match",
    ),
    "text for a round": (change_manifest(round="seven"), "is not the manifest of a fairlead"),
    "a round before the first": (change_manifest(round=-1), "is not the manifest of a fairlead"),
    "a number for a name": (change_manifest(tensors=3), "is not the manifest of a fairlead"),
    "an empty name": (change_manifest(tensors=""), "is not the manifest of a fairlead"),
    "no format": (change_manifest(format=None), "is not the manifest of a fairlead"),
    "a later format": (
        change_manifest(format=99),
        "is of format 99, and this version of fairlead reads formats",
    ),
    "an older format": (change_manifest(format=1), "is not the manifest of a fairlead"),
    "another experiment": (change_manifest(fingerprint="0" * 16), "belongs to another experiment"),
    "a folder that is none": (shutil.rmtree, "There is no checkpoint in"),
}


@pytest.mark.parametrize("name", DAMAGE)
def test_damaged_checkpoints_are_refused_and_leave_the_run_alone(name: str, tmp_path: Path) -> None:
    damage, sentence = DAMAGE[name]
    trained(3).save(tmp_path / "checkpoint")
    damage(tmp_path / "checkpoint")
    run = trained(1)
    before = run.state
    with pytest.raises(CheckpointError, match=sentence):
        run.resume(tmp_path / "checkpoint")
    assert run.state is before


def test_a_path_in_the_manifest_cannot_leave_the_folder(tmp_path: Path) -> None:
    trained(1).save(tmp_path / "checkpoint")
    (path,) = (tmp_path / "checkpoint").glob("state-*.safetensors")
    path.rename(tmp_path / path.name)
    change_manifest(tensors=f"../{path.name}")(tmp_path / "checkpoint")
    with pytest.raises(CheckpointError, match="is not the manifest of a fairlead"):
        federation().resume(tmp_path / "checkpoint")


@pytest.mark.parametrize(
    "other",
    [
        lambda: federation(seed=1),
        lambda: federation(fl.presets.scaffold(lr=0.2, cohort_size=3)),
        lambda: federation(weights=[1, 2, 3, 4, 5]),
    ],
    ids=["seed", "algorithm", "weights"],
)
def test_checkpoints_of_another_experiment_are_refused(
    other: Callable[[], fl.Federation], tmp_path: Path
) -> None:
    trained(2).save(tmp_path)
    with pytest.raises(CheckpointError, match="belongs to another experiment"):
        other().resume(tmp_path)


def test_a_checkpoint_in_another_precision_is_refused(tmp_path: Path) -> None:
    save_state(trained(2).state, tmp_path, "x")
    with pytest.raises(CheckpointError, match=r"does not fit this algorithm and model: .*params"):
        load_state(federation(dtype=torch.float32).state, tmp_path, "x")
    trained(2).save(tmp_path)
    with pytest.raises(CheckpointError):
        federation(dtype=torch.float32).resume(tmp_path)


def test_a_checkpoint_with_other_tensors_is_refused(tmp_path: Path) -> None:
    state = federation().state
    save_state(replace(state, shared={}), tmp_path, "x")
    with pytest.raises(CheckpointError, match=r"does not fit .*: shared/control_mean"):
        load_state(federation().state, tmp_path, "x")


def test_one_can_ask_whether_there_is_one(tmp_path: Path) -> None:
    assert not has_checkpoint(tmp_path)
    trained(0).save(tmp_path)
    assert has_checkpoint(tmp_path)


def test_an_unfinished_write_does_not_count(tmp_path: Path) -> None:
    """A crash while writing leaves a draft beside the old checkpoint, which stays valid."""
    trained(2).save(tmp_path)
    (tmp_path / "manifest-00000003.json.part").write_text("{")
    draft = tmp_path / "state-0123456789abcdef.safetensors.part"
    draft.write_bytes(b"half")
    run = federation()
    run.resume(tmp_path)
    assert run.state.round == 2
    run.save(tmp_path)
    assert not list(tmp_path.glob("*.part"))
