"""Compressed updates with error feedback against NumPy: values, sizes, memory, resumes, and refusals."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from scripted_quadratics import LOSSY, PROBLEM, federation, run

import fairlead as fl
from fairlead.client_table import table_in
from fairlead.corrections.base import LocalOutcome, LocalResult

DIM = 37
FORMS = [(0.3, None), (1.0, 2), (1.0, 8), (0.2, 3), (0.01, 5)]


def outcome(rows: torch.Tensor, key: int = 0) -> LocalOutcome:
    ones = torch.ones((len(rows), 1), dtype=rows.dtype)
    keys = torch.arange(key, key + len(rows))[:, None] * 7919 + 2**40
    return LocalOutcome(0, torch.zeros(rows.shape[-1]), rows, ones, ones, 0.1, None, keys)


def rows_of(number: int, dtype: torch.dtype = torch.float64) -> torch.Tensor:
    return torch.from_numpy(np.random.default_rng(8).normal(size=(number, DIM))).to(dtype)


def sent(part: fl.CompressedUpdate, rows: torch.Tensor, key: int = 0) -> LocalResult:
    return part.after_steps(outcome(rows, key), {"residual": torch.zeros_like(rows)}, {})


@pytest.mark.parametrize(("share", "bits"), FORMS)
def test_an_update_is_its_largest_entries_on_a_grid(share: float, bits: int | None) -> None:
    """Zero but at the k largest; there the entry itself, or one of the two levels around it times 1/(1 + β)."""
    k = max(int(np.ceil(share * DIM)), 1)
    rows = rows_of(6)
    found = sent(fl.CompressedUpdate(share, bits), rows)
    for row, update in zip(rows.numpy(), found.delta.numpy(), strict=True):
        largest = np.sort(np.argsort(-np.abs(row))[:k])
        assert set(np.flatnonzero(update)) <= set(largest)
        kept = row[largest]
        if bits is None:
            assert np.array_equal(update[largest], kept)
            continue
        sigma = np.abs(kept).max() / (2 ** (bits - 1) - 1)
        level = np.abs(kept) / sigma
        chance = level - np.floor(level)
        beta = (chance * (1 - chance)).sum() * sigma**2 / (kept**2).sum()
        whole = update[largest] * np.sign(kept) * (1 + beta) / sigma
        np.testing.assert_allclose(whole, np.round(whole), atol=1e-9)
        assert (np.round(whole) >= np.floor(level) - 1e-9).all()
        assert (np.round(whole) <= np.ceil(level - 1e-9) + 1e-9).all()
    assert torch.equal(found.memory["residual"], rows - found.delta)


def test_rounding_is_unbiased_up_to_the_contraction() -> None:
    """Over 4000 keys: E q = v/(1 + β), and E‖q − v‖² = ‖v‖² β/(1 + β)."""
    part, row = fl.CompressedUpdate(1.0, 3), rows_of(1)
    draws = sent(part, row.expand(4000, -1).contiguous()).delta.numpy()
    v = row[0].numpy()
    sigma = np.abs(v).max() / 3
    chance = np.abs(v) / sigma % 1
    variance = chance * (1 - chance) * sigma**2
    beta = variance.sum() / (v @ v)
    error = np.sqrt(variance / 4000) / (1 + beta)
    assert (np.abs(draws.mean(0) - v / (1 + beta)) <= 4.5 * error + 1e-12).all()
    distance = ((draws - v) ** 2).sum(1).mean()
    assert distance == pytest.approx((v @ v) * beta / (1 + beta), rel=0.02)


@pytest.mark.parametrize(("share", "bits"), FORMS)
def test_a_client_alone_sends_the_bits_that_it_sends_among_others(share: float, bits: int | None) -> None:
    part, rows = fl.CompressedUpdate(share, bits), rows_of(5, torch.float32)
    together = sent(part, rows)
    for client in range(5):
        alone = sent(part, rows[client : client + 1], client)
        assert torch.equal(alone.delta[0], together.delta[client])
        assert all(
            torch.equal(vector[0], together.message[name][client]) for name, vector in alone.message.items()
        )


@pytest.mark.parametrize(
    ("share", "bits", "expected"),
    [(1.0, None, 4 * DIM), (0.3, None, 12 * 8), (1.0, 3, 14 + 4), (0.3, 3, 12 * 4 + 5 + 4)],
)
def test_bytes_by_hand(share: float, bits: int | None, expected: int) -> None:
    """d = 37, k = 12 at 0.3: places of four bytes, values of four, or ⌈3k/8⌉ bytes and a scale."""
    part = fl.CompressedUpdate(share, bits)
    assert part.upload_bytes(DIM, torch.float32) == expected
    if part.encodes:
        message = sent(part, rows_of(1, torch.float32)).message
        assert sum(vector.nbytes for vector in message.values()) == expected


def test_records_and_clocks_count_the_bytes_that_are_sent() -> None:
    """Three clients send 1 of 2 entries: a place and a number of eight bytes each. At 4 bytes/s that takes 3 s."""
    devices = fl.FixedDevices(step_seconds=0.0, upload=4.0)
    own = PROBLEM
    dim, item = own.linear.shape[1], 8
    records = {}
    for share in (1.0, 0.5):
        world = fl.SimulatedWorld(own.task(), own.data(), dtype=torch.float64, devices=devices)
        algorithm = fl.presets.fedavg_compressed(lr=0.1, steps=1, share=share)
        records[share] = next(fl.Federation(algorithm, world).train(1))
    clients, kept = len(own.linear), int(np.ceil(dim / 2))
    assert records[1.0].bytes_up == clients * dim * item
    assert records[0.5].bytes_up == clients * kept * (4 + item)
    assert records[0.5].virtual_seconds == pytest.approx(kept * (4 + item) / 4)


def test_share_one_without_bits_is_no_correction() -> None:
    """`CompressedUpdate`: "Reduces to no correction for `share` = 1 and `bits` = None.\""""
    plain, same = (
        federation(algorithm, link=LOSSY)
        for algorithm in (fl.presets.fedavg(lr=0.2), fl.presets.fedavg_compressed(lr=0.2, share=1.0))
    )
    assert list(plain.train(6)) == list(same.train(6))
    assert torch.equal(plain.params, same.params)
    assert same.state.memory == {}


@pytest.mark.parametrize(("share", "bits"), FORMS)
def test_a_resumed_run_has_the_same_bits(share: float, bits: int | None, tmp_path: Path) -> None:
    algorithm = fl.presets.fedavg_compressed(lr=0.2, share=share, bits=bits)
    whole = federation(algorithm, link=LOSSY)
    expected = list(whole.train(3))
    whole.save(tmp_path)
    expected = list(whole.train(4))
    resumed = federation(algorithm, link=LOSSY)
    resumed.resume(tmp_path)
    assert list(resumed.train(4)) == expected
    assert torch.equal(resumed.params, whole.params)
    tables = [table_in(each.state.memory, "residual") for each in (whole, resumed)]
    assert torch.equal(tables[0].rows, tables[1].rows)
    assert bool(tables[0].rows.any())


@pytest.mark.parametrize("bits", [None, 4])
def test_the_mean_model_is_that_of_fedavg(bits: int | None) -> None:
    """Models circle the limit of the uncompressed method: their mean over many rounds is close to it."""
    ends = run(federation(fl.presets.fedavg(lr=0.05, steps=1)), 600)
    compressed = federation(fl.presets.fedavg_compressed(lr=0.05, steps=1, share=0.5, bits=bits))
    run(compressed, 300)
    path = torch.stack([compressed.params.clone() for _ in compressed.train(600)])
    start = torch.linalg.vector_norm(ends)
    assert float(torch.linalg.vector_norm(path.mean(0) - ends)) < 0.03 * float(start)


@pytest.mark.parametrize("fault", [torch.nan, torch.inf])
@pytest.mark.parametrize(("share", "bits"), FORMS)
def test_nan_stays_visible(share: float, bits: int | None, fault: float) -> None:
    rows = rows_of(2)
    rows[1, 3] = fault
    found = sent(fl.CompressedUpdate(share, bits), rows).delta
    assert bool(found[0].isfinite().all())
    assert not bool(found[1].isfinite().all())


def test_places_of_a_false_message_are_refused() -> None:
    part = fl.CompressedUpdate(0.1)
    good = {name: vector[0] for name, vector in sent(part, rows_of(1)).message.items()}
    assert part.fault(good, DIM) is None
    for places in ([0, 0, 1, 2], [3, 2, 5, 6], [-1, 2, 3, 4], [1, 2, 3, DIM]):
        false = {**good, "places": torch.tensor(places, dtype=torch.int32)}
        assert part.fault(false, DIM) == f"places of its update are not ascending numbers from 0 to {DIM - 1}"


def with_corrections(*parts: fl.Correction) -> fl.LocalSolver:
    return fl.LocalSolver(fl.SGD(0.1), corrections=parts)


@pytest.mark.parametrize(
    ("build", "told"),
    [
        (lambda: fl.CompressedUpdate(0.0), r"CompressedUpdate\.share must be"),
        (lambda: fl.CompressedUpdate(1.5), r"CompressedUpdate\.share must be"),
        (lambda: fl.CompressedUpdate(bits=1), r"CompressedUpdate\.bits must be"),
        (lambda: fl.CompressedUpdate(bits=9), r"CompressedUpdate\.bits must be"),
        (lambda: with_corrections(fl.CompressedUpdate(0.5), fl.Proximal(0.1)), "must be the last"),
        (lambda: with_corrections(fl.CompressedUpdate(0.5), fl.CompressedUpdate(0.5)), "the only one"),
        (lambda: with_corrections(fl.StaleStart(), fl.CompressedUpdate(0.5)), "StaleStart uploads models"),
        (
            lambda: replace(fl.presets.fedavg_compressed(lr=0.1), secure_aggregation=True),
            "CompressedUpdate needs single updates",
        ),
        (
            lambda: fl.LocalSolver(fl.SGD(0.1), personal=with_corrections(fl.CompressedUpdate(0.5))),
            "only for updates that reach the server",
        ),
    ],
    ids=range(9),
)
def test_refused(build: Any, told: str) -> None:
    with pytest.raises(fl.errors.FairleadError, match=told):
        build()
