"""Clients of a real federation agree on scale and classes before round 1, from sums, with the bits of a simulation."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from direct_grid import DirectGrid
from flwr.app import ConfigRecord, Context, Message, MessageType, RecordDict
from small_federation import QUICK, SIZES, build_model, client_apps, examples_of, experiment

import fairlead as fl
from fairlead.errors import DataError, FairleadError, RunFolderError
from fairlead.flower import client_of, make_client_app
from fairlead.flower.server import run_on_grid

NAMES = ("flu", "healthy", "pox")
WANTED = fl.Preprocessing(standardize=True, classes="union")
METHOD = fl.presets.scaffold(lr=0.1, epochs=2, batch_size=5)
SLOW = replace(QUICK, deadline=5.0)


def written(client: int) -> tuple[np.ndarray, list[str]]:
    """The examples of the small federation in units of their own, with the classes by name."""
    inputs, targets = examples_of(client)
    return 300.0 + 7.0 * inputs.double().numpy(), [NAMES[target] for target in targets.tolist()]


def get_data(context: Context) -> tuple[np.ndarray, list[str]]:
    return written(client_of(context))


def grid(tmp_path: Path) -> DirectGrid:
    return DirectGrid(
        dict.fromkeys(range(len(SIZES)), make_client_app(build_model, get_data)), tmp_path / "memory"
    )


def grid_of_numbers(tmp_path: Path) -> DirectGrid:
    return DirectGrid(client_apps(), tmp_path / "memory")


def test_the_agreement_is_that_of_pooled_data_and_the_numbers_those_of_a_simulation(tmp_path: Path) -> None:
    asked = replace(experiment(METHOD, rounds=3), preprocessing=WANTED, evaluate_every=1)
    run = run_on_grid(grid(tmp_path), asked, build_model, tmp_path / "run", SLOW)
    agreed = fl.load_agreement(tmp_path / "run")
    pooled, labels = (np.concatenate(part) for part in zip(*map(written, range(len(SIZES))), strict=True))
    np.testing.assert_allclose(agreed.mean, pooled.mean(0), rtol=1e-14)
    np.testing.assert_allclose(agreed.scale, pooled.std(0), rtol=1e-13)
    assert agreed.classes == NAMES
    assert agreed.class_counts == tuple(np.unique(labels, return_counts=True)[1])
    inputs, targets = zip(*(agreed.apply(*written(client)) for client in range(len(SIZES))), strict=True)
    data = fl.ClientData.from_lists(inputs, targets)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(fl.Key.from_seed(3).fold("init").torch_seed())
        module = build_model()
    twin = fl.Federation(METHOD, fl.SimulatedWorld(fl.Task(module), data, test=data, engine="loop"), 3)
    expected = list(twin.train(3, evaluate_every=1))
    assert torch.equal(run.federation.params, twin.params)
    for ours, theirs in zip(run.federation.records, expected, strict=True):
        assert ours.evaluation is not None
        assert theirs.evaluation is not None
        assert ours.evaluation.loss == pytest.approx(theirs.evaluation.loss, rel=1e-6)


def test_a_simulation_has_the_same_bits(tmp_path: Path) -> None:
    asked = replace(experiment(METHOD, rounds=1), preprocessing=WANTED)
    run_on_grid(grid(tmp_path), asked, build_model, tmp_path / "run", SLOW)
    rows = [written(client) for client in range(len(SIZES))]
    numbered = [[NAMES.index(name) for name in names] for _, names in rows]
    data = replace(fl.ClientData.from_lists([inputs for inputs, _ in rows], numbered), class_names=NAMES)
    assert WANTED.agree_over(data) == fl.load_agreement(tmp_path / "run")


def test_only_sums_leave_a_client(tmp_path: Path) -> None:
    """Before round 1 no reply has an array, and none has more numbers than sums have."""
    replies: list[Message] = []

    def tamper(client: int, reply: Message) -> Message:
        if reply.metadata.message_type == MessageType.QUERY:
            replies.append(reply)
        return reply

    made = grid(tmp_path)
    made.tamper = tamper
    asked = replace(experiment(METHOD, rounds=1), preprocessing=WANTED)
    run_on_grid(made, asked, build_model, tmp_path / "run", SLOW)
    assert len(replies) == 3 * len(SIZES)
    lengths = set()
    for reply in replies:
        assert reply.content.array_records == {}
        (record,) = reply.content.config_records.values()
        lengths |= {(name, len(value)) for name, value in record.items() if isinstance(value, list)}
    assert lengths == {
        *((name, length) for name in ("labels", "label_counts") for length in (0, 3)),
        *((name, 4) for name in ("total", "squares")),
        ("token_counts", 0),
    }


def test_a_resumed_run_keeps_its_agreement(tmp_path: Path) -> None:
    asked = replace(experiment(METHOD, rounds=2), preprocessing=WANTED)
    short = replace(asked, rounds=1)
    run_on_grid(grid(tmp_path), short, build_model, tmp_path / "run", SLOW)
    again = grid(tmp_path)
    resumed = run_on_grid(again, asked, build_model, tmp_path / "run", SLOW)
    queries = [m for _, m in again.sent if m.metadata.message_type == MessageType.QUERY]
    assert all(message.content == RecordDict() for message in queries)
    whole = run_on_grid(grid(tmp_path / "other"), asked, build_model, tmp_path / "whole", SLOW)
    assert torch.equal(resumed.federation.params, whole.federation.params)


def test_a_resumed_run_never_agrees_anew(tmp_path: Path) -> None:
    asked = replace(experiment(METHOD, rounds=1), preprocessing=WANTED)
    run_on_grid(grid(tmp_path), asked, build_model, tmp_path / "run", SLOW)
    (tmp_path / "run" / "preprocessing.json").unlink()
    with pytest.raises(FairleadError, match=r"preprocessing\.json"):
        run_on_grid(grid(tmp_path), replace(asked, rounds=2), build_model, tmp_path / "run", SLOW)


def test_another_experiment_in_the_folder_is_refused_before_anything_is_written(tmp_path: Path) -> None:
    run_on_grid(grid_of_numbers(tmp_path), experiment(METHOD, rounds=1), build_model, tmp_path / "run", SLOW)
    asked = replace(experiment(METHOD, rounds=2), preprocessing=WANTED)
    with pytest.raises(RunFolderError, match="another experiment, with a different preprocessing"):
        run_on_grid(grid(tmp_path), asked, build_model, tmp_path / "run", SLOW)
    assert not (tmp_path / "run" / "preprocessing.json").exists()


def test_the_sum_of_one_example_stays_at_its_client(tmp_path: Path) -> None:
    def single(context: Context) -> tuple[np.ndarray, list[str]]:
        inputs, names = get_data(context)
        return (inputs[:1], names[:1]) if client_of(context) == 1 else (inputs, names)

    made = DirectGrid(
        dict.fromkeys(range(len(SIZES)), make_client_app(build_model, single)), tmp_path / "memory"
    )
    asked = replace(experiment(METHOD, 1), preprocessing=WANTED)
    with pytest.raises(DataError, match=r"^Client 1 .*: sums of 1 examples stay here, at least 2 are needed"):
        run_on_grid(made, asked, build_model, tmp_path / "run", SLOW)


def test_a_client_with_an_unknown_class_is_named(tmp_path: Path) -> None:
    listed = fl.Preprocessing(classes=("flu", "healthy"))
    with pytest.raises(
        DataError,
        match=r"^Client 0 has no sums for the preprocessing: Client 0 refused: \d+ examples have the class",
    ):
        run_on_grid(
            grid(tmp_path),
            replace(experiment(METHOD, 1), preprocessing=listed),
            build_model,
            tmp_path / "run",
            SLOW,
        )


def test_test_data_with_an_unknown_class_are_refused_by_the_client(tmp_path: Path) -> None:
    def surprising(context: Context) -> tuple[np.ndarray, list[str]]:
        return get_data(context)[0][:2], ["flu", "cough"]

    app = make_client_app(build_model, get_data, get_test_data=surprising)
    made = DirectGrid(dict.fromkeys(range(len(SIZES)), app), tmp_path / "memory")
    asked = replace(experiment(METHOD, 1), preprocessing=WANTED, evaluate_every=1)
    run = run_on_grid(made, asked, build_model, tmp_path / "run", SLOW)
    evaluation = run.federation.records[-1].evaluation
    assert evaluation is not None
    assert np.isnan(evaluation.loss)


def test_a_client_that_lies_about_its_sums_is_named(tmp_path: Path) -> None:
    def tamper(client: int, reply: Message) -> Message:
        values = reply.content.config_records.get("fairlead.values", ConfigRecord())
        if client == 1 and "squares" in values:
            values["squares"] = [-1.0] * 4
        return reply

    made = grid(tmp_path)
    made.tamper = tamper
    with pytest.raises(DataError, match=r"^Client 1 sent sums that cannot be those of 7 examples"):
        run_on_grid(
            made, replace(experiment(METHOD, 1), preprocessing=WANTED), build_model, tmp_path / "run", SLOW
        )


def test_a_client_that_inflates_its_sums_is_named(tmp_path: Path) -> None:
    """A million-fold claim would make its mean the mean of all."""

    def tamper(client: int, reply: Message) -> Message:
        values = reply.content.config_records.get("fairlead.values", ConfigRecord())
        if client == 1 and "squares" in values:
            values["num_examples"] = 7_000_000
            values["label_counts"] = [1_000_000 * int(count) for count in values["label_counts"]]  # type: ignore[union-attr]
        return reply

    made = grid(tmp_path)
    made.tamper = tamper
    asked = replace(experiment(METHOD, 1), preprocessing=WANTED)
    with pytest.raises(DataError, match=r"^Client 1 sent sums of 7000000 examples, but reported 7\.$"):
        run_on_grid(made, asked, build_model, tmp_path / "run", SLOW)


def test_a_silent_client_is_named(tmp_path: Path) -> None:
    made = grid(tmp_path)
    made.fate = lambda client, message: "lost" if client == 2 and message.content else "answered"
    asked = replace(experiment(METHOD, 1), preprocessing=WANTED)
    with pytest.raises(
        DataError,
        match=r"^Client 2 has no sums for the preprocessing: Client 2 did not answer query within 0.05 s",
    ):
        run_on_grid(made, asked, build_model, tmp_path / "run", QUICK)


def test_a_client_refuses_a_malformed_agreement(tmp_path: Path) -> None:
    """A client need not trust its server."""
    made = grid(tmp_path)
    faults = []

    def fate(client: int, message: Message) -> str:
        record = message.content.config_records.get("fairlead.agreement")
        if record is not None:
            record["scale"] = [0.0] * 4
        return "answered"

    made.fate = fate
    asked = replace(experiment(METHOD, 1), preprocessing=WANTED)
    run = run_on_grid(made, asked, build_model, tmp_path / "run", SLOW)
    faults = [refusal.sentence for refusal in run.federation.records[0].refused]
    assert len(faults) == 3
    assert "Agreement.mean and scale must be as many finite numbers" in faults[0]


def test_constant_features_are_announced(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    def flat(context: Context) -> tuple[np.ndarray, list[str]]:
        inputs, names = get_data(context)
        inputs[:, 2] = 0.1
        return inputs, names

    made = DirectGrid(
        dict.fromkeys(range(len(SIZES)), make_client_app(build_model, flat)), tmp_path / "memory"
    )
    asked = replace(experiment(METHOD, 1), preprocessing=WANTED)
    with caplog.at_level("WARNING", logger="flwr"):
        run_on_grid(made, asked, build_model, tmp_path / "run", SLOW)
    assert json.loads((tmp_path / "run" / "preprocessing.json").read_text())["constant"] == [2]
    assert "Features [2] have the same value in all examples: they are only centered." in caplog.text
