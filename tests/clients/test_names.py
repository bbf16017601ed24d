"""Names of clients, from any data that have them to every sentence that speaks of a client."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import fairlead as fl
from fairlead.diagnostics import ConsistencyMonitor, ConsistencyReport
from fairlead.errors import DataError, FieldError, NonFiniteError
from fairlead.text import label, names_from, shown

KEY = fl.Key.from_seed(0)
HOSPITALS = """\
hospital,ward,age,ill
ulm,north,50,1
bonn,north,60,0
ulm,south,70,1
bonn,north,40,0
"""


def csv(folder: Path, text: str = HOSPITALS) -> str:
    (folder / "t.csv").write_text(text)
    return str(folder / "t.csv")


def names(data: fl.ClientData | None) -> list[str] | None:
    assert data is not None
    return None if data.names is None else data.names.tolist()


def targets_by_name(data: fl.ClientData) -> dict[str, list[Any]]:
    """What each name owns: a name at the wrong place would own another client's examples."""
    assert data.names is not None
    return {
        name: sorted(data.targets[data.rows_of(client)].tolist())
        for client, name in enumerate(data.names.tolist())
    }


class TestSources:
    def test_a_column_of_text(self, tmp_path: Path) -> None:
        source = fl.CsvTable(csv(tmp_path), "age", "hospital", "ill", regression=True, test_fraction=0.0)
        data = source.load(KEY).train
        assert targets_by_name(data) == {"bonn": [40.0, 60.0], "ulm": [50.0, 70.0]}
        assert data.names is not None
        assert data.names.dtype == np.dtype("<U4")

    def test_a_column_of_whole_numbers(self) -> None:
        """Sorted by size, and written as the data write them: as text "10" would come first."""
        for ids in ([9, 10, 9], np.array([9.0, 10.0, 9.0]), torch.tensor([9, 10, 9]), ["9", "10", "9"]):
            data = fl.Pool.from_arrays([[0.0], [1.0], [2.0]], [0, 1, 2], ids).deal()
            assert targets_by_name(data) == {"9": [0, 2], "10": [1]}

    def test_two_columns_are_joined(self, tmp_path: Path) -> None:
        pool = fl.CsvTable(csv(tmp_path), "age", ("hospital", "ward"), "ill", regression=True).pool()
        expected = {"bonn / north": [40.0, 60.0], "ulm / north": [50.0], "ulm / south": [70.0]}
        assert targets_by_name(pool.deal()) == expected

    def test_users_of_leaf(self, tmp_path: Path) -> None:
        """Users in files of any order; `test` has one user less, and the same numbers."""
        for part, users in (("train", ("zoe", "adam", "mia")), ("test", ("zoe", "mia"))):
            data = {user: {"x": [[0.0]] * 2, "y": [len(user), ord(user[0])]} for user in users}
            content = {"users": list(users), "num_samples": [2] * len(users), "user_data": data}
            (tmp_path / part).mkdir()
            (tmp_path / part / "a.json").write_text(json.dumps(content))
        loaded = fl.LeafFolder(str(tmp_path)).load(KEY)
        expected = {"adam": [4, ord("a")], "mia": [3, ord("m")], "zoe": [3, ord("z")]}
        assert targets_by_name(loaded.train) == expected
        assert loaded.test is not None
        assert targets_by_name(loaded.test) == {**expected, "adam": []}

    def test_arrays_of_a_file(self, tmp_path: Path) -> None:
        """The test set has a client that does not train, so only the two that do keep a name."""
        np.savez(
            tmp_path / "a.npz",
            x=np.zeros((3, 1)),
            y=[0, 1, 2],
            who=np.array([b"q", b"p", b"q"]),
            test_x=np.zeros((1, 1)),
            test_y=[0],
            test_who=np.array([b"a"]),
        )
        source = fl.NpzArrays(
            str(tmp_path / "a.npz"),
            client="who",
            test_inputs="test_x",
            test_targets="test_y",
            test_client="test_who",
        )
        loaded = source.load(KEY)
        assert targets_by_name(loaded.train) == {"p": [1], "q": [0, 2]}
        assert names(loaded.test) is None

    def test_speakers_without_a_window_take_their_names_along(self, tmp_path: Path) -> None:
        text = "who,text\nALBANY,no\nBURGUNDY,royal king\nCORDELIA,nothing my lord\n"
        pool = fl.CsvText(csv(tmp_path, text), "text", "who", length=8).pool()
        assert names(pool.deal()) == ["BURGUNDY", "CORDELIA"]

    def test_given_with_lists_owners_and_partitions(self) -> None:
        inputs, targets = [[[0.0]], [[1.0]]], [[0], [1]]
        assert names(fl.ClientData.from_lists(inputs, targets, names=["ulm", "bonn"])) == ["ulm", "bonn"]
        owned = fl.ClientData.from_owners([[0.0]], [0], [1], 2, names=["ulm", "bonn"])
        assert targets_by_name(owned) == {"ulm": [], "bonn": [0]}
        with pytest.raises(DataError, match=r"names must be one for each of 2 clients, got 1\."):
            fl.ClientData.from_lists(inputs, targets, names=["ulm"])
        with pytest.raises(DataError, match=r"names must differ, got 'ulm' for two clients\."):
            fl.ClientData.from_lists(inputs, targets, names=["ulm", "ulm"])


class TestDeals:
    POOL = fl.Pool.from_arrays(torch.arange(6.0)[:, None], [0, 1, 2, 3, 4, 5], list("cabcab"))

    def test_a_new_deal_has_no_names(self) -> None:
        for partition in (fl.IidPartitioner(), fl.DirichletPartitioner(1.0), fl.ReshuffledPartitioner()):
            assert names(self.POOL.deal(partition, 3)) is None
        assert names(self.POOL.deal(fl.NaturalIdPartitioner())) == ["a", "b", "c"]

    def test_holding_out_keeps_the_right_names(self) -> None:
        """Client a is held out whole: training has b and c, and the test set is nobody's."""
        held = self.POOL.hold_out(torch.tensor([False, True, False, False, True, False]))
        assert targets_by_name(held.deal()) == {"b": [2, 5], "c": [0, 3]}
        assert names(held.test_data(by_client=True)) is None
        divided = self.POOL.hold_out(torch.arange(6) >= 5).test_data(by_client=True)
        assert divided is not None
        assert targets_by_name(divided) == {"a": [], "b": [5], "c": []}

    def test_feature_skew_and_other_devices_keep_them(self) -> None:
        data = fl.GaussianNoise(0.1).apply(self.POOL.deal(), KEY)
        assert names(data.to(torch.device("cpu"), torch.float64)) == ["a", "b", "c"]

    def test_names_that_do_not_fit(self) -> None:
        with pytest.raises(DataError, match=r"must have a name for each client, got 2 for 3\."):
            replace(self.POOL, client_names=np.array(["a", "b"]))
        with pytest.raises(FieldError, match=r"ClientData.names must be one name for each of 3 clients"):
            replace(self.POOL.deal(), names=np.array(["a", "b"]))

    @pytest.mark.parametrize(
        ("ids", "shown_as"), [([None, "a"], "None"), ([1.0, np.nan], "nan"), (["", "a"], "''")]
    )
    def test_a_client_without_an_id(self, ids: list[Any], shown_as: str) -> None:
        with pytest.raises(DataError, match=f"one id or name per example, got {shown_as} in row"):
            fl.Pool.from_arrays([[0.0], [1.0]], [0, 1], ids)


def test_ids_beyond_whole_numbers_are_named_as_they_are() -> None:
    names = fl.Pool.from_arrays([[0.0]] * 3, [0, 1, 0], [1.0, 1e300, np.inf]).deal().names
    assert names is not None
    assert names.tolist() == ["1.0", "1e+300", "inf"]


def test_a_million_names_are_one_array() -> None:
    """Ten digits in four bytes each: 40 MB, where Python's own strings would take more than twice that."""
    count = 1_000_000
    ids = torch.arange(count) + 10**9
    data = fl.Pool.from_arrays(torch.zeros(count, 1), torch.zeros(count, dtype=torch.int64), ids).deal()
    assert data.names is not None
    assert data.names.nbytes == 40 * count
    assert data.names[-1] == "1000999999"


class TestShown:
    def test_long_names_lose_their_middle(self) -> None:
        name = "https://registry.example.org/hospitals/0000000042"
        assert shown(name) == "https://registry.…0000000042"
        assert len(shown(name)) == 28
        assert shown("x" * 28) == "x" * 28

    def test_control_characters_cannot_reach_a_terminal(self) -> None:
        assert shown("a\x1b[2J\nb") == "a�[2J�b"

    def test_half_a_surrogate_pair_can_be_printed(self) -> None:
        names_from(np.array(["\ud800"], dtype=object))[0].encode()

    def test_data_keep_long_names_whole(self) -> None:
        long = ["n" * 300 + end for end in "ab"]
        assert names(fl.Pool.from_arrays([[0.0], [1.0]], [0, 1], long).deal()) == long

    def test_names_that_would_fill_the_memory(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr("fairlead.text._BYTES_AT_MOST", 1000)
        with pytest.raises(DataError, match=r"2 clients have names of up to 126 characters"):
            names_from(np.array(["a", "b" * 126], dtype=object))

    def test_labels(self) -> None:
        assert label(1, None) == "client 1"
        assert label(1, np.array(["ulm", "bonn"])) == "client 'bonn'"


PROBLEM = fl.Quadratics(num_clients=2, dim=1).problem(KEY)


def named_run(steps: tuple[int, int]) -> fl.Federation:
    data = replace(PROBLEM.data(), names=np.array(["ulm", "bonn"]))
    world = fl.SimulatedWorld(PROBLEM.task(), data, work=fl.FixedSteps(steps))
    return fl.Federation(fl.presets.fedavg(lr=0.01), world)


class TestSentences:
    def test_the_consistency_report(self) -> None:
        """Of 1 and 3 steps, plain averaging counts ¼ and ¾ instead of ½: 0.5 and 1.5 times."""
        run = named_run((1, 3))
        before = str(run.consistency())
        list(run.train(3))
        report = run.consistency()
        for text in (before, str(report)):
            assert "client 'bonn' counted 1.50× its weight, client 'ulm' 0.50×" in text
        assert report.to_dict()["names"] == ["ulm", "bonn"]
        assert ConsistencyReport(PROBLEM.weights, None, 0).to_dict()["names"] is None

    def test_the_notice_of_the_monitor(self) -> None:
        run = named_run((1, 9))
        list(run.train(10))
        assert run.notice is not None
        assert "client 'bonn' counted 1.80× its weight, client 'ulm' 0.20×" in run.notice
        monitor = ConsistencyMonitor(run.algorithm, PROBLEM.weights)
        monitor.watch(run.records)
        assert monitor.notice is not None
        assert "client 1 counted 1.80× its weight, client 0 0.20×" in monitor.notice

    def test_updates_that_are_not_finite(self) -> None:
        """Steps of length 10³⁰ overflow within 99 steps, a single one does not."""
        data = replace(PROBLEM.data(), names=np.array(["ulm", "bonn"]))
        world = fl.SimulatedWorld(PROBLEM.task(), data, work=fl.FixedSteps((1, 99)))
        run = fl.Federation(fl.presets.fedavg(lr=1e30), world)
        with pytest.raises(NonFiniteError, match=r"the updates of clients \['bonn'\] are not finite"):
            list(run.train(1))

    def test_errors_about_a_clients_data(self) -> None:
        with pytest.raises(FieldError, match=r"NaN or infinity in row 1, of client 'bonn'\."):
            fl.ClientData(
                torch.tensor([[0.0], [torch.nan]]),
                torch.zeros(2),
                torch.tensor([0, 1, 2]),
                np.array(["ulm", "bonn"]),
            )
        with pytest.raises(FieldError, match=r"Client 'bonn' has 2 inputs but 1 targets\."):
            fl.ClientData.from_lists([[[0.0]], [[0.0]] * 2], [[0], [0]], names=["ulm", "bonn"])
        data = fl.ClientData.from_owners([[0.0]], [0], [1], 2, names=["ulm", "bonn"])
        with pytest.raises(FieldError, match=r"without examples, got 0.5 for client 'ulm'\."):
            fl.SimulatedWorld(fl.Task(fl.LogisticRegression()), data, weights=(0.5, 0.5))
        data = fl.ClientData.from_lists([[[0.0]], [[0.0]]], [[0], [7]], names=["ulm", "bonn"])
        with pytest.raises(DataError, match=r"got 7 in row 1, of client 'bonn'\."):
            fl.SimulatedWorld(fl.Task(torch.nn.Linear(1, 3)), data)
