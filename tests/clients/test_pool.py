"""`Pool`: examples from anything that users have in memory."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from importlib import import_module
from typing import Any

import numpy as np
import pytest
import torch
from torch.utils.data import Dataset, IterableDataset, TensorDataset

import fairlead as fl
from fairlead.errors import ClashError, DataError, FieldError

INPUTS = [[0.0, 0.5], [1.0, 1.5], [2.0, 2.5], [3.0, 3.5]]
LABELS = [2, 0, 1, 2]
SITES = ["north", "south", "east", "north"]


def owned(data: fl.ClientData, client: int) -> list[list[float]]:
    """The inputs of a client."""
    rows: list[list[float]] = data.inputs[data.rows_of(client)].tolist()
    return rows


class TestArrays:
    @pytest.mark.parametrize("make", [torch.tensor, np.array, list])
    def test_names_of_clients_are_numbered_in_sorted_order(self, make: Callable[[Any], Any]) -> None:
        data = fl.Pool.from_arrays(make(INPUTS), make(LABELS), SITES).deal()
        assert data.sizes.tolist() == [1, 2, 1]
        assert owned(data, 0) == [INPUTS[2]]
        assert owned(data, 1) == [INPUTS[0], INPUTS[3]]
        assert data.targets.tolist() == [1, 2, 2, 0]

    def test_numbers_of_clients_are_sorted_by_size(self) -> None:
        """As text, "10" would come before "9"."""
        data = fl.Pool.from_arrays(INPUTS, LABELS, ["9", "10", "9", "100"]).deal()
        assert owned(data, 0) == [INPUTS[0], INPUTS[2]]
        assert data.sizes.tolist() == [2, 1, 1]

    def test_large_and_padded_numbers_stay_apart(self) -> None:
        """Two whole numbers above 2^53, and "1" and "01", are one float each but two clients."""
        assert fl.Pool.from_arrays(INPUTS, LABELS, [2**60, 2**60 + 1, 2**60, 2**60]).deal().num_clients == 2
        assert fl.Pool.from_arrays(INPUTS, LABELS, ["1", "01", "1", "1"]).deal().num_clients == 2

    def test_types(self) -> None:
        """Bytes are pixels and stay, other integers become int64, floats keep their precision."""
        for given, expected in (
            (np.uint8, torch.uint8),
            (np.int16, torch.int64),
            (np.uint16, torch.int64),
            (np.bool_, torch.int64),
            (np.float32, torch.float32),
            (">f8", torch.float64),
        ):
            assert fl.Pool.from_arrays(np.ones((4, 2), dtype=given), LABELS).inputs.dtype == expected

    def test_a_pool_does_not_follow_later_changes(self) -> None:
        array = np.array(INPUTS)
        pool = fl.Pool.from_arrays(array, LABELS)
        array[:] = 7.0
        assert pool.inputs.tolist() == INPUTS

    @pytest.mark.parametrize(
        ("inputs", "targets", "clients", "message"),
        [
            (INPUTS, [0, 1], None, "one target per input, got 4 inputs and 2 targets"),
            (INPUTS, LABELS, ["a"], "one client per example, got 1 for 4 examples"),
            (INPUTS, LABELS, [], "one client per example, got 0 for 4 examples"),
            (INPUTS, LABELS, [["a"]] * 4, r"one id or name per example, got an array of shape \(4, 1\)"),
            (np.zeros((0, 2)), [], None, "has no example"),
            ([[0.0], [np.inf]], [0, 0], None, "finite inputs, got NaN or infinity in row 1"),
            ([[0.0], [1.0]], [0.5, np.nan], None, "finite targets, got NaN or infinity in row 1"),
        ],
    )
    def test_arrays_that_do_not_fit(self, inputs: Any, targets: Any, clients: Any, message: str) -> None:
        with pytest.raises(DataError, match=message):
            fl.Pool.from_arrays(inputs, targets, clients)


class TestDeal:
    def test_without_names_or_a_partitioner(self) -> None:
        pool = fl.Pool.from_arrays(INPUTS, LABELS)
        with pytest.raises(FieldError, match="num_clients is missing: The data set names no clients"):
            pool.deal()
        with pytest.raises(FieldError, match="needs data that name the client of each example"):
            pool.deal(num_clients=2)

    @pytest.mark.parametrize("num_clients", [0, -1, 2.5])
    def test_numbers_of_clients_that_make_no_sense(self, num_clients: Any) -> None:
        with pytest.raises(FieldError, match="num_clients must be a whole number of at least 1, got"):
            fl.Pool.from_arrays(INPUTS, LABELS).deal(fl.IidPartitioner(), num_clients)

    def test_natural_clients_cannot_be_renumbered(self) -> None:
        pool = fl.Pool.from_arrays(INPUTS, LABELS, SITES)
        with pytest.raises(FieldError, match="keeps the 3 clients of the data, but num_clients is 5"):
            pool.deal(num_clients=5)

    def test_the_key_decides(self) -> None:
        pool = fl.Pool.from_arrays(np.arange(100.0)[:, None], [0] * 100)
        deals = [
            pool.deal(fl.IidPartitioner(), 10, key=fl.Key.from_seed(seed)).inputs.flatten().tolist()
            for seed in (0, 0, 1)
        ]
        assert deals[0] == deals[1] != deals[2]
        assert sorted(deals[2]) == list(range(100))

    def test_a_natural_pool_can_be_dealt_otherwise(self) -> None:
        pool = fl.Pool.from_arrays(INPUTS, LABELS, SITES)
        assert pool.deal(fl.IidPartitioner(), 2).sizes.tolist() == [2, 2]
        assert pool.deal(fl.ReshuffledPartitioner()).sizes.tolist() == [1, 2, 1]

    def test_holding_out_keeps_test_clients_that_train(self) -> None:
        pool = fl.Pool.from_arrays(INPUTS, LABELS, SITES).hold_out(torch.tensor([False, True, False, False]))
        assert pool.natural is not None
        assert pool.natural.tolist() == [1, 0, 1]
        assert pool.test_natural is None
        pool = fl.Pool.from_arrays([*INPUTS, [4.0, 4.5]], [*LABELS, 1], [*SITES, "south"])
        held = pool.hold_out(torch.tensor([False] * 4 + [True]))
        test = held.test_data(by_client=True)
        assert test is not None
        assert test.sizes.tolist() == [0, 0, 1]
        whole = held.test_data()
        assert whole is not None
        assert whole.num_clients == 1

    def test_a_test_set_of_another_shape(self) -> None:
        with pytest.raises(
            DataError, match=r"must have inputs of shape \(2,\) as the training set, got \(3,\)"
        ):
            fl.Pool(torch.zeros(1, 2), torch.zeros(1), None, torch.zeros(1, 3), torch.zeros(1))
        with pytest.raises(DataError, match="both test inputs and test targets, or neither"):
            fl.Pool(torch.zeros(1, 2), torch.zeros(1), test_inputs=torch.zeros(1, 2))


class Pairs(Dataset[Any]):
    """A data set of given examples, which counts how often it is asked."""

    def __init__(self, examples: list[Any]) -> None:
        self.examples = examples
        self.asked = 0

    def __len__(self) -> int:
        return len(self.examples)

    def __getitem__(self, place: int) -> Any:
        self.asked += 1
        return self.examples[place]


class Stream(IterableDataset[Any]):
    def __iter__(self) -> Iterator[Any]:
        yield from zip(INPUTS, LABELS, strict=True)


class TestTorchDatasets:
    def test_tensors(self) -> None:
        dataset = TensorDataset(torch.tensor(INPUTS), torch.tensor(LABELS))
        data = fl.Pool.from_dataset(dataset, SITES).deal()
        assert owned(data, 1) == [INPUTS[0], INPUTS[3]]

    def test_examples_are_made_once(self) -> None:
        """Many data sets decode a file for each example."""
        dataset = Pairs(list(zip(INPUTS, LABELS, strict=True)))
        pool = fl.Pool.from_dataset(dataset)
        assert dataset.asked == 4
        assert pool.inputs.tolist() == INPUTS
        assert pool.inputs.dtype == torch.float32
        assert pool.targets.tolist() == LABELS
        assert pool.deal(fl.IidPartitioner(), num_clients=2).sizes.tolist() == [2, 2]

    def test_a_subset(self) -> None:
        dataset = torch.utils.data.Subset(Pairs(list(zip(INPUTS, LABELS, strict=True))), [3, 1])
        assert fl.Pool.from_dataset(dataset).inputs.tolist() == [INPUTS[3], INPUTS[1]]

    @pytest.mark.needs_package("PIL")
    def test_pillow_images_become_bytes_with_channels_first(self) -> None:
        """What torchvision yields without a transform."""
        image = import_module("PIL.Image")
        gray = np.arange(6, dtype=np.uint8).reshape(2, 3)
        color = np.arange(18, dtype=np.uint8).reshape(2, 3, 3)
        for pixels, expected in ((gray, gray[None]), (color, color.transpose(2, 0, 1))):
            pool = fl.Pool.from_dataset(Pairs([(image.fromarray(pixels), 1)] * 2))
            assert pool.inputs.dtype == torch.uint8
            assert pool.inputs[0].tolist() == expected.tolist()

    @pytest.mark.parametrize(
        ("examples", "message"),
        [
            ([(INPUTS[0], 0), ([1.0], 0)], r"inputs, example 1 must have shape \(2,\) as those before it"),
            ([(INPUTS[0], 0), {"x": 1}], r"example 1 must be a pair \(input, target\), got dict"),
            ([(INPUTS[0], "cat")], "targets, example 0 must be numbers, got text"),
            ([], "has no example"),
        ],
    )
    def test_examples_that_do_not_fit(self, examples: list[Any], message: str) -> None:
        with pytest.raises(DataError, match=message):
            fl.Pool.from_dataset(Pairs(examples))

    def test_a_stream_has_no_length(self) -> None:
        with pytest.raises(DataError, match="The Stream cannot be split among clients"):
            fl.Pool.from_dataset(Stream())


def pandas_frame(columns: dict[str, Any]) -> Any:
    return import_module("pandas").DataFrame(columns)


def polars_frame(columns: dict[str, Any]) -> Any:
    return import_module("polars").DataFrame(columns)


def arrow_table(columns: dict[str, Any]) -> Any:
    return import_module("pyarrow").table(columns)


def hugging_face(columns: dict[str, Any]) -> Any:
    return import_module("datasets").Dataset.from_dict(columns)


TABLES = [
    pytest.param(pandas_frame, marks=pytest.mark.needs_package("pandas")),
    pytest.param(polars_frame, marks=pytest.mark.needs_package("polars")),
    pytest.param(arrow_table, marks=pytest.mark.needs_package("pyarrow")),
    pytest.param(hugging_face, marks=pytest.mark.needs_package("datasets")),
]
MakeTable = Callable[[dict[str, Any]], Any]


@pytest.mark.parametrize("make", TABLES)
class TestTables:
    """Every library of tables means the same federation."""

    def test_numbers_classes_and_clients(self, make: MakeTable) -> None:
        table = make({"a": [0, 1, 2, 3], "b": [0.5, 1.5, 2.5, 3.5], "y": ["c", "a", "b", "c"], "site": SITES})
        data = fl.Pool.from_table(table, "y", client="site").deal()
        assert data.sizes.tolist() == [1, 2, 1]
        assert data.inputs.tolist() == [INPUTS[2], INPUTS[0], INPUTS[3], INPUTS[1]]
        assert data.targets.tolist() == [1, 2, 2, 0]

    def test_chosen_features_and_a_quantity(self, make: MakeTable) -> None:
        table = make({"a": [0, 1], "name": ["x", "y"], "price": [1.5, 2.5]})
        pool = fl.Pool.from_table(table, "price", features="a", regression=True)
        assert pool.inputs.tolist() == [[0.0], [1.0]]
        assert pool.targets.tolist() == [1.5, 2.5]
        assert pool.targets.dtype == torch.float32

    def test_several_client_columns(self, make: MakeTable) -> None:
        """(1, b) < (2, a) < (10, a): the first column decides, by size."""
        table = make({"x": [0.0, 1.0, 2.0], "y": [0, 0, 1], "arm": ["a", "b", "a"], "subject": [10, 1, 2]})
        data = fl.Pool.from_table(table, "y", features="x", client=("subject", "arm")).deal()
        assert data.inputs.flatten().tolist() == [1.0, 2.0, 0.0]

    def test_texts(self, make: MakeTable) -> None:
        table = make({"text": ["ab", "c"], "y": [1, 0]})
        pool = fl.Pool.from_table(table, "y", features="text", tokens=fl.ByteTokens(length=3))
        assert pool.inputs.tolist() == [[98, 99, 0], [100, 0, 0]]

    def test_a_column_of_arrays(self, make: MakeTable) -> None:
        table = make({"pixels": [[0.0, 1.0], [2.0, 3.0]], "y": [0, 1]})
        assert fl.Pool.from_table(table, "y", features="pixels").inputs.tolist() == [[0.0, 1.0], [2.0, 3.0]]

    @pytest.mark.parametrize(
        ("columns", "target", "options", "message"),
        [
            (
                {"x": [0.0], "label": [0]},
                "lable",
                {},
                "no column 'lable', which target names. Did you mean 'label'?",
            ),
            ({"x": [0.0], "y": [0]}, "y", {"client": "site"}, "no column 'site'"),
            ({"y": [0]}, "y", {}, "no column beside target and client for features"),
            ({"x": [0.0, None], "y": [0, 1]}, "y", {}, "row 1, column 'x' is empty"),
            ({"x": ["1.0", "one"], "y": [0, 1]}, "y", {}, "row 1, column 'x': 'one' is not a finite number"),
            ({"x": [0.0, 1.0], "y": [0, -1]}, "y", {}, "row 1, column 'y': -1 is not a class"),
            ({"x": [0.0, 1.0], "y": [0.0, 0.5]}, "y", {}, "0.5 is not a class.*regression=True"),
            ({"x": [0.0, 1.0], "y": [0.0, 1e30]}, "y", {}, "1e[+]30 is not a class.*regression=True"),
            ({"x": [0.0, 1.0], "y": ["0", "one"]}, "y", {}, "'one' is text in a column of numbers"),
            ({"x": [0.0, 1.0], "y": ["a", None]}, "y", {}, "row 1, column 'y' is empty"),
            ({"x": [0.0, 1.0], "y": [0, 1], "c": ["a", ""]}, "y", {"client": "c"}, "column 'c' is empty"),
            (
                {"x": [0.0, float("inf")], "y": [0, 1]},
                "y",
                {},
                "row 1, column 'x': inf is not a finite number",
            ),
        ],
    )
    def test_cells_that_do_not_fit(
        self, make: MakeTable, columns: dict[str, Any], target: str, options: dict[str, Any], message: str
    ) -> None:
        with pytest.raises(DataError, match=message):
            fl.Pool.from_table(make(columns), target, **options)

    def test_incomplete_rows_can_be_left_out(self, make: MakeTable) -> None:
        table = make({"x": [0.0, None, 2.0], "y": [0, 1, 1], "site": ["a", "b", "b"]})
        pool = fl.Pool.from_table(table, "y", client="site", missing="drop")
        assert (pool.inputs.flatten().tolist(), pool.num_dropped) == ([0.0, 2.0], 1)
        with pytest.raises(FieldError, match=r"missing must be one of 'refuse', 'drop', .* got 'skip'"):
            fl.Pool.from_table(table, "y", missing="skip")  # type: ignore[arg-type]


@pytest.mark.needs_package("pandas")
class TestPandas:
    """What only pandas has."""

    def test_categories_and_missing_marks(self) -> None:
        pandas = import_module("pandas")
        frame = pandas_frame({"x": pandas.array([1, 2], dtype="Int64"), "y": pandas.Categorical(["b", "a"])})
        pool = fl.Pool.from_table(frame, "y")
        assert pool.targets.tolist() == [1, 0]
        frame["x"] = pandas.array([1, None], dtype="Int64")
        with pytest.raises(DataError, match="The DataFrame, row 1, column 'x' is empty"):
            fl.Pool.from_table(frame, "y")

    def test_dates_are_no_numbers(self) -> None:
        frame = pandas_frame({"day": import_module("pandas").to_datetime(["2020-01-01"]), "y": [0]})
        with pytest.raises(DataError, match=r"column 'day'.*is not a finite number"):
            fl.Pool.from_table(frame, "y")

    def test_a_client_without_a_date(self) -> None:
        days = import_module("pandas").to_datetime(["2020-01-01", None])
        with pytest.raises(DataError, match="row 1, column 'day' is empty"):
            fl.Pool.from_table(pandas_frame({"day": days, "x": [0.0, 1.0], "y": [0, 1]}), "y", client="day")

    def test_columns_that_are_numbered(self) -> None:
        frame = import_module("pandas").DataFrame([[0.5, 1.5, 0], [2.5, 3.5, 1]])
        assert fl.Pool.from_table(frame, "2").inputs.tolist() == [[0.5, 1.5], [2.5, 3.5]]

    def test_two_columns_of_one_name(self) -> None:
        frame = import_module("pandas").DataFrame([[1, 2, 0]], columns=["x", "x", "y"])
        with pytest.raises(DataError, match="more than one column 'x'"):
            fl.Pool.from_table(frame, "y")


class LazyFrame:
    """A table that knows its columns and not yet its rows, as Polars has them."""

    columns = ("x", "y")


@pytest.mark.parametrize("table", [LazyFrame(), {"x": [0.0], "y": [0]}, [[0.0, 0]]])
def test_what_is_no_table(table: Any) -> None:
    with pytest.raises(
        DataError, match=f"The {type(table).__name__} is not a table in memory: give a pandas"
    ):
        fl.Pool.from_table(table, "y")


class Piece:
    """A `datasets.Dataset` as far as reading columns goes."""

    def __init__(self, columns: dict[str, list[Any]]) -> None:
        self.columns = columns

    @property
    def column_names(self) -> list[str]:
        return list(self.columns)

    def __len__(self) -> int:
        return len(next(iter(self.columns.values())))

    def __getitem__(self, column: str) -> list[Any]:
        return self.columns[column]


class Deal:
    """A flwr-datasets partitioner as far as its public interface goes: `num_partitions`, `load_partition`."""

    def __init__(self, pieces: list[Piece]) -> None:
        self.pieces = pieces

    @property
    def num_partitions(self) -> int:
        return len(self.pieces)

    def load_partition(self, partition_id: int) -> Piece:
        return self.pieces[partition_id]


class TestPartitions:
    def test_many_partitions(self) -> None:
        """Rows are put together once, and an error in the last of thousands still finds its place."""
        pieces = [Piece({"x": [float(piece), 0.5], "y": [0, 1]}) for piece in range(5000)]
        data = fl.Pool.from_partitions(Deal(pieces), "y").deal()
        assert data.inputs[data.rows_of(4321), 0].tolist() == [4321.0, 0.5]
        pieces.append(Piece({"x": [1.0, "oops"], "y": [0, 1]}))
        with pytest.raises(DataError, match="Partition 5000, row 1, column 'x': 'oops' is not"):
            fl.Pool.from_partitions(Deal(pieces), "y")

    def test_incomplete_rows(self) -> None:
        deal = Deal([Piece({"x": [0.0, None], "y": [0, 1]}), Piece({"x": [2.0], "y": [1]})])
        with pytest.raises(DataError, match="Partition 0, row 1, column 'x' is empty"):
            fl.Pool.from_partitions(deal, "y")
        pool = fl.Pool.from_partitions(deal, "y", missing="drop")
        assert pool.num_dropped == 1
        assert pool.deal().sizes.tolist() == [1, 1]
        deal = Deal([Piece({"x": [None], "y": [0]}), Piece({"x": [2.0], "y": [1]})])
        with pytest.raises(DataError, match=r"no complete row for 1 of 2 clients \('0'\)"):
            fl.Pool.from_partitions(deal, "y", missing="drop")

    def test_names_of_partitions(self) -> None:
        deal = Deal([Piece({"x": [0.0], "y": [0]}), Piece({"x": [1.0], "y": [1]})])
        assert fl.Pool.from_partitions(deal, "y").deal().names is None
        named = fl.Pool.from_partitions(deal, "y", names=["ulm", "bonn"]).deal().names
        assert named is not None
        assert named.tolist() == ["ulm", "bonn"]

    def test_one_client_per_partition(self) -> None:
        """Names of classes are numbered over all partitions, not within one."""
        deal = Deal([Piece({"x": [0.0, 1.0], "y": ["b", "c"]}), Piece({"x": [2.0], "y": ["a"]})])
        data = fl.Pool.from_partitions(deal, "y").deal()
        assert data.sizes.tolist() == [2, 1]
        assert data.targets.tolist() == [1, 2, 0]

    def test_an_empty_partition(self) -> None:
        deal = Deal([Piece({"x": [0.0], "y": [0]}), Piece({"x": [], "y": []})])
        with pytest.raises(DataError, match="Partition 1 has no example, and every client needs one"):
            fl.Pool.from_partitions(deal, "y")

    def test_errors_name_the_partition(self) -> None:
        deal = Deal([Piece({"x": [0.0], "y": [0]}), Piece({"x": ["oops"], "y": [0]})])
        with pytest.raises(DataError, match="Partition 1, row 0, column 'x': 'oops' is not a finite number"):
            fl.Pool.from_partitions(deal, "y")

    @pytest.mark.needs_package("flwr_datasets")
    @pytest.mark.filterwarnings("ignore:Specifying null_placement:FutureWarning")
    def test_real_partitioners(self) -> None:
        """Every partition of the library itself arrives whole and in its order."""
        partitioner = import_module("flwr_datasets.partitioner")
        table = hugging_face({"x": [float(i) for i in range(200)], "y": [i % 4 for i in range(200)]})
        for real in (
            partitioner.IidPartitioner(num_partitions=7),
            partitioner.DirichletPartitioner(5, "y", alpha=0.5, min_partition_size=2),
            partitioner.ShardPartitioner(5, "y", num_shards_per_partition=2),
            partitioner.PathologicalPartitioner(4, "y", num_classes_per_partition=2),
            partitioner.NaturalIdPartitioner("y"),
            partitioner.LinearPartitioner(num_partitions=6),
        ):
            real.dataset = table
            data = fl.Pool.from_partitions(real, "y").deal()
            assert data.num_clients == real.num_partitions
            for client in range(data.num_clients):
                own = real.load_partition(client)
                assert data.inputs[data.rows_of(client), 0].tolist() == list(own["x"])
                assert data.targets[data.rows_of(client)].tolist() == list(own["y"])


@pytest.mark.parametrize(
    "partition",
    [
        fl.DirichletPartitioner(0.5),
        fl.InnerDirichletPartitioner(0.5),
        fl.ShardPartitioner(2),
        fl.PathologicalPartitioner(1),
        fl.LabelBlocksPartitioner(),
    ],
)
@pytest.mark.parametrize("targets", [torch.zeros(20), torch.zeros(20, 3, dtype=torch.int64)])
def test_examples_without_a_single_class_are_not_dealt_by_class(
    partition: fl.Partitioner, targets: torch.Tensor
) -> None:
    pool = fl.Pool.from_arrays(torch.zeros(20, 2), targets)
    with pytest.raises(ClashError, match="splits examples by class, but the targets of The data set are not"):
        pool.deal(partition, 4)
    assert pool.deal(fl.IidPartitioner(), 4).sizes.tolist() == [5, 5, 5, 5]
