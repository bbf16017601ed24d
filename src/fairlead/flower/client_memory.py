"""The memory of a client of a real federation between rounds, on its own disk.

With every question the server names the version of the memory to start from: that of the client's last update that
it aggregated and checkpointed. The client keeps this version and the one after its new work. If server, link or
client dies in between, the repeated question therefore gives the same numbers.
"""

from __future__ import annotations

import fcntl
import json
import re
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path

from safetensors.torch import load, save
from torch import Tensor

from fairlead.checkpoint.durable_files import write_durably
from fairlead.flower.messages import RequestError
from fairlead.records import Vectors

_RUN = re.compile(r"[0-9a-f]{8,64}")
_CONTENT = "*.safetensors"


@dataclass(frozen=True)
class ClientMemory:
    """The memory of one client for one run, in a folder of its own."""

    folder: Path

    @staticmethod
    def of(folder: Path, run: str, client: int) -> ClientMemory:
        """The memory of a client under `folder`; `run` comes from the server and must not lead out of the folder."""
        if not _RUN.fullmatch(run):
            raise RequestError("malformed", "run must be 8 to 64 hexadecimal digits.")
        return ClientMemory(folder / run / f"client-{client}")

    @contextmanager
    def claimed(self, attempt: int, round: int) -> Iterator[None]:
        """Lock the memory during local work, and refuse a question older than the latest.

        A node may still hold a question of a server that died. Work on it would delete memory that the next server
        needs.
        """
        # Closed to other users: the memory reveals something about the client's data.
        self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        with (self.folder / "lock").open("a") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            latest = self._latest()
            if [attempt, round] < latest:
                raise RequestError(
                    "out of date",
                    f"Round {round} was asked before round {latest[1]}, which this client already knows.",
                )
            write_durably(self.folder / "latest.json", json.dumps([attempt, round]).encode())
            yield

    def forget_old_runs(self, keep: int, *, remembers: bool) -> None:
        """Remove this client's memory of all but the `keep` latest runs that have one.

        This run counts if it `remembers` anything. The marks of as many runs without memory stay too; they never
        replace a memory. If a run resumes after its memory was removed, `read` says so.
        """
        last_work: dict[Path, int] = {}
        for mark in self.folder.parents[1].glob(f"*/{self.folder.name}/latest.json"):
            if mark.parent != self.folder and _RUN.fullmatch(mark.parent.parent.name):
                # Another process of this client may do the same.
                with suppress(FileNotFoundError):
                    last_work[mark.parent] = mark.stat().st_mtime_ns
        newest_first = sorted(last_work, key=lambda memory: last_work[memory], reverse=True)
        with_memory = [memory for memory in newest_first if any(memory.glob(_CONTENT))]
        without = [memory for memory in newest_first if memory not in with_memory]
        for memory in (*with_memory[keep - remembers :], *without[keep:]):
            shutil.rmtree(memory, ignore_errors=True)
            # Fails if another client keeps its memory in the same folder.
            with suppress(OSError):
                memory.parent.rmdir()

    def read(self, version: int, lengths: Mapping[str, int], like: Tensor) -> Vectors:
        """A version with vectors of the given lengths; version 0 is all zeros, and a missing version is an error."""
        if version == 0:
            return {name: like.new_zeros(length) for name, length in lengths.items()}
        content = self._content(version)
        vectors = load(content)
        if {name: tuple(v.shape) for name, v in vectors.items()} != {n: (m,) for n, m in lengths.items()}:
            raise RequestError("memory lost", f"Version {version} of the memory is of another method.")
        return {name: vector.to(like) for name, vector in vectors.items()}

    def write(self, version: int, vectors: Vectors, *, base: int) -> None:
        """Keep a new version and its base, and remove all others."""
        content = save({name: vector.detach().cpu().contiguous() for name, vector in vectors.items()})
        digest = sha256(content).hexdigest()[:32]
        file = self.folder / f"{version}-{digest}.safetensors"
        write_durably(file, content)
        kept = {file, *self._files(base)}
        for stale in self.folder.glob(_CONTENT):
            if stale not in kept:
                stale.unlink()

    def _content(self, version: int) -> bytes:
        for file in self._files(version):
            content = file.read_bytes()
            if file.stem.endswith(sha256(content).hexdigest()[:32]):
                return content
            raise RequestError("memory lost", f"Version {version} of the memory is damaged: {file.name}.")
        raise RequestError("memory lost", f"Version {version} of the memory is not on this client's disk.")

    def _files(self, version: int) -> list[Path]:
        return sorted(self.folder.glob(f"{version}-*.safetensors"))

    def _latest(self) -> list[int]:
        file = self.folder / "latest.json"
        return list(json.loads(file.read_bytes())) if file.exists() else [0, 0]
