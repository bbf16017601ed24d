"""A folder of checkpoints: a crash during a save leaves the old ones intact, and damaged ones are not loaded."""

import hashlib
import json
import re
import warnings
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass, replace
from hashlib import sha256
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save, save_file
from torch import Tensor

from fairlead.checkpoint.durable_files import drop, make_folder, new_draft, publish, write_durably
from fairlead.client_table import ClientTable, PartState
from fairlead.errors import CheckpointError, CheckpointWarning, disk_errors
from fairlead.records import ServerState

_PARTS = ("sampler", "aggregator", "server", "memory", "flight")
"""Fields of a `ServerState` that are the state of one part."""


def tensors_of(state: ServerState) -> dict[str, Tensor]:
    """Every tensor of a state by the path of its part, on the CPU; no two share memory."""
    found: dict[str, Tensor] = {}
    seen: set[int] = set()
    for name, tensor in _named(state):
        kept = tensor.detach().cpu().contiguous()
        # Parts may share a tensor. Only those are copied, since a client table may be larger than the memory.
        storage = kept.untyped_storage().data_ptr()
        found[name] = kept.clone() if storage in seen else kept
        seen.add(storage)
    return found


def state_from(tensors: Mapping[str, Tensor], like: ServerState, round: int) -> ServerState:
    """The state in tensors, in the form of `like`; rows are written into its tables."""
    device = like.params.device

    def restored(prefix: str, part: PartState) -> PartState:
        values: dict[str, Tensor | ClientTable] = {}
        for name, old in part.items():
            path = f"{prefix}/{name}"
            if isinstance(old, ClientTable):
                # Into the fresh table, which knows where to keep rows.
                values[name] = old.write(tensors[f"{path}/clients"], tensors[f"{path}/rows"])
            else:
                values[name] = tensors[path].to(old.device, copy=True)
        return values

    return replace(
        like,
        round=round,
        params=tensors["params"].to(device, copy=True),
        buffers=tensors["buffers"].to(device, copy=True),
        shared={name: tensors[f"shared/{name}"].to(device, copy=True) for name in like.shared},
        transforms=tuple(
            restored(f"transforms/{position}", part) for position, part in enumerate(like.transforms)
        ),
        **{name: restored(name, getattr(like, name)) for name in _PARTS},
    )


def refuse_misfit(like: ServerState, tensors: Mapping[str, Tensor], folder: Path) -> None:
    """Raise if tensors do not have the names, shapes and types of a state like this one."""
    expected = dict(_named(like))
    differing = expected.keys() ^ tensors.keys()
    for name in expected.keys() & tensors.keys():
        # The number of rows of a client table grows with the run; nothing else changes shape.
        in_table = name.endswith(("/rows", "/clients"))
        shapes = [t.shape[1:] if in_table else t.shape for t in (expected[name], tensors[name])]
        if shapes[0] != shapes[1] or expected[name].dtype != tensors[name].dtype:
            differing.add(name)
    if not differing:
        differing = {name for name, table in tables_of(like) if not _fits(table, name, tensors)}
    if differing:
        names = ", ".join(sorted(differing))
        raise CheckpointError(f"The checkpoint in {folder} does not fit this algorithm and model: {names}.")


def _fits(table: ClientTable, name: str, tensors: Mapping[str, Tensor]) -> bool:
    """Whether each row belongs to a different client of the table."""
    clients = tensors[f"{name}/clients"]
    known = bool(((clients >= 0) & (clients < table.num_clients)).all())
    return known and len(clients) == len(tensors[f"{name}/rows"]) == len(torch.unique(clients))


def _named(state: ServerState) -> Iterator[tuple[str, Tensor]]:
    yield "params", state.params
    yield "buffers", state.buffers
    yield from ((f"shared/{name}", vector) for name, vector in state.shared.items())
    for path, value in _of_parts(state):
        if isinstance(value, ClientTable):
            yield f"{path}/clients", value.clients
            yield f"{path}/rows", value.rows
        else:
            yield path, value


def tables_of(state: ServerState) -> Iterator[tuple[str, ClientTable]]:
    """Every client table of a state by the path of its part."""
    return ((path, value) for path, value in _of_parts(state) if isinstance(value, ClientTable))


def _of_parts(state: ServerState) -> Iterator[tuple[str, Tensor | ClientTable]]:
    parts: dict[str, PartState] = {name: getattr(state, name) for name in _PARTS}
    parts |= {f"transforms/{position}": part for position, part in enumerate(state.transforms)}
    for prefix, part in parts.items():
        yield from ((f"{prefix}/{name}", value) for name, value in part.items())


def save_module(tensors: Mapping[str, Tensor], path: Path, facts: Mapping[str, object]) -> None:
    """Replace a safetensors file by the named tensors of a module, durably, with facts about it."""
    # Copies: parameters with two names would share memory. One entry of metadata: several have no fixed order.
    copies = {name: value.detach().cpu().clone() for name, value in tensors.items()}
    write_durably(path, save(copies, {"fairlead": json.dumps(facts)}))


def read_module(path: Path) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """The tensors in a file of `save_module` by name, and the facts beside them."""
    with disk_errors(path, "read", CheckpointError):
        try:
            with safe_open(path, framework="pt") as file:
                facts = json.loads((file.metadata() or {})["fairlead"])
                return {name: file.get_tensor(name) for name in file.keys()}, facts  # noqa: SIM118
        except (SafetensorError, KeyError, ValueError) as error:
            raise CheckpointError(f"{path} is damaged or no model of a run: {error}.") from error


FORMAT = 2
_NAME = re.compile(r"manifest(?:-(\d+))?\.json")
_TENSORS = re.compile(r"state-[0-9a-f]{16}\.safetensors")


class DamagedCheckpointError(CheckpointError):
    """One checkpoint is damaged; an earlier one may be usable."""


@dataclass(frozen=True)
class Manifest:
    """The contents of a checkpoint."""

    round: int
    fingerprint: str
    """Identifies the experiment."""
    tensors: str
    """The file beside the manifest."""
    sha256: str
    """Of that file."""

    @property
    def name(self) -> str:
        """The file name of the manifest itself."""
        return f"manifest-{self.round:08d}.json"

    def encoded(self) -> bytes:
        """The content of the manifest's file: the same bytes for the same checkpoint."""
        facts = {"format": FORMAT, **asdict(self)}
        checksum = sha256(json.dumps(facts).encode()).hexdigest()
        return json.dumps({**facts, "checksum": checksum}, indent=2).encode() + b"\n"


def tensors_name(digest: str) -> str:
    """The file name of tensors with this digest; no other state has it."""
    return f"state-{digest[:16]}.safetensors"


def manifests(folder: Path) -> list[Path]:
    """Manifests in a folder, newest first."""
    found = {path: match for path in folder.glob("manifest*.json") if (match := _NAME.fullmatch(path.name))}
    return sorted(found, key=lambda path: int(found[path][1] or -1), reverse=True)


def is_of_checkpoint(name: str) -> bool:
    """Whether a file of this name belongs to a checkpoint or to a draft of one."""
    whole = name.removesuffix(".part")
    return bool(_NAME.fullmatch(whole) or _TENSORS.fullmatch(whole) or name == "state.safetensors.part")


def read_manifest(path: Path) -> Manifest:
    """The manifest in a file of any known format; raises `DamagedCheckpointError` for anything else."""
    with disk_errors(path, "read", DamagedCheckpointError):
        content = path.read_bytes()
    try:
        table = json.loads(content)
    except (ValueError, RecursionError) as error:
        raise DamagedCheckpointError(f"{path} is damaged: it is not JSON.") from error
    number = table.get("format") if isinstance(table, dict) else None
    if type(number) is not int:
        raise _foreign(path)
    if not 1 <= number <= FORMAT:
        raise DamagedCheckpointError(
            f"{path} is of format {number}, and this version of fairlead reads formats up to {FORMAT}."
        )
    if number > 1:
        table.pop("checksum", None)
    manifest = _manifest(table, path)
    # Format 1 had no checksum and one checkpoint per folder. Since then, any difference is damage.
    if number > 1 and (manifest.encoded() != content or manifest.name != path.name):
        raise DamagedCheckpointError(f"{path} is damaged: its checksum does not match.")
    if not _TENSORS.fullmatch(manifest.tensors) or (number == 1 and path.name != "manifest.json"):
        raise _foreign(path)
    return manifest


def _manifest(table: dict[str, Any], path: Path) -> Manifest:
    kinds = {"format": int, "round": int, "fingerprint": str, "tensors": str, "sha256": str}
    if {name: type(value) for name, value in table.items()} != kinds or table["round"] < 0:
        raise _foreign(path)
    return Manifest(table["round"], table["fingerprint"], table["tensors"], table["sha256"])


def _foreign(path: Path) -> DamagedCheckpointError:
    return DamagedCheckpointError(f"{path} is not the manifest of a fairlead checkpoint.")


KEPT = 3
"""Checkpoints kept in a folder: the newest, and two to fall back on."""


def warn(sentence: str) -> None:
    """The default of `on_damage`."""
    warnings.warn(sentence, CheckpointWarning, stacklevel=4)


def save_state(state: ServerState, folder: Path, fingerprint: str, keep: int = KEPT) -> None:
    """Add a checkpoint to a folder, and remove all but the `keep` newest up to its round.

    After a crash or an error at any moment, the old checkpoints are intact and the new one is complete or absent.
    `fingerprint` identifies the experiment; only a run of the same experiment may load the checkpoint.
    """
    if keep < 1:
        raise CheckpointError(f"At least 1 checkpoint must be kept, got {keep}.")
    try:
        make_folder(folder)
        draft = new_draft(folder / "state.safetensors")
        try:
            save_file(tensors_of(state), draft)
        except (OSError, SafetensorError):
            drop(draft)
            raise
        # Identical states have identical bytes, so the digest names the file.
        digest = _digest(draft)
        publish(draft, folder / tensors_name(digest))
        manifest = Manifest(state.round, fingerprint, tensors_name(digest), digest)
        write_durably(folder / manifest.name, manifest.encoded())
        _prune(folder, state.round, keep)
    except (OSError, SafetensorError) as error:
        # The system's own message in `... I/O error: No space left on device (os error 28)`.
        own = str(error).rpartition("I/O error: ")[2].partition(" (os error")[0]
        reason = error.strerror if isinstance(error, OSError) else own
        raise CheckpointError(
            f"No checkpoint could be written to {folder}: {reason}. Earlier checkpoints are unchanged."
        ) from error


def load_state(
    like: ServerState, folder: Path, fingerprint: str, on_damage: Callable[[str], None] = warn
) -> ServerState:
    """The newest undamaged state in a folder, in the form of `like`, a fresh state of the same experiment.

    `on_damage` receives one sentence if newer checkpoints are damaged.
    """
    round, tensors = newest_tensors(folder, on_damage, fingerprint)
    refuse_misfit(like, tensors, folder)
    return state_from(tensors, like, round)


def newest_tensors(
    folder: Path, on_damage: Callable[[str], None] = warn, fingerprint: str | None = None
) -> tuple[int, dict[str, Tensor]]:
    """Round and tensors of the newest undamaged checkpoint, of the given experiment or of any."""
    refused: list[str] = []
    for path in manifests(folder):
        try:
            manifest = read_manifest(path)
            if fingerprint is not None and manifest.fingerprint != fingerprint:
                raise CheckpointError(
                    f"The checkpoint in {folder} belongs to another experiment (its algorithm, data or seed "
                    "differ): resume with the same spec, or choose another folder."
                )
            tensors = _read_tensors(folder / manifest.tensors, manifest.sha256)
        except DamagedCheckpointError as error:
            refused.append(str(error))
            continue
        if refused:
            on_damage(_fallen_back(refused, manifest.round))
        return manifest.round, tensors
    if not refused:
        raise CheckpointError(f"There is no checkpoint in {folder}.")
    none = "" if len(refused) == 1 else f"None of the {len(refused)} checkpoints in {folder} can be used. "
    raise CheckpointError(f"{none}{refused[0]}")


def has_checkpoint(folder: Path) -> bool:
    """Whether a folder holds a checkpoint, damaged or not."""
    return bool(manifests(folder))


def checkpointed_rounds(folder: Path) -> list[int]:
    """The rounds of the checkpoints in a folder, newest first; damaged manifests are skipped."""
    found = (_readable(path) for path in manifests(folder))
    return [manifest.round for manifest in found if manifest is not None]


def _prune(folder: Path, latest: int, keep: int) -> None:
    kept: list[Manifest] = []
    names: set[str] = set()
    for path in manifests(folder):
        manifest = _readable(path) if len(kept) < keep else None
        # Later rounds belong to a run that resumed from an earlier one: the new rounds replace them.
        if manifest is not None and manifest.round <= latest:
            kept.append(manifest)
            names |= {path.name, manifest.tensors}
    for path in folder.iterdir():
        # Including drafts left by a crash.
        if is_of_checkpoint(path.name) and path.name not in names:
            path.unlink(missing_ok=True)


def _readable(path: Path) -> Manifest | None:
    try:
        return read_manifest(path)
    except DamagedCheckpointError:
        return None


def _read_tensors(path: Path, digest: str) -> dict[str, Tensor]:
    """Tensors mapped from a file with a verified checksum."""
    with disk_errors(path, "read", DamagedCheckpointError):
        if _digest(path) != digest:
            raise DamagedCheckpointError(f"{path} is damaged: its checksum does not match.")
        try:
            with safe_open(path, framework="pt") as file:
                return {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
        except SafetensorError as error:
            raise DamagedCheckpointError(f"{path} holds no tensors: {error}.") from error


def _digest(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _fallen_back(refused: list[str], round: int) -> str:
    newer = "The newest checkpoint" if len(refused) == 1 else f"The {len(refused)} newest checkpoints"
    return f"{newer} cannot be used, and the one of round {round} is used instead: {refused[0]}"
