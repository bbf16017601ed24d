"""Scale, classes and vocabulary from sums by client, against NumPy over the pooled data."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import fairlead as fl
from fairlead.clients.preprocessing import ClientSums
from fairlead.errors import CheckpointError, DataError, FieldError
from fairlead.experiments.spec import from_toml, to_toml

Parts = list[np.ndarray]


def dealt(parts: Parts, targets: Parts | None = None) -> fl.ClientData:
    return fl.ClientData.from_lists(parts, targets or [np.zeros(len(part)) for part in parts])


def drawn(seed: int, sizes: tuple[int, ...], center: float, spread: float) -> Parts:
    generator = np.random.default_rng(seed)
    return [generator.normal(center, spread, (size, 3)) for size in sizes]


class TestScale:
    @settings(max_examples=40, deadline=None)
    @given(
        st.integers(0, 10**6),
        st.lists(st.integers(0, 30), min_size=1, max_size=6),
        st.sampled_from([0.0, 1.0, -1e3, 1e8]),
        st.sampled_from([1e-3, 1.0, 1e6]),
    )
    def test_is_that_of_the_pooled_data(
        self, seed: int, sizes: list[int], center: float, spread: float
    ) -> None:
        """Also where the mean is 10¹¹ times the deviation, of which plain sums of squares would keep no digit."""
        parts = drawn(seed, (*sizes, 2), center, spread)
        agreed, pooled = fl.Preprocessing(standardize=True).agree_over(dealt(parts)), np.concatenate(parts)
        exact = pooled.astype(np.longdouble)
        size = np.abs(pooled).max()
        np.testing.assert_allclose(
            agreed.mean, exact.mean(0).astype(float), rtol=0, atol=4 * size * np.finfo(float).eps
        )
        np.testing.assert_allclose(agreed.scale, exact.std(0).astype(float), rtol=1e-12)
        assert agreed.num_examples == len(pooled)

    def test_of_the_plain_sums_of_squares_nothing_would_be_left(self) -> None:
        pooled = np.concatenate(drawn(0, (50, 50), 1e8, 1e-3))
        naive = np.square(pooled).mean(0) - np.square(pooled.mean(0))
        assert not np.allclose(np.sqrt(np.maximum(naive, 0)), pooled.std(0), rtol=0.5)

    def test_inputs_become_those_of_central_standardization(self) -> None:
        parts = drawn(1, (20, 5, 40), 7.0, 3.0)
        data, pooled = dealt(parts), np.concatenate(parts)
        found = fl.Preprocessing(standardize=True).agree_over(data).applied(data)
        np.testing.assert_allclose(found.inputs, (pooled - pooled.mean(0)) / pooled.std(0), atol=1e-13)

    def test_images_of_bytes_have_a_scale_for_each_pixel(self) -> None:
        pixels = np.random.default_rng(0).integers(0, 256, (12, 1, 2, 2)).astype(np.uint8)
        data = dealt([pixels[:5], pixels[5:]])
        found = fl.Preprocessing(standardize=True).agree_over(data).applied(data)
        assert found.inputs.dtype == torch.float32
        np.testing.assert_allclose(
            found.inputs, (pixels - pixels.mean(0)) / pixels.std(0), rtol=1e-5, atol=1e-6
        )

    @pytest.mark.parametrize("value", [0.0, 0.1, 1e-300, -123456.789, 3e7])
    def test_a_constant_feature_is_centered_and_named(self, value: float) -> None:
        parts = drawn(2, (33, 100), 0.0, 1.0)
        for part in parts:
            part[:, 1] = value
        data = dealt(parts)
        agreed = fl.Preprocessing(standardize=True).agree_over(data)
        assert agreed.constant == (1,)
        assert agreed.scale[1] == 1
        assert agreed.applied(data).inputs[:, 1].abs().max() <= 1e-12 * max(abs(value), 1)

    def test_rows_for_testing_do_not_count(self, tmp_path: Path) -> None:
        source = fl.InMemory(
            (np.arange(20.0)[:, None], np.arange(20) % 2, np.arange(20) % 4), test_fraction=0.4
        )
        experiment = fl.Experiment(
            source, fl.presets.fedavg(lr=0.1), 1, preprocessing=fl.Preprocessing(standardize=True)
        )
        raw, data = experiment.load(raw=True), experiment.load()
        assert raw.test is not None
        assert data.test is not None
        mean, std = raw.train.inputs.mean(), raw.train.inputs.std(correction=0)
        assert torch.allclose(data.test.inputs, (raw.test.inputs - mean) / std)
        run = fl.run_experiment(experiment, tmp_path / "run")
        assert fl.load_agreement(run.folder.path) == data.agreement


class TestClasses:
    def test_names_are_numbered_as_a_table_numbers_them(self, tmp_path: Path) -> None:
        labels = ["pox", "flu", "flu", "cold", "pox", "flu"]
        rows = "\n".join(f"{'ab'[row % 2]},{name},{row}" for row, name in enumerate(labels))
        (tmp_path / "t.csv").write_text(f"hospital,illness,age\n{rows}\n")
        table = fl.CsvTable(str(tmp_path / "t.csv"), "illness", "hospital", test_fraction=0)
        central = table.load(0).train
        sums = [labels[::2], labels[1::2]]
        wanted = fl.Preprocessing(classes="union")
        agreed = wanted.agree(
            lambda center: {client: wanted.sums([[0.0]] * 3, own) for client, own in enumerate(sums)}
        )
        assert agreed.classes == central.class_names == ("cold", "flu", "pox")
        assert agreed.class_counts == (1, 3, 2)
        assert [agreed.apply([[0.0]] * 3, own)[1].tolist() for own in sums] == [
            central.examples_of(client)[1].tolist() for client in (0, 1)
        ]
        experiment = fl.Experiment(table, fl.presets.fedavg(lr=0.1), 1, preprocessing=wanted)
        assert torch.equal(experiment.load().train.targets, central.targets)

    @pytest.mark.parametrize(
        ("labels", "numbers"), [([0, 2, 0, 2], [0, 2, 0, 2]), ([1001, 45000, 2002, 1001], [0, 2, 1, 0])]
    )
    def test_whole_numbers_stay_unless_they_are_codes(self, labels: list[int], numbers: list[int]) -> None:
        data = dealt(drawn(0, (2, 2), 0.0, 1.0), [np.array(labels[:2]), np.array(labels[2:])])
        assert fl.Preprocessing(classes="union").agree_over(data).applied(data).targets.tolist() == numbers

    def test_a_list_sets_the_order_and_sends_no_name(self) -> None:
        wanted = fl.Preprocessing(classes=("sick", "healthy", "unclear"))
        sums = wanted.sums([[1.0], [2.0]], ["healthy", "healthy"])
        assert sums == ClientSums(2, label_counts=(0, 2, 0))
        agreed = wanted.agree(lambda center: {0: sums})
        assert agreed.class_counts == (0, 2, 0)
        assert agreed.apply([[1.0]], ["healthy"])[1].tolist() == [1]

    def test_an_unknown_class_is_named(self) -> None:
        wanted = fl.Preprocessing(classes=("sick", "healthy"))
        sentence = (
            r"^2 examples have the class 'dead', which is not among the agreed ones \(\['sick', 'healthy'\]\)"
        )
        with pytest.raises(DataError, match=sentence):
            wanted.sums([[0.0]] * 3, ["dead", "sick", "dead"])
        with pytest.raises(DataError, match=sentence):
            fl.Agreement(classes=("sick", "healthy")).apply([[0.0]] * 3, ["dead", "sick", "dead"])

    @pytest.mark.parametrize("missing", [math.nan, None, 1])
    def test_a_missing_class_is_no_name(self, missing: object) -> None:
        with pytest.raises(DataError, match=r"^A class among names must be a name too, got .* in row 1\.$"):
            fl.Preprocessing(classes="union").sums([[0.0]] * 2, ["ill", missing])

    def test_a_client_without_examples_has_no_class(self) -> None:
        wanted = fl.Preprocessing(classes="union")
        some, none = wanted.sums([[0.0]] * 2, ["b", "a"]), wanted.sums(np.zeros((0, 1)), [])
        agreed = wanted.agree(lambda center: {0: none, 1: some})
        assert (agreed.classes, agreed.class_counts) == (("a", "b"), (1, 1))
        assert agreed.apply(np.zeros((0, 1)), [])[1].dtype == torch.int64

    @pytest.mark.parametrize("targets", [[0.5, 1.0], [[0, 1], [1, 0]]])
    def test_quantities_are_no_classes(self, targets: list[float]) -> None:
        with pytest.raises(DataError, match="needs one name or whole number per example"):
            fl.Preprocessing(classes="union").sums([[0.0]] * 2, targets)


class TestVocabulary:
    def test_is_that_of_the_pooled_counts(self) -> None:
        texts = ["the cat sat", "the dog", "a cat and a dog and the end", "the the"]
        words = fl.HashedWords(length=8, buckets=512)
        ids = words.encode(texts)
        data = dealt(
            [part.numpy() for part in (ids[:1], ids[1:3], ids[3:])], [np.zeros(1), np.zeros(2), np.zeros(1)]
        )
        agreed = fl.Preprocessing(vocabulary=3, token_ids=513).agree_over(data)
        counts = np.bincount(ids.numpy().ravel(), minlength=513)
        counts[0] = 0
        central = sorted(range(513), key=lambda token: (-counts[token], token))[:3]
        assert agreed.tokens == tuple(central)
        places = {0: 0} | {token: place + 2 for place, token in enumerate(central)}
        expected = [[places.get(token, 1) for token in row] for row in ids.tolist()]
        assert agreed.applied(data).inputs.tolist() == expected

    def test_a_small_federation_keeps_all_its_words(self) -> None:
        agreed = fl.Preprocessing(vocabulary=9, token_ids=6).agree_over(dealt([np.array([[3, 5, 3, 0]])]))
        assert agreed.tokens == (3, 5)

    def test_wrong_ids_are_refused(self) -> None:
        wanted = fl.Preprocessing(vocabulary=2, token_ids=4)
        with pytest.raises(DataError, match=r"^Inputs must be token ids from 0 to 3 .*, got 1 to 4"):
            wanted.sums([[1, 4]], [0])
        with pytest.raises(DataError, match="got real numbers"):
            wanted.sums([[1.0]], [0])


class TestFaults:
    @pytest.mark.parametrize(
        ("fields", "sentence"),
        [
            ({}, "must have standardize = true, classes or vocabulary"),
            ({"classes": ("a", "a")}, "Preprocessing.classes must be 'union' or a list of different names"),
            ({"classes": "all"}, "Preprocessing.classes must be"),
            ({"vocabulary": 5}, "needs both vocabulary"),
            ({"vocabulary": 0, "token_ids": 5}, "Preprocessing.vocabulary must be"),
            ({"vocabulary": 5, "token_ids": 9, "standardize": True}, "standardize needs numbers"),
        ],
    )
    def test_of_a_spec(self, fields: dict[str, object], sentence: str) -> None:
        with pytest.raises(FieldError, match=sentence):
            fl.Preprocessing(**fields)  # type: ignore[arg-type]

    def test_nan_and_overflow_are_refused(self) -> None:
        wanted = fl.Preprocessing(standardize=True)
        with pytest.raises(DataError, match=r"^Inputs must be finite, got NaN or infinity in row 1\.$"):
            wanted.sums([[0.0], [math.nan]], [0, 0])
        with pytest.raises(DataError, match="small enough for the sum of their squares"):
            wanted.sums([[1e200], [1.0]], [0, 0])

    def test_another_number_of_features_is_refused(self) -> None:
        wanted = fl.Preprocessing(standardize=True)
        sums = {0: wanted.sums([[1.0, 2.0]], [0]), 1: wanted.sums([[1.0]], [0])}
        with pytest.raises(DataError, match=r"^Client 1 sent sums that cannot be those of 1 examples"):
            wanted.agree(lambda center: sums)
        with pytest.raises(DataError, match=r"^Inputs must have 2 numbers each, .* got 1"):
            fl.Agreement(mean=(0.0, 1.0), scale=(1.0, 1.0)).apply([[3.0]], [0])

    @pytest.mark.parametrize(
        "change",
        [
            {"total": (math.inf, 0.0)},
            {"squares": (-1.0, 0.0)},
            {"total": (9.0, 0.0)},  # (Σx)² ≤ 2Σx² has no such examples
            {"num_examples": 0, "labels": (), "label_counts": ()},
            {"num_examples": -1},
            {"label_counts": (5,)},
            {"labels": ("a\x1b[2J",)},
            {"labels": ("a", "b")},
            {"token_counts": (1,)},
        ],
    )
    def test_impossible_sums_are_refused(self, change: dict[str, object]) -> None:
        wanted = fl.Preprocessing(standardize=True, classes="union")
        sums = wanted.sums([[1.0, 2.0], [0.0, 1.0]], ["a", "a"])
        with pytest.raises(DataError, match=r"^Client 0 sent sums that cannot be"):
            wanted.agree(lambda center: {0: replace(sums, **change)})  # type: ignore[arg-type]

    def test_no_example_at_all_is_refused(self) -> None:
        wanted = fl.Preprocessing(standardize=True)
        with pytest.raises(DataError, match="no client has any"):
            wanted.agree(lambda center: {0: wanted.sums(np.zeros((0, 2)), [])})

    def test_a_client_without_examples_changes_nothing(self) -> None:
        parts = drawn(3, (9, 4), 1.0, 2.0)
        with_one = [parts[0], np.zeros((0, 3)), parts[1]]
        wanted = fl.Preprocessing(standardize=True)
        assert wanted.agree_over(dealt(with_one)) == wanted.agree_over(dealt(parts))


def test_a_model_comes_with_its_preprocessing(tmp_path: Path) -> None:
    rows = "\n".join(f"{'ab'[row % 2]},{['no', 'yes'][row % 3 == 0]},{row},{2 * row}" for row in range(12))
    (tmp_path / "patients.csv").write_text(f"hospital,ill,age,dose\n{rows}\n")
    source = fl.CsvTable(str(tmp_path / "patients.csv"), "ill", "hospital", ("age", "dose"), test_fraction=0)
    wanted = fl.Preprocessing(standardize=True, classes=("yes", "no"))
    experiment = fl.Experiment(source, fl.presets.fedavg(lr=0.1), 1, preprocessing=wanted, evaluate_every=0)
    fl.run_experiment(experiment, tmp_path / "run")
    made = fl.export_model(tmp_path / "run", tmp_path / "model.pt")
    agreed = fl.load_agreement(tmp_path / "model.pt.preprocessing.json")
    assert agreed == fl.load_agreement(tmp_path / "run")
    ages = np.arange(12.0)
    np.testing.assert_allclose((agreed.mean, agreed.scale), ((5.5, 11.0), (ages.std(), 2 * ages.std())))
    card = made.card.read_text()
    assert '`fl.load_agreement("model.pt.preprocessing.json").apply(inputs, targets)`' in card
    assert f"| 0 | age | 5.5 | {ages.std():.9g} |\n| 1 | dose | 11 | " in card
    assert "| output | class |\n|---|---|\n| 0 | yes |\n| 1 | no |\n" in card


def test_a_simulation_resumes_only_with_the_same_preprocessing(tmp_path: Path) -> None:
    table = tmp_path / "table.csv"
    rows = [f"{'ab'[row % 2]},{row % 2},{row}" for row in range(12)]
    source = fl.CsvTable(str(table), "y", "who", test_fraction=0)
    experiment = fl.Experiment(
        source,
        fl.presets.fedavg(lr=0.1),
        1,
        preprocessing=fl.Preprocessing(standardize=True),
        evaluate_every=0,
    )
    table.write_text("\n".join(["who,y,x", *rows]))
    fl.run_experiment(experiment, tmp_path / "run")
    table.write_text("\n".join(["who,y,x", *rows[:-1], "b,1,99"]))
    with pytest.raises(CheckpointError, match="its algorithm, data or seed"):
        fl.run_experiment(replace(experiment, rounds=2), tmp_path / "run", resume=True)


def test_a_spec_holds_it() -> None:
    wanted = fl.Preprocessing(standardize=True, classes=("a", "b"))
    experiment = fl.Experiment(fl.RealClients(3), fl.presets.fedavg(lr=0.1), 1, preprocessing=wanted)
    assert '[preprocessing]\nstandardize = true\nclasses = [\n    "a",' in to_toml(experiment)
    assert from_toml(fl.Experiment, to_toml(experiment)) == experiment
