"""Corrupted checkpoints: none is loaded, the one before is, and the user is told."""

from __future__ import annotations

import json
import random
import re
import shutil
from collections import Counter
from collections.abc import Callable
from hashlib import sha256
from pathlib import Path

import pytest
import torch
from fault_runs import FULL

import fairlead as fl
from fairlead.errors import CheckpointError

CASES = 2_000 if FULL else 200
PROBLEM = fl.Quadratics(num_clients=5, dim=3).problem(fl.Key.from_seed(0))


def federation() -> fl.Federation:
    world = fl.SimulatedWorld(PROBLEM.task(), PROBLEM.data(), link=fl.BernoulliLink(0.3))
    return fl.Federation(fl.presets.scaffold(lr=0.1, cohort_size=3), world)


def truncate(content: bytes, draw: random.Random) -> bytes:
    return content[: draw.randrange(len(content))]


def flip_bits(content: bytes, draw: random.Random) -> bytes:
    changed = bytearray(content)
    for place in draw.sample(range(len(content)), draw.choice([1, 1, 1, 2, 9])):
        changed[place] ^= 1 << draw.randrange(8)
    return bytes(changed)


def zero_block(content: bytes, draw: random.Random) -> bytes:
    start, length = draw.randrange(len(content)), draw.choice([1, 16, 512])
    return content[:start] + bytes(len(content[start : start + length])) + content[start + length :]


def overwrite(content: bytes, draw: random.Random) -> bytes:
    start = draw.randrange(len(content))
    return content[:start] + draw.randbytes(draw.randint(1, 64)) + content[start + 64 :]


def append(content: bytes, draw: random.Random) -> bytes:
    return content + draw.randbytes(draw.randint(1, 64))


def empty(content: bytes, draw: random.Random) -> bytes:
    return b""


DAMAGE: dict[str, Callable[[bytes, random.Random], bytes]] = {
    "cut short": truncate,
    "bits flipped": flip_bits,
    "a block of zeros": zero_block,
    "overwritten": overwrite,
    "bytes added": append,
    "empty": empty,
}


def wrong_version(manifest: Path, draw: random.Random) -> None:
    """A manifest of another format that vouches for itself."""
    facts = json.loads(manifest.read_text())
    del facts["checksum"]
    facts["format"] = draw.choice([-1, 0, 1, 3, 4, 99, 10**30, "2", 2.0, True, None, [2]])
    checksum = sha256(json.dumps(facts).encode()).hexdigest()
    manifest.write_text(json.dumps({**facts, "checksum": checksum}, indent=2) + "\n")


def corrupt(manifest: Path, tensors: Path, draw: random.Random) -> str:
    """Damage one file of a checkpoint and say how."""
    file = draw.choice([manifest, tensors])
    kind = draw.choice(["wrong version", "removed", *DAMAGE])
    if kind == "wrong version":
        wrong_version(manifest, draw)
        return kind
    if kind == "removed":
        file.unlink()
    else:
        changed = content = file.read_bytes()
        while changed == content:
            changed = DAMAGE[kind](content, draw)
        file.write_bytes(changed)
    return f"{'manifest' if file == manifest else 'tensors'} {kind}"


def test_corrupted_checkpoints_are_never_loaded(tmp_path: Path, figure: Callable[[str], None]) -> None:
    """The newest of two is damaged: every time the older one is used and a sentence says so."""
    run, draw, counts = federation(), random.Random(0), Counter[str]()
    list(run.train(2))
    run.save(tmp_path / "sound")
    older = run.params.clone()
    list(run.train(1))
    run.save(tmp_path / "sound")
    assert not torch.equal(older, run.params)
    names = [path.name for path in (tmp_path / "sound").iterdir()]
    newest = max(name for name in names if name.endswith(".json"))
    tensors = json.loads((tmp_path / "sound" / newest).read_text())["tensors"]
    other = federation()
    for case in range(CASES):
        folder = tmp_path / "case"
        shutil.copytree(tmp_path / "sound", folder)
        kind = corrupt(folder / newest, folder / tensors, draw)
        told: list[str] = []
        other.resume(folder, told.append)
        assert other.state.round == 2, f"case {case}, {kind}: silently loaded"
        assert torch.equal(other.params, older)
        if kind == "manifest removed":
            # Nothing is left that says that there was a newer one.
            assert told == []
        else:
            (sentence,) = told
            assert re.match(
                r"The newest checkpoint cannot be used, and the one of round 2 is used instead", sentence
            )
        counts[kind] += 1
        shutil.rmtree(folder)
    assert len(counts) == 2 * len(DAMAGE) + 3
    kinds = ", ".join(f"{kind} {count}" for kind, count in sorted(counts.items()))
    figure(f"{CASES} corrupted checkpoints: 0 loaded, {CASES} times the one before was used ({kinds})")


def test_with_no_whole_checkpoint_left_nothing_is_loaded(tmp_path: Path) -> None:
    run, draw = federation(), random.Random(1)
    for _ in run.train(3):
        run.save(tmp_path / "sound")
    for _ in range(CASES // 20):
        folder = tmp_path / "case"
        shutil.copytree(tmp_path / "sound", folder)
        for file in folder.iterdir():
            file.write_bytes(flip_bits(file.read_bytes(), draw))
        other = federation()
        before = other.state
        with pytest.raises(
            CheckpointError, match=r"None of the 3 checkpoints in .* can be used\. .*manifest-"
        ):
            other.resume(folder)
        assert other.state is before
        shutil.rmtree(folder)
