"""Checkpoints: a server state as safetensors beside a small manifest, replaced atomically."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from dataclasses import replace
from hashlib import sha256
from pathlib import Path
from typing import TypedDict

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
    # Copies, since parts may share a tensor and safetensors would not take it twice.
    content = save({name: tensor.detach().cpu().contiguous().clone() for name, tensor in _tensors(state)})
    digest = sha256(content).hexdigest()
    tensors = _TENSORS.format(digest=digest[:16])
    write_durably(folder / tensors, content)
    manifest = _Manifest(
        format=FORMAT, round=state.round, fingerprint=fingerprint, tensors=tensors, sha256=digest
    )
    write_durably(folder / _MANIFEST, json.dumps(manifest, indent=2).encode())
    # Drafts that a crash left behind included.
    for stale in folder.glob(_TENSORS.format(digest="*") + "*"):
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
    content = _read(folder / Path(manifest["tensors"]).name)
    if sha256(content).hexdigest() != manifest["sha256"]:
        raise CheckpointError(f"The checkpoint in {folder} is damaged: its checksum does not match.")
    tensors = load(content)
    _refuse_misfit(like, tensors, folder)
    device = like.params.device

    def restored(prefix: str, part: PartState) -> PartState:
        values: dict[str, Tensor | ClientTable] = {}
        for name, old in part.items():
            path = f"{prefix}/{name}"
            if isinstance(old, ClientTable):
                # Into the fresh table, which knows where rows are to be kept.
                values[name] = old.write(tensors[f"{path}/clients"], tensors[f"{path}/rows"])
            else:
                values[name] = tensors[path].to(old.device)
        return values

    return replace(
        like,
        round=manifest["round"],
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


def _refuse_misfit(like: ServerState, tensors: dict[str, Tensor], folder: Path) -> None:
    """Raise if the tensors of a checkpoint are not those of a state like this one."""
    expected = dict(_tensors(like))
    differing = expected.keys() ^ tensors.keys()
    for name in expected.keys() & tensors.keys():
        # The number of rows of a client table grows with the run; nothing else changes shape.
        in_table = name.endswith(("/rows", "/clients"))
        shapes = [t.shape[1:] if in_table else t.shape for t in (expected[name], tensors[name])]
        if shapes[0] != shapes[1] or expected[name].dtype != tensors[name].dtype:
            differing.add(name)
    if differing:
        names = ", ".join(sorted(differing))
        raise CheckpointError(f"The checkpoint in {folder} does not fit this algorithm and model: {names}.")


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


class _Manifest(TypedDict):
    format: int
    round: int
    fingerprint: str
    tensors: str
    sha256: str


def _read_manifest(folder: Path) -> _Manifest:
    try:
        manifest: _Manifest = json.loads(_read(folder / _MANIFEST))
    except ValueError as error:
        raise CheckpointError(f"{folder / _MANIFEST} is damaged: {error}.") from error
    kinds = {"format": int, "round": int, "fingerprint": str, "tensors": str, "sha256": str}
    if not isinstance(manifest, dict) or {name: type(value) for name, value in manifest.items()} != kinds:
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


def write_durably(path: Path, content: bytes) -> None:
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
