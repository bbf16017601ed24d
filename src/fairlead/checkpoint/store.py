"""A folder of checkpoints: saved so that a crash at any moment leaves whole ones, loaded only if whole."""

from __future__ import annotations

import hashlib
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from fairlead.checkpoint.durable_files import drop, make_folder, new_draft, publish, write_durably
from fairlead.checkpoint.manifest import (
    DamagedCheckpointError,
    Manifest,
    is_of_checkpoint,
    manifests,
    read_manifest,
    tensors_name,
)
from fairlead.checkpoint.state_tensors import refuse_misfit, state_from, tensors_of
from fairlead.errors import CheckpointError, CheckpointWarning
from fairlead.records import ServerState

KEPT = 3
"""Checkpoints that a folder holds: the newest, and those to fall back on."""


def warn(sentence: str) -> None:
    """Tell those who have not said how they want to be told."""
    warnings.warn(sentence, CheckpointWarning, stacklevel=4)


def save_state(state: ServerState, folder: Path, fingerprint: str, keep: int = KEPT) -> None:
    """Add a checkpoint to a folder, and remove all but the `keep` newest up to its round.

    A crash or an error at any moment leaves those that were there, or also the new one, whole. `fingerprint`
    names the experiment; only a run of the same experiment may load the checkpoint.
    """
    if keep < 1:
        raise CheckpointError(f"At least 1 checkpoint must be kept, got {keep}.")
    with _one_sentence(folder):
        make_folder(folder)
        draft = new_draft(folder / "state.safetensors")
        try:
            save_file(tensors_of(state), draft)
        except (OSError, SafetensorError):
            drop(draft)
            raise
        # Identical bytes for identical states: the digest is then also the name of the file.
        digest = _digest(draft)
        publish(draft, folder / tensors_name(digest))
        manifest = Manifest(state.round, fingerprint, tensors_name(digest), digest)
        write_durably(folder / manifest.name, manifest.encoded())
        _prune(folder, state.round, keep)


def load_state(
    like: ServerState, folder: Path, fingerprint: str, on_damage: Callable[[str], None] = warn
) -> ServerState:
    """The newest whole state in a folder, in the form of `like`, a fresh state of the same experiment.

    `on_damage` is told in one sentence if newer checkpoints could not be used.
    """
    refused: list[str] = []
    for path in manifests(folder):
        try:
            manifest = read_manifest(path)
            if manifest.fingerprint != fingerprint:
                raise CheckpointError(
                    f"The checkpoint in {folder} belongs to another experiment (its algorithm, data or seed "
                    "differ): resume with the same spec, or choose another folder."
                )
            tensors = _read_tensors(folder / manifest.tensors, manifest.sha256)
        except DamagedCheckpointError as error:
            refused.append(str(error))
            continue
        refuse_misfit(like, tensors, folder)
        if refused:
            on_damage(_fallen_back(refused, manifest.round))
        return state_from(tensors, like, manifest.round)
    if not refused:
        raise CheckpointError(f"There is no checkpoint in {folder}.")
    none = "" if len(refused) == 1 else f"None of the {len(refused)} checkpoints in {folder} can be used. "
    raise CheckpointError(f"{none}{refused[0]}")


def has_checkpoint(folder: Path) -> bool:
    """Whether a folder holds a checkpoint, damaged or not."""
    return bool(manifests(folder))


def checkpointed_rounds(folder: Path) -> list[int]:
    """Rounds after which the checkpoints in a folder were made, newest first; damaged manifests are left out."""
    found = (_readable(path) for path in manifests(folder))
    return [manifest.round for manifest in found if manifest is not None]


def _prune(folder: Path, latest: int, keep: int) -> None:
    kept: list[Manifest] = []
    names: set[str] = set()
    for path in manifests(folder):
        manifest = _readable(path) if len(kept) < keep else None
        # Later rounds are those of a run that went back: what it does now replaces them.
        if manifest is not None and manifest.round <= latest:
            kept.append(manifest)
            names |= {path.name, manifest.tensors}
    for path in folder.iterdir():
        # Drafts that a crash left behind included.
        if is_of_checkpoint(path.name) and path.name not in names:
            path.unlink(missing_ok=True)


def _readable(path: Path) -> Manifest | None:
    try:
        return read_manifest(path)
    except DamagedCheckpointError:
        return None


def _read_tensors(path: Path, digest: str) -> dict[str, Tensor]:
    """Tensors mapped from a file whose content was verified."""
    try:
        if _digest(path) != digest:
            raise DamagedCheckpointError(f"{path} is damaged: its checksum does not match.")
        with safe_open(path, framework="pt") as file:
            return {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    except OSError as error:
        raise DamagedCheckpointError(f"{path} cannot be read: {error.strerror}.") from error
    except SafetensorError as error:
        raise DamagedCheckpointError(f"{path} holds no tensors: {error}.") from error


def _digest(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _fallen_back(refused: list[str], round: int) -> str:
    newer = "The newest checkpoint" if len(refused) == 1 else f"The {len(refused)} newest checkpoints"
    return f"{newer} cannot be used, and the one of round {round} is taken instead: {refused[0]}"


@contextmanager
def _one_sentence(folder: Path) -> Iterator[None]:
    try:
        yield
    except (OSError, SafetensorError) as error:
        reason = error.strerror if isinstance(error, OSError) else _system_error(str(error))
        raise CheckpointError(
            f"No checkpoint could be written to {folder}: {reason}. Those that were there are as before."
        ) from error


def _system_error(message: str) -> str:
    """`... I/O error: No space left on device (os error 28)` in the system's own words alone."""
    return message.rpartition("I/O error: ")[2].partition(" (os error")[0]
