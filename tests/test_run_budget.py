"""What a run is expected to need, where it is not the size of its updates."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest

import fairlead as fl
from fairlead.errors import MemoryBudgetError
from fairlead.memory import run_budget


def federation(sampler: fl.Sampler, num_clients: int, drop: float = 0.0) -> fl.Federation:
    method = replace(fl.presets.fedaware(lr=0.01, steps=1), sampler=sampler)
    source, link = fl.Quadratics(num_clients, dim=2), fl.BernoulliLink(drop)
    return fl.Experiment(source, method, rounds=1, link=link).build()


def test_products_of_aware_count_with_their_copies(monkeypatch: pytest.MonkeyPatch) -> None:
    """All of 1,000 clients are met in 5,000 rounds: a table of 8 MB, and 24 MB more to find λ by it."""
    monkeypatch.setattr(run_budget, "available_bytes", lambda device: 20_000_000)
    run = federation(fl.UniformWithoutReplacement(10), 1000)
    with pytest.raises(
        MemoryBudgetError, match=r"for AWARE's weights from 1000 x 1000 products; .*products,"
    ):
        run.train(5000)


def test_a_table_that_grows_stands_beside_its_copy() -> None:
    """10 of 100 clients a round make room for 10, 20, 40, 80 and 100 rows: the last time, 80 are there as well."""
    run = federation(fl.UniformWithoutReplacement(10), 100)
    sizes = {need.what: need.size for need in run_budget.needs_of(run.state, 10, 10, rounds=100)}
    assert sizes["aggregator/averages, 100 rows x 2 numbers"] == (100 + 80) * 2 * 4
    list(run.train(1))
    sizes = {need.what: need.size for need in run_budget.needs_of(run.state, 10, 10, rounds=100)}
    assert sizes["aggregator/averages, 100 rows x 2 numbers"] == (100 + 80 - 10) * 2 * 4


@pytest.mark.parametrize(
    ("method", "rows"),
    [
        (fl.presets.fedavg(lr=0.01, steps=1), 1),
        (fl.presets.scaffold(lr=0.01, steps=1), 1 + 3),
        (fl.presets.fedvarp(lr=0.01, steps=1), 1 + 1),
        (fl.presets.mifa(lr=0.01, steps=1), 1 + 1),
    ],
    ids=["fedavg", "scaffold", "fedvarp", "mifa"],
)
def test_updates_count_with_what_is_made_of_them(method: fl.Algorithm, rows: int) -> None:
    """An update of 2 numbers of 4 bytes for each of 10 clients, and rows of tables that it becomes."""
    run = fl.Experiment(fl.Quadratics(100, dim=2), method, rounds=1).build()
    sizes = {need.what: need.size for need in run_budget.needs_of(run.state, 10, 10, rounds=1)}
    assert sizes["the updates of a round, 10 x 2 numbers"] == 10 * rows * 2 * 4


def test_a_round_that_happens_to_ask_nobody_is_no_error(monkeypatch: pytest.MonkeyPatch) -> None:
    """The next round's cohort is what the estimate goes by, and a Poisson sample may be empty."""
    run = federation(fl.PoissonSampling(1e-9), 100, drop=0.5)
    monkeypatch.setattr(run_budget, "available_bytes", lambda device: 10_000)
    assert [record.asked for record in run.train(1)] == [()]


def test_every_device_is_asked_for_what_it_holds(monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows of 2 numbers on another device take little there; 32 MB of products on this one are too much here."""
    run = federation(fl.UniformWithoutReplacement(10), 1000)
    state = replace(run.state, params=run.params.to("meta"))
    monkeypatch.setattr(
        run_budget, "available_bytes", lambda device: 10**6 if device.type == "meta" else 10**9
    )
    needs = run_budget.needs_of(state, 10, 10, rounds=5000)
    assert list(run_budget._shortages(needs)) == []
    monkeypatch.setattr(
        run_budget, "available_bytes", lambda device: 10**6 if device.type == "cpu" else 10**9
    )
    (sentence,) = run_budget._shortages(needs)
    assert re.search(r"on cpu .*products", sentence)
