"""`Manifest`: the small file that says which tensors a checkpoint is made of, and vouches for them and itself.

Format 2, `manifest-<round>.json`: all fields below and a checksum over them; several lie side by side.
Format 1, `manifest.json`: one checkpoint in a folder, and no checksum of the manifest.

Old formats are read as they are, and the next save writes the current one. A new format gets a number, a reader
of its own in `_READERS`, and leaves those of the older ones in place.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import asdict, dataclass
from hashlib import sha256
from pathlib import Path
from typing import Any

from fairlead.errors import CheckpointError

FORMAT = 2
_NAME = re.compile(r"manifest(?:-(\d+))?\.json")
_TENSORS = re.compile(r"state-[0-9a-f]{16}\.safetensors")


class DamagedCheckpointError(CheckpointError):
    """One checkpoint cannot be used; an earlier one may."""


@dataclass(frozen=True)
class Manifest:
    """What a checkpoint holds."""

    round: int
    fingerprint: str
    """Names the experiment."""
    tensors: str
    """The file beside the manifest."""
    sha256: str
    """Of that file."""

    @property
    def name(self) -> str:
        """The file of the manifest itself."""
        return f"manifest-{self.round:08d}.json"

    def encoded(self) -> bytes:
        """The content of its file: the same bytes for the same checkpoint."""
        facts = {"format": FORMAT, **asdict(self)}
        checksum = sha256(json.dumps(facts).encode()).hexdigest()
        return json.dumps({**facts, "checksum": checksum}, indent=2).encode() + b"\n"


def tensors_name(digest: str) -> str:
    """The file for tensors with this digest: other states never overwrite it."""
    return f"state-{digest[:16]}.safetensors"


def manifests(folder: Path) -> list[Path]:
    """Manifests in a folder, newest first."""
    found = {path: match for path in folder.glob("manifest*.json") if (match := _NAME.fullmatch(path.name))}
    return sorted(found, key=lambda path: int(found[path][1] or -1), reverse=True)


def is_of_checkpoint(name: str) -> bool:
    """Whether a file of this name belongs to some checkpoint, drafts included."""
    whole = name.removesuffix(".part")
    return bool(_NAME.fullmatch(whole) or _TENSORS.fullmatch(whole) or name == "state.safetensors.part")


def read_manifest(path: Path) -> Manifest:
    """The manifest in a file of any known format; `DamagedCheckpointError` if it is none or not whole."""
    try:
        content = path.read_bytes()
    except OSError as error:
        raise DamagedCheckpointError(f"{path} cannot be read: {error.strerror}.") from error
    try:
        table = json.loads(content)
    except (ValueError, RecursionError) as error:
        raise DamagedCheckpointError(f"{path} is damaged: it is not JSON.") from error
    number = table.get("format") if isinstance(table, dict) else None
    if type(number) is not int:
        raise _foreign(path)
    if number not in _READERS:
        raise DamagedCheckpointError(
            f"{path} is of format {number}, and this version of fairlead reads formats up to {FORMAT}."
        )
    manifest = _READERS[number](table, content, path)
    if not _TENSORS.fullmatch(manifest.tensors):
        raise _foreign(path)
    return manifest


def _read_1(table: dict[str, Any], content: bytes, path: Path) -> Manifest:
    if path.name != "manifest.json":
        raise _foreign(path)
    return _manifest(table, path)


def _read_2(table: dict[str, Any], content: bytes, path: Path) -> Manifest:
    manifest = _manifest({key: value for key, value in table.items() if key != "checksum"}, path)
    # To the byte: whatever differs from what was written is damage, and the name is a part of it.
    if manifest.encoded() != content or manifest.name != path.name:
        raise DamagedCheckpointError(f"{path} is damaged: its checksum does not match.")
    return manifest


_READERS: dict[int, Callable[[dict[str, Any], bytes, Path], Manifest]] = {1: _read_1, 2: _read_2}


def _manifest(table: dict[str, Any], path: Path) -> Manifest:
    kinds = {"format": int, "round": int, "fingerprint": str, "tensors": str, "sha256": str}
    if {name: type(value) for name, value in table.items()} != kinds or table["round"] < 0:
        raise _foreign(path)
    return Manifest(table["round"], table["fingerprint"], table["tensors"], table["sha256"])


def _foreign(path: Path) -> DamagedCheckpointError:
    return DamagedCheckpointError(f"{path} is not the manifest of a fairlead checkpoint.")
