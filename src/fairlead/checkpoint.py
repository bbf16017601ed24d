"""Checkpoints: a server state as safetensors beside a small manifest, replaced atomically."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from dataclasses import replace
from hashlib import sha256
from pathlib import Path

from safetensors.torch import load, save
from torch import Tensor

from fairlead.client_table import ClientTable, PartState
from fairlead.errors import CheckpointError
from fairlead.records import ServerState

FORMAT = 1
_MANIFEST, _TENSORS = "manifest.json", "state-{digest}.safetensors"


def save_state(state: ServerState, folder: Path, fingerprint: str) -> None:
    """Write a state so that a crash at any moment leaves the previous or the new one, whole.

    `fingerprint` names the experiment; only a run of the same experiment may load the checkpoint.
    """
    folder.mkdir(parents=True, exist_ok=True)
    # Identical bytes for identical states: the digest is then also the name of the file.
    content = save({name: tensor.contiguous() for name, tensor in _tensors(state)})
    digest = sha256(content).hexdigest()
    tensors = _TENSORS.format(digest=digest[:16])
    _write_durably(folder / tensors, content)
    manifest = {
        "format": FORMAT,
        "round": state.round,
        "fingerprint": fingerprint,
        "tensors": tensors,
        "sha256": digest,
    }
    _write_durably(folder / _MANIFEST, json.dumps(manifest, indent=2).encode())
    for stale in folder.glob(_TENSORS.format(digest="*")):
        if stale.name != tensors:
            stale.unlink()


def load_state(like: ServerState, folder: Path, fingerprint: str) -> ServerState:
    """The state in a folder, in the form of `like`, a fresh state of the same experiment."""
    manifest = _read_manifest(folder)
    if manifest["fingerprint"] != fingerprint:
        raise CheckpointError(
            f"The checkpoint in {folder} belongs to another experiment (its algorithm, data or seed "
            "differ): resume with the same spec, or choose another folder."
        )
    content = _read(folder / Path(str(manifest["tensors"])).name)
    if sha256(content).hexdigest() != manifest["sha256"]:
        raise CheckpointError(f"The checkpoint in {folder} is damaged: its checksum does not match.")
    tensors = load(content)
    expected = {name for name, _ in _tensors(like)}
    if expected != set(tensors):
        differing = ", ".join(sorted(expected ^ set(tensors)))
        raise CheckpointError(f"The checkpoint in {folder} does not fit this algorithm: {differing}.")
    device = like.params.device

    def restored(prefix: str, part: PartState) -> PartState:
        values: dict[str, Tensor | ClientTable] = {}
        for name, old in part.items():
            path = f"{prefix}/{name}"
            if isinstance(old, ClientTable):
                rows = tensors[f"{path}/rows"].to(device)
                values[name] = ClientTable.restore(old.num_clients, tensors[f"{path}/clients"], rows)
            else:
                values[name] = tensors[path].to(old.device)
        return values

    return replace(
        like,
        round=int(str(manifest["round"])),
        params=tensors["params"].to(device),
        buffers=tensors["buffers"].to(device),
        shared={name: tensors[f"shared/{name}"].to(device) for name in like.shared},
        sampler=restored("sampler", like.sampler),
        aggregator=restored("aggregator", like.aggregator),
        transforms=tuple(
            restored(f"transforms/{position}", part) for position, part in enumerate(like.transforms)
        ),
        server=restored("server", like.server),
        memory=restored("memory", like.memory),
    )


def has_checkpoint(folder: Path) -> bool:
    """Whether a folder holds a checkpoint."""
    return (folder / _MANIFEST).is_file()


def _tensors(state: ServerState) -> Iterator[tuple[str, Tensor]]:
    """Every tensor of a state under a path that names its part."""
    yield "params", state.params
    yield "buffers", state.buffers
    yield from ((f"shared/{name}", vector) for name, vector in state.shared.items())
    parts: dict[str, PartState] = {
        "sampler": state.sampler,
        "aggregator": state.aggregator,
        **{f"transforms/{position}": part for position, part in enumerate(state.transforms)},
        "server": state.server,
        "memory": state.memory,
    }
    for prefix, part in parts.items():
        for name, value in part.items():
            if isinstance(value, ClientTable):
                yield f"{prefix}/{name}/clients", value.clients
                yield f"{prefix}/{name}/rows", value.rows
            else:
                yield f"{prefix}/{name}", value


def _read_manifest(folder: Path) -> dict[str, object]:
    try:
        manifest = json.loads(_read(folder / _MANIFEST))
    except json.JSONDecodeError as error:
        raise CheckpointError(f"{folder / _MANIFEST} is damaged: {error}.") from error
    known = {"format", "round", "fingerprint", "tensors", "sha256"}
    if not isinstance(manifest, dict) or set(manifest) != known:
        raise CheckpointError(f"{folder / _MANIFEST} is not the manifest of a fairlead checkpoint.")
    if manifest["format"] != FORMAT:
        raise CheckpointError(
            f"{folder} holds a checkpoint of format {manifest['format']}; this version reads {FORMAT}."
        )
    return manifest


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise CheckpointError(f"{path} cannot be read: {error.strerror}.") from error


def _write_durably(path: Path, content: bytes) -> None:
    """Replace a file in one step, on the disk before this returns."""
    draft = path.with_name(path.name + ".part")
    with draft.open("wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
    draft.replace(path)
    descriptor = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
