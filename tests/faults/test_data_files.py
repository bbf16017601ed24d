"""Mutated data files of every loader, and those that once ended in a traceback or without an end."""

from __future__ import annotations

import io
import json
import pickle
import random
import shutil
import struct
import zipfile
import zlib
from collections.abc import Callable
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from data_mutations import FORMATS, traces
from fault_runs import FULL
from limits import bounded, fuzzed, is_sentence

import fairlead as fl
from fairlead.errors import DataError, FairleadError, FieldError

COUNT = 10_000 if FULL else 40
"""Of every loader."""
NEEDED = {"Parquet": "pyarrow", "Hugging Face": "datasets"}
ALGORITHM = fl.presets.fedavg(lr=0.1, steps=1)


def task_for(source: fl.PooledSource) -> fl.Task | None:
    """A model of one layer, except for texts: those of images take long to make."""
    if isinstance(source, fl.CsvText) or getattr(source, "tokens", None) or getattr(source, "text", False):
        return None
    model = fl.LogisticRegression()
    if getattr(source, "regression", False):
        return fl.Task(model, loss="squared_error", metrics=())
    return fl.Task(model)


def received(use: Callable[[], object], *named: str) -> str:
    """How data are received: read, or refused in a sentence that has one of the words if it is about data."""
    refusal: FairleadError | None = None
    try:
        with bounded():
            use()
    except FairleadError as error:
        refusal = error
    if refusal is None:
        return "read"
    assert is_sentence(str(refusal)), refusal
    assert not isinstance(refusal, DataError) or any(word in str(refusal) for word in named), refusal
    return "refused"


@pytest.mark.parametrize("kind", FORMATS)
def test_mutated_data_files(kind: str, tmp_path: Path, figure: Callable[[str], None]) -> None:
    """Each is read and trained on, or refused in a sentence that names it."""
    pytest.importorskip(NEEDED.get(kind, "numpy"))
    folder = tmp_path / "case"

    def receive(_: int, rng: random.Random) -> str:
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir()
        source, place = FORMATS[kind](folder, rng)
        return received(partial(train_on, source, rng), place)

    outcomes = fuzzed(f"data files of {kind}", COUNT, receive)
    assert kind == "paths" or outcomes["read"] > COUNT / 20
    figure(f"{COUNT} data files, {kind}: 0 tracebacks, 0 hangs, {dict(outcomes)}")


def train_on(source: fl.PooledSource, rng: random.Random) -> None:
    """Read data, deal them, and run a round."""
    source.pool()
    data = source.load(fl.Key.from_seed(0))
    task = source.default_task() if rng.random() < 0.05 else task_for(source)
    next(fl.Experiment(source, ALGORITHM, 1, task=task).build(data).train())


def train(experiment: fl.Experiment) -> None:
    list(experiment.build().train())


def test_mutated_traces(tmp_path: Path, figure: Callable[[str], None]) -> None:
    folder = tmp_path / "case"

    def receive(_: int, rng: random.Random) -> str:
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir()
        outcomes: list[str] = []
        for condition in traces(folder, rng):
            given: dict[str, Any] = {"work" if isinstance(condition, fl.WorkModel) else "link": condition}
            experiment = fl.Experiment(fl.Quadratics(3), ALGORITHM, 2, **given)
            outcomes.append(received(partial(train, experiment), "race"))
        return ", ".join(outcomes)

    outcomes = fuzzed("traces", COUNT, receive)
    figure(f"{COUNT} traces, for work and for links: 0 tracebacks, 0 hangs, {dict(outcomes)}")


def refused(source: fl.PooledSource) -> str:
    """What is said of data that cannot be read."""
    with bounded(), pytest.raises(DataError) as caught:
        source.pool()
    assert is_sentence(str(caught.value))
    return str(caught.value)


class TestPaths:
    @pytest.mark.parametrize(
        "path",
        ["x" * 5000, "a/" * 3000, "~nobody/data", "~/" + "y" * 5000, "a\x00b", "\ud800"],
        ids=["long", "deep", "nobody", "long at home", "null", "surrogate"],
    )
    def test_paths_that_cannot_exist(self, path: str) -> None:
        for source in (
            fl.NpzArrays(path),
            fl.CsvTable(path, "y"),
            fl.LeafFolder(path),
            fl.MnistFolder(path),
            fl.CifarFolder(path),
        ):
            assert "does not exist" in refused(source)
            assert len(refused(source)) < 500

    def test_devices_that_never_end(self) -> None:
        assert refused(fl.CsvTable("/dev/zero", "y")) == "/dev/zero is a device, but a file is needed."
        with pytest.raises(FieldError, match=r"The spec /dev/zero must have at most \d+ bytes\."):
            fl.load_experiment("/dev/zero")


class TestArrays:
    def test_inputs_without_numbers(self, tmp_path: Path) -> None:
        np.savez(tmp_path / "a.npz", x=np.zeros((3, 0)), y=np.zeros(3, int))
        said = "a.npz must have at least one number in each input and in each target."
        assert refused(fl.NpzArrays(str(tmp_path / "a.npz"))).endswith(said)

    @pytest.mark.parametrize(
        ("flags", "method"), [(1, 0), (0, 99), (0x20, 8)], ids=["encrypted", "packed otherwise", "patched"]
    )
    def test_archives_that_cannot_be_unpacked(self, flags: int, method: int, tmp_path: Path) -> None:
        stream = io.BytesIO()
        np.savez(stream, x=np.zeros((2, 1)), y=[0, 1])
        content = bytearray(stream.getvalue())
        for mark, offset in ((b"PK\x03\x04", 6), (b"PK\x01\x02", 8)):
            start = content.find(mark) + offset
            content[start : start + 4] = struct.pack("<HH", flags, method)
        (tmp_path / "a.npz").write_bytes(content)
        said = "a.npz cannot be read as a .npz file: it was not written by numpy.savez."
        assert refused(fl.NpzArrays(str(tmp_path / "a.npz"))).endswith(said)

    def test_a_trillion_names_of_no_length(self, tmp_path: Path) -> None:
        """They take no byte, but each would be looked at."""
        np.savez(tmp_path / "a.npz", x=np.zeros((2, 1)), y=[0, 1])
        header = b"{'descr': '<U0', 'fortran_order': False, 'shape': (1000000000000,)}\n"
        with zipfile.ZipFile(tmp_path / "a.npz", "a") as archive:
            archive.writestr("who.npy", b"\x93NUMPY\x01\x00" + struct.pack("<H", len(header)) + header)
        assert refused(fl.NpzArrays(str(tmp_path / "a.npz"), client="who")).endswith("values of no length.")

    def test_an_idx_header_beyond_64_bits(self, tmp_path: Path) -> None:
        header = bytes((0, 0, 8, 3)) + struct.pack(">III", 2**31, 2**31, 4)
        (tmp_path / "train-images-idx3-ubyte").write_bytes(header)
        assert f"must hold {2**64} bytes after its header" in refused(fl.MnistFolder(str(tmp_path)))


class TestPickles:
    @pytest.mark.parametrize("label", [10**30, -1, 10**5000], ids=["large", "negative", "endless"])
    def test_labels_that_are_no_classes(self, label: int, tmp_path: Path) -> None:
        batch = {"data": np.zeros((1, 3072), np.uint8), "labels": [label]}
        (tmp_path / "data_batch_1").write_bytes(pickle.dumps(batch, 2))
        assert refused(fl.CifarFolder(str(tmp_path))).endswith("is not a class from 0 to 9.")

    def test_half_a_pair_of_surrogates_for_a_key(self, tmp_path: Path) -> None:
        (tmp_path / "data_batch_1").write_bytes(pickle.dumps({"\ud800": 1}, 2))
        assert "data_batch_1 is not a CIFAR batch" in refused(fl.CifarFolder(str(tmp_path)))

    def test_an_array_that_was_never_called(self, tmp_path: Path) -> None:
        """NEWOBJ makes it without a shape and without a state."""
        array = b"cnumpy\nndarray\n)\x81"
        content = b"\x80\x02}(U\x04data" + array + b"U\x06labels]u."
        (tmp_path / "data_batch_1").write_bytes(content)
        assert "data_batch_1 is not a CIFAR batch" in refused(fl.CifarFolder(str(tmp_path)))

    @pytest.mark.parametrize("into", [b"}", b"(d", b"\x8f("], ids=["a table", "an old table", "a set"])
    def test_a_key_whose_hash_would_take_forever(self, into: bytes, tmp_path: Path) -> None:
        """A tuple of two tuples, which are the same tuple of two tuples, and so on a hundred times: 2¹⁰⁰ hashes."""
        nested = b")" + b"2\x86" * 100
        content = b"\x80\x04" + into + nested + (b"\x90." if into.startswith(b"\x8f") else b"Ns.")
        (tmp_path / "data_batch_1").write_bytes(content)
        assert "data_batch_1" in refused(fl.CifarFolder(str(tmp_path)))


class TestText:
    def test_numbers_of_thousands_of_digits(self, tmp_path: Path) -> None:
        content = {"users": ["u"], "num_samples": [1], "user_data": {"u": {"x": [[0]], "y": [0]}}}
        written = json.dumps(content)
        for place, said in (("[[0]]", "[[" + "9" * 5000 + "]]"), ('"y": [0]', '"y": [' + "9" * 5000 + "]")):
            (tmp_path / "a.json").write_text(written.replace(place, said))
            assert "a.json cannot be read as JSON: Exceeds the limit" in refused(fl.LeafFolder(str(tmp_path)))
        (tmp_path / "a.json").write_text(written.replace("[[0]]", "[[" + "9" * 400 + "]]"))
        assert "user 'u' cannot be read as numbers" in refused(fl.LeafFolder(str(tmp_path)))
        (tmp_path / "a.json").write_text(written.replace("[[0]]", "[0]"))
        assert "sample 0 must be a list of numbers, got int" in refused(fl.LeafFolder(str(tmp_path)))

    def test_a_name_among_a_hundred_thousand_columns(self, tmp_path: Path) -> None:
        names = [f"column{number}" for number in range(100_000)]
        (tmp_path / "t.csv").write_text(",".join(names) + "\n" + ",".join("1" * len(names)) + "\n")
        said = refused(fl.CsvTable(str(tmp_path / "t.csv"), "y"))
        assert "t.csv has no column 'y', which target names. Known: column0," in said


class TestParquet:
    @pytest.fixture(autouse=True)
    def _needs(self) -> None:
        pytest.importorskip("pyarrow")

    def write(self, folder: Path, **columns: Any) -> str:
        arrow = import_module("pyarrow")
        import_module("pyarrow.parquet").write_table(arrow.table(columns), folder / "t.parquet")
        return str(folder / "t.parquet")

    def test_whole_numbers_beyond_64_bits(self, tmp_path: Path) -> None:
        arrow, decimal = import_module("pyarrow"), import_module("decimal").Decimal
        big = arrow.array([decimal(10) ** 40, decimal(10) ** 41], arrow.decimal256(60))
        path = self.write(tmp_path, x=[1.0, 2.0], y=big)
        assert "t.parquet, row 0, column 'y'" in refused(fl.ParquetTable(path, "y"))
        said = "t.parquet must have finite inputs, got NaN or infinity in row 0."
        assert refused(fl.ParquetTable(path, "x", features="y", regression=True)).endswith(said)

    def test_lists_for_names(self, tmp_path: Path) -> None:
        path = self.write(tmp_path, x=[1.0, 2.0], y=[0, 1], who=[[1], [2]])
        said = "t.parquet, row 0, column 'who' must be one number or text, got a value of type ndarray."
        assert refused(fl.ParquetTable(path, "y", "who", "x")).endswith(said)
        assert refused(fl.ParquetTable(path, "y", features="x", split="who")).endswith(said)

    def test_folders_that_are_no_tables(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        """All files below a home would be visited."""
        monkeypatch.setattr("fairlead.clients.tables._MOST_ENTRIES", 3)
        for name in "abcd":
            (tmp_path / "deep" / name).mkdir(parents=True)
        said = "has more than 3 files and folders, too many for a table."
        assert refused(fl.ParquetTable(str(tmp_path), "y")).endswith(said)

    def test_many_rows_of_nothing(self, tmp_path: Path) -> None:
        arrow = import_module("pyarrow")
        path = self.write(tmp_path, x=arrow.nulls(10**8), y=arrow.nulls(10**8))
        assert "would unpack to more than 200 times as many" in refused(fl.ParquetTable(path, "y"))


class TestHuggingFace:
    @pytest.fixture(autouse=True)
    def _needs(self) -> None:
        pytest.importorskip("datasets")

    def folder(self, path: Path, **columns: Any) -> Path:
        import_module("datasets").Dataset.from_dict(columns).save_to_disk(path / "saved")
        return path / "saved"

    @pytest.mark.parametrize(
        ("file", "key", "value"),
        [
            ("state.json", "_format_type", None),
            ("state.json", "_data_files", 3),
            ("state.json", "_split", []),
            ("dataset_info.json", "features", "x"),
            ("dataset_info.json", "features", {"x": {"_type": "Value"}}),
            ("dataset_info.json", "features", {"x": {"dtype": "nothing", "_type": "Value"}}),
        ],
    )
    def test_broken_descriptions(self, file: str, key: str, value: Any, tmp_path: Path) -> None:
        folder = self.folder(tmp_path, x=[1.0, 2.0], label=[0, 1])
        content = json.loads((folder / file).read_text())
        if value is None:
            del content[key]
        else:
            content[key] = value
        (folder / file).write_text(json.dumps(content))
        assert "saved cannot be read as a folder of save_to_disk: " in refused(
            fl.HuggingFaceData(str(folder), "x")
        )

    def test_images_that_are_none(self, tmp_path: Path) -> None:
        datasets = import_module("datasets")
        png = b"\x89PNG\r\n\x1a\n"
        for name, content in (
            ("none", b"nothing"),
            ("cut", png),
            # A header alone, of 60,000 x 60,000 pixels.
            ("bomb", png + _chunk(b"IHDR", struct.pack(">IIBBBBB", 60_000, 60_000, 8, 0, 0, 0, 0))),
        ):
            features = datasets.Features({"image": datasets.Image(), "label": datasets.Value("int64")})
            columns = {"image": [{"bytes": content, "path": None}], "label": [0]}
            folder = tmp_path / name
            datasets.Dataset.from_dict(columns, features=features).save_to_disk(folder)
            assert f"{name} cannot be read as a folder of save_to_disk: " in refused(
                fl.HuggingFaceData(str(folder))
            )

    def test_a_billion_rows_of_nothing(self, tmp_path: Path) -> None:
        arrow = import_module("pyarrow")
        folder = self.folder(tmp_path, x=[None], label=[None])
        (file,) = folder.glob("*.arrow")
        schema = arrow.ipc.open_stream(file.read_bytes()).schema
        batch = arrow.record_batch([arrow.nulls(10**9), arrow.nulls(10**9)], schema=schema)
        with arrow.OSFile(str(file), "wb") as sink, arrow.ipc.new_stream(sink, schema) as stream:
            stream.write_batch(batch)
        assert "would unpack to more than 200 times as many" in refused(fl.HuggingFaceData(str(folder), "x"))

    def test_offsets_that_lead_out_of_the_file(self, tmp_path: Path) -> None:
        """Arrow would read the texts from anywhere in memory."""
        folder = self.folder(tmp_path, x=["aaaa", "bbbb"], label=[0, 1])
        (file,) = folder.glob("*.arrow")
        content = file.read_bytes()
        offsets = struct.pack("<iii", 0, 4, 8)
        assert content.count(offsets) == 1
        file.write_bytes(content.replace(offsets, struct.pack("<iii", 0, 2**30, 2**30 + 4)))
        source = fl.HuggingFaceData(str(folder), "x", tokens=fl.ByteTokens(4))
        assert "saved cannot be read as a folder of save_to_disk: " in refused(source)


def _chunk(kind: bytes, content: bytes) -> bytes:
    return struct.pack(">I", len(content)) + kind + content + struct.pack(">I", zlib.crc32(kind + content))


def test_targets_of_many_digits_in_traces(tmp_path: Path) -> None:
    for ending, content in (
        (".jsonl", '{"round": 0, "client": 0, "steps": ' + "9" * 5000 + "}\n"),
        (".csv", "round,client,steps\n0,0," + "9" * 5000 + "\n"),
    ):
        (tmp_path / f"t{ending}").write_text(content)
        with pytest.raises(FieldError, match=rf"t\{ending}, line [12]") as caught:
            fl.read_trace(tmp_path / f"t{ending}")
        assert is_sentence(str(caught.value))


class TestTargets:
    """What only the task can refuse is refused before the first round, with the name of the file."""

    def said_of(self, folder: Path, regression: bool = False, **arrays: Any) -> str:
        np.savez(folder / "a.npz", **arrays)
        path, split = str(folder / "a.npz"), fl.IidPartitioner()
        source = fl.NpzArrays(path, num_clients=1, partition=split, regression=regression)
        task = fl.Task(fl.LogisticRegression())
        with bounded(), pytest.raises(FairleadError) as caught:
            fl.Experiment(source, ALGORITHM, 1, task=task).build()
        assert is_sentence(str(caught.value))
        return str(caught.value)

    def test_classes_beyond_all_models(self, tmp_path: Path) -> None:
        said = self.said_of(tmp_path, x=np.ones((2, 2)), y=np.array([[0, 1], [2**24, 1]]))
        assert said.startswith(f"{tmp_path}/a.npz: Targets of whole numbers are classes")

    def test_negative_classes_of_a_test_set(self) -> None:
        """The first evaluation would meet them, perhaps after hours."""
        train, test = (
            fl.ClientData.from_lists([torch.ones(2, 2)], [torch.tensor(classes)])
            for classes in ([0, 1], [0, -1])
        )
        with pytest.raises(
            DataError, match=r"^Targets must be classes from 0 to 1, .* got -1 in row 1, of client 0"
        ):
            fl.SimulatedWorld(fl.Task(fl.LogisticRegression()), train, test=test).refuse_misjudged()

    def test_classes_beyond_64_bits(self, tmp_path: Path) -> None:
        said = self.said_of(tmp_path, x=np.ones((2, 2)), y=np.array([0.0, 1e300]))
        assert said.startswith(f"{tmp_path}/a.npz, array 'y', row 1: 1e+300 is not a class")

    @pytest.mark.parametrize("rows", [2, 5])
    def test_metrics_that_cannot_judge(self, rows: int, tmp_path: Path) -> None:
        """Two numbers for each target: cross-entropy takes them for probabilities, but accuracy needs a class."""
        said = self.said_of(tmp_path, regression=True, x=np.ones((rows, 2)), y=np.full((rows, 2), 0.5))
        assert said.startswith("accuracy needs one class for each row of outputs, got targets of shape (")

    def test_counts_that_are_long_lists(self, tmp_path: Path) -> None:
        data = {"u": {"x": [[0]], "y": [0]}}
        content = {"users": ["u"], "num_samples": [list(range(2000))], "user_data": data}
        (tmp_path / "a.json").write_text(json.dumps(content))
        assert "as 'num_samples' says, [0, 1, 2, 3" in refused(fl.LeafFolder(str(tmp_path)))
