"""CSV and Parquet tables, on files that the tests write."""

from __future__ import annotations

import gzip
import lzma
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
import torch

import fairlead as fl
from fairlead.errors import ClashError, DataError, FieldError

HOSPITALS = """\
hospital,age,pressure,ill
ulm,50,120.5,1
bonn,60,130,0
ulm,70,,1
bonn,40,110,0
"""
KEY = fl.Key.from_seed(0)
Write = Callable[[str], str]


@pytest.fixture
def write(tmp_path: Path) -> Write:
    """Writes a CSV file and gives its path."""

    def written(text: str) -> str:
        file = tmp_path / "table.csv"
        file.write_text(text)
        return str(file)

    return written


class TestCsv:
    def test_clients_features_and_classes(self, write: Write) -> None:
        source = fl.CsvTable(write(HOSPITALS), "ill", "hospital", missing="drop", test_fraction=0.0)
        data = source.load(KEY)
        assert data.test is None
        assert data.train.sizes.tolist() == [2, 1]
        assert sorted(data.train.inputs[:2].tolist()) == [[40.0, 110.0], [60.0, 130.0]]
        assert data.train.inputs[2].tolist() == [50.0, 120.5]
        assert data.train.targets.tolist() == [0, 0, 1]

    def test_an_unpacked_and_a_packed_file_are_the_same(self, write: Write, tmp_path: Path) -> None:
        (tmp_path / "t.csv.gz").write_bytes(gzip.compress(HOSPITALS.encode()))
        (tmp_path / "t.csv.xz").write_bytes(lzma.compress(HOSPITALS.encode()))
        pools = [
            fl.CsvTable(path, "ill", features="age").pool()
            for path in (write(HOSPITALS), str(tmp_path / "t.csv.gz"), str(tmp_path / "t.csv.xz"))
        ]
        for pool in pools:
            assert pool.inputs.flatten().tolist() == [50.0, 60.0, 70.0, 40.0]

    def test_quotes_newlines_marks_and_other_delimiters(self, write: Write) -> None:
        """A byte-order mark, a cell with delimiter and newline, a blank line, Windows line ends."""
        path = write('\ufefftext;y\r\n"a;b\nc";0\r\n\r\nd;1\r\n')
        source = fl.CsvTable(path, "y", features="text", tokens=fl.ByteTokens(length=6), delimiter=";")
        assert source.pool().inputs[0].tolist() == [byte + 1 for byte in b"a;b\nc"] + [0]

    def test_another_delimiter_than_the_file_has(self, write: Write) -> None:
        with pytest.raises(
            DataError,
            match=r"has a single column, 'x;y', with the delimiter ',': its delimiter is probably ';'\.",
        ):
            fl.CsvTable(write("x;y\n1;0\n"), "y").pool()

    def test_lines_count_as_an_editor_does(self, write: Write) -> None:
        """The first row takes two lines, so the second stands in line 4."""
        path = write('note,x,y\n"two\nlines",1,0\nok,oops,0\n')
        with pytest.raises(DataError, match=r"table.csv, line 4, column 'x': 'oops' is not a finite number"):
            fl.CsvTable(path, "y", features="x").pool()

    def test_a_target_of_words_is_no_quantity(self, write: Write) -> None:
        """A single word among numbers is a slip, and no reason to learn classes."""
        with pytest.raises(
            DataError, match=r"'y': 'no' .*: remove `regression` to treat the words of the target"
        ):
            fl.CsvTable(write("x,y\n1,no\n2,yes\n"), "y", regression=True).pool()
        with pytest.raises(DataError, match=r"'y': 'oops' is not a finite number\.$"):
            fl.CsvTable(write("x,y\n1,0.5\n2,oops\n"), "y", regression=True).pool()

    def test_a_split_column(self, write: Write) -> None:
        text = "split,site,x,y\ntrain,a,1,cat\ntest,b,2,dog\ntrain,b,3,emu\n"
        pool = fl.CsvTable(write(text), "y", "site", split="split").pool()
        assert pool.inputs.flatten().tolist() == [1.0, 3.0]
        assert pool.targets.tolist() == [0, 2]
        assert pool.test_targets is not None
        assert pool.test_targets.tolist() == [1]
        assert pool.test_natural is not None
        assert pool.test_natural.tolist() == [1]

    def test_a_test_file_shares_the_numbers_of_classes(self, write: Write, tmp_path: Path) -> None:
        """In the test file alone, "cat" and "emu" would be classes 0 and 1."""
        (tmp_path / "test.csv").write_text("x,y\n4,emu\n5,cat\n")
        source = fl.CsvTable(
            write("x,y\n1,cat\n2,dog\n"),
            "y",
            test_path=str(tmp_path / "test.csv"),
            num_clients=1,
            partition=fl.IidPartitioner(),
        )
        data = source.load(KEY)
        assert data.test is not None
        assert data.test.targets.tolist() == [2, 0]

    def test_standardized_by_the_training_rows(self, write: Write) -> None:
        """Rows 1 and 3 have mean 2 and deviation 1; the constant column keeps its zeros."""
        text = "split,x,c,y\ntrain,1,5,0\ntrain,3,5,0\ntest,4,5,0\n"
        pool = fl.CsvTable(write(text), "y", split="split", standardize=True).pool()
        assert pool.inputs.tolist() == [[-1.0, 0.0], [1.0, 0.0]]
        assert pool.test_inputs is not None
        assert pool.test_inputs.tolist() == [[2.0, 0.0]]

    def test_a_default_task_trains(self, write: Write) -> None:
        source = fl.CsvTable(write(HOSPITALS), "ill", "hospital", missing="drop", standardize=True)
        run = fl.Experiment(source, fl.presets.fedavg(lr=0.1), rounds=2).build()
        assert [record.round for record in run.train(2)] == [0, 1]
        regression = fl.CsvTable(write(HOSPITALS), "age", "hospital", features="ill", regression=True)
        run = fl.Experiment(regression, fl.presets.fedavg(lr=0.1), rounds=2).build()
        assert len(list(run.train(2))) == 2

    @pytest.mark.parametrize(
        ("text", "message"),
        [
            ("", "table.csv is empty: it must begin with the names of its columns"),
            ("x,y\n", "table.csv has no row"),
            ("x,y\n1,0\n2\n", "table.csv, line 3 has 1 cells, but the header has 2"),
            ("x,x,y\n1,1,0\n", "table.csv has more than one column 'x'"),
            ("x,label\n1,0\n", "table.csv has no column 'y'"),
            (
                "x,y\n1,0\n,1\n",
                "line 3, column 'x' is empty: fill it in, or drop incomplete rows with missing=\"drop\", or impute",
            ),
            ("x,y\n1,0\nnan,1\n", r"line 3, column 'x' is empty \('nan'\): .*missing=\"drop\""),
            ("x,y\n1,0\n2,NA\n", r"line 3, column 'y' is empty \('NA'\): .*missing=\"drop\""),
            ("x,y\nNA,0\nNA,1\n", "line 2, column 'x': 'NA' is not a finite number: choose the features"),
            ("x,y\n1,0\ninf,1\n", "line 3, column 'x': 'inf' is not a finite number"),
            ("x,y\nabc,0\n", "line 2, column 'x': 'abc' is not a finite number: choose the features"),
            ("x,y\n1,0\n2,-3\n", "line 3, column 'y': '-3' is not a class"),
            ("x,y\n1,0\n2,yes\n", "line 3, column 'y': 'yes' is text in a column of numbers"),
            ("x,y\n1,\n", "line 2, column 'y' is empty"),
        ],
    )
    def test_broken_tables(self, write: Write, text: str, message: str) -> None:
        with pytest.raises(DataError, match=message):
            fl.CsvTable(write(text), "y").pool()

    def test_broken_files(self, tmp_path: Path) -> None:
        with pytest.raises(DataError, match=r"absent.csv does not exist\."):
            fl.CsvTable(str(tmp_path / "absent.csv"), "y").pool()
        with pytest.raises(DataError, match=r"is a folder, but a file is needed\."):
            fl.CsvTable(str(tmp_path), "y").pool()
        (tmp_path / "t.csv").write_bytes(b"x,y\n\xff,0\n")
        with pytest.raises(
            DataError, match=r"t.csv cannot be read: it is not UTF-8 text, because byte 4 is invalid\."
        ):
            fl.CsvTable(str(tmp_path / "t.csv"), "y").pool()
        (tmp_path / "t.csv.gz").write_bytes(gzip.compress(b"x,y\n1,0\n" * 99)[:-20])
        with pytest.raises(DataError, match=r"t.csv.gz cannot be read: "):
            fl.CsvTable(str(tmp_path / "t.csv.gz"), "y").pool()
        (tmp_path / "t.csv.xz").write_bytes(b"not packed")
        with pytest.raises(DataError, match=r"t.csv.xz cannot be read: "):
            fl.CsvTable(str(tmp_path / "t.csv.xz"), "y").pool()
        (tmp_path / "wide.csv").write_text("x,y\n" + "1" * 200_000 + ",0\n")
        with pytest.raises(DataError, match=r"wide.csv, line 2 is not CSV: field larger than field limit"):
            fl.CsvTable(str(tmp_path / "wide.csv"), "y").pool()

    def test_rows_without_use(self, write: Write) -> None:
        with pytest.raises(DataError, match="Every row has a missing value in the used columns"):
            fl.CsvTable(write("x,y\n,0\n"), "y", missing="drop").pool()
        with pytest.raises(DataError, match="has no row for training"):
            fl.CsvTable(write("split,x,y\ntest,1,0\n"), "y", split="split").pool()
        with pytest.raises(DataError, match="line 2, column 'split' must say 'train' or 'test', got 'valid'"):
            fl.CsvTable(write("split,x,y\nvalid,1,0\n"), "y", split="split").pool()

    def test_rows_left_out_are_counted(self, write: Write) -> None:
        """An empty cell, two marks of a missing number in a feature and one in the target, an unknown client."""
        text = "site,x,y\na,1,0\na,,0\na,NA,1\nb,n/a,1\nb,2,1\nb,3,nan\n,4,1\n"
        source = fl.CsvTable(write(text), "y", "site", missing="drop", test_fraction=0.0)
        pool = source.pool()
        assert pool.inputs.flatten().tolist() == [1.0, 2.0]
        assert pool.num_dropped == 5
        assert repr(pool) == "Pool(2 examples of shape (1,), 5 incomplete rows left out)"
        assert source.load(KEY).train.num_dropped == 5
        assert fl.CsvTable(write("x,y\n1,0\n"), "y", missing="drop").pool().num_dropped == 0

    def test_marks_among_names_are_names(self, write: Write) -> None:
        """NA is Namibia and None a class, since other cells of their columns are no numbers either."""
        text = "country,x,kind\nNA,1,None\nDE,2,mild\n"
        pool = fl.CsvTable(write(text), "kind", "country", missing="drop").pool()
        assert (len(pool), pool.num_dropped) == (2, 0)
        assert pool.deal().names is not None
        assert fl.CsvTable(write(text), "kind", "country").pool().targets.tolist() == [0, 1]

    def test_a_client_that_would_lose_all_its_rows(self, write: Write) -> None:
        with pytest.raises(
            DataError, match=r"no complete row for 1 of 2 clients \('b'\): choose features that"
        ):
            fl.CsvTable(write("site,x,y\na,1,0\nb,?,0\n"), "y", "site", missing="drop").pool()

    def test_settings_that_clash(self) -> None:
        with pytest.raises(ClashError, match="both split and test_path"):
            fl.CsvTable("a.csv", "y", split="s", test_path="b.csv")
        with pytest.raises(ClashError, match="standardize needs numbers"):
            fl.CsvTable("a.csv", "y", tokens=fl.ByteTokens(), standardize=True)
        with pytest.raises(FieldError, match=r"CsvTable.delimiter must be one character, got ', '"):
            fl.CsvTable("a.csv", "y", delimiter=", ")
        with pytest.raises(FieldError, match=r"CsvTable.missing must be one of 'refuse', 'drop'"):
            fl.CsvTable("a.csv", "y", missing="skip")  # type: ignore[arg-type]

    def test_fields_that_are_no_text(self) -> None:
        with pytest.raises(FieldError, match=r"^CsvTable.test_path must be a path, got 3\.$"):
            fl.CsvTable("a.csv", "y", test_path=3)  # type: ignore[arg-type]
        with pytest.raises(FieldError, match=r"^CsvTable.target must be a str, got None\.$"):
            fl.CsvTable("a.csv", None)  # type: ignore[arg-type]

    def test_a_column_of_few_words(self, write: Write) -> None:
        advice = (
            r"line 2, column 'ward': 'b' is not a finite number: the column repeats 2 words, so leave it out of "
            r"the features or encode it as numbers, for example with pandas\.get_dummies\.$"
        )
        with pytest.raises(DataError, match=advice):
            fl.CsvTable(write("ward,y\nb,0\na,1\nb,1\na,0\n"), "y").pool()
        for cells in ("b,a,b,c", "1,1,b,1"):
            rows = "".join(f"{cell},0\n" for cell in cells.split(","))
            with pytest.raises(
                DataError, match=r"'b' is not a finite number: choose the features, or tokens"
            ):
                fl.CsvTable(write(f"ward,y\n{rows}"), "y").pool()

    def test_features_that_are_used(self, write: Write) -> None:
        source = fl.CsvTable(write(HOSPITALS), "ill", "hospital", missing="drop")
        assert source.load(KEY).train.features == ("age", "pressure")

    def test_without_clients_a_partitioner_is_needed(self, write: Write) -> None:
        source = fl.CsvTable(write("x,y\n1,0\n2,1\n"), "y")
        with pytest.raises(
            FieldError, match=r"The data name no clients: .* fl\.CsvTable\(\.\.\., num_clients=10, "
        ):
            source.load(KEY)


PLAYS = """\
play,speaker,text
Hamlet,GHOST,Mark me.
Hamlet,HAMLET,I will.
Lear,FOOL,Ha
Hamlet,GHOST,My hour
"""


class TestCsvText:
    def test_windows_of_a_role(self, write: Write) -> None:
        r"""GHOST says "Mark me.\nMy hour", 16 characters: five windows of 3 whose last target is the 16th.

        HAMLET's 7 characters make two windows, FOOL's 2 none, so FOOL is no client.
        """
        pool = fl.CsvText(write(PLAYS), "text", ("play", "speaker"), length=3).pool()
        assert pool.natural is not None
        assert pool.natural.tolist() == [0] * 5 + [1] * 2
        used = sorted("Mark me.\nMy hour" + "I will.")
        alphabet = sorted(set(used))
        spoken = ["".join(alphabet[id] for id in row) for row in pool.inputs.tolist()]
        following = ["".join(alphabet[id] for id in row) for row in pool.targets.tolist()]
        assert spoken == ["Mar", "k m", "e.\n", "My ", "hou", "I w", "ill"]
        assert following == ["ark", " me", ".\nM", "y h", "our", " wi", "ll."]
        assert pool.inputs.dtype == torch.int64

    def test_a_character_model_trains(self, write: Write) -> None:
        source = fl.CsvText(write(PLAYS * 3), "text", ("play", "speaker"), length=4)
        task = fl.Task(fl.CharLSTM(embedding=2, hidden=3, layers=1, pooling="none"))
        assert source.default_task().model == fl.CharLSTM(pooling="none")
        run = fl.Experiment(source, fl.presets.fedavg(lr=0.1), rounds=1, task=task).build()
        assert len(list(run.train(1))) == 1

    def test_lines_that_nobody_speaks(self, write: Write) -> None:
        text = PLAYS + "Hamlet,,A bell rings.\n"
        with pytest.raises(DataError, match="line 6, column 'speaker' is empty"):
            fl.CsvText(write(text), "text", "speaker", length=3).pool()
        pool = fl.CsvText(write(text), "text", "speaker", length=3, missing="drop").pool()
        assert (len(pool), pool.num_dropped) == (7, 1)

    def test_texts_that_are_too_short(self, write: Write) -> None:
        with pytest.raises(DataError, match="has no client with more than 80 characters"):
            fl.CsvText(write(PLAYS), "text", "speaker").pool()
        with pytest.raises(DataError, match="has no column 'line'"):
            fl.CsvText(write(PLAYS), "line", "speaker").pool()


@pytest.mark.needs_package("pyarrow")
class TestParquet:
    def write(self, path: Path, columns: dict[str, Any]) -> str:
        arrow, parquet = import_module("pyarrow"), import_module("pyarrow.parquet")
        parquet.write_table(arrow.table(columns), path)
        return str(path)

    def test_clients_features_and_classes(self, tmp_path: Path) -> None:
        columns = {"site": ["b", "a", "b"], "x": [1, 2, 3], "y": ["no", "yes", "no"]}
        pool = fl.ParquetTable(self.write(tmp_path / "t.parquet", columns), "y", "site").pool()
        assert pool.natural is not None
        assert pool.natural.tolist() == [1, 0, 1]
        assert pool.inputs.flatten().tolist() == [1.0, 2.0, 3.0]
        assert pool.targets.tolist() == [0, 1, 0]

    def test_a_folder_of_files_and_a_test_file(self, tmp_path: Path) -> None:
        (tmp_path / "train").mkdir()
        for number in range(3):
            self.write(tmp_path / "train" / f"part-{number}.parquet", {"x": [float(number)], "y": [number]})
        test = self.write(tmp_path / "test.parquet", {"x": [9.0], "y": [1]})
        pool = fl.ParquetTable(str(tmp_path / "train"), "y", test_path=test).pool()
        assert sorted(pool.targets.tolist()) == [0, 1, 2]
        assert pool.test_targets is not None
        assert pool.test_targets.tolist() == [1]

    def test_arrays_and_gaps(self, tmp_path: Path) -> None:
        path = self.write(tmp_path / "t.parquet", {"x": [[1.0, 2.0], [3.0, 4.0]], "y": [0, 1]})
        assert fl.ParquetTable(path, "y").pool().inputs.tolist() == [[1.0, 2.0], [3.0, 4.0]]
        path = self.write(tmp_path / "w.parquet", {"x": [[1, 5], [3, 5]], "y": [0, 1]})
        pool = fl.ParquetTable(path, "y", standardize=True).pool()
        assert pool.inputs.tolist() == [[-1.0, 0.0], [1.0, 0.0]]
        path = self.write(tmp_path / "g.parquet", {"x": [1.0, None], "y": [0, 1]})
        with pytest.raises(DataError, match=r"g.parquet, row 1, column 'x' is empty"):
            fl.ParquetTable(path, "y").pool()
        assert len(fl.ParquetTable(path, "y", missing="drop").pool()) == 1
        path = self.write(tmp_path / "r.parquet", {"x": [[1.0], [1.0, 2.0]], "y": [0, 1]})
        with pytest.raises(DataError, match=r"column 'x', example 1 must have shape \(1,\)"):
            fl.ParquetTable(path, "y").pool()

    def test_broken_files(self, tmp_path: Path) -> None:
        with pytest.raises(DataError, match=r"absent.parquet does not exist\."):
            fl.ParquetTable(str(tmp_path / "absent.parquet"), "y").pool()
        (tmp_path / "t.parquet").write_bytes(b"PAR0")
        with pytest.raises(DataError, match=r"t.parquet cannot be read as Parquet: "):
            fl.ParquetTable(str(tmp_path / "t.parquet"), "y").pool()


def test_parquet_without_pyarrow(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "pyarrow.parquet", None)
    with pytest.raises(
        DataError, match=r"ParquetTable needs pyarrow: install it with pip install 'pyarrow>="
    ):
        fl.ParquetTable("t.parquet", "y").pool()


class TestTokens:
    def test_bytes_are_cut_and_padded(self) -> None:
        encoded = fl.ByteTokens(length=3).encode(["é!", "", "abcdef"])
        assert encoded.tolist() == [[0xC3 + 1, 0xA9 + 1, 34], [0, 0, 0], [98, 99, 100]]
        assert int(encoded.max()) < fl.ByteTokens().vocabulary

    def test_words_are_hashed_alike_everywhere(self) -> None:
        """By the definition of CRC-32, so that no library or seed decides."""
        tokenizer = fl.HashedWords(length=4, buckets=1000)
        crc = [_crc32(word) % 1000 + 1 for word in (b"oil", b"!")]
        assert tokenizer.encode(["OIL !", "oil!"]).tolist() == [[*crc, 0, 0], [*crc, 0, 0]]

    def test_ids_stay_below_the_vocabulary(self) -> None:
        texts = [" ".join(map(str, range(start, start + 50))) for start in range(0, 1000, 50)]
        encoded = fl.HashedWords(length=50, buckets=7).encode(texts)
        assert set(encoded.flatten().tolist()) == set(range(1, 8))
        assert fl.HashedWords(buckets=7).vocabulary == 8

    def test_a_text_model_trains(self, write: Write) -> None:
        source = fl.CsvTable(
            write("site,text,y\n" + "a,rates rise,0\nb,team wins,1\n" * 4),
            "y",
            "site",
            features="text",
            tokens=fl.HashedWords(length=5, buckets=20),
        )
        task = source.default_task()
        assert isinstance(task.model, fl.TextTransformer)
        assert task.model.vocabulary == 21
        small = fl.Task(fl.TextTransformer(width=4, heads=1, layers=1, vocabulary=21, padding=0))
        run = fl.Experiment(source, fl.presets.fedavg(lr=0.1), rounds=1, task=small).build()
        assert len(list(run.train(1))) == 1


def _crc32(data: bytes) -> int:
    """CRC-32 bit by bit."""
    value = 0xFFFFFFFF
    for byte in data:
        value ^= byte
        for _ in range(8):
            value = value >> 1 ^ (0xEDB88320 if value & 1 else 0)
    return value ^ 0xFFFFFFFF
