"""Hostile checkpoints, specs, data and run folders: no code of theirs runs, nothing is written outside a run."""

from __future__ import annotations

import ast
import io
import json
import pickle
import re
import zipfile
from collections.abc import Iterator
from contextlib import suppress
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

import fairlead as fl
from fairlead.cli import app
from fairlead.errors import CheckpointError, DataError, FairleadError
from fairlead.experiments.study import folder_name

SOURCE = Path(fl.__file__).parent
RESTRICTED_UNPICKLER = "clients/images.py"
"""The one place that reads pickles, since CIFAR comes as such: its unpickler makes no object but notes of arrays."""
RAY_MESSAGES = "worlds/ray/actor.py"
"""What the actors of a Ray cluster tell each other are pickles, as everything that Ray sends; no file is read there."""
UNSAFE_MODULES = {
    "pickle",
    "cPickle",
    "_pickle",
    "dill",
    "cloudpickle",
    "joblib",
    "shelve",
    "marshal",
    "yaml",
}
UNSAFE_CALLS = {"eval", "exec", "compile", "__import__", "extractall", "read_pickle", "load_pickle"}


def unsafe(tree: ast.AST) -> Iterator[str]:
    """What in a module could run code out of a file that it loads."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (name.name for name in node.names if name.name.split(".")[0] in UNSAFE_MODULES)
        if isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] in UNSAFE_MODULES:
            yield str(node.module)
        if isinstance(node, ast.Call):
            called = ast.unparse(node.func)
            options = {each.arg: ast.unparse(each.value) for each in node.keywords}
            if isinstance(node.func, ast.Name) and called in UNSAFE_CALLS:
                yield called
            if isinstance(node.func, ast.Attribute) and node.func.attr in UNSAFE_CALLS - {"eval", "compile"}:
                yield called
            if called == "torch.load" and options.get("weights_only") != "True":
                yield f"{called} without weights_only"
            if called in ("np.load", "numpy.load") and options.get("allow_pickle") != "False":
                yield f"{called} without allow_pickle=False"
            if options.get("shell") == "True" or options.get("trust_remote_code") == "True":
                yield f"{called} with shell or trust_remote_code"


def test_no_pickle_is_on_a_load_path() -> None:
    found = {
        str(path.relative_to(SOURCE)): list(unsafe(ast.parse(path.read_text())))
        for path in SOURCE.rglob("*.py")
    }
    assert {name: calls for name, calls in found.items() if calls} == {
        RESTRICTED_UNPICKLER: ["pickle"],
        RAY_MESSAGES: ["pickle"],
    }
    assert not re.search(r"(?<!def )(?<![\w.])open\(|read_bytes|Path\(", (SOURCE / RAY_MESSAGES).read_text())


@pytest.mark.parametrize(
    "code",
    [
        "import pickle",
        "from joblib import load",
        "torch.load(path)",
        "torch.load(path, weights_only=False)",
        "np.load(path)",
        "np.load(path, allow_pickle=True)",
        "eval(text)",
        "archive.extractall(folder)",
        "pandas.read_pickle(path)",
        "subprocess.run(command, shell=True)",
    ],
)
def test_the_search_for_pickles_finds_them(code: str) -> None:
    assert list(unsafe(ast.parse(code)))


class Payload:
    """Leaves a mark if it is unpickled."""

    def __init__(self, mark: Path) -> None:
        self.mark = mark

    def __reduce__(self) -> tuple[Any, ...]:
        return open, (str(self.mark), "w")


def text(value: str) -> bytes:
    return b"V" + value.encode() + b"\n"


ARRAY = b"cnumpy.core.multiarray\n_reconstruct\n(cnumpy\nndarray\n(I0\ntS'b'\ntR"
"""Opcodes that make an empty array, whose state may follow."""

PICKLES: dict[str, bytes] = {
    "a call of the system": b"cos\nsystem\n(V touch mark\ntR.",
    "a call under another name": b"cposix\nsystem\n(V touch mark\ntR.",
    "code through an attribute": b"cnumpy\nndarray.__class__\n(tR.",
    "code behind an allowed module": b"cnumpy.core.multiarray\nf2py.os.system\n(V touch mark\ntR.",
    "another constructor": b"cnumpy\nmemmap\n(V mark\ntR.",
    "an instance by name": b"(V touch mark\nios\nsystem\n.",
    "an array of objects": ARRAY + b"(I1\n(I1\ntcnumpy\ndtype\n(V O8\nI0\nI1\ntRI00\n(lVx\natb.",
    "a type with flags of its own": b"cnumpy\ndtype\n(VO8\nI00\nI01\ntR(I3\nV|\nNNNI-1\nI-1\nI0\ntb.",
    "an array over foreign memory": b"cnumpy\nndarray\n((I99999999\ntVu1\ntR.",
    "an array without end": ARRAY + b"(I1\n(I999999999999\nI3072\nt(tI00\nS''\ntb.",
    "a state for a class": b"cnumpy\nndarray\n(dS'shape'\nI1\nsb.",
    "a state for a function": b"c_codecs\nencode\n(dS'__defaults__'\nI1\nsb.",
    "a place in a memo of 32 GiB": b"\x80\x02Nr\xff\xff\xff\x7f.",
    "text for bytes by another codec": b"c_codecs\nencode\n(Vx\nVzlib\ntR.",
    "a length beyond the file": b"\x80\x04\x8e\xff\xff\xff\xff\xff\xff\xff\x7fx.",
    "a thousand lists": b"(" * 1000 + b"l" * 1000 + b".",
    "a persistent name": b"Pmark\n.",
    "an extension": b"\x82\x01.",
    "nothing": b"",
}


@pytest.mark.parametrize("attack", PICKLES)
def test_cifar_batches_run_no_code(attack: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "cifar").mkdir()
    (tmp_path / "cifar" / "data_batch_1").write_bytes(PICKLES[attack])
    with pytest.raises(
        DataError, match=r"data_batch_1 (is refused|cannot be read as a pickle|is not a CIFAR batch)"
    ):
        fl.CifarFolder("cifar").pool()
    assert [path.name for path in tmp_path.iterdir()] == ["cifar"]


def test_pickles_in_arrays_and_checkpoints_run_no_code(tmp_path: Path) -> None:
    """As .npz and .npy entries, as a .pt file in the place of tensors, whole and vouched for."""
    mark = tmp_path / "mark"
    np.savez(tmp_path / "data.npz", x=np.array([Payload(mark)], dtype=object), y=np.zeros(1, dtype=np.int64))
    with pytest.raises(DataError, match="it holds pickled objects, which could run code"):
        fl.NpzArrays(str(tmp_path / "data.npz"), num_clients=1).pool()
    with zipfile.ZipFile(tmp_path / "raw.npz", "w") as archive:
        for name in ("x.npy", "y.npy"):
            archive.writestr(name, pickle.dumps(Payload(mark)))
    with pytest.raises(DataError, match=r"raw\.npz.* (cannot be read|must be numbers)"):
        fl.NpzArrays(str(tmp_path / "raw.npz"), num_clients=1).pool()

    run = tiny().build()
    for content in (pickle.dumps(Payload(mark)), zipped({"archive/data.pkl": pickle.dumps(Payload(mark))})):
        run.save(tmp_path / "checkpoint")
        vouch_for(content, tmp_path / "checkpoint")
        with pytest.raises(CheckpointError, match="holds no tensors"):
            run.resume(tmp_path / "checkpoint")
    assert not mark.exists()


def tiny() -> fl.Experiment:
    return fl.Experiment(fl.Quadratics(3), fl.presets.scaffold(lr=0.1), rounds=2)


def zipped(files: dict[str, bytes]) -> bytes:
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w") as archive:
        for name, content in files.items():
            archive.writestr(name, content)
    return stream.getvalue()


def vouch_for(content: bytes, folder: Path) -> None:
    """Put a file in the place of a checkpoint's tensors, with a manifest that says that it is right."""
    (manifest,) = folder.glob("manifest-*.json")
    digest = sha256(content).hexdigest()
    facts = {key: value for key, value in json.loads(manifest.read_text()).items() if key != "checksum"}
    facts |= {"tensors": f"state-{digest[:16]}.safetensors", "sha256": digest}
    (folder / facts["tensors"]).write_bytes(content)
    checksum = sha256(json.dumps(facts).encode()).hexdigest()
    manifest.write_text(json.dumps({**facts, "checksum": checksum}, indent=2) + "\n")


@pytest.mark.full
def test_archives_that_unpack_to_more_than_they_may_are_refused(tmp_path: Path) -> None:
    """2 GiB of zeros in 2 MB; and an array whose header promises 8 TB. Names of entries are never paths."""
    header = io.BytesIO()
    np.lib.format.write_array_header_1_0(header, {"descr": "<f8", "fortran_order": False, "shape": (10**12,)})
    with zipfile.ZipFile(tmp_path / "bomb.npz", "w", zipfile.ZIP_DEFLATED) as archive:
        with archive.open("x.npy", "w", force_zip64=True) as entry:
            for _ in range(2048):
                entry.write(bytes(2**20))
        archive.writestr("y.npy", header.getvalue())
        archive.writestr("../../outside.npy", b"")
    with pytest.raises(DataError, match=r"bomb\.npz is refused: its \d+ bytes would unpack to"):
        fl.NpzArrays(str(tmp_path / "bomb.npz"), num_clients=1).pool()
    with pytest.raises(DataError, match=r"cannot be read as a \.npz file"):
        fl.NpzArrays(str(tmp_path / "bomb.npz"), inputs="y", targets="y", num_clients=1).pool()
    assert [path.name for path in tmp_path.iterdir()] == ["bomb.npz"]


CALLS = (
    "os:system",
    "posix:system",
    "subprocess:call",
    "builtins:exec",
    "runpy:run_path",
    "pickle:loads",
    "importlib:import_module",
    "shutil:rmtree",
    "torch:load",
    "torch.hub:load",
    "torch.hub:download_url_to_file",
    "numpy:load",
    "numpy:save",
    "numpy:memmap",
)


@pytest.mark.parametrize("path", CALLS)
def test_specs_cannot_call_what_is_installed(
    path: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever argument is given: only classes of modules, and functions that say that they make one, are called."""
    monkeypatch.chdir(tmp_path)
    for name in ("command", "args", "path", "file", "f", "filename", "source", "path_name", "repo_or_dir"):
        model = fl.ImportedModel(path, ((name, "touch mark"),))
        with pytest.raises(FairleadError, match=r"ImportedModel\.path names|is a part of Python"):
            model.build(fl.ExampleShape((3,), 2))
    assert list(tmp_path.iterdir()) == []


PLANTED = (
    "rounds.jsonl",
    "spec.toml",
    "spec.toml.part",
    "provenance.json",
    "provenance.json.part",
    "summary.json",
    "summary.json.part",
    "checkpoint",
    "checkpoint/state.safetensors.part",
    "checkpoint/manifest-00000002.json.part",
    "checkpoint/manifest-00000002.json",
    "report.html",
    "error.txt",
)


@pytest.mark.parametrize("existing", [True, False], ids=["to a file", "to nothing"])
@pytest.mark.parametrize("name", PLANTED)
def test_links_in_a_run_folder_lead_nowhere(
    name: str, existing: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Running, resuming and reporting in a folder with a planted link write nothing where it points."""
    run, outside = tmp_path / "run", tmp_path / "outside"
    fl.run_experiment(tiny(), run, checkpoint_every=1)
    outside.mkdir()
    target = outside / "target"
    if name == "checkpoint" and existing:
        (run / name).rename(target)
    elif (run / name).exists() and existing:
        (run / name).replace(target)
    elif existing:
        target.write_bytes(b"precious")
    elif (run / name).exists():
        (run / name).rename(tmp_path / "gone")
    (run / name).symlink_to(target)
    before = contents(outside)
    longer = fl.Experiment(fl.Quadratics(3), fl.presets.scaffold(lr=0.1), rounds=4)
    for attempt in (
        lambda: fl.run_experiment(
            longer, run, resume=True, checkpoint_every=1, on_recovery=lambda text: None
        ),
        lambda: fl.run_experiment(longer, run, checkpoint_every=1),
        lambda: CliRunner().invoke(app, ["report", str(run)]),
        lambda: CliRunner().invoke(app, ["run", str(run), "-q"]),
    ):
        with suppress(FairleadError):
            attempt()
    assert contents(outside) == before


def contents(folder: Path) -> dict[str, bytes]:
    return {str(path): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_runs_of_a_study_stay_in_its_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither names of methods nor an index that was tampered with lead outside."""
    for name in ("../../evil", "/etc/passwd", "..", ".", "a/../../b", "\x00", "~/x", "C:\\x", "x" * 1000):
        made = folder_name(name)
        assert (tmp_path / made).resolve().parent == tmp_path.resolve()
        assert made not in ("", ".", "..")
    outside = tmp_path / "outside"
    fl.run_experiment(tiny(), outside)
    before = contents(outside)
    study = tmp_path / "study"
    study.mkdir()
    entries = [{"folder": "../outside", "labels": {"method": "x"}, "outcome": "waiting"}]
    (study / "runs.json").write_text(json.dumps(entries))
    (study / "spec.toml").write_text(fl.to_toml(tiny()))
    monkeypatch.chdir(tmp_path)
    CliRunner().invoke(app, ["report", "study"])
    command = [
        "compare",
        "study/spec.toml",
        "--methods",
        "fedavg",
        "--seeds",
        "0",
        "--jobs",
        "1",
        "-o",
        "study",
    ]
    CliRunner().invoke(app, command)
    assert contents(outside) == before
    assert {path.name for path in tmp_path.iterdir()} == {"outside", "study"}


@pytest.mark.parametrize("name", ["rounds.jsonl", "provenance.json", "summary.json"])
@pytest.mark.parametrize(
    "content", [b"[" * 100_000, b'{"round": 1e999}\n', b"\xff\xfe", b"null\n", b'[{"a": 1}]\n']
)
def test_nonsense_in_a_run_folder_is_one_sentence(name: str, content: bytes, tmp_path: Path) -> None:
    fl.run_experiment(tiny(), tmp_path / "run")
    (tmp_path / "run" / name).write_bytes(content)
    for command in (["run", str(tmp_path / "run"), "--rounds", "3"], ["report", str(tmp_path / "run")]):
        result = CliRunner().invoke(app, command)
        assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
