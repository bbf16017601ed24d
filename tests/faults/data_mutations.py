"""Data files of every loader, each good or damaged: in its values, in its structure or in its bytes."""

from __future__ import annotations

import bz2
import csv
import gzip
import io
import json
import lzma
import pickle
import random
import shutil
import struct
import zipfile
from collections.abc import Callable, Iterator
from copy import deepcopy
from importlib import import_module
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np
from specs_mutations import JUNK, places

import fairlead as fl

PACKERS: dict[str, Callable[[bytes], bytes]] = {
    "": bytes,
    ".gz": gzip.compress,
    ".xz": lzma.compress,
    ".bz2": bz2.compress,
}
TEXTS = (
    "", " ", "a", "b", "0", "1", "-1", "2", "0.5", "1e5", "1e38", "1e39", "1e308", "1e400", "-0.0", "nan", "inf",
    "NA",
    "None", "?", "true", "x" * 300, "ä", "\u202e", "🙂", "\ud800", "\x00", "\n", ",", '"', "'", ";", "9" * 20,
    "9" * 400,
    "9" * 5000, "0x10", "1_000", "१२", "1,5", "2147483648", "9223372036854775807", "18446744073709551616", "train",
    "test",
)  # fmt: skip
NUMBERS = (
    0, 1, 2, 3, 7, 9, 10, 99, 100, 255, 256, -1, 2**24, 2**31 - 1, 2**31, 2**32, 2**53 + 1, 2**62, 2**63 - 1,
    -(2**63),
    2**63, 2**64, 10**30, 10**400, 0.0, -0.0, 0.5, 1.5, 1e-300, 1e38, 1e39, 1e300, -1e300, float("nan"), float("inf"),
    float("-inf"), True, False, None,
)  # fmt: skip


LAYERS = ("nothing", "values", "values", "structure", "structure", "bytes", "bytes")
"""What is damaged: all layers at once would leave the outermost error alone to be seen."""


class Case(NamedTuple):
    """A source whose files may be damaged."""

    source: fl.PooledSource
    place: str
    """What a sentence about its files must name."""


def damaged(content: bytes, rng: random.Random) -> bytes:
    """Bytes cut, flipped, overwritten, repeated, moved or swapped for numbers that lengths should not be."""
    changed = bytearray(content)
    for _ in range(rng.choice((1, 1, 1, 2, 4))):
        place = rng.randrange(len(changed) + 1)
        change = rng.randrange(9)
        if change == 0:
            del changed[place:]
        elif change == 1 and place < len(changed):
            changed[place] ^= 1 << rng.randrange(8)
        elif change == 2 and place < len(changed):
            changed[place] = rng.choice((0, 1, 0x7F, 0x80, 0xFF, rng.randrange(256)))
        elif change == 3:
            changed[place : place + rng.choice((4, 16, 256))] = bytes(rng.choice((4, 16, 256)))
        elif change == 4:
            del changed[place : place + rng.choice((1, 2, 8, 64))]
        elif change == 5:
            changed[place:place] = bytes(rng.randrange(256) for _ in range(rng.choice((1, 2, 8))))
        elif change == 6:
            end = place + rng.choice((1, 8, 64))
            changed[place:place] = changed[place:end]
        elif change == 7:
            number = rng.choice((0, 1, 2**15, 2**31 - 1, 2**31, 2**32 - 1))
            changed[place : place + 4] = struct.pack(rng.choice("<>") + "I", number)
        else:
            number = rng.choice((0, 1, 2**31, 2**32, 2**62, 2**63 - 1, 2**64 - 1))
            changed[place : place + 8] = struct.pack(rng.choice("<>") + "Q", number)
    return bytes(changed)


def write_packed(file: Path, content: bytes, layer: str, rng: random.Random) -> str:
    """Write a file under a name that says how it is packed, with damage to its bytes before or after."""
    ending = rng.choice(("", "", "", *PACKERS))
    inside = rng.random() < 0.5
    if layer == "bytes" and inside:
        content = damaged(content, rng)
    content = PACKERS[ending if layer != "structure" or rng.random() < 0.9 else ".xz"](content)
    if layer == "bytes" and not inside:
        content = damaged(content, rng)
    file = file.with_name(file.name + ending)
    file.write_bytes(content)
    return str(file)


def split_options(rng: random.Random) -> dict[str, Any]:
    """Fields of every pooled source."""
    if rng.random() < 0.1:
        return {}
    partitions = (
        fl.DirichletPartitioner(0.5, 0), fl.ShardPartitioner(1), fl.PathologicalPartitioner(1),
            fl.ReshuffledPartitioner(),
        fl.InnerDirichletPartitioner(0.3), fl.PowerLawPartitioner(1.0, 0), None,
    )  # fmt: skip
    partition = fl.IidPartitioner() if rng.random() < 0.7 else rng.choice(partitions)
    return {"num_clients": rng.choice((1, 1, 2, 3)), "partition": partition}


def _array(rng: random.Random, rows: int) -> np.ndarray[Any, Any]:
    """An array of any type and shape."""
    draws = np.random.default_rng(rng.randrange(2**32))
    shape: tuple[int, ...] = rng.choice(
        ((rows, 2), (rows, 2), (rows,), (rows,), (rows, 0), (0, 2), (), (rows, 1, 3, 3), (rows, 1, 1), (rows + 1, 2))
    )  # fmt: skip
    kind = rng.choice(
        ("f4", "f4", "f8", ">f8", "f2", "u1", "i1", "i8", "i4", ">i4", "u8", "?", "c8", "U5", "S5", "M8[s]",
        "m8[D]", "O",
         "V4", "g")
    )  # fmt: skip
    if kind == "O":
        cells = np.empty(shape, dtype=object)
        cells[...] = "x"
        return cells
    values = np.asarray(draws.integers(0, 5, shape)).astype(np.dtype(kind) if kind != "V4" else "i4")
    if kind == "V4":
        return values.view("V4") if values.ndim else values
    if kind in ("f4", "f8", ">f8", "i8", "u8") and values.size and rng.random() < 0.3:
        number = rng.choice([n for n in NUMBERS if isinstance(n, int | float) and abs(n) < 2**63])
        with np.errstate(all="ignore"):
            values.reshape(-1)[0] = np.array(number).astype(kind)
    if rng.random() < 0.1:
        return np.asfortranarray(values)
    if rng.random() < 0.05:
        return np.array([(1, 2.0)] * rows, dtype=[("a", "i4"), ("b", "f8")])
    return values


def npz(folder: Path, rng: random.Random) -> Case:
    layer, rows = rng.choice(LAYERS), rng.choice((2, 6))
    arrays: dict[str, Any] = {
        "x": np.arange(rows * 2, dtype=np.float32).reshape(rows, 2),
        "y": np.arange(rows) % 2,
        "who": np.arange(rows) % 3,
    }
    if layer == "values":
        for name in rng.sample(sorted(arrays), rng.choice((1, 1, 2))):
            arrays[name] = _array(rng, rows)
    stream = io.BytesIO()
    rng.choice((np.savez, np.savez_compressed))(stream, **arrays)
    content = bytearray(stream.getvalue())
    if layer == "structure":
        content = rng.choice((_other_zip, _other_header))(content, rng)
    path = write_packed(folder / "data.npz", bytes(content), layer, rng)
    client: dict[str, Any] = {"client": "who"} if rng.random() < 0.5 else {}
    test: dict[str, Any] = {"test_inputs": "x", "test_targets": "y"} if rng.random() < 0.2 else {}
    more: dict[str, Any] = rng.choice(
        (
            {},
            {},
            {"regression": True},
            {"scale": 0.1},
            {"scale": 1e30},
            {"shape": (2,)},
            {"shape": (1, 2, 1)},
            {"missing": "median"},
            {"missing": "mode"},
        )
    )
    source = fl.NpzArrays(path, **client, **test, **more, **split_options(rng))
    return Case(source, "data.npz")


def _other_zip(content: bytearray, rng: random.Random) -> bytearray:
    """An archive whose entries say that they are encrypted or packed in another way."""
    local, central = content.find(b"PK\x03\x04"), content.find(b"PK\x01\x02")
    flags, method = rng.choice(
        ((1, 0), (1, 8), (0, 99), (0, 12), (0, 14), (0, 9), (0, 93), (0x40, 8), (8, 0), (0x20, 0))
    )
    for start, offset in ((local, 6), (central, 8)):
        if rng.random() < 0.9:
            content[start + offset : start + offset + 4] = struct.pack("<HH", flags, method)
    return content


def _other_header(content: bytearray, rng: random.Random) -> bytearray:
    """An archive of arrays whose own headers say something else."""
    shape = rng.choice(
        ("(2,)", "(-1,)", "(99999999999,)", "(2, 99999999999999999999)", "2", "('x',)", "(1.5,)", "(2,) ,")
    )
    descr = rng.choice(("'<f4'", "'|O'", "'x'", "None", "[('a', '<f4')]", "'<f4', 'x': 1", "'<M8[s]'", "'|V0'",
        "'<U0'",
                        "'<U999999999'", "[('a', '|O')]", "'<f4' * 9", "{}", "('<f4', (9, 9))"))  # fmt: skip
    text = f"{{'descr': {descr}, 'fortran_order': {rng.choice(('False', 'True', '0', 'None'))}, 'shape': {shape}}}"
    header = text.encode() + b"\n"
    entry = b"\x93NUMPY" + rng.choice((b"\x01\x00", b"\x02\x00", b"\x03\x00", b"\x09\x00"))
    size = "<H" if entry[6] == 1 else "<I"
    entry += struct.pack(size, rng.choice((len(header), len(header), 0, 65535))) + header + bytes(64)
    stream = io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(content)) as old, zipfile.ZipFile(stream, "w") as new:
        for info in old.infolist():
            new.writestr(info.filename, entry if rng.random() < 0.5 else old.read(info))
    return bytearray(stream.getvalue())


def _idx(values: np.ndarray[Any, Any], rng: random.Random | None) -> bytes:
    shape = list(values.shape)
    if rng is None:
        return bytes((0, 0, 8, len(shape))) + b"".join(struct.pack(">I", n) for n in shape) + values.tobytes()
    if rng.random() < 0.5:
        shape[rng.randrange(len(shape))] = rng.choice((0, 1, 27, 28, 2**16, 2**31 - 1, 2**31, 2**32 - 1))
    if rng.random() < 0.2:
        shape = [rng.choice((2**31, 2**32 - 1))] * len(shape)
    kind = rng.choice((8, 8, 8, 8, 8, 8, 9, 0x0B, 0x0D, 0))
    axes = rng.choice((len(shape), len(shape), len(shape), len(shape), 0, 2, 255))
    return bytes((0, 0, kind, axes)) + b"".join(struct.pack(">I", n) for n in shape) + values.tobytes()


def idx(folder: Path, rng: random.Random) -> Case:
    draws = np.random.default_rng(rng.randrange(2**32))
    layer, broken = rng.choice(LAYERS), rng.randrange(4)
    for place, stem in enumerate(("train", "t10k")):
        rows, wrong = rng.choice((3, 6)), layer == "values" and broken // 2 == place
        side = rng.choice((0, 1, 27)) if wrong and rng.random() < 0.5 else 28
        images = draws.integers(0, 256, (rows, side, side), dtype=np.uint8)
        labels = draws.integers(0, 256 if wrong and rng.random() < 0.5 else 10, rows, dtype=np.uint8)
        for kind, values in (("images-idx3", images), ("labels-idx1", labels)):
            hurt = broken == 2 * place + (kind[0] == "l")
            content = _idx(values, rng if hurt and layer == "structure" else None)
            name = f"{stem}-{kind}-ubyte"
            if rng.random() < 0.5:
                name, content = f"{name}.gz", gzip.compress(content)
            (folder / name).write_bytes(damaged(content, rng) if hurt and layer == "bytes" else content)
    source = rng.choice((fl.MnistFolder, fl.FashionMnistFolder))
    return Case(source(str(folder), **split_options(rng)), folder.name)


def cifar(folder: Path, rng: random.Random) -> Case:
    layer, hundred = rng.choice(LAYERS), rng.random() < 0.3
    names = ["train", "test"] if hundred else [*(f"data_batch_{n}" for n in range(1, 6)), "test_batch"]
    broken = rng.choice(names)
    for name in names:
        rows = rng.choice((2, 3))
        labels: list[Any] = [rng.randrange(10) for _ in range(rows)]
        data: Any = np.random.default_rng(rng.randrange(2**32)).integers(0, 256, (rows, 3072), dtype=np.uint8)
        field: Any = "fine_labels" if hundred else "labels"
        batch: dict[Any, Any] = {"data": data, field: labels, "coarse_labels": labels}
        if rng.random() < 0.5:
            batch = {key.encode(): value for key, value in batch.items()}
        hurt = layer if name == broken else "nothing"
        if hurt == "values":
            _break_batch(batch, rng)
        content = pickle.dumps(batch, protocol=rng.randrange(5))
        if hurt == "structure":
            content = _other_pickle(content, rng)
        (folder / name).write_bytes(damaged(content, rng) if hurt == "bytes" else content)
    chosen: Literal["fine", "coarse"] = rng.choice(("fine", "coarse"))
    return Case(fl.CifarFolder(str(folder), labels=chosen, **split_options(rng)), folder.name)


def _break_batch(batch: dict[Any, Any], rng: random.Random) -> None:
    """A batch with another value, key, list or array in it."""
    key = rng.choice(list(batch))
    change = rng.randrange(6)
    if change == 0:
        batch[key] = deepcopy(rng.choice(JUNK[:-3]))
    elif change == 1 and isinstance(batch[key], list):
        batch[key][0] = rng.choice(NUMBERS)
    elif change == 2:
        others: tuple[Any, ...] = (
            "\udcff",
            "\ud800data",
            3,
            None,
            ("data",),
            b"\xff",
            "",
            b"labels ",
            1.5,
            frozenset({"data"}),
        )
        batch[rng.choice(others)] = batch.pop(key) if rng.random() < 0.5 else 1
    elif change == 3:
        batch[key] = _array(rng, 2)
    elif change == 4:
        batch[key] = np.asfortranarray(
            np.zeros((rng.choice((0, 1, 2)), rng.choice((0, 3071, 3072))), np.uint8)
        )
    else:
        batch[key] = rng.choice(
            (np.int64(3), np.float64("nan"), np.str_("x"), (1, 2), {1}, [[1]], [True], bytearray(5))
        )


def _other_pickle(content: bytes, rng: random.Random) -> bytes:
    """Opcodes put in, taken out or exchanged."""
    codes = (b"\x81", b"R", b"b", b"t", b"(", b"0", b"1", b"2", b"\x85", b"\x86", b"\x87", b"}", b"]", b"N", b".",
        b"\x94",
             b"cnumpy\nndarray\n)\x81", b"cnumpy\nndarray\n(K\x01t\x81", b"cnumpy\ndtype\n)\x81",
             b"c_codecs\nencode\n)\x81",
             b"cnumpy\nndarray\n)R", b"cnumpy\nndarray\n", b"I999999999999999999999\n", b"L" + b"9" * 5000 + b"L\n",
             b"\x8a\xff" + b"\x7f" * 255, b"F1e999\n", b"Vx\\ud800\n", b"\x92", b"s", b"u", b"a", b"e", b"h\xff",
             b"q\xff",
             b"cnumpy\nndarray\n)}\x92", b"\x8f", b"\x90", b"\x91", b"\x97", b"\x98", b"l", b"d", b"S'\\x'\n",
             b"U\xff", b"X\xff\xff\xff\x7f", b"\x95" + b"\xff" * 8, b"G\x7f\xf8\0\0\0\0\0\0", b"I01\n",
             b"]\x94h\x00a")  # fmt: skip
    for _ in range(rng.choice((1, 1, 2, 3))):
        place = rng.randrange(len(content) + 1) if rng.random() < 0.5 else len(content) - rng.randrange(20)
        place = max(place, 0)
        content = content[:place] + rng.choice(codes) + content[place + rng.choice((0, 0, 1)) :]
    return content


def leaf(folder: Path, rng: random.Random) -> Case:
    layer, text = rng.choice(LAYERS), rng.random() < 0.4
    inputs: list[Any] = ["abcd", "bcda"] if text else [[0.1, 0.2, 0.3, 0.4], [0.5, 0.6, 0.7, 0.8]]
    targets: list[Any] = ["e", "a"] if text else [0, 1]
    parts = ("train", "test") if rng.random() < 0.6 else ("",)
    for part in parts:
        (folder / part).mkdir(exist_ok=True)
        content: Any = {
            "users": ["u1", "u2"],
            "num_samples": [2, 2],
            "user_data": {name: {"x": deepcopy(inputs), "y": list(targets)} for name in ("u1", "u2")},
        }
        hurt = layer if part == rng.choice(parts) else "nothing"
        written = _json(content, rng, hurt).encode(errors="surrogatepass")
        file = folder / part / "all_data.json"
        file.write_bytes(damaged(written, rng) if hurt == "bytes" else written)
    shape = rng.choice((None, None, (4,), (1, 2, 2), (3,))) if not text else None
    return Case(fl.LeafFolder(str(folder), shape, text=text, **split_options(rng)), folder.name)


def _json(content: Any, rng: random.Random, layer: str) -> str:
    """Plain data as JSON, with leaves or tables exchanged and marks that Python would not write."""
    for _ in range(rng.choice((1, 1, 2)) if layer in ("values", "structure") else 0):
        inner = [
            (h, k) for h, k in places(content) if layer == "structure" or not isinstance(h[k], dict | list)
        ]
        if not inner:
            break
        holder, key = rng.choice(inner)
        change = rng.randrange(8)
        if change == 0:
            holder[key] = deepcopy(rng.choice(JUNK[:-3]))
        elif change in (1, 2):
            holder[key] = rng.choice(NUMBERS)
        elif change in (3, 4):
            holder[key] = rng.choice(TEXTS)
        elif change == 5:
            holder.pop(key)
        elif change == 6 and isinstance(holder, dict):
            holder[rng.choice(TEXTS)] = holder.pop(key)
        else:
            holder[key] = rng.choice(("DIGITS", "DEEP", "SURROGATE"))
    written = json.dumps(content, ensure_ascii=rng.random() < 0.5)
    raw = {'"DIGITS"': "9" * 5000, '"DEEP"': "[" * 3000 + "]" * 3000, '"SURROGATE"': '"\\ud800"'}
    for mark, instead in raw.items():
        written = written.replace(mark, instead)
    return written


def _csv_text(
    header: list[str], rows: list[list[str]], delimiter: str, layer: str, rng: random.Random
) -> bytes:
    if layer == "values":
        column, word = rng.randrange(len(header)), rng.choice(TEXTS)
        for row in rng.sample(rows, rng.choice((1, 1, 2, len(rows)))):
            row[column] = word
    for _ in range(rng.choice((1, 1, 2)) if layer == "structure" else 0):
        row = rng.choice([header, header, *rows])
        change = rng.randrange(3)
        if change == 0 or not row:
            row.append(rng.choice(TEXTS))
        elif change == 1:
            row.pop(rng.randrange(len(row)))
        else:
            row[rng.randrange(len(row))] = rng.choice(TEXTS)
    stream = io.StringIO()
    csv.writer(stream, delimiter=delimiter, escapechar="\\").writerows([header, *rows])
    encoding = "utf-16" if layer == "structure" and rng.random() < 0.05 else "utf-8"
    return stream.getvalue().encode(encoding, errors="surrogatepass")


def csv_table(folder: Path, rng: random.Random) -> Case:
    layer = rng.choice(LAYERS)
    delimiter = "," if layer != "structure" else rng.choice((",", ";", "\t", "a", " ", "é"))
    header = ["who", "age", "says", "split", "label"]
    rows = [
        [f"c{n % 3}", str(n / 2), f"word{n}", "test" if n == 5 else "train", str(n % 2)] for n in range(6)
    ]
    path = write_packed(folder / "data.csv", _csv_text(header, rows, delimiter, layer, rng), layer, rng)
    if layer == "structure" and rng.random() < 0.2:
        delimiter = rng.choice(('"', "\x00", "\n", "\r", "🙂"))
    if rng.random() < 0.25:
        length = rng.choice((1, 2, 3, 80, 10**6, 2**40))
        source: fl.PooledSource = fl.CsvText(
            path, "says", rng.choice((None, "who")), length, delimiter=delimiter, missing=rng.choice(("refuse",
                "drop")),
            **split_options(rng),
        )  # fmt: skip
        return Case(source, "data.csv")
    return Case(
        fl.CsvTable(path, **_table_options(rng), delimiter=delimiter, **split_options(rng)), "data.csv"
    )


def _table_options(rng: random.Random) -> dict[str, Any]:
    tokens = rng.choice((None, None, fl.ByteTokens(4), fl.HashedWords(3, 8)))
    features: Any = (
        ("age", "age", ("age",), None, ("age", "says")) if tokens is None else ("says", ("says", "age"))
    )
    target = rng.choice(("label", "label", "label", "label", "age", "says"))
    return {
        "target": target,
        "client": rng.choice((None, "who", "who", ("who", "split"))),
        "features": rng.choice(features),
        "tokens": tokens,
        "regression": target == "age" or rng.random() < 0.1,
        "split": "split" if rng.random() < 0.3 else None,
        "missing": rng.choice(("refuse", "drop")),
        "standardize": tokens is None and rng.random() < 0.3,
    }


def parquet(folder: Path, rng: random.Random) -> Case:
    arrow, layer = import_module("pyarrow"), rng.choice(LAYERS)
    columns: dict[str, Any] = {
        "who": arrow.array([f"c{n % 3}" for n in range(6)]),
        "age": arrow.array([n / 2 for n in range(6)]),
        "says": arrow.array([f"word{n}" for n in range(6)]),
        "split": arrow.array(["train"] * 5 + ["test"]),
        "label": arrow.array([n % 2 for n in range(6)]),
    }
    if layer in ("values", "structure"):
        for name in rng.sample(sorted(columns), rng.choice((1, 1, 2))):
            columns[name] = _arrow_column(rng)
    stream = io.BytesIO()
    table = arrow.table(columns)
    compression = rng.choice(("none", "snappy", "gzip", "zstd"))
    import_module("pyarrow.parquet").write_table(table, stream, compression=compression)
    inside = rng.random() < 0.2
    file = folder / "data.parquet" / "part.parquet" if inside else folder / "data.parquet"
    file.parent.mkdir(exist_ok=True)
    file.write_bytes(damaged(stream.getvalue(), rng) if layer == "bytes" else stream.getvalue())
    path = str(folder / "data.parquet")
    return Case(fl.ParquetTable(path, **_table_options(rng), **split_options(rng)), "data.parquet")


def _arrow_column(rng: random.Random) -> Any:
    """Six values of any type that Parquet knows."""
    arrow = import_module("pyarrow")
    decimal = import_module("decimal").Decimal
    date = import_module("datetime")
    made: tuple[Callable[[], Any], ...] = (
        lambda: arrow.array([decimal(10) ** 40 + n for n in range(6)], arrow.decimal256(60)),
        lambda: arrow.array([decimal("1.50")] * 6, arrow.decimal128(10, 2)),
        lambda: arrow.array([decimal(10) ** 30] * 6, arrow.decimal128(38)),
        lambda: arrow.array([2**64 - 1 - n for n in range(6)], arrow.uint64()),
        lambda: arrow.array([2**63 - 1, -(2**63), 0, 1, 2, 3], arrow.int64()),
        lambda: arrow.array([None] * 6),
        lambda: arrow.array([None, 1, 2, 3, 4, 5]),
        lambda: arrow.array([None, "x", "y", "", " ", "NA"]),
        lambda: arrow.array([True, False, None, True, True, False]),
        lambda: arrow.array([b"\xff", b"", b"abc", None, b"x", b"y"]),
        lambda: arrow.array([[1.0, 2.0]] * 6),
        lambda: arrow.array([[1.0, 2.0], [1.0], [], None, [3.0], [1.0, None]]),
        lambda: arrow.array([[[1, 2], [3, 4]]] * 6),
        lambda: arrow.array([["a"], ["b"], ["c"], [], None, ["d", "e"]]),
        lambda: arrow.array([[]] * 6, arrow.list_(arrow.float32())),
        lambda: arrow.array([[1, 2]] * 6, arrow.list_(arrow.uint8(), 2)),
        lambda: arrow.array([{"a": 1, "b": "x"}] * 6),
        lambda: arrow.array([[("a", 1)]] * 6, arrow.map_(arrow.string(), arrow.int64())),
        lambda: arrow.array([date.datetime(2020, 1, 1)] * 6, arrow.timestamp("us")),
        lambda: arrow.array([2**62, 0, 1, 2, 3, 4], arrow.timestamp("us")),
        lambda: arrow.array([date.date(2020, 1, 1), None] * 3),
        lambda: arrow.array([date.time(1)] * 6),
        lambda: arrow.array([date.timedelta(days=1)] * 6),
        lambda: arrow.array(["a", "b", "a", "b", None, "c"]).dictionary_encode(),
        lambda: arrow.array([float("nan"), float("inf"), 1e300, -0.0, None, 0.5]),
        lambda: arrow.array([0, 1, 2, 3, 4, 5], arrow.float16()),
        lambda: arrow.array(["x" * 5000] * 6),
        lambda: arrow.array(["9" * 5000] * 6),
        lambda: arrow.array([rng.choice(TEXTS).replace("\ud800", "") for _ in range(6)]),
    )
    return rng.choice(made)()


_TEMPLATES: dict[str, Path] = {}


def _templates(scratch: Path) -> dict[str, Path]:
    """Good folders of Hugging Face's datasets, made once."""
    if not _TEMPLATES:
        datasets, image = import_module("datasets"), import_module("PIL.Image")
        numbers = {
            "x": [n / 2 for n in range(6)],
            "label": [n % 2 for n in range(6)],
            "who": [f"c{n % 3}" for n in range(6)],
        }
        lists = {"x": [[1.0, 2.0]] * 6, "label": [0, 1] * 3, "who": [f"c{n % 3}" for n in range(6)]}
        texts = {
            "x": [f"some words {n}" for n in range(6)],
            "label": ["a", "b"] * 3,
            "who": [f"c{n % 3}" for n in range(6)],
        }
        pixels = np.random.default_rng(0).integers(0, 256, (6, 4, 4), dtype=np.uint8)
        images = {
            "x": [image.fromarray(own) for own in pixels],
            "label": [0, 1] * 3,
            "who": [f"c{n % 3}" for n in range(6)],
        }
        pictured = datasets.Features({"x": datasets.Image(), "label": datasets.ClassLabel(names=["a", "b"]),
                                      "who": datasets.Value("string")})  # fmt: skip
        made = {
            "numbers": datasets.Dataset.from_dict(numbers),
            "lists": datasets.Dataset.from_dict(lists),
            "texts": datasets.DatasetDict(
                {part: datasets.Dataset.from_dict(texts) for part in ("train", "test")}
            ),
            "images": datasets.Dataset.from_dict(images, features=pictured),
        }
        datasets.disable_progress_bars()
        for name, dataset in made.items():
            dataset.save_to_disk(scratch / name)
            _TEMPLATES[name] = scratch / name
    return _TEMPLATES


def huggingface(folder: Path, rng: random.Random) -> Case:
    templates = _templates(folder.parent / "huggingface templates")
    kind = rng.choice(sorted(templates))
    copy = folder / "saved"
    shutil.copytree(templates[kind], copy)
    files = sorted(path for path in copy.rglob("*") if path.is_file())
    for _ in range(rng.choice((0, 1, 1, 1, 2))):
        file = rng.choice(files)
        content = file.read_bytes()
        if rng.random() < 0.1:
            file.unlink(missing_ok=True)
            files.remove(file)
        elif file.suffix == ".json" and rng.random() < 0.8:
            try:
                plain = json.loads(content)
            except (ValueError, RecursionError):
                continue
            if rng.random() < 0.5:
                written = _json(plain, rng, rng.choice(("values", "structure")))
            else:
                written = json.dumps(_with_other_word(plain, rng))
            file.write_bytes(written.encode(errors="surrogatepass"))
        else:
            file.write_bytes(damaged(content, rng))
    options: dict[str, Any] = {
        "client": rng.choice((None, "who", "who")),
        "tokens": fl.ByteTokens(4) if kind == "texts" else None,
        "regression": rng.random() < 0.1,
        "missing": rng.choice(("refuse", "drop")),
    }
    return Case(fl.HuggingFaceData(str(copy), "x", "label", **options, **split_options(rng)), "saved")


_WORDS = ("Image", "Value", "Array2D", "Sequence", "ClassLabel", "Audio", "Video", "Pdf", "Translation",
    "LargeList", "List",
          "int64", "float32", "string", "large_string", "binary", "null", "bool", "uint8", "timestamp[s]",
          "decimal128(5)",
          "decimal256(60)", "nothing", "list<int>", "duration[s]", "data-00001-of-00001.arrow", "../data.arrow",
          "/etc/passwd",
          "x", "label", "Json", "Nifti")  # fmt: skip


def _with_other_word(content: Any, rng: random.Random) -> Any:
    """Plain data in which one text is another that may stand there."""
    texts = [(holder, key) for holder, key in places(content) if isinstance(holder[key], str)]
    if texts:
        holder, key = rng.choice(texts)
        holder[key] = rng.choice(_WORDS)
    return content


def paths(folder: Path, rng: random.Random) -> Case:
    """Any source with a path that is none."""
    path = rng.choice(
        ("x" * rng.choice((256, 5000, 100_000)), "/" * 5000, "a/" * 3000, "~nobody", "~nobody/data.npz", "~",
        "~root/x", "", ".",
         "..", "/", "\x00", "a\x00b", "\ud800", "nowhere\n", "/dev/null", "/dev/zero", "/dev/stdin",
         "/proc/self/mem", "//", "~~",
         "~/" + "y" * 5000, "\u202e", "🙂", str(folder), "file:///etc/passwd", "http://localhost/x.csv",
         "s3://bucket/key",
         "hdfs://x/y", "gs://x", "*.parquet", str(folder / "x.csv") + "/y", "data.npz.gz", "x.tar.gz", "$HOME",
         "C:\\x")
    )  # fmt: skip
    options = split_options(rng)
    sources: tuple[Callable[[], fl.PooledSource], ...] = (
        lambda: fl.NpzArrays(path, **options),
        lambda: fl.CsvTable(path, "y", **options),
        lambda: fl.CsvTable(path, "y", test_path=path, **options),
        lambda: fl.CsvText(path, "says", **options),
        lambda: fl.ParquetTable(path, "y", **options),
        lambda: fl.HuggingFaceData(path, **options),
        lambda: fl.LeafFolder(path, **options),
        lambda: fl.MnistFolder(path, **options),
        lambda: fl.FashionMnistFolder(path, **options),
        lambda: fl.CifarFolder(path, **options),
    )
    return Case(rng.choice(sources)(), "")


def traces(folder: Path, rng: random.Random) -> Iterator[fl.WorkModel | fl.LinkModel]:
    """Conditions that replay a trace."""
    layer = rng.choice(LAYERS)
    rows = [{"round": r, "client": c, "steps": r + c + 1, "arrives": 1} for r in range(2) for c in range(3)]
    if rng.random() < 0.5:
        header = list(rows[0])
        cells = [[str(row[name]) for name in header] for row in rows]
        file, content = folder / "trace.csv", _csv_text(header, cells, ",", layer, rng)
    else:
        hurt = rng.randrange(len(rows))
        lines = (_json(row, rng, layer if place == hurt else "nothing") for place, row in enumerate(rows))
        file, content = folder / "trace.jsonl", "\n".join(lines).encode(errors="surrogatepass")
    file.write_bytes(damaged(content, rng) if layer == "bytes" else content)
    path = str(file)
    if layer == "structure" and rng.random() < 0.2:
        path = rng.choice(
            (
                "x" * 5000 + ".csv",
                "~nobody.csv",
                "\x00.csv",
                "/dev/null.csv",
                str(folder / "x.csv"),
                "a\ud800.jsonl",
            )
        )
    yield fl.TraceWork(path, rng.choice(("refuse", "hold", "absent")))
    yield fl.TraceLink(path, rng.choice(("refuse", "hold", "lost", "arrives")))


FORMATS: dict[str, Callable[[Path, random.Random], Case]] = {
    "npz": npz,
    "idx": idx,
    "CIFAR": cifar,
    "LEAF": leaf,
    "CSV": csv_table,
    "Parquet": parquet,
    "Hugging Face": huggingface,
    "paths": paths,
}
